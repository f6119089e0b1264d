// The questions of `quire check` and their answers.
#ifndef QUIRE_TOOLS_CHECKLIST_H_
#define QUIRE_TOOLS_CHECKLIST_H_

#include <string>

#include "absl/status/status.h"

namespace quire {

// Prints a line for each question, with the whole message where the answer is no, and keeps the
// first no.
class Checklist {
 public:
  explicit Checklist(bool quiet) : quiet_(quiet) {}
  // Returns whether the answer is yes. `yes` is printed beside it.
  bool Ask(const char* question, const absl::Status& answer, const std::string& yes);
  // An answer that is neither: nothing here, but nothing that is needed.
  void Note(const char* question, const std::string& text);
  const absl::Status& first_no() const { return first_no_; }

 private:
  const bool quiet_;
  absl::Status first_no_;
};

}  // namespace quire

#endif  // QUIRE_TOOLS_CHECKLIST_H_
