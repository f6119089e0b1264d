// Runs passes over a module and audits each of them.
//
// For every pass and function: print before, run, verify, time, and compare the returned flag with
// whether the text changed. Rules of the pipeline, so that no pass has to be trusted.
//
// Errors: a pass's own refusal, prefixed with the pass's name; INTERNAL when a pass broke its
// contract (invalid IR, or a false "changed"), with the path of a .qir that reproduces it.
#ifndef QUIRE_COMPILER_PIPELINE_H_
#define QUIRE_COMPILER_PIPELINE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/pass.h"
#include "ir/graph.h"

namespace quire {

struct PassReport {
  std::string pass, func;
  bool changed = false;
  double ms = 0;  // of the pass alone, without the audit
  std::vector<PassNote> notes;
};

struct PipelineOptions {
  // When set, the module is written here before the first pass (00-input.qir) and after each
  // (01-recognise-attention.qir, ...). The folder is made if it does not exist.
  std::string dump_ir_dir;
  // Where a reproducer is written; "": dump_ir_dir, or else the system's folder for temporary
  // files.
  std::string reproducer_dir;
};

// The module is left as it was before the pass that failed.
absl::Status RunPasses(Module& module, absl::Span<const PassDef* const> passes,
                       const Target& target, const PipelineOptions& options,
                       std::vector<PassReport>* reports);

// The default pipeline.
std::vector<const PassDef*> DefaultPasses();

// Reports as lines of text: one for each pass, and one for each note below it.
std::string ExplainText(absl::Span<const PassReport> reports);

}  // namespace quire

#endif  // QUIRE_COMPILER_PIPELINE_H_
