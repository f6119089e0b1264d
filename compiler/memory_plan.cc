#include "compiler/memory_plan.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr int64_t kAlignBytes = 64;
constexpr int64_t kMaxCoefficient = int64_t{1} << 62;

// The value at T = R = 1, and the growth along the two edges of the domain, T alone and T with R.
// On the domain, a <= b holds everywhere exactly when it holds in each of the three.
struct Corners {
  int64_t at_one, per_t, per_both;
};

Corners CornersOf(const LinearBytes& x) { return {x.constant + x.t + x.r, x.t, x.t + x.r}; }

LinearBytes FromCorners(const Corners& c) {
  return {c.at_one - c.per_both, c.per_t, c.per_both - c.per_t};
}

LinearBytes Sum(const LinearBytes& a, const LinearBytes& b) {
  return {a.constant + b.constant, a.t + b.t, a.r + b.r};
}

// The smallest linear function that neither exceeds.
LinearBytes Cover(const LinearBytes& a, const LinearBytes& b) {
  const Corners x = CornersOf(a), y = CornersOf(b);
  return FromCorners(
      {std::max(x.at_one, y.at_one), std::max(x.per_t, y.per_t), std::max(x.per_both, y.per_both)});
}

int64_t RoundUp(int64_t bytes) { return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes; }

LinearBytes Rounded(const LinearBytes& bytes) {
  return {RoundUp(bytes.constant), RoundUp(bytes.t), RoundUp(bytes.r)};
}

bool AreDisjoint(const LinearBytes& a, const LinearBytes& a_bytes, const LinearBytes& b,
                 const LinearBytes& b_bytes) {
  return NeverExceeds(Sum(a, a_bytes), b) || NeverExceeds(Sum(b, b_bytes), a);
}

bool AreLiveTogether(const BufferUse& a, const BufferUse& b) {
  return a.first_launch <= b.last_launch && b.first_launch <= a.last_launch;
}

// A total order for choosing among places that are not comparable for every T and R: a long prompt
// of which one row is wanted decides, then a step with all rows.
std::array<int64_t, 3> Rank(const LinearBytes& x) {
  const Corners c = CornersOf(x);
  return {c.per_t, c.per_both, c.at_one};
}

absl::Status CheckSum(absl::Span<const BufferUse> buffers) {
  LinearBytes sum;
  for (const BufferUse& buffer : buffers) {
    for (auto [total, part] :
         {std::pair(&sum.constant, buffer.bytes.constant), std::pair(&sum.t, buffer.bytes.t),
          std::pair(&sum.r, buffer.bytes.r)}) {
      if (part < 0 || part >= kMaxCoefficient / 4 - kAlignBytes ||
          *total >= kMaxCoefficient / 4 - RoundUp(part)) {
        return absl::ResourceExhaustedError(
            absl::StrCat("%", buffer.name, ": intermediate values need over 2^60 bytes"));
      }
      *total += RoundUp(part);
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool NeverExceeds(const LinearBytes& a, const LinearBytes& b) {
  const Corners x = CornersOf(a), y = CornersOf(b);
  return x.at_one <= y.at_one && x.per_t <= y.per_t && x.per_both <= y.per_both;
}

absl::StatusOr<MemoryPlan> PlanMemory(absl::Span<const BufferUse> buffers) {
  QUIRE_RETURN_IF_ERROR(CheckSum(buffers));
  std::vector<LinearBytes> bytes;
  for (const BufferUse& buffer : buffers) bytes.push_back(Rounded(buffer.bytes));
  // The largest first: the small ones find room beside them.
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return Rank(bytes[a]) > Rank(bytes[b]); });
  MemoryPlan plan;
  plan.offsets.resize(buffers.size());
  std::vector<size_t> placed;
  for (size_t i : order) {
    std::vector<size_t> neighbours;
    for (size_t j : placed) {
      if (AreLiveTogether(buffers[i], buffers[j])) neighbours.push_back(j);
    }
    // Candidates: the start, just behind each neighbour, and behind all of them, which always fits.
    std::vector<LinearBytes> candidates = {LinearBytes{}};
    LinearBytes behind_all;
    for (size_t j : neighbours) {
      candidates.push_back(Sum(plan.offsets[j], bytes[j]));
      behind_all = Cover(behind_all, candidates.back());
    }
    candidates.push_back(behind_all);
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return Rank(a) < Rank(b); });
    const auto free = [&](const LinearBytes& offset) {
      return std::all_of(neighbours.begin(), neighbours.end(), [&](size_t j) {
        return AreDisjoint(offset, bytes[i], plan.offsets[j], bytes[j]);
      });
    };
    plan.offsets[i] = *std::find_if(candidates.begin(), candidates.end(), free);
    plan.arena = Cover(plan.arena, Sum(plan.offsets[i], bytes[i]));
    placed.push_back(i);
  }
  return plan;
}

absl::Status CheckMemoryPlan(absl::Span<const BufferUse> buffers, const MemoryPlan& plan) {
  // Linear functions: what holds at these steps and for their differences holds for all.
  auto never_exceeds = [](const LinearBytes& a, const LinearBytes& b) {
    return a.At(1, 1) <= b.At(1, 1) && a.At(2, 1) - a.At(1, 1) <= b.At(2, 1) - b.At(1, 1) &&
           a.At(2, 2) - a.At(1, 1) <= b.At(2, 2) - b.At(1, 1);
  };
  for (size_t i = 0; i < buffers.size(); ++i) {
    const LinearBytes end = Sum(plan.offsets[i], buffers[i].bytes);
    if (!never_exceeds(LinearBytes{}, plan.offsets[i]) || !never_exceeds(end, plan.arena)) {
      return absl::InternalError(absl::StrCat("%", buffers[i].name, " lies outside of the arena"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (!AreLiveTogether(buffers[i], buffers[j])) continue;
      const LinearBytes other_end = Sum(plan.offsets[j], buffers[j].bytes);
      if (!never_exceeds(end, plan.offsets[j]) && !never_exceeds(other_end, plan.offsets[i])) {
        return absl::InternalError(
            absl::StrCat("%", buffers[i].name, " and %", buffers[j].name, " overlap"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
