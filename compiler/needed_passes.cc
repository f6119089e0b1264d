#include "compiler/needed_passes.h"

#include <algorithm>
#include <utility>

#include "ir/status.h"

namespace quire {

absl::StatusOr<std::vector<const PassDef*>> WithNeededPasses(
    const Module& raised, const Target& target, const std::vector<const PassDef*>& passes,
    const TensorTable& tensors) {
  CompileOptions options;
  QUIRE_RETURN_IF_ERROR(CompileTarget(raised, target, options, tensors).status());
  for (size_t i = options.passes.size(); i-- > 0;) {
    const PassDef* pass = options.passes[i];
    if (std::find(passes.begin(), passes.end(), pass) != passes.end()) continue;
    CompileOptions without = options;
    without.passes.erase(without.passes.begin() + static_cast<ptrdiff_t>(i));
    if (CompileTarget(raised, target, without, tensors).ok()) options = std::move(without);
  }
  return options.passes;
}

}  // namespace quire
