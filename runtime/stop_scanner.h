// Ends a stream of text at the first stop string.
//
// The first is the one that is complete first; of two that end together, the one that began first.
// So the cut depends on the text alone, not on how it arrives in pieces. What may turn out to begin
// a stop string is held back.
#ifndef QUIRE_RUNTIME_STOP_SCANNER_H_
#define QUIRE_RUNTIME_STOP_SCANNER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire {

class StopScanner {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopScanner(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Text that is certain after `piece` arrived. REQUIRES: !stopped().
  std::string Push(absl::string_view piece);
  // The rest, at the end of the stream; empty when stopped().
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_STOP_SCANNER_H_
