// Weights in device memory, as kernels read them.
//
// A slot may be wanted in several forms (a table that is embedded from and multiplied with); each
// is a copy of its own. Floats are converted on the way, by the host, and rows put into the order
// in which a kernel reads them; blocks are copied as they are, but for those of f8e4m3 that are
// read with their scales apart. Programs of one target that are loaded from one source share what
// both of them want.
#ifndef QUIRE_RUNTIME_CUDA_CUDA_WEIGHTS_H_
#define QUIRE_RUNTIME_CUDA_CUDA_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codegen/cuda/linear_rope.h"
#include "codegen/spec.h"
#include "ir/dtype.h"
#include "ir/plan_generated.h"
#include "runtime/cuda/context.h"
#include "runtime/weights.h"

namespace quire {

// How a kernel reads a weight.
struct WeightForm {
  DType dtype = DType::kF32;
  CudaRowOrder order = {};
  friend auto operator<=>(const WeightForm& a, const WeightForm& b) = default;
};

class CudaWeights {
 public:
  struct Block;
  // What the programs of a device have uploaded, as long as one of them lives.
  using Uploaded = std::vector<std::weak_ptr<const Block>>;

  // Notes that kernels read slot `index` of the target in this form; before Upload.
  // INVALID_ARGUMENT when the slot cannot be converted to that.
  absl::Status Want(const plan::TargetT& target, uint32_t index, const WeightForm& form);
  // Allocates and fills what is not in `uploaded` yet, with up to `threads` threads that read, and
  // adds it there.
  absl::Status Upload(const CudaContext& context, const plan::TargetT& target,
                      const WeightSource& source, int threads, Uploaded* uploaded);

  // REQUIRES: it was wanted, and uploaded.
  CuDevicePtr Find(uint32_t index, const WeightForm& form) const {
    return found_.at({index, form});
  }
  // Without those of other programs.
  int64_t bytes() const;

 private:
  using Key = std::pair<uint32_t, WeightForm>;
  struct Place {
    DType stored;
    int64_t columns = 0;  // of the last extent
    int64_t elements = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  // Takes from `uploaded` what is wanted, off the places.
  void Borrow(const plan::TargetT& target, const WeightSource& source, const Uploaded& uploaded);
  // Gives the places that are left their offsets; their bytes.
  absl::StatusOr<int64_t> PlaceAll();

  std::map<Key, Place> places_;  // of own weights
  std::shared_ptr<const Block> own_;
  std::vector<std::shared_ptr<const Block>> borrowed_;
  std::map<Key, CuDevicePtr> found_;
};

// Uploaded together.
struct CudaWeights::Block {
  uint64_t source = 0;
  const plan::TargetT* target = nullptr;  // to compare with: it may be gone
  std::map<Key, CuDevicePtr> found;
  CudaMemory memory;
};

// The form in which a kernel reads its input `i`, a weight that the plan has as `stored`: f8e4m3 of
// one that has its scales apart (CudaKernel::splits_scales).
WeightForm FormRead(const KernelSpec& spec, bool splits_scales, size_t i, DType stored);

// Rows of `row_bytes` that stand in `pieces` one after another, as pieces in the order `order`.
std::vector<absl::Span<const uint8_t>> Ordered(absl::Span<const absl::Span<const uint8_t>> pieces,
                                               int64_t row_bytes, const CudaRowOrder& order);

// f8e4m3_128 [rows, columns] from rows of blocks to all its numbers, and to scales
// [columns / 128, rows] with 4 bytes behind them (CudaKernel::splits_scales).
void SplitScales(const uint8_t* blocks, int64_t rows, int64_t columns, uint8_t* numbers,
                 float* scales);

// `count` floats from one type to another. REQUIRES: both are f32, f16 or bf16.
void ConvertFloats(DType from, const uint8_t* source, DType to, uint8_t* target, int64_t count);

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_CUDA_WEIGHTS_H_
