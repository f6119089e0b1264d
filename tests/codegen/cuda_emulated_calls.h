// Kernels' sources as functions on the CPU, called with their arguments as words: that of an
// argument of a class type, as a tensor map is, is its address.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_EMULATED_CALLS_H_
#define QUIRE_TESTS_CODEGEN_CUDA_EMULATED_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tests/codegen/cuda_emulator.h"

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)

namespace quire::emulated {

template <typename T>
T ArgumentOf(uint64_t word) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(word);
  } else if constexpr (std::is_class_v<T>) {
    return *reinterpret_cast<const T*>(word);
  } else {
    return static_cast<T>(word);
  }
}
template <typename... A, size_t... I>
void CallWith(void (*kernel)(A...), const uint64_t* words, std::index_sequence<I...>) {
  kernel(ArgumentOf<A>(words[I])...);
}
template <typename... A>
void CallKernel(void (*kernel)(A...), const uint64_t* words) {
  CallWith(kernel, words, std::index_sequence_for<A...>());
}
template <auto kKernel>
void Calls(const uint64_t* words) {
  CallKernel(kKernel, words);
}

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_CODEGEN_CUDA_EMULATED_CALLS_H_
