// Short ways to compile definitions in tests.
#ifndef QUIRE_TESTS_COMPILER_COMPILE_HELPERS_H_
#define QUIRE_TESTS_COMPILER_COMPILE_HELPERS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/compile.h"
#include "compiler/lower.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire::testing {

// A checkpoint that holds exactly what the module's weights name.
inline TensorTable TensorsOf(const Module& module) {
  TensorTable tensors;
  absl::flat_hash_set<std::string> seen;
  for (const auto& func : module.funcs) {
    for (const auto& op : func->ops()) {
      if (!op->Is(OpKind::kWeight) || !seen.insert(op->Text(AttrKind::kName)).second) continue;
      auto tensor = std::make_unique<plan::TensorT>();
      tensor->name = op->Text(AttrKind::kName);
      tensor->dtype = std::string(DTypeText(op->type.dtype));
      for (const Extent& extent : op->type.extents) tensor->extents.push_back(extent.value());
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

// The module after the passes of `list` ("cache-kv,fuse"), and what they reported.
struct Rewritten {
  Module module;
  std::vector<PassReport> reports;

  std::string text() const { return Print(module); }
  // Notes of all passes as lines, without times: "pass %value: text".
  std::string notes() const {
    std::string lines;
    for (const PassReport& report : reports) {
      for (const PassNote& note : report.notes) {
        absl::StrAppend(&lines, report.pass, " %", note.value,
                        note.fired ? ": " : ": declined: ", note.text, "\n");
      }
    }
    return lines;
  }
};

inline absl::StatusOr<Rewritten> Rewrite(absl::string_view text, absl::string_view list,
                                         const Target& target = {}) {
  Rewritten result;
  QUIRE_ASSIGN_OR_RETURN(result.module, Parse(text));
  QUIRE_ASSIGN_OR_RETURN(std::vector<const PassDef*> passes, ParsePassList(list));
  QUIRE_RETURN_IF_ERROR(RunPasses(result.module, passes, target, {}, &result.reports));
  return result;
}

// The text fused and lowered. `tensors`: nullptr for exactly those that it names.
inline absl::StatusOr<plan::TargetT> Lower(absl::string_view text, TensorTable* tensors = nullptr,
                                           const Target& target = {}) {
  QUIRE_ASSIGN_OR_RETURN(Rewritten rewritten, Rewrite(text, "fuse", target));
  TensorTable own = TensorsOf(rewritten.module);
  if (tensors == nullptr) tensors = &own;
  QUIRE_ASSIGN_OR_RETURN(plan::TargetT lowered, SelectKernels(rewritten.module, *tensors, target));
  QUIRE_RETURN_IF_ERROR(PlaceBuffers(*lowered.programs[0]));
  return lowered;
}

// Texts of the target's kernels, in its order.
inline std::vector<std::string> Specs(const plan::TargetT& target) {
  std::vector<std::string> texts;
  for (const auto& kernel : target.kernels) texts.push_back(kernel->spec);
  return texts;
}

// As a checkpoint in bf16 is lowered.
inline Target CudaTarget() { return TargetFor("cuda", {}); }

}  // namespace quire::testing

#endif  // QUIRE_TESTS_COMPILER_COMPILE_HELPERS_H_
