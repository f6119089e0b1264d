#include "codegen/cpu/emit.h"

#include "absl/strings/str_cat.h"

namespace quire {

absl::StatusOr<EmittedKernel> EmitKernel(const KernelSpec& spec, const Isa& isa) {
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    if (linear->layout != WeightLayout::kRows16) {
      return absl::UnimplementedError(
          absl::StrCat("cpu: ", SpecText(spec), "\n  allowed: layout=rows16"));
    }
    if (linear->x != DType::kF32 || linear->y != DType::kF32) {
      return absl::UnimplementedError(
          absl::StrCat("cpu: ", SpecText(spec), "\n  allowed: x=f32 y=f32"));
    }
    return IsBlockType(linear->weight) ? EmitQuantLinear(*linear, isa) : EmitFloatLinear(*linear);
  }
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) return EmitAttention(*attention);
  return EmitRows(std::get<RowSpec>(spec));
}

}  // namespace quire
