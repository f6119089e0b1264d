// The prelude's functions but those on global memory and on f64; part of cuda_emulator.h.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_EMULATED_PRELUDE_H_
#define QUIRE_TESTS_CODEGEN_CUDA_EMULATED_PRELUDE_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "codegen/cuda/special_function_model.h"
#include "codegen/cuda/tensor_core_model.h"
#include "ir/dtype.h"
#include "tests/codegen/cuda_emulator.h"

namespace quire::emulated {

inline float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
inline uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = a | static_cast<uint64_t>(b) << 32;
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    word |= static_cast<uint32_t>(bytes >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
  }
  return word;
}
inline uint32_t AndOr(uint32_t a, uint32_t mask, uint32_t bits) { return (a & mask) | bits; }
inline float Add(float a, float b) { return a + b; }
inline float Mul(float a, float b) { return a * b; }
inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float Exp2(float x) { return CudaExp2(x); }
inline float Divide(float a, float b) { return a / b; }
inline float Reciprocal(float x) { return 1 / x; }
inline float NearReciprocal(float x) { return CudaNearReciprocal(x); }
inline float Max(float a, float b) { return std::fmax(a, b); }
inline float Ceiling(float x) { return std::ceil(x); }
inline float PowerOfTwo(float x) { return x < -126 ? 0 : std::exp2(x); }
inline float SquareRoot(float x) { return std::sqrt(x); }
inline float Round(float x) { return std::nearbyint(x); }

inline float ToFloat(F32 x) { return x; }
inline float ToFloat(Bf16 x) { return BF16ToF32(x.bits); }
inline float ToFloat(F16 x) { return F16ToF32(x.bits); }

template <typename T>
T FromFloat(float x);
template <>
inline F32 FromFloat<F32>(float x) {
  return x;
}
template <>
inline Bf16 FromFloat<Bf16>(float x) {
  return {std::isnan(x) ? uint16_t{0x7fff} : F32ToBF16(x)};
}
template <>
inline F16 FromFloat<F16>(float x) {
  return {std::isnan(x) ? uint16_t{0x7fff} : F32ToF16(x)};
}
template <typename T>
uint32_t Pack(float low, float high) {
  return FromFloat<T>(low).bits | static_cast<uint32_t>(FromFloat<T>(high).bits) << 16;
}
template <typename T>
uint32_t MaxOfPairs(uint32_t a, uint32_t b) {
  const auto larger = [&](int half) {
    const auto of = [&](uint32_t word) { return ToFloat(T{static_cast<uint16_t>(word >> half)}); };
    return std::isnan(of(a)) ? of(b) : std::isnan(of(b)) ? of(a) : std::max(of(a), of(b));
  };
  return Pack<T>(larger(0), larger(16));
}

template <typename T>
uint32_t MulPairs(uint32_t a, uint32_t b) {
  const auto product = [&](int half) {
    const auto of = [&](uint32_t word) { return ToFloat(T{static_cast<uint16_t>(word >> half)}); };
    return of(a) * of(b);
  };
  return Pack<T>(product(0), product(16));
}

constexpr uint32_t kSharedBegin = 0x400;
inline uint8_t* SharedMemory() { return block->shared; }
inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(static_cast<const uint8_t*>(p) - block->shared) + kSharedBegin;
}
// 16 bytes of shared memory.
inline uint8_t* At(uint32_t address) {
  const size_t offset = address - kSharedBegin;
  if (address % 16 != 0) Fail("shared address is no multiple of 16");
  if (offset + 16 > block->shared_bytes) Fail("shared address out of bounds");
  return block->shared + offset;
}

template <typename T>
void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Lane {
    float* d;
    const uint32_t* a;
    uint32_t b[2];
  } lane{d, a, {b0, b1}};
  OfWarp(lane, [](Lane** lanes) {
    uint16_t a_rows[16][16], b_rows[8][16];
    for (int l = 0; l < kWarpThreads; ++l) {
      const int row = l / 4, column = l % 4 * 2;
      for (int i = 0; i < 2; ++i) {
        for (int quarter = 0; quarter < 4; ++quarter) {
          a_rows[row + quarter % 2 * 8][column + quarter / 2 * 8 + i] =
              static_cast<uint16_t>(lanes[l]->a[quarter] >> (16 * i));
        }
        for (int half = 0; half < 2; ++half) {
          b_rows[row][column + half * 8 + i] = static_cast<uint16_t>(lanes[l]->b[half] >> (16 * i));
        }
      }
    }
    constexpr DType kType = std::is_same_v<T, F16> ? DType::kF16 : DType::kBF16;
    for (int l = 0; l < kWarpThreads; ++l) {
      for (int i = 0; i < 4; ++i) {
        float& element = lanes[l]->d[i];
        element =
            TensorCoreStep(kType, a_rows[l / 4 + i / 2 * 8], b_rows[l % 4 * 2 + i % 2], element);
      }
    }
  });
}

