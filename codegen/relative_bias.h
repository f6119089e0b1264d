// T5's buckets of distances, unrolled for attention kernels that read biases by distance.
//
// Source: Raffel et al. 2020 (arXiv 1910.10683), and its code for what the paper leaves out: a
// bucket for each distance below half of the buckets, then logarithmically wider ones up to
// max_distance.
#ifndef QUIRE_CODEGEN_RELATIVE_BIAS_H_
#define QUIRE_CODEGEN_RELATIVE_BIAS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "codegen/spec.h"

namespace quire {

// Bucket of a key that stands `distance` behind the query.
int64_t BucketOfDistance(const AttentionSpec& spec, int64_t distance);

// Distances from which on all keys are in one bucket of each side: the `bias_distances` of a spec
// that has the table unrolled.
int64_t BiasDistances(const AttentionSpec& spec);
// Biases [hq, BiasDistances(spec)] of a table [buckets, hq], as `bias_distances` states.
std::vector<float> BiasesByDistance(const AttentionSpec& spec, absl::Span<const float> table);

}  // namespace quire

#endif  // QUIRE_CODEGEN_RELATIVE_BIAS_H_
