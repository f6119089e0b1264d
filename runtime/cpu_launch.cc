#include "runtime/cpu_launch.h"

#include <utility>

#include "ir/status.h"
#include "ir/text.h"

namespace quire {
namespace {

using plan::OperandKind;

class RowLaunch : public CpuLaunch {
 public:
  RowLaunch(const plan::LaunchT& launch, const CpuKernel& kernel, const CpuWeights& weights,
            std::vector<bool> appends_v)
      : launch_(launch),
        weights_(weights),
        appends_v_(std::move(appends_v)),
        entry_(reinterpret_cast<RowEntry>(kernel.main)) {
    scratch_bytes = kernel.scratch_bytes;
  }

  void Prepare(const CpuStep& step) override {
    operands_.clear();
    size_t append = 0;
    for (const auto* list : {&launch_.inputs, &launch_.outputs}) {
      for (const plan::Operand& operand : *list)
        operands_.push_back(Resolve(operand, step, &append));
    }
    counter_.next = 0;
    // Enough pieces for balance, and no piece so small that taking it costs more than doing it.
    piece_rows_ = std::max<int64_t>(1, RowsOf(step) / (int64_t{step.threads} * 4));
  }

  void Run(const CpuStep& step, ThreadPool&, ThreadScratch& scratch) override {
    const int64_t rows = RowsOf(step);
    while (true) {
      const int64_t begin = counter_.next.fetch_add(1, std::memory_order_relaxed) * piece_rows_;
      if (begin >= rows) return;
      entry_(operands_.data(), &step.row_step, scratch.Get(scratch_bytes), begin,
             std::min(rows, begin + piece_rows_));
    }
  }

 private:
  void* Resolve(const plan::Operand& operand, const CpuStep& step, size_t* append) const {
    switch (operand.kind()) {
      case OperandKind::Weight:
        return const_cast<void*>(weights_.Data(operand.index()));
      case OperandKind::KvLayer: {
        const PageLayout::Layer& layer = step.layout->layers[operand.index()];
        return step.pages + (appends_v_[(*append)++] ? layer.v : layer.k);
      }
      default:
        return PlaceOf(operand, step);
    }
  }

  const plan::LaunchT& launch_;
  const CpuWeights& weights_;
  const std::vector<bool> appends_v_;  // of each kv_append in order
  const RowEntry entry_;
  std::vector<void*> operands_;
  int64_t piece_rows_ = 1;
  PieceCounter counter_;
};

}  // namespace

void* ThreadScratch::Get(int64_t wanted) {
  constexpr size_t kAlign = 64;
  if (bytes.size() < static_cast<size_t>(wanted) + kAlign)
    bytes.resize(static_cast<size_t>(wanted) + kAlign);
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return reinterpret_cast<void*>((address + kAlign - 1) / kAlign * kAlign);
}

absl::StatusOr<std::unique_ptr<CpuLaunch>> MakeRowLaunch(const plan::LaunchT& launch,
                                                         const CpuKernel& kernel,
                                                         const CpuWeights& weights) {
  QUIRE_ASSIGN_OR_RETURN(const Module module, Parse(std::get<RowSpec>(kernel.spec).func));
  std::vector<bool> appends_v;
  for (const auto& op : module.funcs[0]->ops()) {
    if (op->Is(OpKind::kKvAppend)) appends_v.push_back(op->Text(AttrKind::kSlot) == "v");
  }
  return std::make_unique<RowLaunch>(launch, kernel, weights, std::move(appends_v));
}

absl::StatusOr<std::unique_ptr<CpuLaunch>> MakeCpuLaunch(const plan::LaunchT& launch,
                                                         const plan::TargetT& target,
                                                         const CpuKernel& kernel,
                                                         const CpuWeights& weights) {
  (void)target;
  std::unique_ptr<CpuLaunch> made;
  if (std::holds_alternative<LinearSpec>(kernel.spec)) {
    made = MakeLinearLaunch(launch, kernel, weights);
  } else if (std::holds_alternative<AttentionSpec>(kernel.spec)) {
    made = MakeAttentionLaunch(launch, kernel);
  } else {
    QUIRE_ASSIGN_OR_RETURN(made, MakeRowLaunch(launch, kernel, weights));
  }
  made->over_logit_rows = launch.rows == "R";
  return made;
}

}  // namespace quire
