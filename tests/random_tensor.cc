#include "tests/random_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "ir/reference/stored_tensor.h"
#include "tests/random.h"

namespace quire::testing {
namespace {

using reference::Tensor;

Tensor Empty(absl::Span<const int64_t> extents) {
  auto tensor = Tensor::Zeros({extents.begin(), extents.end()});
  if (!tensor.ok()) std::abort();  // a test asked for more than any test should
  return *std::move(tensor);
}

void Append(std::vector<uint8_t>* out, const void* data, size_t bytes) {
  const auto* begin = static_cast<const uint8_t*>(data);
  out->insert(out->end(), begin, begin + bytes);
}

// Where a block keeps its f16 scales, and the deviation of the numbers that scale 1 would give.
struct BlockScales {
  DType dtype;
  int first_byte, second_byte;  // -1: no second
  double deviation;
};
constexpr BlockScales kBlockScales[] = {
    {DType::kQ4_0, 0, -1, 4.6},  {DType::kQ4_1, 0, 2, 4.6},       {DType::kQ5_0, 0, -1, 9.2},
    {DType::kQ5_1, 0, 2, 9.2},   {DType::kQ8_0, 0, -1, 74.0},     {DType::kQ4_K, 0, 2, 300.0},
    {DType::kQ5_K, 0, 2, 600.0}, {DType::kQ6_K, 208, -1, 1400.0},
};

std::vector<uint8_t> RandomBlocks(absl::string_view name, const Type& type,
                                  const BlockScales& scales) {
  const DTypeInfo& info = InfoOf(type.dtype);
  const int64_t width = type.extents.back().value();
  const int64_t blocks = *Product(type.extents) / info.block_elements;
  Random random(name);
  std::vector<uint8_t> bytes(static_cast<size_t>(blocks * info.block_bytes));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  const double scale = 1 / std::sqrt(static_cast<double>(width)) / scales.deviation;
  for (int64_t block = 0; block < blocks; ++block) {
    uint8_t* begin = bytes.data() + block * info.block_bytes;
    for (int offset : {scales.first_byte, scales.second_byte}) {
      if (offset < 0) continue;
      const uint16_t bits = F32ToF16(static_cast<float>(scale * (0.5 + random.Uniform())));
      std::memcpy(begin + offset, &bits, sizeof(bits));
    }
  }
  return bytes;
}

}  // namespace

Tensor RandomNormal(absl::string_view name, absl::Span<const int64_t> extents, double deviation) {
  Tensor tensor = Empty(extents);
  Random random(name);
  for (double& value : tensor.values) value = deviation * random.Normal();
  return tensor;
}

Tensor RandomTensor(absl::string_view name, absl::Span<const int64_t> extents) {
  if (extents.size() >= 2) {
    return RandomNormal(name, extents,
                        1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, extents.back()))));
  }
  Tensor tensor = RandomNormal(name, extents, 0.5);
  if (absl::StrContains(name, "norm") && !absl::StrContains(name, "bias")) {
    for (double& value : tensor.values) value += 1;
  }
  return tensor;
}

Tensor RandomIds(absl::string_view name, int64_t count, int64_t below) {
  Tensor tensor = Empty({count});
  Random random(name);
  for (double& value : tensor.values) value = static_cast<double>(random.Below(below));
  return tensor;
}

Tensor Positions(int64_t first, int64_t count) {
  Tensor tensor = Empty({count});
  for (int64_t t = 0; t < count; ++t) {
    tensor.values[static_cast<size_t>(t)] = static_cast<double>(first + t);
  }
  return tensor;
}

std::vector<uint8_t> RandomBytes(absl::string_view name, const Type& type) {
  for (const BlockScales& scales : kBlockScales) {
    if (scales.dtype == type.dtype) return RandomBlocks(name, type, scales);
  }
  std::vector<uint8_t> bytes;
  for (double value : RandomTensor(name, *Bind(type.extents, {})).values) {
    const auto single = static_cast<float>(value);
    if (type.dtype == DType::kF32) {
      Append(&bytes, &single, sizeof(single));
    } else if (type.dtype == DType::kI32) {
      const auto whole = static_cast<int32_t>(value);
      Append(&bytes, &whole, sizeof(whole));
    } else if (type.dtype == DType::kF8E4M3) {
      bytes.push_back(F32ToF8E4M3(single));
    } else if (type.dtype == DType::kF8E4M3_128) {
      // 128 of one scale, which is a float near 2^-6.
      const size_t in_block = bytes.size() % static_cast<size_t>(InfoOf(type.dtype).block_bytes);
      const float scale = 0x1.1p-6f + 0x1p-9f * static_cast<float>(bytes.size() / 132 % 7);
      if (in_block == 0) Append(&bytes, &scale, sizeof(scale));
      bytes.push_back(F32ToF8E4M3(single / scale));
    } else {
      // Rounded from double once; the value then is a float's, too.
      const auto rounded = static_cast<float>(reference::RoundTo(type.dtype, value));
      const uint16_t bits = type.dtype == DType::kF16 ? F32ToF16(rounded) : F32ToBF16(rounded);
      Append(&bytes, &bits, sizeof(bits));
    }
  }
  return bytes;
}

reference::WeightFn RandomWeights() {
  return [](absl::string_view name, const Type& type) {
    return reference::TensorFromBytes(type, RandomBytes(name, type));
  };
}

}  // namespace quire::testing
