#include "tools/assemble_plan.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/needed_passes.h"
#include "ir/file.h"
#include "ir/fingerprint.h"
#include "ir/op.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/import/checkpoint.h"
#include "models/import/generation.h"
#include "models/import/gguf_config.h"
#include "models/import/json.h"
#include "models/import/tokenizer_checkpoint.h"
#include "runtime/weights.h"
#include "tools/cli.h"
#include "tools/pack_weights.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Times the phases of a compilation, each from the end of the one before.
class PhaseClock {
 public:
  explicit PhaseClock(AssembledPlan* assembled) : assembled_(assembled) {}
  void Done(absl::string_view phase) {
    const auto now = std::chrono::steady_clock::now();
    assembled_->phases.emplace_back(phase,
                                    std::chrono::duration<double, std::milli>(now - last_).count());
    last_ = now;
  }

 private:
  AssembledPlan* assembled_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// `path` as a plan in `plan_path`'s folder names it.
std::string RelativeToPlan(const std::string& path, const std::string& plan_path) {
  std::error_code error;
  const fs::path folder = fs::absolute(fs::path(plan_path), error).parent_path();
  const fs::path relative = fs::relative(fs::path(path), folder, error);
  return error || relative.empty() ? fs::absolute(fs::path(path), error).string()
                                   : relative.string();
}

absl::Status AddTensors(const Checkpoint& checkpoint, const Module& module,
                        const std::string& plan_path, plan::PlanT* plan) {
  std::vector<int> file_index(checkpoint.files().size(), -1);
  std::vector<std::string> names = WeightNames(module);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name = names[i];
    QUIRE_ASSIGN_OR_RETURN(const TensorInfo* info, checkpoint.Require(name));
    int& file = file_index[static_cast<size_t>(info->file)];
    if (file < 0) {
      const std::string path = checkpoint.PathOf(*info);
      QUIRE_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
      auto entry = std::make_unique<plan::WeightFileT>();
      entry->path = RelativeToPlan(path, plan_path);
      entry->bytes = mapped.file_bytes();
      entry->fingerprint = Fingerprint(mapped.bytes());
      file = static_cast<int>(plan->files.size());
      plan->files.push_back(std::move(entry));
    }
    auto tensor = std::make_unique<plan::TensorT>();
    tensor->name = info->name;
    tensor->dtype = std::string(DTypeText(*info->dtype));
    tensor->extents = info->extents;
    tensor->file = static_cast<uint32_t>(file);
    tensor->offset = info->offset;
    tensor->bytes = info->bytes;
    if (!info->scale.empty()) {
      // Behind all that the module names, unless it is one of them.
      const auto found = std::find(names.begin(), names.end(), info->scale);
      tensor->scale = static_cast<int32_t>(found - names.begin());
      if (found == names.end()) names.push_back(info->scale);
    }
    plan->tensors.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

// The configuration that the plan records, for `quire dump --output=metadata`.
absl::StatusOr<std::string> ConfigText(const Checkpoint& checkpoint, const ModelOptions& options) {
  if (checkpoint.format() == CheckpointFormat::kSafetensors) return checkpoint.config().dump();
  QUIRE_ASSIGN_OR_RETURN(GgufConfig config,
                         ConfigFromGguf(checkpoint, options.allowed_config_keys));
  return config.config.dump();
}

// As requested; what is not, as before where the plan has such a target, else by its weights.
Target WantedTarget(const TargetRequest& request, const plan::PlanT& plan) {
  Target target = TargetFor(request.name, plan.tensors);
  for (const auto& before : plan.targets) {
    if (before->name == request.name) target = TargetOf(*before);
  }
  target.activation = request.activation.value_or(target.activation);
  target.kv_dtype = request.kv_dtype.value_or(target.kv_dtype);
  target.page_tokens = request.page_tokens.value_or(target.page_tokens);
  return target;
}

// What is stored beside the weights and decides nothing: rope's frequencies, positions, by what
// activations would be rounded to 8 bits (models/import/fp8.h) and GPT-2's causal masks, which
// follow from the configuration, and BART's bias of the logits, which was seen to be zero
// (models/encoder_decoder.h).
bool IsBuffer(const TensorInfo& tensor) {
  return absl::EndsWith(tensor.name, ".inv_freq") || absl::EndsWith(tensor.name, "position_ids") ||
         absl::EndsWith(tensor.name, ".masked_bias") || tensor.name == "final_logits_bias" ||
         absl::EndsWith(tensor.name, ".input_scale") ||
         (absl::EndsWith(tensor.name, ".attn.bias") && tensor.extents.size() == 4);
}

// Tensors that the definition has no use for: of layers beyond those that the configuration counts,
// say.
std::vector<std::string> UnusedTensors(const Checkpoint& checkpoint, const plan::PlanT& plan) {
  absl::flat_hash_set<absl::string_view> used;
  for (const auto& tensor : plan.tensors) used.insert(tensor->name);
  std::vector<std::string> unused;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (!used.contains(tensor.name) && !IsBuffer(tensor)) unused.push_back(tensor.name);
  }
  return unused;
}

std::string NamesOf(const std::vector<const PassDef*>& passes) {
  return absl::StrJoin(
      passes, ",", [](std::string* out, const PassDef* pass) { absl::StrAppend(out, pass->name); });
}

// The passes that a target of a plan was asked for with, if it was, a request's own or else the
// first one's: what it is lowered by again.
std::optional<std::vector<const PassDef*>> PassesOf(const TargetRequest& request,
                                                    const plan::PlanT& plan,
                                                    std::vector<std::string>* notes) {
  const plan::TargetT* from = plan.targets.empty() ? nullptr : plan.targets[0].get();
  for (const auto& before : plan.targets) {
    if (before->name == request.name) from = before.get();
  }
  if (from == nullptr || !from->chose_passes) return std::nullopt;
  const std::string names = absl::StrJoin(from->passes, ",");
  auto passes = ParsePassList(names);
  const std::string note =
      passes.ok() ? absl::StrCat("lowered as the plan was: --passes=", names)
                  : absl::StrCat("lowered by all passes, since --passes=", names,
                                 ", by which the plan was, are not all known to this build");
  if (std::find(notes->begin(), notes->end(), note) == notes->end()) notes->push_back(note);
  if (!passes.ok()) return std::nullopt;
  return *std::move(passes);
}

// Why `passes`, which were asked for, do not lower the module, and which do; `failed` if none do.
absl::Status ExplainPasses(const Module& module, const Target& target,
                           const std::vector<const PassDef*>& passes, const TensorTable& tensors,
                           const absl::Status& failed) {
  const auto enough = WithNeededPasses(module, target, passes, tensors);
  if (!enough.ok()) return failed;
  std::string missing;
  for (const PassDef* pass : *enough) {
    if (std::find(passes.begin(), passes.end(), pass) != passes.end()) continue;
    absl::StrAppend(&missing, "\n  missing: ", pass->name, ": ", pass->summary);
  }
  return WithLine(
      UsageError(absl::StrCat(
          "quire compile: --passes",
          missing.empty() ? " is in an order that does not lower this model"
                          : " leaves out what this model cannot be lowered without",
          missing, "\n  found: ",
          std::vector<std::string>(absl::StrSplit(failed.message(), absl::MaxSplits('\n', 1)))[0])),
      "fix", absl::StrCat("--passes=", NamesOf(*enough)));
}

// Replaces the plan's targets by those requested.
absl::Status Lower(const Module& module, const std::vector<TargetRequest>& requests,
                   const AssembleOptions& options, AssembledPlan* assembled) {
  plan::PlanT& plan = *assembled->plan;
  std::vector<std::unique_ptr<plan::TargetT>> targets;
  for (const TargetRequest& request : requests) {
    CompileOptions compile;
    compile.pipeline = options.pipeline;
    const auto passes =
        options.passes.has_value() ? options.passes : PassesOf(request, plan, &assembled->notes);
    if (passes.has_value()) compile.passes = *passes;
    std::string& dump_dir = compile.pipeline.dump_ir_dir;
    if (!dump_dir.empty() && &request != &requests[0]) dump_dir = JoinPath(dump_dir, request.name);
    const Target wanted = WantedTarget(request, plan);
    absl::StatusOr<CompiledTarget> compiled = CompileTarget(module, wanted, compile, plan.tensors);
    if (request.is_optional && absl::IsUnimplemented(compiled.status())) {
      assembled->left_out.push_back(absl::StrCat(request.name, ": ", compiled.status().message()));
      continue;
    }
    if (!compiled.ok() && passes.has_value()) {
      return ExplainPasses(module, wanted, *passes, plan.tensors, compiled.status());
    }
    QUIRE_RETURN_IF_ERROR(compiled.status());
    compiled->target.chose_passes = passes.has_value();
    targets.push_back(std::make_unique<plan::TargetT>(std::move(compiled->target)));
    assembled->reports.emplace_back(request.name, std::move(compiled->reports));
  }
  plan.targets = std::move(targets);
  plan.op_table_hash = OpTableHash();
  return absl::OkStatus();
}

absl::StatusOr<AssembledPlan> AssembleFromModel(const AssembleOptions& options) {
  AssembledPlan assembled;
  PhaseClock clock(&assembled);
  const bool is_qir = absl::EndsWith(options.model, ".qir");
  // Before the checkpoint, whose folder may be that of the .qir.
  if (is_qir) QUIRE_RETURN_IF_ERROR(MappedFile::Open(options.model).status());
  const std::string checkpoint_path =
      !is_qir ? options.model
              : (options.weights_dir.empty() ? FolderOf(options.model) : options.weights_dir);
  absl::StatusOr<Checkpoint> opened =
      OpenCheckpoint(checkpoint_path.empty() ? "." : checkpoint_path);
  if (!opened.ok() && is_qir && options.weights_dir.empty()) {
    return WithLine(opened.status(), "fix",
                    "--weights-dir=DIR, or FILE.gguf, names the checkpoint that a .qir is for");
  }
  if (!opened.ok()) return opened.status();
  Checkpoint& checkpoint = *opened;
  clock.Done("import");
  absl::StatusOr<ModelDef> built =
      is_qir ? LoadQirModel(options.model, options.weights_map, checkpoint)
             : BuildModel(checkpoint, options.model_options);
  if (!built.ok()) return built.status();
  ModelDef model = *std::move(built);
  clock.Done("define");

  assembled.plan = std::make_unique<plan::PlanT>();
  plan::PlanT& plan = *assembled.plan;
  plan.producer = absl::StrCat("quire ", QUIRE_VERSION);
  plan.model = std::make_unique<plan::ModelT>();
  plan.model->name = ModelName(options.model);
  plan.model->architecture = model.architecture;
  plan.model->parameters = static_cast<uint64_t>(model.parameter_count);
  plan.model->vocabulary = static_cast<int32_t>(model.vocab_size);
  plan.model->max_positions = model.max_positions;
  plan.model->max_source = model.max_source;
  QUIRE_ASSIGN_OR_RETURN(plan.model->config, ConfigText(checkpoint, options.model_options));
  plan.ir = Print(model.module);
  QUIRE_RETURN_IF_ERROR(AddTensors(checkpoint, model.module, options.plan_path, &plan));
  assembled.unused = UnusedTensors(checkpoint, plan);
  absl::StatusOr<ImportedGeneration> imported = ImportGeneration(checkpoint, model.vocab_size);
  QUIRE_RETURN_IF_ERROR(WithFileFix(imported.status()));
  plan.generation = std::move(imported->generation);
  assembled.notes = std::move(imported->notes);
  QUIRE_ASSIGN_OR_RETURN(plan.tokenizer, ImportTokenizer(checkpoint));
  clock.Done("tokenizer");

  const std::vector<TargetRequest> cpu(1);
  QUIRE_RETURN_IF_ERROR(
      Lower(model.module, options.targets.empty() ? cpu : options.targets, options, &assembled));
  clock.Done("compile");
  return assembled;
}

// FlatBuffers 2 makes object-API structs that cannot be copied.
absl::StatusOr<std::unique_ptr<plan::PlanT>> ClonePlan(const plan::PlanT& plan) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(plan::Plan::Pack(builder, &plan), plan::PlanIdentifier());
  return UnpackPlan({builder.GetBufferPointer(), builder.GetSize()});
}

