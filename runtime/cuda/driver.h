// libcuda, opened at run time: one table of functions, so that one binary starts on every machine.
//
// The types below are those of the CUDA driver's stable interface, written out, so that neither
// building nor running needs a toolkit. runtime/cuda/driver.def lists the functions.
//
// Errors:  UNAVAILABLE where there is no driver, no GPU, or a driver older than 12.0 (the age of
// the
//          library calls, the youngest of the table); the message says which, and what to do.
// Threads: the table is immutable once loaded.
#ifndef QUIRE_RUNTIME_CUDA_DRIVER_H_
#define QUIRE_RUNTIME_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

using CuResult = int;  // 0: success
using CuDevice = int;
using CuDevicePtr = uint64_t;
using CuContext = struct CuContextOpaque*;
using CuStream = struct CuStreamOpaque*;
using CuEvent = struct CuEventOpaque*;
using CuLibrary = struct CuLibraryOpaque*;
using CuKernel = struct CuKernelOpaque*;
using CuFunction = struct CuFunctionOpaque*;
using CuGraph = struct CuGraphOpaque*;
using CuGraphExec = struct CuGraphExecOpaque*;

enum CuDeviceAttribute : int {
  kCuMultiprocessors = 16,
  kCuComputeMajor = 75,
  kCuComputeMinor = 76,
  kCuL2Bytes = 38,
  kCuSharedBytesPerBlockOptin = 97,
  kCuSharedBytesPerMultiprocessor = 81,
};

inline constexpr int kCuFuncMaxDynamicShared =
    8;                                       // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
inline constexpr int kCuFuncRegisters = 4;   // CU_FUNC_ATTRIBUTE_NUM_REGS
inline constexpr int kCuFuncLocalBytes = 3;  // CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES

// One launch attribute; only programmatic stream serialization (dependent launch) is used.
struct CuLaunchAttribute {
  static constexpr int kProgrammaticSerialization = 6;
  int id;
  char pad[4];
  union {
    int value;
    char bytes[64];
  };
};
static_assert(sizeof(CuLaunchAttribute) == 72);

struct CuLaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  CuStream stream;
  CuLaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(CuLaunchConfig) == 56);

struct CudaDriver {
#define CUDA_FN(member, name, parameters) CuResult(*member) parameters = nullptr;
#include "runtime/cuda/driver.def"

  // The driver of this machine, opened and initialised at the first call.
  static absl::StatusOr<const CudaDriver*> Get();
  // Opens a library file by name; for tests.
  static absl::StatusOr<CudaDriver> Open(const char* library);

  // "what: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"; out of memory is RESOURCE_EXHAUSTED, the rest
  // INTERNAL.
  absl::Status Check(CuResult result, absl::string_view what) const;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_DRIVER_H_
