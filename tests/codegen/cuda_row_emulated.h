// Row kernels as functions on the CPU, called with their arguments as words.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_ROW_EMULATED_H_
#define QUIRE_TESTS_CODEGEN_CUDA_ROW_EMULATED_H_

#include <cstdint>
#include <type_traits>
#include <utility>

#include "tests/codegen/cuda_emulator.h"

#define __global__
#define __device__
#define __launch_bounds__(threads)

namespace quire::emulated {

#include <row.cuh>
#include <step.cuh>

using RowCall = void (*)(const uint64_t* words);
// In the order of testing::CudaRowCases().
extern const RowCall kRowCalls[];

template <typename... A, size_t... I>
void CallWith(void (*kernel)(A...), const uint64_t* words, std::index_sequence<I...>) {
  const auto argument = []<typename T>(uint64_t word) {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<T>(word);
    } else {
      return static_cast<T>(word);
    }
  };
  kernel(argument.template operator()<A>(words[I])...);
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

#endif  // QUIRE_TESTS_CODEGEN_CUDA_ROW_EMULATED_H_
