// Linears that turn heads by rope (kernels/linear_rope.cuh): the order in which their kernels read
// the weight's rows, the entry that computes a step's cosines and sines once for all layers, and
// the one that finishes the sums of a library.
#ifndef QUIRE_CODEGEN_CUDA_LINEAR_ROPE_H_
#define QUIRE_CODEGEN_CUDA_LINEAR_ROPE_H_

#include <compare>
#include <cstdint>

#include "codegen/cuda/kernel.h"
#include "codegen/spec.h"

namespace quire {

// Rows of a weight as a kernel reads them: of the first `heads`, with `rows` each, eight of a
// head's first half and the same of its second in turn. No heads: as they are.
struct CudaRowOrder {
  int64_t heads = 0, rows = 0;

  // Which row stands at `at`.
  int64_t RowAt(int64_t at) const {
    if (at >= heads * rows) return at;
    const int64_t in_head = at % rows;
    return at - in_head + in_head / 16 * 8 + in_head % 8 + in_head / 8 % 2 * (rows / 2);
  }
  friend auto operator<=>(const CudaRowOrder& a, const CudaRowOrder& b) = default;
};
CudaRowOrder CudaLinearRowOrder(const LinearSpec& spec);

// How far apart the elements of a pair stand then: 8, or 1; 0 where nothing is turned.
int CudaPairDistance(const LinearSpec& spec);

// Turns of one row, in bytes. REQUIRES: spec.rope, here and below.
int64_t CudaTurnBytes(const LinearSpec& spec);

// header, positions, factors, turns (pointers).
constexpr int kCudaTurnsThreads = 256;
CudaEntry CudaTurnsEntry(const LinearSpec& spec);

// sums, bias, y (pointers), rows (i32), slots, pages, turns (pointers).
constexpr int kCudaFinishThreads = 256;
CudaEntry CudaFinishEntry(const LinearSpec& spec);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_LINEAR_ROPE_H_