// Whether weights lie in the file. Of a plan of another build only sections are known.
bool HoldsWeights(const PlanFile& file) {
  if (!file.lowered_status().ok()) return !file.sections().empty();
  const auto& targets = file.plan().targets;
  return std::any_of(targets.begin(), targets.end(),
                     [](const auto& target) { return IsPacked(*target); });
}

// A plan lowered again from the IR in it: one of another build, or for other targets.
absl::StatusOr<AssembledPlan> AssembleFromPlan(const AssembleOptions& options) {
  AssembledPlan assembled;
  PhaseClock clock(&assembled);
  QUIRE_ASSIGN_OR_RETURN(PlanFile file, OpenPlan(options.model));
  QUIRE_ASSIGN_OR_RETURN(assembled.plan, ClonePlan(file.plan()));
  clock.Done("open");
  plan::PlanT& plan = *assembled.plan;
  assembled.was_packed = HoldsWeights(file);
  const TensorFiles files(file.plan(), FolderOf(options.model), options.weights_dir);
  // Files that are not where the plan says may come back; where the user says, they are to be, and
  // so are those of weights that only the plan may have.
  if (assembled.was_packed || !options.weights_dir.empty()) {
    QUIRE_RETURN_IF_ERROR(WithPrefix(
        files.Open(), absl::StrCat(options.model, ": its weights' files must be there")));
  }
  for (uint32_t i = 0; i < plan.files.size(); ++i) {
    plan.files[i]->path = RelativeToPlan(files.PathOf(i), options.plan_path);
  }
  plan.producer = absl::StrCat("quire ", QUIRE_VERSION);
  QUIRE_ASSIGN_OR_RETURN(const Module module, RaisedModule(plan));
  std::vector<TargetRequest> requests;
  for (const TargetRequest& request : options.targets) {
    if (!request.name.empty()) requests.push_back(request);
    for (size_t i = 0; request.name.empty() && i < plan.targets.size(); ++i) {
      requests.push_back(request);
      requests.back().name = plan.targets[i]->name;
    }
  }
  QUIRE_RETURN_IF_ERROR(Lower(module, requests, options, &assembled));
  clock.Done("compile");
  return assembled;
}

}  // namespace

std::string ModelName(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(fs::path(path), error).lexically_normal();
  const fs::path name = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  return name.empty() ? "model" : name.string();
}

absl::StatusOr<AssembledPlan> AssemblePlan(const AssembleOptions& options) {
  return absl::EndsWith(options.model, ".qplan") ? AssembleFromPlan(options)
                                                 : AssembleFromModel(options);
}

}  // namespace quire
