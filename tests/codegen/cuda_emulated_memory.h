// The prelude's functions on global memory and on f64; part of cuda_emulator.h.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_EMULATED_MEMORY_H_
#define QUIRE_TESTS_CODEGEN_CUDA_EMULATED_MEMORY_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/codegen/cuda_emulator.h"

namespace quire::emulated {

inline double Mul(double a, double b) { return a * b; }
inline double Fma(double a, double b, double c) { return std::fma(a, b, c); }
inline double Round(double x) { return std::nearbyint(x); }

// Shared memory, or within what the launch names, in time and aligned.
inline void CheckGlobal(const void* p, size_t bytes, bool writes) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto inside = [&](const void* begin, size_t count) {
    const auto first = reinterpret_cast<uintptr_t>(begin);
    return address >= first && address + bytes <= first + count;
  };
  if (address % bytes != 0) Fail("global address is not aligned");
  if (inside(block->shared, block->shared_bytes)) return;
  const bool late = block->current->prior_grid_done;
  for (const Memory& memory : *block->global) {
    if (!inside(memory.begin, memory.bytes)) continue;
    if (writes && memory.use != Memory::kWrite) Fail("writes what is only read");
    if (!late && memory.use != Memory::kReadEarly)
      Fail("touches memory before the prior grid is done");
    return;
  }
  Fail(writes ? "writes outside" : "reads outside");
}
template <typename T>
T LoadGlobal(const T* from) {
  CheckGlobal(from, sizeof(T), false);
  return *from;
}
template <typename T>
void StoreGlobal(T* to, T value) {
  CheckGlobal(to, sizeof(T), true);
  *to = value;
}

inline uint32_t CountArrival(uint32_t* counter, uint32_t increment) {
  const uint32_t before = *counter;
  *counter += increment;
  return before;
}
inline void PrefetchToL2(const void*) {}
inline void LoadFromL2(float (&values)[4], const float* from) { std::memcpy(values, from, 16); }
inline void LoadFromL2(float (&values)[2], const float* from) { std::memcpy(values, from, 8); }
inline void StoreToL2(float* to, const float (&values)[4]) { std::memcpy(to, values, 16); }

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_CODEGEN_CUDA_EMULATED_MEMORY_H_
