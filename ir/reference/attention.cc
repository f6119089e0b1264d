// Attention, whole and in pieces. Of T query rows over C keys, row t stands at position C - T + t.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "ir/reference/kernels.h"

namespace quire::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whether a query may look at a key. window 0: however far back.
bool Visible(int64_t query, int64_t key, int64_t window) {
  return key <= query && (window == 0 || query - key < window);
}

// Slopes of Press et al. 2022 (arXiv 2108.12409): for n heads, n a power of two, the n terms of a
// geometric sequence that starts at and is multiplied by 2^(-max/n). Between powers of two, the
// heads past the lower power n take every other term of the sequence for 2n. max 0: no bias.
double AlibiSlope(int64_t head, int64_t heads, double max) {
  if (max == 0) return 0;
  const auto lower = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const auto n = static_cast<double>(lower);
  if (head < lower) return std::exp2(-max / n * static_cast<double>(head + 1));
  return std::exp2(-max / (2 * n) * static_cast<double>(2 * (head - lower) + 1));
}

// T5's bucket of key - query, of `buckets` in all.
int64_t BucketOf(int64_t distance, int64_t buckets, const Op& op) {
  int64_t first = 0;
  if (op.Text(AttrKind::kDirection) == "both") {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  } else {
    distance = std::max<int64_t>(0, -distance);
  }
  const int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const double reach =
      static_cast<double>(op.Int(AttrKind::kMaxDistance)) / static_cast<double>(exact);
  const float place = std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(reach)) * static_cast<float>(buckets - exact);
  return first + std::min(buckets - 1, exact + static_cast<int64_t>(place));
}

// A row that sees nothing gives zeros.
void SoftmaxRow(const double* in, int64_t count, double* out) {
  double largest = -kInfinity;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, in[i]);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = in[i] == -kInfinity ? 0 : std::exp(in[i] - largest);
    sum += out[i];
  }
  if (sum == 0) return;
  for (int64_t i = 0; i < count; ++i) out[i] /= sum;
}

// out(h, t, c) = f(scores(h, t, c), h, position of t, c).
template <typename F>
absl::Status MapScores(const Call& call, F f) {
  const Tensor& scores = call.in(0);
  const int64_t rows = scores.extent(1), keys = scores.extent(2);
  for (int64_t h = 0; h < scores.extent(0); ++h) {
    for (int64_t t = 0; t < rows; ++t) {
      const double* in = scores.row(h * rows + t);
      double* out = call.out->row(h * rows + t);
      for (int64_t c = 0; c < keys; ++c) out[c] = f(in[c], h, keys - rows + t, c);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CausalMask(const Call& call) {
  const int64_t window = call.op.Int(AttrKind::kWindow);
  return MapScores(call, [window](double score, int64_t, int64_t query, int64_t key) {
    return Visible(query, key, window) ? score : -kInfinity;
  });
}

absl::Status Alibi(const Call& call) {
  const double max = call.op.Float(AttrKind::kAlibiMax);
  const int64_t heads = call.in(0).extent(0);
  return MapScores(call, [max, heads](double score, int64_t head, int64_t query, int64_t key) {
    return score + AlibiSlope(head, heads, max) * static_cast<double>(key - query);
  });
}

absl::Status RelativeBias(const Call& call) {
  const Tensor& table = call.in(1);
  return MapScores(call, [&](double score, int64_t head, int64_t query, int64_t key) {
    return score + table.row(BucketOf(key - query, table.extent(0), call.op))[head];
  });
}

absl::Status Softmax(const Call& call) {
  const Tensor& x = call.in(0);
  for (int64_t r = 0; r < x.elements() / x.last(); ++r) {
    SoftmaxRow(x.row(r), x.last(), call.out->row(r));
  }
  return absl::OkStatus();
}

absl::Status Attention(const Call& call) {
  const Tensor& q = call.in(0);
  const Tensor& k = call.in(1);
  const Tensor& v = call.in(2);
  const int64_t rows = q.extent(0), heads = q.extent(1);
  const int64_t keys = k.extent(0), kv_heads = k.extent(1), group = heads / kv_heads;
  const bool causal = call.op.Text(AttrKind::kMask) == "causal";
  const int64_t window = call.op.Int(AttrKind::kWindow);
  const Tensor* table = call.optional(3);
  std::vector<double> scores(static_cast<size_t>(keys));
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t position = keys - rows + t;
    for (int64_t h = 0; h < heads; ++h) {
      const double slope = AlibiSlope(h, heads, call.op.Float(AttrKind::kAlibiMax));
      for (int64_t c = 0; c < keys; ++c) {
        const double product = Dot(q.row(t * heads + h), k.row(c * kv_heads + h / group), q.last());
        double score =
            CapSoftly(call.op.Float(AttrKind::kScale) * product, call.op.Float(AttrKind::kCap)) +
            slope * static_cast<double>(c - position);
        if (table != nullptr) {
          score += table->row(BucketOf(c - position, table->extent(0), call.op))[h];
        }
        const bool seen = !causal || Visible(position, c, window);
        scores[static_cast<size_t>(c)] = seen ? score : -kInfinity;
      }
      SoftmaxRow(scores.data(), keys, scores.data());
      double* out = call.out->row(t * heads + h);
      for (int64_t c = 0; c < keys; ++c) {
        const double share = scores[static_cast<size_t>(c)];
        if (share == 0) continue;  // what a row does not see, it does not read, be it infinite
        const double* value = v.row(c * kv_heads + h / group);
        for (int64_t d = 0; d < v.last(); ++d) out[d] += share * value[d];
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::reference
