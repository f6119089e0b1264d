#include "runtime/program_forms.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/dtype.h"
#include "ir/status.h"

namespace quire {

absl::StatusOr<const plan::ProgramT*> FindProgram(const plan::TargetT& target,
                                                  absl::string_view name) {
  std::vector<std::string> names;
  for (const auto& program : target.programs) {
    if (program->name == name) return program.get();
    names.push_back(program->name);
  }
  return WithLine(absl::InvalidArgumentError(absl::StrCat("the plan has no program ", name)),
                  "allowed", absl::StrJoin(names, ", "));
}

ProgramForms FormsOf(const plan::TargetT& target, const plan::ProgramT& program) {
  ProgramForms forms;
  for (const auto& buffer : program.buffers) {
    forms.buffers.push_back(*buffer->offset);
    forms.buffer_bytes.push_back(*buffer->bytes);
  }
  forms.arena = *program.arena;
  for (const auto& layer : target.kv_layers) {
    forms.layers.push_back({layer->cache, layer->heads, layer->k_dim, layer->v_dim,
                            InfoOf(*ParseDType(layer->dtype)).block_bytes});
  }
  if (!program.results.empty()) forms.result = program.results[0].index();
  return forms;
}

absl::Status BadLaunch(const plan::LaunchT& launch, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("launch ", launch.name, ": ", what));
}

}  // namespace quire
