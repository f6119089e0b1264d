#include "codegen/cpu/emit.h"

#include "absl/strings/str_cat.h"

namespace quire {

absl::StatusOr<EmittedKernel> EmitKernel(const KernelSpec& spec, const Isa& isa) {
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    if (linear->layout != WeightLayout::kRows16) {
      return absl::UnimplementedError(
          absl::StrCat("cpu: ", SpecText(spec), "\n  allowed: layout=rows16"));
    }
    return IsBlockType(linear->weight) ? EmitQuantLinear(*linear, isa) : EmitFloatLinear(*linear);
  }
  if (const auto* row = std::get_if<RowSpec>(&spec)) return EmitRows(*row);
  return absl::UnimplementedError(absl::StrCat("cpu: no kernel for ", SpecText(spec)));
}

}  // namespace quire
