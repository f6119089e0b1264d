// A kernel of a plan as CUDA runs it: from a spec to texts for NVRTC, and from a number of rows to
// launches. Needs no GPU.
//
// Each family (linear, attention, row) makes a CudaKernel; what builds binaries, keeps them and
// launches them knows this interface alone.
//
// A step's grids, pointers and workspace depend on the number of rows that the step is padded to
// (its bucket) and on nothing else, so that a captured graph is right for every batch of that many
// rows: what varies is read from device memory at fixed places, the step's block
// (codegen/cuda/kernels/step.cuh). Launches that have nothing to do for a batch may be left out.
#ifndef QUIRE_CODEGEN_CUDA_KERNEL_H_
#define QUIRE_CODEGEN_CUDA_KERNEL_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/spec.h"

namespace quire {

// What a device gives.
struct CudaLimits {
  int major = 0, minor = 0;  // compute capability
  int shared_bytes = 0;      // that a block may have
  int multiprocessors = 0;

  // Of a device that has neither products of warpgroups nor tensor copies, otherwise this one.
  CudaLimits Portable() const { return {8, 0, shared_bytes, multiprocessors}; }
};

// One text for NVRTC with one extern "C" function.
struct CudaEntry {
  std::string entry;
  std::string source;  // begins with a comment that holds the spec; where n and k are
                       // parameters, they are "any" there
  int block_threads = 0;
  int shared_bytes = 0;  // dynamic
};

constexpr int kCudaZeroBytes = 65536;  // counters of arrivals, at the begin of the workspace

// Where a kernel's parameter comes from.
struct CudaArgument {
  enum class Kind {
    kOperand,    // pointer: operand `value` of the plan's launch, inputs then outputs; null at -1
    kWorkspace,  // pointer: byte `value` of the memory that all launches of a program share, in
                 // turn; the first kCudaZeroBytes are zero before the first launch, and each launch
                 // leaves them zero; the rest is as the launch before left it
    kPlan,       // pointer: byte `value` of this kernel's own memory, kept from Prepare() to the
                 // step's last launch
    // Pointers into the step's block.
    kHeader,      // StepHeader
    kSequences,   // StepSequence [sequences]
    kPages,       // i32, block tables one after another
    kTokenSlots,  // i32 [T]: page * page_tokens + place in the page of the row's own token; -1 for
                  // rows of padding, which append nothing
    kInt32,       // `value` itself
    kTensorMap,   // 128 bytes by value: tensor_maps[value] of the launch, encoded for sm_90
  };
  Kind kind = Kind::kInt32;
  int64_t value = 0;
  int64_t offset = 0;  // of an operand that there is, or of slots: bytes beyond its begin
};

// A matrix of 16-bit elements as tensor copies see it: rows one after another, columns a multiple
// of 8; boxes of box_rows x 64 columns, swizzled by 128 bytes (runtime/cuda/tensor_map.h). Or, if
// `grouped`, of box_rows whole rows, a multiple of 8 that begins at one: groups of eight rows, each
// 64 columns of them after the other; columns are then a multiple of 64. Or, if `paired`, of eight
// rows of the matrix's first half and the same of its second in turn; each has a multiple of 8. Or,
// if block_rows is not 0, in blocks of so many rows: boxes of box_rows x 64 columns, box_block_rows
// of each block.
struct CudaTensorMap {
  CudaArgument base;  // kOperand or kWorkspace
  int64_t rows = 0, columns = 0;
  int box_rows = 0;
  bool grouped = false, paired = false;
  int64_t block_rows = 0;
  int box_block_rows = 0;
};

// Which sequences of a step a launch has work for: by their rows, and by the tokens that these are
// over in the cache that the kernel reads.
struct CudaWork {
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  int64_t least_rows = 0, most_rows = kNoLimit;
  int64_t least_tokens = 0, most_tokens = kNoLimit;

  bool HasWork(int64_t rows, int64_t tokens) const {
    return least_rows <= rows && rows <= most_rows && least_tokens <= tokens &&
           tokens <= most_tokens;
  }
  friend bool operator==(const CudaWork& a, const CudaWork& b) = default;
};

// Rows of a product of a library: so few that their sums are read from L2, enough to fill a device.
// One number, so that one check serves all that are launched.
constexpr int64_t kCudaLibraryRows = 512;

// Sums that a library computes: sums[rows, n] of f32 = x[rows, k] weight[n, k]^T, a product for
// each part of k that adds to the sums of those before it and is itself not cut along k.
struct CudaProduct {
  DType element = DType::kBF16;  // of x and weight: bf16, f16
  int64_t rows = 0, n = 0, k = 0;
  std::vector<int64_t> parts;  // where each begins; then k
  CudaArgument x, weight, sums;
};

struct CudaLaunch {
  size_t entry = 0;  // index into CudaKernel::entries()
  int grid = 1;
  std::vector<CudaArgument> arguments;
  std::vector<CudaTensorMap> tensor_maps;
  CudaWork work;                       // left out where no sequence has any
  std::optional<CudaProduct> product;  // if there is one, it is all that is launched
};

// A product, and the launch of an entry that computes it: x, weight and sums are operands 0, 1, 2.
struct CudaLibraryCheck {
  CudaProduct product;
  CudaLaunch launch;
};

struct CudaLaunches {
  std::vector<CudaLaunch> launches;  // in order, each dependent on the one before
  int64_t workspace_bytes = 0;
};

class CudaKernel {
 public:
  virtual ~CudaKernel() = default;

  const std::vector<CudaEntry>& entries() const { return entries_; }
  // Whether a linear's weight of f8e4m3_128 is read with its scales apart: all elements, row after
  // row, then f32 scales [K / 128, rows], and a u32, 1 if each 128 rows share theirs.
  bool splits_scales() const { return splits_scales_; }

  // What computes one launch of the plan on `rows` rows.
  // REQUIRES: 1 <= rows <= max_rows of Prepare's call.
  virtual CudaLaunches Launches(int64_t rows) const = 0;

  // What has to give equal bits before UseLibrary() may be called, if this kernel has a use for
  // products of a library: Launches() then has them where that takes less time.
  virtual std::optional<CudaLibraryCheck> LibraryCheck() const { return std::nullopt; }
  void UseLibrary() { uses_library_ = true; }

  // What runs once a step before all launches of this kernel (a work list, shared by the layers
  // that have this kernel; operands that it reads are those that all of its launches have in
  // common), and the bytes of kPlan for steps of up to `max_rows` rows in up to
  // `max_sequences` sequences with up to `max_pages` pages in all.
  struct Preparation {
    std::vector<CudaLaunch> launches;
    int64_t plan_bytes = 0;
  };
  virtual Preparation Prepare(int64_t max_rows, int64_t max_sequences, int64_t max_pages) const {
    (void)max_rows, (void)max_sequences, (void)max_pages;
    return {};
  }

 protected:
  std::vector<CudaEntry> entries_;
  bool splits_scales_ = false;
  bool uses_library_ = false;
};

// UNIMPLEMENTED, naming what is not supported, on a spec that has no CUDA kernel. `appending`:
// MakeCudaLinear's.
absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaKernel(const KernelSpec& spec,
                                                           const CudaLimits& limits,
                                                           const LinearSpec* appending = nullptr);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_KERNEL_H_
