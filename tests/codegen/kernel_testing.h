// Random weights and kernels for the tests of this folder.
#ifndef QUIRE_TESTS_CODEGEN_KERNEL_TESTING_H_
#define QUIRE_TESTS_CODEGEN_KERNEL_TESTING_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "codegen/cpu/kernel.h"
#include "codegen/cpu/pack.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "ir/reference/dequantize.h"

namespace quire {

// A 64-byte aligned array between guard bytes, filled with NaN-like garbage at first.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t count)
      : count_(count), bytes_(count * sizeof(T) + 2 * kGuard + 64, 0xa5) {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    begin_ = (64 - address % 64) % 64 + kGuard;
  }
  T* data() { return reinterpret_cast<T*>(bytes_.data() + begin_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + begin_); }
  size_t size() const { return count_; }
  absl::Span<T> span() { return {data(), count_}; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  // Nothing outside was written.
  bool GuardsHold() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (bytes_[begin_ - 1 - i] != 0xa5) return false;
      if (bytes_[begin_ + count_ * sizeof(T) + i] != 0xa5) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 192;
  size_t count_, begin_;
  std::vector<uint8_t> bytes_;
};

inline std::vector<float> RandomFloats(size_t count, uint64_t seed, float deviation = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Rows of a weight as a checkpoint stores them, with scales of an ordinary size.
inline std::vector<uint8_t> RandomRows(DType dtype, int64_t n, int64_t k, uint64_t seed) {
  const int block = InfoOf(dtype).block_bytes;
  std::vector<uint8_t> bytes(static_cast<size_t>(n * RowBytes(dtype, k)));
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(random());
  const auto put_f16 = [&](size_t at) {
    const uint16_t bits = F32ToF16(normal(random));
    std::memcpy(&bytes[at], &bits, 2);
  };
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(block)) {
    switch (dtype) {
      case DType::kF32: {
        const float value = normal(random);
        std::memcpy(&bytes[at], &value, 4);
        break;
      }
      case DType::kBF16: {
        const uint16_t bits = F32ToBF16(normal(random));
        std::memcpy(&bytes[at], &bits, 2);
        break;
      }
      case DType::kF8E4M3_128: {
        const float value = normal(random) / 64;
        std::memcpy(&bytes[at], &value, 4);
        for (size_t i = at + 4; i < at + 132; ++i) {
          if ((bytes[i] & 0x7f) == 0x7f) bytes[i] ^= 1;  // NaN
        }
        break;
      }
      case DType::kQ6_K:
        put_f16(at + 208);
        break;
      case DType::kQ4_1:
      case DType::kQ5_1:
      case DType::kQ4_K:
      case DType::kQ5_K:
        put_f16(at + 2);
        put_f16(at);
        break;
      default:
        put_f16(at);
    }
  }
  return bytes;
}

inline std::vector<double> DequantizedRow(DType dtype, const std::vector<uint8_t>& rows, int64_t k,
                                          int64_t row) {
  std::vector<double> values(static_cast<size_t>(k));
  const size_t bytes = static_cast<size_t>(RowBytes(dtype, k));
  EXPECT_TRUE(Dequantize(dtype,
                         absl::MakeConstSpan(rows).subspan(static_cast<size_t>(row) * bytes, bytes),
                         absl::MakeSpan(values))
                  .ok());
  return values;
}

inline std::vector<const uint8_t*> RowPointers(const std::vector<uint8_t>& rows, int64_t n) {
  std::vector<const uint8_t*> pointers;
  const size_t bytes = rows.size() / static_cast<size_t>(n);
  for (size_t row = 0; row < static_cast<size_t>(n); ++row) {
    pointers.push_back(rows.data() + row * bytes);
  }
  return pointers;
}

// Levels whose bits must agree: this machine, each way of doing dot products on it, and the
// baseline. The host's own is first.
inline std::vector<Isa> TestedIsas() {
  const auto host = HostIsa();
  EXPECT_TRUE(host.ok());
  std::vector<Isa> isas = {*host};
  for (Isa::Dot dot : {Isa::Dot::kPortable, Isa::Dot::kMadd, Isa::Dot::kVnni256}) {
    if (dot < host->dot) {
      isas.push_back(*host);
      isas.back().dot = dot;
    }
  }
  isas.push_back(BaselineIsa());
  return isas;
}

// One builder per level, shared by a binary's tests.
inline KernelBuilder& BuilderFor(const Isa& isa) {
  static auto& builders = *new std::vector<std::unique_ptr<KernelBuilder>>();
  for (const auto& builder : builders) {
    if (builder->isa().Key() == isa.Key()) return *builder;
  }
  builders.push_back(*KernelBuilder::Create(isa, KernelCache("none")));
  return *builders.back();
}

}  // namespace quire

#endif  // QUIRE_TESTS_CODEGEN_KERNEL_TESTING_H_