template <int kMatrices>
void LoadMatrices(uint32_t (&words)[kMatrices], uint32_t address, bool transposed = false) {
  struct Lane {
    uint32_t* words;
    uint32_t address;
  } lane{words, address};
  OfWarp(lane, [transposed](Lane** lanes) {
    for (int matrix = 0; matrix < kMatrices; ++matrix) {
      uint16_t rows[8][8];
      for (int row = 0; row < 8; ++row) {
        std::memcpy(rows[row], At(lanes[8 * matrix + row]->address), 16);
      }
      for (int l = 0; l < kWarpThreads; ++l) {
        const int row = l / 4, column = l % 4 * 2;
        const uint32_t low = transposed ? rows[column][row] : rows[row][column];
        const uint32_t high = transposed ? rows[column + 1][row] : rows[row][column + 1];
        lanes[l]->words[matrix] = low | high << 16;
      }
    }
  });
}
template <int kMatrices>
void LoadMatricesTransposed(uint32_t (&words)[kMatrices], uint32_t address) {
  LoadMatrices(words, address, true);
}

inline uint32_t TransposeMatrix(uint32_t word) {
  struct Lane {
    uint32_t word, transposed;
  } lane{word, 0};
  OfWarp(lane, [](Lane** lanes) {
    for (int l = 0; l < kWarpThreads; ++l) {
      const int row = l / 4, column = l % 4 * 2;
      const auto at = [&](int from_row) {
        return lanes[from_row * 4 + row / 2]->word >> (row % 2 * 16) & 0xffff;
      };
      lanes[l]->transposed = at(column) | at(column + 1) << 16;
    }
  });
  return lane.transposed;
}

inline void Land(const Copy& copy) {
  uint8_t* to = At(copy.to);
  std::memset(to, 0, 16);
  if (copy.bytes > 0) std::memcpy(to, copy.from, static_cast<size_t>(copy.bytes));
}
inline void CopyAsync(uint32_t to, const void* from, int bytes = 16) {
  Fiber& fiber = *block->current;
  const auto* at = static_cast<const uint8_t*>(from);
  if (bytes > 0 && at >= block->prior_begin && at < block->prior_end && !fiber.prior_grid_done) {
    Fail("copies what the prior grid may not have written yet");
  }
  if (bytes > 0 && reinterpret_cast<uintptr_t>(from) % 16 != 0) Fail("copy is not aligned");
  const Copy copy{to, from, bytes};
  if (block->random.Chance(2)) {
    Land(copy);
  } else {
    fiber.groups.back().push_back(copy);
  }
}
inline void CopyAsyncOnce(uint32_t to, const void* from) { CopyAsync(to, from); }
inline void CommitCopies() { block->current->groups.emplace_back(); }
template <int kPending>
void WaitForCopies() {
  auto& groups = block->current->groups;
  while (groups.size() > kPending + 1) {
    for (const Copy& copy : groups.front()) Land(copy);
    groups.pop_front();
  }
}

inline void FenceDevice() {}
constexpr bool kGridsOverlap = true;
inline void WaitForPriorGrid() { block->current->prior_grid_done = true; }
inline void AllowNextGrid() {}

inline void SyncThreads(int id, int threads) {
  Counter& counter = block->barriers[id];
  const uint64_t count = static_cast<uint64_t>(threads);
  const uint64_t full = (counter.value / count + 1) * count;
  ++counter.value;
  WaitUntil(counter, full);
}
inline void ArriveAtThreads(int id, int) { ++block->barriers[id].value; }
inline void SyncBlock() { SyncThreads(0, static_cast<int>(block->fibers.size())); }
inline void SyncWarp() {
  int none = 0;
  OfWarp(none, [](int**) {});
}
inline float ShuffleXor(float x, int mask) {
  struct Lane {
    float x;
    int mask;
    float got;
  } lane{x, mask, 0};
  OfWarp(lane, [](Lane** lanes) {
    for (int l = 0; l < kWarpThreads; ++l) lanes[l]->got = lanes[l ^ lanes[l]->mask]->x;
  });
  return lane.got;
}
inline bool AnyLane(bool x) {
  struct Lane {
    bool x, any;
  } lane{x, false};
  OfWarp(lane, [](Lane** lanes) {
    bool any = false;
    for (int l = 0; l < kWarpThreads; ++l) any |= lanes[l]->x;
    for (int l = 0; l < kWarpThreads; ++l) lanes[l]->any = any;
  });
  return lane.any;
}
inline int FirstLane(bool x) {
  struct Lane {
    bool x;
    int first;
  } lane{x, kWarpThreads};
  OfWarp(lane, [](Lane** lanes) {
    int first = 0;
    while (first < kWarpThreads && !lanes[first]->x) ++first;
    for (int l = 0; l < kWarpThreads; ++l) lanes[l]->first = first;
  });
  return lane.first;
}
inline uint32_t Shuffle(uint32_t x, int from) {
  struct Lane {
    uint32_t x;
    int from;
    uint32_t got;
  } lane{x, from, 0};
  OfWarp(lane, [](Lane** lanes) {
    for (int l = 0; l < kWarpThreads; ++l) lanes[l]->got = lanes[lanes[l]->from % kWarpThreads]->x;
  });
  return lane.got;
}

inline int Uniform(int x) {
  const int first = static_cast<int>(Shuffle(static_cast<uint32_t>(x), 0));
  if (x != first) Fail("not the same for all lanes");
  return first;
}

#include <e4m3.cuh>

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_CODEGEN_CUDA_EMULATED_PRELUDE_H_
