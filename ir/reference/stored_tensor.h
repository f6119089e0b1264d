// Stored bytes as values, so that the interpreter can run on a checkpoint.
#ifndef QUIRE_IR_REFERENCE_STORED_TENSOR_H_
#define QUIRE_IR_REFERENCE_STORED_TENSOR_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/reference/tensor.h"
#include "ir/type.h"

namespace quire::reference {

// The values of a checkpoint's tensor, whose rows `bytes` holds as a file stores them. `type` has
// no letters. DATA_LOSS when the byte count is not the type's; RESOURCE_EXHAUSTED as Tensor::Zeros.
absl::StatusOr<Tensor> TensorFromBytes(const Type& type, absl::Span<const uint8_t> bytes);

}  // namespace quire::reference

#endif  // QUIRE_IR_REFERENCE_STORED_TENSOR_H_
