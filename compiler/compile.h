// From a raised module to one target's part of a plan.
//
// A pure function of its arguments: reads no file, no weight bytes, no clock but for reports.
// Errors: INVALID_ARGUMENT when the definition or its weights are wrong, UNIMPLEMENTED when they
// are valid but not supported, INTERNAL when a pass broke its contract (compiler/pipeline.h).
#ifndef QUIRE_COMPILER_COMPILE_H_
#define QUIRE_COMPILER_COMPILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codegen/target.h"
#include "compiler/pipeline.h"
#include "compiler/weight_slots.h"
#include "ir/graph.h"
#include "ir/plan_generated.h"

namespace quire {

struct CompileOptions {
  std::vector<const PassDef*> passes = DefaultPasses();
  PipelineOptions pipeline;
};

struct CompiledTarget {
  plan::TargetT target;
  Module lowered;                   // the IR after the last pass
  std::vector<PassReport> reports;  // for --explain; select-kernels and plan-memory included
};

// `raised` has one function, @step(%ids: i32[T], %pos: i32[T]) -> logits f32[T,V], by these names:
// devices bind a program's arguments by name. An encoder-decoder's has %source: i32[S] and
// %source_pos: i32[S] too, or %states: f32[S,E], and becomes programs step and encode. `tensors` is
// what Plan.tensors will hold.
absl::StatusOr<CompiledTarget> CompileTarget(const Module& raised, const Target& target,
                                             const CompileOptions& options,
                                             const TensorTable& tensors);

// Names of the tensors that the module's weights name, each once, in order of use: what
// Plan.tensors has to hold.
std::vector<std::string> WeightNames(const Module& module);

// What a checkpoint of these tensors is lowered for where the user says nothing. Its matrices
// decide: a norm or bias kept in f32 beside them says nothing.
//   cpu:  activations f32; keys and values f32 if all matrices are f32, otherwise f16
//   cuda: both f16 if most elements of matrices are f16, otherwise bf16
Target TargetFor(absl::string_view name, const TensorTable& tensors);

// What `target` of a plan was lowered for.
Target TargetOf(const plan::TargetT& target);

// How `target` of a plan was lowered: its passes, or all where it does not say, or where this build
// has others.
CompileOptions OptionsOf(const plan::TargetT& target);

// The module that a plan can be lowered from again. DATA_LOSS when its embedded IR is not valid in
// this build.
absl::StatusOr<Module> RaisedModule(const plan::PlanT& plan);

}  // namespace quire

#endif  // QUIRE_COMPILER_COMPILE_H_
