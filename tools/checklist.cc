#include "tools/checklist.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace quire {

bool Checklist::Ask(const char* question, const absl::Status& answer, const std::string& yes) {
  if (answer.ok()) {
    Note(question, absl::StrCat("ok: ", yes));
  } else {
    // The message's own lines stand below its first.
    Note(question,
         absl::StrCat("no: ", absl::StrReplaceAll(answer.message(), {{"\n", "\n           "}})));
  }
  first_no_.Update(answer);
  return answer.ok();
}

void Checklist::Note(const char* question, const std::string& text) {
  if (!quiet_) std::printf("%-8s %s\n", question, text.c_str());
}

}  // namespace quire
