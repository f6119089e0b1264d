// T5's biases of distances (codegen/relative_bias.h) as the CPU's attention kernel reads them.
#ifndef QUIRE_CODEGEN_CPU_RELATIVE_BIAS_H_
#define QUIRE_CODEGEN_CPU_RELATIVE_BIAS_H_

#include <vector>

#include "absl/types/span.h"
#include "codegen/spec.h"

namespace quire {

// The kernel's `biases` (codegen/cpu/abi.h) of a table [buckets, hq].
std::vector<float> UnrollBiases(const AttentionSpec& spec, absl::Span<const float> table);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_RELATIVE_BIAS_H_
