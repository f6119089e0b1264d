// libcublasLt, opened at run time, as libcuda is (runtime/cuda/driver.h): one table of functions.
//
// Errors:  UNAVAILABLE where there is none.
// Threads: the table is immutable once loaded.
// Source:  the types are those of the library's stable interface (cublasLt.h, CUDA 12 and 13).
#ifndef QUIRE_RUNTIME_CUDA_BLAS_H_
#define QUIRE_RUNTIME_CUDA_BLAS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/cuda/driver.h"

namespace quire {

using CuBlasResult = int;  // 0: success
using CuBlasHandle = struct CuBlasOpaque*;
using CuBlasDesc = struct CuBlasDescOpaque*;
using CuBlasLayout = struct CuBlasLayoutOpaque*;
using CuBlasPreference = struct CuBlasPreferenceOpaque*;

struct CuBlasAlgo {
  uint64_t data[8];
};
struct CuBlasHeuristic {
  CuBlasAlgo algo;
  size_t workspace_bytes;
  CuBlasResult state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(CuBlasHeuristic) == 96);

inline constexpr int kCuBlasF32 = 0, kCuBlasF16 = 2, kCuBlasBF16 = 14;  // cudaDataType
inline constexpr int kCuBlasCompute32F = 68;                            // CUBLAS_COMPUTE_32F
inline constexpr int kCuBlasDescTransA = 3;  // CUBLASLT_MATMUL_DESC_TRANSA, an int32
inline constexpr int32_t kCuBlasTransposed = 1;
// CUBLASLT_MATMUL_PREF_: a uint64 and a uint32.
inline constexpr int kCuBlasMaxWorkspaceBytes = 1, kCuBlasReductionSchemeMask = 3;

struct CudaBlas {
#define BLAS_FN(member, name, parameters) CuBlasResult(*member) parameters = nullptr;
#include "runtime/cuda/blas.def"

  // The library of this machine, opened at the first call.
  static absl::StatusOr<const CudaBlas*> Get();
  // Opens a library file by name; for tests.
  static absl::StatusOr<CudaBlas> Open(const char* library);
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_BLAS_H_
