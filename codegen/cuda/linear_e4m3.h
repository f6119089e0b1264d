// Linears whose products are of two numbers of f8e4m3 (kernels/linear_e4m3.cuh), on devices that
// have warpgroup products. Such a product is a LinearSpec of its own, with x and w of f8e4m3 and k
// in pairs of numbers, which are elements of 16 bits to all that moves and places them.
#ifndef QUIRE_CODEGEN_CUDA_LINEAR_E4M3_H_
#define QUIRE_CODEGEN_CUDA_LINEAR_E4M3_H_

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/cuda/kernel.h"
#include "codegen/cuda/linear.h"
#include "codegen/spec.h"

namespace quire {

// Whether a linear is computed so.
bool CudaLinearIsE4m3(const LinearSpec& spec, const CudaLimits& limits);

// Its product: of what the entry below writes.
LinearSpec CudaE4m3Product(const LinearSpec& spec);
inline bool IsE4m3Product(const LinearSpec& spec) { return spec.weight == DType::kF8E4M3; }

std::vector<CudaLinearConfig> CudaE4m3Configs(const LinearSpec& product, const CudaLimits& limits);

// The entry that writes x, or its norm, as numbers of f8e4m3, [rows, k], and their scales, f32
// [1 or k / 128, rows in eights]. A grid has a block for each row. Parameters: x, weight and bias
// of the norm, the scale that is given (pointers; null for what there is not), numbers, scales
// (pointers), rows in eights (i32).
CudaEntry CudaE4m3Rows(const LinearSpec& spec);
// Of `rows` rows: bytes of the numbers, and of the scales.
int64_t CudaE4m3RowBytes(const LinearSpec& spec, int64_t rows);
int64_t CudaE4m3ScaleBytes(const LinearSpec& spec, int64_t rows);

// One element's sum over k in the kernels' arithmetic, before bias and residual, from a row of x
// and one of the weight: numbers [k], and scales [1], or [k / 128] if they are not of rows.
float CudaE4m3Sum(const uint8_t* x, const float* x_scales, const uint8_t* weight,
                  const float* weight_scales, int64_t k, bool row_scales);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_LINEAR_E4M3_H_
