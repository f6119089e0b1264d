#include "compiler/compile.h"

#include <chrono>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/lower.h"
#include "compiler/row_wise.h"
#include "ir/op.h"
#include "ir/status.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace quire {
namespace {

// A tensor of rows of an encoder's input.
bool IsStates(const Op& arg) {
  return arg.name == "states" && arg.type.dtype == DType::kF32 && arg.type.rank() == 2 &&
         HasRows(arg.type, 'S') && !arg.type.extents[1].is_letter();
}

// Whether the arguments are ids and pos, and those of an encoder's input, if any, behind them.
bool HasKnownArguments(const Func& step) {
  struct Known {
    const char* name;
    char letter;
  };
  constexpr Known kKnown[] = {{"ids", 'T'}, {"pos", 'T'}, {"source", 'S'}, {"source_pos", 'S'}};
  const size_t count = step.args().size();
  const bool has_states = count == 3 && IsStates(*step.args()[2]);
  if (count != 2 && count != 4 && !has_states) return false;
  for (size_t i = 0; i < (has_states ? 2 : count); ++i) {
    const Op& arg = *step.args()[i];
    const Type wanted{DType::kI32, {Extent::Letter(kKnown[i].letter)}};
    if (arg.name != kKnown[i].name || arg.type != wanted) return false;
  }
  return true;
}

absl::Status CheckSignature(const Module& module) {
  const bool is_step = module.funcs.size() == 1 && module.funcs[0]->name() == "step" &&
                       HasKnownArguments(*module.funcs[0]) &&
                       module.funcs[0]->returns().size() == 1;
  if (!is_step) {
    return WithLine(absl::InvalidArgumentError("the module is not a model's definition"), "allowed",
                    "one function @step(%ids: i32[T], %pos: i32[T]) that returns logits f32[T,V]; "
                    "with an encoder also %source: i32[S], %source_pos: i32[S], or %states: "
                    "f32[S,E]");
  }
  const Op* logits = module.funcs[0]->returns()[0];
  if (logits->type.rank() == 2 && HasRows(logits->type, 'T') && logits->type.dtype == DType::kF32 &&
      !logits->type.extents[1].is_letter()) {
    return absl::OkStatus();
  }
  return WithLine(absl::InvalidArgumentError(
                      Describe(*logits, absl::StrCat("returns ", logits->type.ToString()))),
                  "allowed", "f32[T,V]");
}

// A step computes logits of rows that are asked for.
absl::Status CheckNarrowed(const Module& lowered) {
  for (const auto& func : lowered.funcs) {
    const Op* logits = func->returns().empty() ? nullptr : func->returns()[0];
    if (func->name() != "step" || HasRows(logits->type, 'R')) continue;
    return WithLine(absl::InvalidArgumentError(
                        Describe(*logits, absl::StrCat("returns ", logits->type.ToString(),
                                                       ", logits of rows that nobody asks for"))),
                    "allowed", "f32[R,V], as narrow-outputs leaves it");
  }
  return absl::OkStatus();
}

// Runs `step` and reports it like a pass.
template <typename Step>
absl::Status Timed(absl::string_view name, const Step& step, CompiledTarget* compiled) {
  const auto begin = std::chrono::steady_clock::now();
  QUIRE_RETURN_IF_ERROR(WithPrefix(step(), name));
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  for (const auto& program : compiled->target.programs) {
    PassReport report{std::string(name), program->name, true, taken.count(), {}};
    std::string text = absl::StrCat(program->launches.size(), " launches of ",
                                    compiled->target.kernels.size(), " kernels");
    if (program->arena != nullptr) {
      int64_t t = 0, r = 0;
      for (const auto& buffer : program->buffers) {
        t += buffer->bytes->t();
        r += buffer->bytes->r();
      }
      text = absl::StrCat("bytes of activations for each row: ", t + r, " => ",
                          program->arena->t() + program->arena->r());
    }
    report.notes.push_back({true, program->name, text});
    compiled->reports.push_back(std::move(report));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompiledTarget> CompileTarget(const Module& raised, const Target& target,
                                             const CompileOptions& options,
                                             const TensorTable& tensors) {
  QUIRE_RETURN_IF_ERROR(Verify(raised));
  QUIRE_RETURN_IF_ERROR(CheckSignature(raised));
  CompiledTarget compiled;
  compiled.lowered = raised.Clone();
  QUIRE_RETURN_IF_ERROR(
      RunPasses(compiled.lowered, options.passes, target, options.pipeline, &compiled.reports));
  QUIRE_RETURN_IF_ERROR(CheckNarrowed(compiled.lowered));
  auto select = [&]() -> absl::Status {
    QUIRE_ASSIGN_OR_RETURN(compiled.target, SelectKernels(compiled.lowered, tensors, target));
    for (const PassDef* pass : options.passes) compiled.target.passes.push_back(pass->name);
    return absl::OkStatus();
  };
  QUIRE_RETURN_IF_ERROR(Timed("select-kernels", select, &compiled));
  auto place = [&]() -> absl::Status {
    for (const auto& program : compiled.target.programs) {
      QUIRE_RETURN_IF_ERROR(PlaceBuffers(*program));
    }
    return absl::OkStatus();
  };
  QUIRE_RETURN_IF_ERROR(Timed("plan-memory", place, &compiled));
  return compiled;
}

std::vector<std::string> WeightNames(const Module& module) {
  std::vector<std::string> names;
  absl::flat_hash_set<absl::string_view> seen;
  for (const auto& func : module.funcs) {
    for (const auto& op : func->ops()) {
      if (!op->Is(OpKind::kWeight)) continue;
      const std::string& name = op->Text(AttrKind::kName);
      if (seen.insert(name).second) names.push_back(name);
    }
  }
  return names;
}

Target TargetFor(absl::string_view name, const TensorTable& tensors) {
  double elements = 0, of_f16 = 0;
  bool all_f32 = true;
  for (const auto& tensor : tensors) {
    if (tensor->extents.size() < 2) continue;
    double count = 1;
    for (const int64_t extent : tensor->extents) count *= static_cast<double>(extent);
    elements += count;
    if (tensor->dtype == DTypeText(DType::kF16)) of_f16 += count;
    all_f32 = all_f32 && tensor->dtype == DTypeText(DType::kF32);
  }
  Target target;
  target.name = std::string(name);
  target.traits = TraitsOf(name);
  if (name == "cuda") {
    target.activation = 2 * of_f16 > elements ? DType::kF16 : DType::kBF16;
    target.kv_dtype = target.activation;
  } else {
    target.kv_dtype = all_f32 ? DType::kF32 : DType::kF16;
  }
  return target;
}

Target TargetOf(const plan::TargetT& target) {
  Target lowered_for;
  lowered_for.name = target.name;
  lowered_for.traits = TraitsOf(target.name);
  lowered_for.activation = ParseDType(target.activation).value_or(lowered_for.activation);
  lowered_for.page_tokens = target.page_tokens;
  for (const auto& layer : target.kv_layers) {
    if (layer->cache == plan::KvCache::Encoder) continue;  // of a type of its own
    lowered_for.kv_dtype = ParseDType(layer->dtype).value_or(lowered_for.kv_dtype);
  }
  return lowered_for;
}

CompileOptions OptionsOf(const plan::TargetT& target) {
  CompileOptions options;
  if (target.passes.empty()) return options;
  auto passes = ParsePassList(absl::StrJoin(target.passes, ","));
  if (passes.ok()) options.passes = *std::move(passes);
  return options;
}

absl::StatusOr<Module> RaisedModule(const plan::PlanT& plan) {
  absl::StatusOr<Module> module = Parse(plan.ir, "ir");
  if (module.ok()) return module;
  return absl::DataLossError(absl::StrCat(
      "the plan's embedded IR is not valid in this build\n  from: ", module.status().message()));
}

}  // namespace quire
