// Row kernels for CUDA: from the function of a RowSpec to one kernel text, and from a number of
// rows to a launch. Needs no GPU.
//
// A launch takes pointers to the function's arguments, to the KV layer of each kv_append in program
// order, and to the returns, all 16-byte aligned; then token slots, if it appends; the step's
// header, if it takes rows; rows; and into how many parts each row is divided, if it can be.
//
// i32 arguments (ids, positions, row numbers) are the step's own, as are slots and header: they are
// read before the grid before is done. Ids and row numbers out of range read the nearest row.
// Elements of an argument's row are dense. A KV layer's page is K [heads][page_tokens][D], then V.
//
// Arithmetic is f32 (kernels/row.cuh, math.cuh, norm.cuh), each result rounded to its type. A row's
// bits depend on nothing but the row.
#ifndef QUIRE_CODEGEN_CUDA_ROW_H_
#define QUIRE_CODEGEN_CUDA_ROW_H_

#include <memory>

#include "absl/status/statusor.h"
#include "codegen/cuda/kernel.h"
#include "codegen/spec.h"

namespace quire {

// INVALID_ARGUMENT on a malformed function; UNIMPLEMENTED on one that no row kernel computes, or
// not with these limits.
absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaRow(const RowSpec& spec,
                                                        const CudaLimits& limits);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_ROW_H_
