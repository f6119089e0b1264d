// Linear kernels for CUDA: from a LinearSpec to kernel texts, and from a number of rows to a
// launch. Needs no GPU.
//
// One spec has a few bodies, each for a range of row counts; all compute the same bits
// (codegen/cuda/kernels/linear.cuh has the arithmetic, CudaLinearSum computes it here), so the
// choice among them is one of speed alone.
//
// A block-quantised weight is read as such by the bodies for few rows, which take many rows in
// turn, and by the narrow one; the others read what an entry of its own has made of it.
//
// Where x is to be rounded to f8e4m3 and the device is one of sm_90a, an entry of its own writes it
// so, normed if it is to be, with its scales, and bodies multiply these numbers by the weight's in
// tensor cores (linear_e4m3.h); elsewhere a row kernel writes what they stand for, rounded to x's
// type, and bodies are those of other linears.
//
// Heads that are turned by rope come so from every body (linear_rope.h).
//
// A norm of x is computed by the bodies for few rows themselves, by the others in a row kernel
// before; an activation by the bodies for few and for the most rows and, if gated, by the narrow
// body, by the others in a row kernel after: the norm's bits and the product's, as it is rounded
// between, are the same.
//
// Every entry takes: x, weight, bias, residual, y, workspace (pointers; null for what the spec does
// not have; x of kNarrow and kWarpgroup, and a weight of no blocks: tensor maps), rows (i32), then
//   kFew    the first row (i32); if it norms x, weight and bias of the norm (pointers)
//   others  whole_tiles, n, k, 1 if y is f32 and not of the text's type (i32): one text serves
//           every linear of its types; of f8e4m3, k in pairs, then scales of x, scales of the
//           weight (pointers)
// and if it appends, the rows' slots, page 0 of the first layer and of the second, and if it turns
// heads the rows' turns (pointers).
// x, weight, residual, y and the norm's begin at multiples of 16 bytes. The workspace is as
// CudaArgument has it. x may be written by the grid before under programmatic dependent launch;
// weight and bias not.
#ifndef QUIRE_CODEGEN_CUDA_LINEAR_H_
#define QUIRE_CODEGEN_CUDA_LINEAR_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/cuda/kernel.h"
#include "codegen/spec.h"

