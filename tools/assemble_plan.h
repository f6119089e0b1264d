// From a model on disk to a plan in memory: importers, definition and compiler meet here.
#ifndef QUIRE_TOOLS_ASSEMBLE_PLAN_H_
#define QUIRE_TOOLS_ASSEMBLE_PLAN_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/target.h"
#include "compiler/compile.h"
#include "ir/plan_generated.h"
#include "models/model.h"

namespace quire {

struct AssembleOptions {
  std::string model;        // a directory, a .gguf, a .qir or a .qplan
  std::string weights_dir;  // of a .qir: the checkpoint that holds its weights
  std::string weights_map;  // of a .qir: JSON from weight name to tensor name
  std::string plan_path;    // where the plan will be: weight files are named relative to its folder
  ModelOptions model_options;
  CompileOptions compile;
  // kv_dtype is chosen from the weights when kv_dtype_auto: f32 if they are all f32, otherwise f16.
  Target target;
  bool kv_dtype_auto = true;
};

struct AssembledPlan {
  std::unique_ptr<plan::PlanT> plan;
  std::vector<PassReport> reports;
  std::vector<std::pair<std::string, double>> phases;  // name, milliseconds
};

absl::StatusOr<AssembledPlan> AssemblePlan(const AssembleOptions& options);

}  // namespace quire

#endif  // QUIRE_TOOLS_ASSEMBLE_PLAN_H_
