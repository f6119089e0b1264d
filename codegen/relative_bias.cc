#include "codegen/relative_bias.h"

#include <algorithm>
#include <cmath>

#include "codegen/cpu/abi.h"
#include "codegen/cpu/relative_bias.h"

namespace quire {
namespace {

// Of each head the biases of distances from `first` to `last`, in steps of one up or down.
std::vector<float> Unroll(const AttentionSpec& spec, absl::Span<const float> table, int64_t first,
                          int64_t last) {
  const int64_t by = first < last ? 1 : -1, count = (last - first) * by + 1;
  std::vector<float> biases;
  biases.reserve(static_cast<size_t>(spec.hq * count));
  for (int64_t head = 0; head < spec.hq; ++head) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t bucket = BucketOfDistance(spec, first + i * by);
      biases.push_back(table[static_cast<size_t>(bucket * spec.hq + head)]);
    }
  }
  return biases;
}

}  // namespace

int64_t BucketOfDistance(const AttentionSpec& spec, int64_t distance) {
  const int64_t buckets = spec.both_directions ? spec.buckets / 2 : spec.buckets;
  const int64_t first = spec.both_directions && distance > 0 ? buckets : 0;
  const int64_t away =
      spec.both_directions ? std::max(distance, -distance) : std::max<int64_t>(0, -distance);
  const int64_t exact = buckets / 2;
  if (away < exact) return first + away;
  // In single precision, as the models were trained.
  const auto steps = static_cast<float>(buckets - exact);
  const auto range = static_cast<float>(
      std::log(static_cast<double>(spec.max_distance) / static_cast<double>(exact)));
  const float logarithm = std::log(static_cast<float>(away) / static_cast<float>(exact));
  return first + std::min(exact + static_cast<int64_t>(logarithm / range * steps), buckets - 1);
}

int64_t BiasDistances(const AttentionSpec& spec) {
  return spec.causal ? spec.max_distance + 1 : 2 * spec.max_distance + 1;
}

std::vector<float> BiasesByDistance(const AttentionSpec& spec, absl::Span<const float> table) {
  const int64_t last = spec.max_distance;
  return Unroll(spec, table, spec.causal ? 0 : last, -last);
}

std::vector<float> UnrollBiases(const AttentionSpec& spec, absl::Span<const float> table) {
  const int64_t reach = RelativeBiases(spec.max_distance) / 2;
  return Unroll(spec, table, -reach, reach);
}

}  // namespace quire
