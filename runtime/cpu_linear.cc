// Linear launches. The output is cut into pieces of some rows times some strips of outputs (runtime
// order: strips of one block of rows first, so that its activations stay in the second-level cache
// while weights stream by).
#include <algorithm>

#include "ir/dtype.h"
#include "runtime/cpu_launch.h"

namespace quire {
namespace {

// Up to this many rows, every thread quantises all of them for itself: cheaper than a barrier.
constexpr int64_t kOwnRows = 4;
// Rows whose activations are kept while weights pass.
constexpr int64_t kBlockRows = 128;
// A piece reads at least this much of the weights, so that memory streams.
constexpr int64_t kPieceBytes = 32 << 10;
constexpr int64_t kQuantizeRows = 16;

class LinearLaunch : public CpuLaunch {
 public:
  LinearLaunch(const plan::LaunchT& launch, const CpuKernel& kernel, const CpuWeights& weights)
      : launch_(launch),
        spec_(std::get<LinearSpec>(kernel.spec)),
        entry_(reinterpret_cast<LinearEntry>(kernel.main)),
        quantize_(reinterpret_cast<QuantizeEntry>(kernel.quantize)) {
    weight_ = weights.Data(launch.inputs[1].index());
    if (spec_.bias) bias_ = weights.Bias(launch.inputs[2].index());
    const int64_t strip_rows = quantize_ != nullptr ? 16 : 64;
    strips_ = (spec_.n + strip_rows - 1) / strip_rows;
    strip_bytes_ = std::max<int64_t>(1, RowBytes(spec_.weight, spec_.k) * strip_rows);
    blocks_per_row_ = quantize_ != nullptr ? spec_.k / 32 : 0;
    scratch_bytes = blocks_per_row_ * kOwnRows * static_cast<int64_t>(sizeof(ActivationBlock));
  }

  int64_t activation_blocks(int64_t rows) const override {
    return rows > kOwnRows ? rows * blocks_per_row_ : 0;
  }

  void Prepare(const CpuStep& step) override {
    const int64_t rows = RowsOf(step);
    row_blocks_ = (rows + kBlockRows - 1) / kBlockRows;
    // About eight pieces a thread, within what memory and balance want.
    const int64_t pieces = int64_t{step.threads} * 8;
    piece_strips_ = std::max<int64_t>(1, strips_ * std::max<int64_t>(1, row_blocks_) / pieces);
    piece_strips_ = std::max(piece_strips_,
                             rows > kOwnRows ? 1 : (kPieceBytes + strip_bytes_ - 1) / strip_bytes_);
    piece_strips_ = std::min(piece_strips_, strips_);
    strip_pieces_ = (strips_ + piece_strips_ - 1) / piece_strips_;
    quantize_counter_.next = 0;
    counter_.next = 0;
  }

  void Run(const CpuStep& step, ThreadPool& pool, ThreadScratch& scratch) override {
    const int64_t rows = RowsOf(step);
    if (rows == 0) return;
    const auto* x = static_cast<const float*>(PlaceOf(launch_.inputs[0], step));
    const void* activations = x;
    if (quantize_ != nullptr) activations = Quantized(x, rows, step, pool, scratch);
    const float* residual =
        spec_.residual ? static_cast<const float*>(PlaceOf(launch_.inputs.back(), step)) : nullptr;
    auto* y = static_cast<float*>(PlaceOf(launch_.outputs[0], step));
    while (true) {
      const int64_t piece = counter_.next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= strip_pieces_ * row_blocks_) return;
      const int64_t row = piece / strip_pieces_ * kBlockRows;
      const int64_t strip = piece % strip_pieces_ * piece_strips_;
      entry_(activations, weight_, bias_, residual, y, row, std::min(rows, row + kBlockRows), strip,
             std::min(strips_, strip + piece_strips_));
    }
  }

 private:
  const ActivationBlock* Quantized(const float* x, int64_t rows, const CpuStep& step,
                                   ThreadPool& pool, ThreadScratch& scratch) {
    if (rows <= kOwnRows) {
      auto* own = static_cast<ActivationBlock*>(scratch.Get(scratch_bytes));
      quantize_(x, own, 0, rows);
      return own;
    }
    while (true) {
      const int64_t begin =
          quantize_counter_.next.fetch_add(1, std::memory_order_relaxed) * kQuantizeRows;
      if (begin >= rows) break;
      quantize_(x, step.blocks, begin, std::min(rows, begin + kQuantizeRows));
    }
    pool.Barrier();
    return step.blocks;
  }

  const plan::LaunchT& launch_;
  const LinearSpec spec_;
  const LinearEntry entry_;
  const QuantizeEntry quantize_;
  const void* weight_ = nullptr;
  const float* bias_ = nullptr;
  int64_t strips_ = 0, strip_bytes_ = 0, blocks_per_row_ = 0;
  int64_t row_blocks_ = 0, piece_strips_ = 0, strip_pieces_ = 0;
  PieceCounter quantize_counter_, counter_;
};

}  // namespace

std::unique_ptr<CpuLaunch> MakeLinearLaunch(const plan::LaunchT& launch, const CpuKernel& kernel,
                                            const CpuWeights& weights) {
  return std::make_unique<LinearLaunch>(launch, kernel, weights);
}

}  // namespace quire
