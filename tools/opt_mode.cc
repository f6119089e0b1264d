#include "tools/opt_mode.h"

#include <cstdio>

#include "compiler/pipeline.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire {

absl::Status RunOptMode(const OptModeOptions& options, absl::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(Module module, Parse(text, options.file));
  QUIRE_ASSIGN_OR_RETURN(std::vector<const PassDef*> passes, ParsePassList(options.passes));
  std::vector<PassReport> reports;
  QUIRE_RETURN_IF_ERROR(RunPasses(module, passes, options.target, options.pipeline, &reports));
  if (options.explain) std::fputs(ExplainText(reports).c_str(), stderr);
  std::fputs(Print(module).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace quire
