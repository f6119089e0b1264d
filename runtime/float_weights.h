// Small weights that kernels read as f32, whatever float type the checkpoint has them in.
//
// Errors:  INVALID_ARGUMENT naming the weight where it is of another type or size, or holds a scale
//          that cannot be one; DATA_LOSS where its bytes are not those of its type.
#ifndef QUIRE_RUNTIME_FLOAT_WEIGHTS_H_
#define QUIRE_RUNTIME_FLOAT_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "runtime/weights.h"

namespace quire {

absl::StatusOr<std::vector<float>> LoadFloats(const plan::WeightSlotT& slot,
                                              const WeightSource& source);

// Scales by which a KV layer of so many heads keeps its keys, or its values: one float for each
// head, or one that is repeated. Each is positive and finite.
absl::StatusOr<std::vector<float>> LoadKvScales(const plan::WeightSlotT& slot,
                                                const WeightSource& source, int64_t heads);

}  // namespace quire

#endif  // QUIRE_RUNTIME_FLOAT_WEIGHTS_H_
