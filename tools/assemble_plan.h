// From a model on disk to a plan in memory: importers, definition and compiler meet here.
#ifndef QUIRE_TOOLS_ASSEMBLE_PLAN_H_
#define QUIRE_TOOLS_ASSEMBLE_PLAN_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "ir/dtype.h"
#include "ir/plan_generated.h"
#include "models/model.h"

namespace quire {

// What to lower for; what is not given, TargetFor() chooses from the weights.
struct TargetRequest {
  std::string name = "cpu";  // "": each that a plan has
  std::optional<DType> activation, kv_dtype;
  std::optional<int> page_tokens;
  // Left out, with a note, where no kernel computes what the model needs.
  bool is_optional = false;
};

struct AssembleOptions {
  std::string model;        // a directory, a .gguf, a .qir or a .qplan
  std::string weights_dir;  // of a .qir: the checkpoint that holds its weights; of a .qplan: the
                            // folder where its weight files are now
  std::string weights_map;  // of a .qir: JSON from weight name to tensor name
  std::string plan_path;    // where the plan will be: weight files are named relative to its folder
  ModelOptions model_options;
  // Not given: all; of a .qplan those that it was asked for with, if it was.
  std::optional<std::vector<const PassDef*>> passes;
  PipelineOptions pipeline;
  // In the order that they will have. Empty: the CPU. The IR of the passes for others than the
  // first is dumped into folders of their names.
  std::vector<TargetRequest> targets;
};

struct AssembledPlan {
  std::unique_ptr<plan::PlanT> plan;
  std::vector<std::pair<std::string, std::vector<PassReport>>> reports;  // by target
  bool was_packed = false;                             // a .qplan that held its weights
  std::vector<std::string> left_out;                   // "cuda: %x: why", of optional targets
  std::vector<std::string> unused;                     // tensors of the checkpoint, in its order
  std::vector<std::string> notes;                      // "key=value of FILE is not honoured"
  std::vector<std::pair<std::string, double>> phases;  // name, milliseconds
};

// What a model is called by where it lies: "path/to/model/" -> "model", "." -> the folder's name.
std::string ModelName(const std::string& path);

absl::StatusOr<AssembledPlan> AssemblePlan(const AssembleOptions& options);

}  // namespace quire

#endif  // QUIRE_TOOLS_ASSEMBLE_PLAN_H_
