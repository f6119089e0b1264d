#include "codegen/cuda/row.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/cuda/row_emit.h"
#include "codegen/cuda/row_plan.h"
#include "codegen/row_func.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr char kEntry[] = "row";

absl::Status Refuse(const Op& op, absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat("cuda: row kernel: %", op.name, ": ", what));
}

// What the text of a row kernel for CUDA cannot say.
absl::Status Check(const RowSpec& spec, const Func& func) {
  for (const auto& arg : func.args()) {
    if (absl::StrContains(arg->name, ".rows16")) return Refuse(*arg, "layout rows16");
  }
  for (const Op* value : func.returns()) {
    // Kernels read i32 before the grid before is done.
    if (!IsFloat(value->type.dtype)) return Refuse(*value, "returned, but of no float type");
  }
  for (const auto& op : func.ops()) {
    if (!op->Is(OpKind::kKvAppend)) continue;
    if (spec.page_tokens < 1) return Refuse(*op, "appends to pages of an unknown size");
    const bool is_key = op->Text(AttrKind::kSlot) == "k";
    const auto is_other = [&](const std::unique_ptr<Op>& other) {
      return other->Is(OpKind::kKvAppend) && other.get() != op.get() &&
             other->Int(AttrKind::kLayer) == op->Int(AttrKind::kLayer);
    };
    const auto other = std::find_if(func.ops().begin(), func.ops().end(), is_other);
    if (other == func.ops().end() || ((*other)->Text(AttrKind::kSlot) == "k") == is_key ||
        std::count_if(func.ops().begin(), func.ops().end(), is_other) != 1 ||
        (*other)->type.dtype != op->type.dtype) {
      return Refuse(*op, "appends something else than one K and one V of a layer, of one type");
    }
  }
  return absl::OkStatus();
}

class CudaRow : public CudaKernel {
 public:
  CudaRow(const Func& func, const RowPlan& plan, CudaRowText text, const CudaLimits& limits)
      : divisible_(plan.divisible),
        units_(plan.units),
        rows_per_block_(plan.row_threads == 32 ? kRowWarpsPerBlock : 1) {
    entries_.push_back({kEntry, std::move(text.source), text.block_threads, text.shared_bytes});
    const auto add = [&](CudaArgument::Kind kind, int64_t value = 0) {
      arguments_.push_back({kind, value});
    };
    int64_t operands = static_cast<int64_t>(func.args().size() + func.returns().size());
    bool appends = false, takes = false, turns = false;
    for (const auto& op : func.ops()) {
      turns |= op->Is(OpKind::kRope);
      appends |= op->Is(OpKind::kKvAppend);
      takes |= op->Is(OpKind::kTake);
      operands += op->Is(OpKind::kKvAppend) ? 1 : 0;
    }
    warps_ = int64_t{limits.multiprocessors} * (turns ? kTurningWarps : kWarps);
    for (int64_t i = 0; i < operands; ++i) add(CudaArgument::Kind::kOperand, i);
    if (appends) add(CudaArgument::Kind::kTokenSlots);
    if (takes) add(CudaArgument::Kind::kHeader);
  }

  CudaLaunches Launches(int64_t rows) const override {
    CudaLaunch launch;
    launch.arguments = arguments_;
    launch.arguments.push_back({CudaArgument::Kind::kInt32, rows});
    int64_t teams = rows;
    if (divisible_) {
      const int64_t parts = std::clamp<int64_t>((warps_ + rows - 1) / rows, 1, units_);
      launch.arguments.push_back({CudaArgument::Kind::kInt32, parts});
      teams = rows * parts;
    }
    launch.grid = static_cast<int>((teams + rows_per_block_ - 1) / rows_per_block_);
    return {{std::move(launch)}, 0};
  }

 private:
  // Of a multiprocessor: enough that memory is busy while the last ones end; fewer where each has
  // angles to compute first.
  static constexpr int64_t kWarps = 256, kTurningWarps = 32;

  const bool divisible_;
  const int64_t units_, rows_per_block_;
  int64_t warps_ = 0;  // that rows are divided for
  std::vector<CudaArgument> arguments_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaRow(const RowSpec& spec,
                                                        const CudaLimits& limits) {
  QUIRE_ASSIGN_OR_RETURN(const Module module, ParseRowFunc(spec, "cuda"));
  const Func& func = *module.funcs[0];
  QUIRE_RETURN_IF_ERROR(Check(spec, func));
  QUIRE_ASSIGN_OR_RETURN(const RowPlan plan, PlanRow(func));
  QUIRE_ASSIGN_OR_RETURN(CudaRowText text, CudaRowEmitter(spec, func, plan).Emit(kEntry));
  if (text.shared_bytes > limits.shared_bytes) {
    return absl::UnimplementedError(
        absl::StrCat("cuda: ", SpecText(spec), "\n  needs ", text.shared_bytes,
                     " bytes of shared memory; allowed: ", limits.shared_bytes));
  }
  return std::unique_ptr<CudaKernel>(
      std::make_unique<CudaRow>(func, plan, std::move(text), limits));
}

}  // namespace quire
