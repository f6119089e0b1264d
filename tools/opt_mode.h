// `quire compile x.qir --passes=a,b --emit=ir`: chosen passes over a text, for tests of passes and
// for the curious.
#ifndef QUIRE_TOOLS_OPT_MODE_H_
#define QUIRE_TOOLS_OPT_MODE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "codegen/target.h"
#include "compiler/pipeline.h"

namespace quire {

struct OptModeOptions {
  std::string file;    // for messages
  std::string passes;  // "a,b"; "" is none: parse, verify and print
  bool explain = false;
  Target target;
  PipelineOptions pipeline;
};

// Parses `text`, runs the passes and prints the module on stdout.
absl::Status RunOptMode(const OptModeOptions& options, absl::string_view text);

}  // namespace quire

#endif  // QUIRE_TOOLS_OPT_MODE_H_
