#include "compiler/pass.h"

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "ir/status.h"

namespace quire {

absl::Span<const PassDef> AllPasses() {
  static constexpr PassDef kPasses[] = {
#define PASS(function, name, phase, summary) {name, function, PassPhase::k##phase, summary},
#define MODULE_PASS(function, name, phase, summary) \
  {name, nullptr, PassPhase::k##phase, summary, function},
#include "compiler/passes.def"
  };
  return kPasses;
}

absl::string_view PhaseText(PassPhase phase) {
  switch (phase) {
    case PassPhase::kRaise:
      return "raise";
    case PassPhase::kDerive:
      return "derive";
    case PassPhase::kLower:
      return "lower";
  }
  return "";
}

absl::StatusOr<std::vector<const PassDef*>> ParsePassList(absl::string_view list) {
  std::vector<const PassDef*> passes;
  for (absl::string_view word : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    word = absl::StripAsciiWhitespace(word);
    const PassDef* found = nullptr;
    std::vector<absl::string_view> names;
    for (const PassDef& pass : AllPasses()) {
      names.push_back(pass.name);
      if (word == pass.name) found = &pass;
    }
    if (found == nullptr) {
      absl::Status status =
          absl::InvalidArgumentError(absl::StrCat("passes=", word, " is not known"));
      status = WithLine(status, "allowed", absl::StrJoin(names, ", "));
      const std::string near = Nearest(word, names);
      return near.empty() ? status
                          : WithLine(status, "fix", absl::StrCat("did you mean ", near, "?"));
    }
    passes.push_back(found);
  }
  return passes;
}

}  // namespace quire
