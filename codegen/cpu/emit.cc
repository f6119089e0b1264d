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
    if (linear->norm.has_value() || linear->act != LinearAct::kNone || linear->append.has_value()) {
      return absl::UnimplementedError(
          absl::StrCat("cpu: ", SpecText(spec), "\n  allowed: neither norm, act nor append"));
    }
    return IsIntegerBlockType(linear->weight) ? EmitQuantLinear(*linear, isa)
                                              : EmitFloatLinear(*linear);
  }
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
    if (attention->x != DType::kF32) {
      return absl::UnimplementedError(absl::StrCat("cpu: ", SpecText(spec), "\n  allowed: x=f32"));
    }
    if (attention->bias_distances > 0 || attention->sinks || attention->tree_words > 0) {
      return absl::UnimplementedError(
          absl::StrCat("cpu: ", SpecText(spec), "\n  allowed: neither bias, sinks nor tree"));
    }
    return EmitAttention(*attention);
  }
  const auto& row = std::get<RowSpec>(spec);
  if (row.page_tokens != 0) {
    return absl::UnimplementedError(absl::StrCat("cpu: ", SpecText(spec), "\n  allowed: no page"));
  }
  return EmitRows(row);
}

}  // namespace quire