namespace quire {

// A body and its sizes.
struct CudaLinearConfig {
  enum Body {
    kFew,        // linear_few.cuh: one pass over the weight, x in shared memory
    kTile,       // linear_tile.cuh: tiles of 128 weight rows
    kNarrow,     // linear_narrow.cuh: sm_90a, tiles of 16 to 128 rows of x
    kWarpgroup,  // linear_warpgroup.cuh: sm_90a, tiles of 128 rows of x
  };
  Body body = kFew;
  int rows = 0;    // kFew: the most that x may have; otherwise: of x in one tile
  int groups = 0;  // of four warps that multiply; kTile: the warps along x, 1 or 2
  int stages = 0;
  int tile_rows = 128;  // of the weight in a tile; kFew: 16, of blocks 8, too; kWarpgroup: 64 to
                        // 256; kNarrow: a multiple of 32
  // What it computes of a spec that has them; kNarrow: gated activations, kWarpgroup: activations.
  bool norm = false, act = false;
  bool chained = false;  // kWarpgroup: its warpgroups take turns
  bool whole = false;    // tiles are never cut
};

struct CudaLinearKernel {
  CudaLinearConfig config;
  std::string entry;
  std::string source;
  int block_threads = 0;
  int shared_bytes = 0;  // dynamic
  int64_t max_rows = 0;
  int unused_pointers = 0;  // parameters at the end that are another linear's, and here null
};

struct CudaLinearLaunch {
  int grid = 0;
  int whole_tiles =
      0;  // of bodies with tiles: the rest are cut into pieces of K, one a block at a time
  int64_t workspace_bytes = 0;
};

// The configurations for a device, in ascending order of the rows they are for; the last is for any
// number. UNIMPLEMENTED on a spec that has no CUDA kernel.
absl::StatusOr<std::vector<CudaLinearConfig>> CudaLinearConfigs(const LinearSpec& spec,
                                                                const CudaLimits& limits);

// Whether a body reads x through a tensor map, and a weight of no blocks.
inline bool CudaLinearTakesMaps(CudaLinearConfig::Body body) {
  return body == CudaLinearConfig::kNarrow || body == CudaLinearConfig::kWarpgroup;
}
// Whether a body reads a weight's blocks, and whether it reads elements that were made of them.
inline bool CudaLinearReadsBlocks(const LinearSpec& spec, CudaLinearConfig::Body body) {
  return IsBlockType(spec.weight) &&
         (body == CudaLinearConfig::kNarrow || body == CudaLinearConfig::kFew);
}
inline bool CudaLinearReadsDequantized(const LinearSpec& spec, CudaLinearConfig::Body body) {
  return IsBlockType(spec.weight) && !CudaLinearReadsBlocks(spec, body);
}

// Rows of the boxes in which such a body reads x.
inline int CudaLinearBoxRows(const CudaLinearConfig& config, int64_t rows) {
  return static_cast<int>(std::min<int64_t>(config.rows, (rows + 7) / 8 * 8));
}

// The pieces of K that a tile may be cut into: the widest have no registers left for that.
inline int CudaLinearPieces(const CudaLinearConfig& config) {
  if (config.whole) return 1;
  if (config.body != CudaLinearConfig::kWarpgroup) return 4;
  return config.tile_rows <= 192 ? 2 : 1;
}

// Dynamic shared memory of a body.
int64_t CudaLinearSharedBytes(const LinearSpec& spec, const CudaLinearConfig& config);

// Whether a text of x's type is told to store f32 instead, so that logits need none of their own.
bool CudaLinearYIsF32(const LinearSpec& spec, const CudaLinearConfig& config);

// What a body computes: the spec without what the configuration leaves to row kernels.
LinearSpec CudaLinearBodySpec(const LinearSpec& spec, const CudaLinearConfig& config);

CudaLinearKernel MakeCudaLinearKernel(const LinearSpec& spec, const CudaLinearConfig& config);

// The kernels of CudaLinearConfigs. `appending`: a linear of the plan that appends, if there is
// one; its texts are taken where they serve this linear, too.
absl::StatusOr<std::vector<CudaLinearKernel>> CudaLinearKernels(
    const LinearSpec& spec, const CudaLimits& limits, const LinearSpec* appending = nullptr);

// Which of them is to run.
size_t ChooseCudaLinear(const LinearSpec& spec, const std::vector<CudaLinearKernel>& kernels,
                        int64_t rows, int multiprocessors);

// REQUIRES: 1 <= rows <= kernel.max_rows.
CudaLinearLaunch PlanCudaLinear(const LinearSpec& spec, const CudaLinearKernel& kernel,
                                int64_t rows, int multiprocessors);
// The tiles of a body that has them, and their launch with the whole ones given.
int64_t CudaLinearTiles(const LinearSpec& spec, const CudaLinearKernel& kernel, int64_t rows);
CudaLinearLaunch PlanCudaLinearTiles(const LinearSpec& spec, const CudaLinearKernel& kernel,
                                     int64_t rows, int multiprocessors, int64_t whole_tiles);

// One element's sum over k in the kernels' arithmetic, before bias and residual, from the bits of
// its row of x and of the weight. REQUIRES: bf16 or f16. `grain`: 16, or the block of a
// block-quantised weight, whose elements are rounded to `dtype` (linear_fours.cuh).
float CudaLinearSum(DType dtype, const uint16_t* x, const uint16_t* weight, int64_t k,
                    int64_t grain = 16);

// The entry that makes elements of a block-quantised weight: weight, out [n, k] (pointers).
constexpr char kCudaDequantizeEntry[] = "linear_dequantize";
constexpr int kCudaDequantizeThreads = 256;
std::string CudaDequantizeSource(const LinearSpec& spec);

// The kernels as a plan runs them. UNIMPLEMENTED on a spec that has no CUDA kernel. `appending`: as
// above.
absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaLinear(const LinearSpec& spec,
                                                           const CudaLimits& limits,
                                                           const LinearSpec* appending = nullptr);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_LINEAR_H_
