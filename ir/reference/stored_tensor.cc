#include "ir/reference/stored_tensor.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/reference/dequantize.h"
#include "ir/status.h"

namespace quire::reference {

absl::StatusOr<Tensor> TensorFromBytes(const Type& type, absl::Span<const uint8_t> bytes) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<int64_t> extents, Bind(type.extents, {}));
  // Checked before Zeros allocates: a wrong extent must not cost memory.
  QUIRE_ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(extents, kMaxElements));
  const int64_t last = extents.empty() ? 1 : extents.back();
  if (last % InfoOf(type.dtype).block_elements != 0 ||
      RowBytes(type.dtype, elements) != static_cast<int64_t>(bytes.size())) {
    return absl::DataLossError(
        absl::StrCat(bytes.size(), " bytes are not those of ", type.ToString()));
  }
  QUIRE_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(std::move(extents)));
  QUIRE_RETURN_IF_ERROR(Dequantize(type.dtype, bytes, absl::MakeSpan(tensor.values)));
  return tensor;
}

}  // namespace quire::reference
