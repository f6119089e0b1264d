// What a plan says of a program to every device that loads it.
#ifndef QUIRE_RUNTIME_PROGRAM_FORMS_H_
#define QUIRE_RUNTIME_PROGRAM_FORMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/plan_generated.h"

namespace quire {

struct KvLayerForm {
  plan::KvCache cache;
  int64_t heads, k_dim, v_dim, element_bytes;
};

// Sizes are forms of a step's rows.
struct ProgramForms {
  std::vector<plan::Linear> buffers;  // offsets into the arena
  std::vector<plan::Linear> buffer_bytes;
  plan::Linear arena;
  std::vector<KvLayerForm> layers;  // as Target.kv_layers
  std::optional<uint32_t> result;   // the buffer that holds the logits
};

// INVALID_ARGUMENT, with the programs that there are, without one of that name.
absl::StatusOr<const plan::ProgramT*> FindProgram(const plan::TargetT& target,
                                                  absl::string_view name);
// REQUIRES: a program of `target`, which was checked when the plan was opened.
ProgramForms FormsOf(const plan::TargetT& target, const plan::ProgramT& program);

// INVALID_ARGUMENT: a launch that no device runs.
absl::Status BadLaunch(const plan::LaunchT& launch, absl::string_view what);

}  // namespace quire

#endif  // QUIRE_RUNTIME_PROGRAM_FORMS_H_
