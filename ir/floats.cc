#include "ir/floats.h"

#include <cstddef>
#include <cstring>

namespace quire {

void ReadFloats(DType dtype, const uint8_t* bytes, absl::Span<float> values) {
  if (dtype == DType::kF32) {
    if (!values.empty()) std::memcpy(values.data(), bytes, values.size() * sizeof(float));
    return;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + i * sizeof(bits), sizeof(bits));
    values[i] = dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
  }
}

}  // namespace quire
