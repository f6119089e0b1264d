// What a linear leaves to row kernels where its body is one for many rows: the norm before it, the
// activation after it; x as numbers of f8e4m3 by scales; and where a library computes its sums,
// what comes between.
#ifndef QUIRE_CODEGEN_CUDA_LINEAR_ROWS_H_
#define QUIRE_CODEGEN_CUDA_LINEAR_ROWS_H_

#include "codegen/spec.h"

namespace quire {

// Of x, the norm's weight, its bias, the scale (as far as the spec has them), to x's type.
// REQUIRES: spec.norm or spec.quantize.
RowSpec CudaLinearHeadRows(const LinearSpec& spec);

// Of sums in f32, the bias, the residual (as far as the linear has them), a layer for each K and V
// that it appends, to y's type. What has no y returns the first kCudaLeastReturned columns, as a
// function returns something.
constexpr int64_t kCudaLeastReturned = 8;
RowSpec CudaLinearFinishRows(const LinearSpec& spec);

// Of the product in y's type, to y. REQUIRES: spec.act.
RowSpec CudaLinearActRows(const LinearSpec& spec);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_LINEAR_ROWS_H_
