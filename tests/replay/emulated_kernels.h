// Kernels of recorded steps as functions on the CPU, called with their arguments as words: a tensor
// map's is its address.
#ifndef QUIRE_TESTS_REPLAY_EMULATED_KERNELS_H_
#define QUIRE_TESTS_REPLAY_EMULATED_KERNELS_H_

#include <cstdint>

namespace quire::emulated {

struct EmulatedKernel {
  const char* source;  // of the CudaEntry
  void (*call)(const uint64_t* words);
};
// Written by the build, for every entry that the records' steps launch; the last has no source.
extern const EmulatedKernel kEmulatedKernels[];

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_REPLAY_EMULATED_KERNELS_H_
