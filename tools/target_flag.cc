#include "tools/target_flag.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "codegen/cuda/architecture.h"
#include "ir/status.h"

namespace quire {

absl::StatusOr<std::vector<TargetFlag>> ParseTargetFlag(absl::string_view text) {
  std::vector<TargetFlag> targets;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    const auto& [name, architecture] = words;
    const bool is_known = name == "cuda" || (name == "cpu" && part == "cpu");
    if (!is_known || part == "cuda:") {
      return WithLine(absl::InvalidArgumentError(absl::StrCat("there is no target ", part)),
                      "allowed", "cpu, cuda, cuda:ARCHITECTURE, and several of them: cuda,cpu");
    }
    if (!architecture.empty()) {
      QUIRE_RETURN_IF_ERROR(LimitsOfArchitecture(architecture).status());
    }
    auto target = std::find_if(targets.begin(), targets.end(),
                               [&](const TargetFlag& other) { return other.name == name; });
    if (target == targets.end()) {
      target = targets.insert(targets.end(), {std::string(name), {}});
    }
    auto& list = target->architectures;
    if (!architecture.empty() && std::find(list.begin(), list.end(), architecture) == list.end()) {
      list.emplace_back(architecture);
    }
  }
  return targets;
}

}  // namespace quire
