// T5's buckets of distances, unrolled for the attention kernel.
//
// Source: Raffel et al. 2020 (arXiv 1910.10683), and its code for what the paper leaves out: a
// bucket for each distance below half of the buckets, then logarithmically wider ones up to
// max_distance.
#ifndef QUIRE_CODEGEN_CPU_RELATIVE_BIAS_H_
#define QUIRE_CODEGEN_CPU_RELATIVE_BIAS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "codegen/spec.h"

namespace quire {

// Bucket of a key that stands `distance` behind the query.
int64_t BucketOfDistance(const AttentionSpec& spec, int64_t distance);

// The kernel's `biases` (codegen/cpu/abi.h) of a table [buckets, hq].
std::vector<float> UnrollBiases(const AttentionSpec& spec, absl::Span<const float> table);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_RELATIVE_BIAS_H_
