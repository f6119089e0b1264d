// Exact model of the approximations that kernels ask the special function unit for, as measured on
// an H200: every f32 argument (tools/bench/cuda_record.cc). For tests of kernels' bits without a
// GPU.
//
// Each is a polynomial of second degree on 64 or 128 equal parts of a binade,
//   (c0 + c1 t + c2 s) cut to 24 bits,
// where t is what of the argument's fraction lies within the part, exactly, and s its square, of
// which partial products below 2^-15 are left out, each by itself. Two values that the polynomial
// gives for an argument's fraction differ by the exponent alone.
// Source: the form is that of Oberman and Siu, "A High-Performance Area-Efficient Multifunction
// Interpolator" (ARITH 2005); coefficients and what is cut were found from results.
#ifndef QUIRE_CODEGEN_CUDA_SPECIAL_FUNCTION_MODEL_H_
#define QUIRE_CODEGEN_CUDA_SPECIAL_FUNCTION_MODEL_H_

namespace quire {

float CudaExp2(float x);            // ex2.approx.ftz.f32
float CudaNearReciprocal(float x);  // rcp.approx.ftz.f32

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_SPECIAL_FUNCTION_MODEL_H_
