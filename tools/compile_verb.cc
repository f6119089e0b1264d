// quire compile: a model directory, a .gguf, a .qir or an older plan, to a plan.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "codegen/cuda/architecture.h"
#include "codegen/cuda/target_kernels.h"
#include "ir/file.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "runtime/weights.h"
#include "tools/add_binaries.h"
#include "tools/assemble_plan.h"
#include "tools/cli.h"
#include "tools/opt_mode.h"
#include "tools/pack_weights.h"
#include "tools/summary.h"
#include "tools/target_flag.h"

namespace quire {
namespace {

struct Options {
  AssembleOptions assemble;
  std::optional<int> page_tokens;
  std::string out, passes, emit, kv_dtype = "auto", activations = "auto", weights = "ref", target;
  bool has_passes = false, has_target = false, has_weights = false, explain = false, force = false;
};

// "path/to/model/" -> "model.qplan", in the current folder; "." -> that folder's name.
std::string DefaultOut(const std::string& model) {
  const std::string whole = ModelName(model);
  absl::string_view name = whole;
  for (absl::string_view suffix : {".gguf", ".qir", ".qplan"}) absl::ConsumeSuffix(&name, suffix);
  return absl::StrCat(name, ".qplan");
}

// What is wrong with the flags beside each other; "" if nothing.
std::string WrongUsage(const CLI::App& app, const Options& options) {
  const AssembleOptions& assemble = options.assemble;
  const bool is_qir = absl::EndsWith(assemble.model, ".qir");
  if (options.has_passes) {
    const absl::Status passes = ParsePassList(options.passes).status();
    if (!passes.ok()) return absl::StrCat("--", passes.message());
  }
  if (!is_qir && !options.emit.empty()) {
    return absl::StrCat("--emit=ir reads a .qir, not ", assemble.model,
                        "\n  fix: quire dump PLAN --output=ir has the definition of a plan");
  }
  const bool is_plan = absl::EndsWith(assemble.model, ".qplan");
  if (!is_qir && !is_plan && !assemble.weights_dir.empty()) {
    return absl::StrCat("--weights-dir is for a .qir or a .qplan, not ", assemble.model,
                        "\n  fix: leave it out: a model directory or .gguf has its own weights");
  }
  if (!is_qir && !assemble.weights_map.empty()) {
    return absl::StrCat("--weights-map is for a .qir, not ", assemble.model,
                        "\n  fix: leave it out: of other models the names are known");
  }
  const bool has_config = !is_qir && !is_plan;
  const bool writes = options.emit.empty();
  const char* const plans = "a plan to write, without --emit";
  return IdleFlag(app, {{"--allow-config-key", has_config, "a model directory or a .gguf"},
                        {"--activations", has_config, "a model directory or a .gguf"},
                        {"--output", writes, plans},
                        {"--force", writes, plans},
                        {"--weights", writes, plans},
                        {"--weights-dir", writes, plans},
                        {"--weights-map", writes, plans}});
}

absl::Status RunOpt(const Options& options) {
  QUIRE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(options.assemble.model));
  OptModeOptions opt;
  opt.file = options.assemble.model;
  opt.passes = options.passes;
  opt.explain = options.explain;
  if (!options.assemble.targets.empty()) {
    const TargetRequest& request = options.assemble.targets[0];
    if (request.name != opt.target.name) opt.target = TargetFor(request.name, {});
    opt.target.kv_dtype = request.kv_dtype.value_or(opt.target.kv_dtype);
    opt.target.page_tokens = request.page_tokens.value_or(opt.target.page_tokens);
  }
  opt.pipeline = options.assemble.pipeline;
  return RunOptMode(opt, file.text());
}

bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

// A UsageError where --force would replace what the plan is made of.
absl::Status CheckReplaced(const Options& options, const plan::PlanT& plan) {
  const std::string &out = options.out, folder = FolderOf(out);
  bool is_input =
      !absl::EndsWith(options.assemble.model, ".qplan") && IsSameFile(out, options.assemble.model);
  const TensorFiles files(plan, folder, "");
  for (uint32_t i = 0; i < plan.files.size(); ++i) is_input |= IsSameFile(out, files.PathOf(i));
  for (const std::string& source : {options.assemble.model, options.assemble.weights_dir}) {
    is_input |= KindOfPath(source) == PathKind::kDirectory && KindOfPath(out) == PathKind::kFile &&
                IsSameFile(source, folder.empty() ? "." : folder) && !absl::EndsWith(out, ".qplan");
  }
  if (!is_input) return absl::OkStatus();
  return WithLine(
      UsageError(absl::StrCat("quire compile: -o=", out, " is a file that the plan is made of")),
      "fix", "another name with -o");
}

absl::Status Write(const Options& options, const std::vector<TargetFlag>& targets, bool packs,
                   plan::PlanT* plan) {
  QUIRE_RETURN_IF_ERROR(CheckReplaced(options, *plan));
  QUIRE_ASSIGN_OR_RETURN(PlanWriter writer,
                         PlanWriter::Create(options.out, {.force = options.force}));
  if (packs) {
    QUIRE_RETURN_IF_ERROR(PackWeights(FolderOf(options.out), plan, &writer));
  }
  for (const TargetFlag& flag : targets) {
    for (const auto& target : plan->targets) {
      if (target->name != flag.name) continue;
      for (const std::string& architecture : flag.architectures) {
        QUIRE_RETURN_IF_ERROR(
            AddCudaBinaries(architecture, plan->model->vocabulary, target.get(), &writer));
      }
    }
  }
  return writer.Finish(*plan);
}

// Leaves out an optional target that has a kernel which no known GPU has.
void LeaveOutWithoutKernels(const AssembleOptions& options, AssembledPlan* assembled) {
  for (const TargetRequest& request : options.targets) {
    auto& targets = assembled->plan->targets;
    const auto target = std::find_if(targets.begin(), targets.end(), [&request](const auto& each) {
      return each->name == request.name;
    });
    if (!request.is_optional || request.name != "cuda" || target == targets.end()) continue;
    absl::Status why;
    for (const std::string& architecture : CudaArchitectures()) {
      why = MakeCudaKernels(**target, *LimitsOfArchitecture(architecture)).status();
      if (why.ok()) break;
    }
    if (why.ok()) continue;
    assembled->left_out.push_back(absl::StrCat(request.name, ": ", why.message()));
    targets.erase(target);
    auto& reports = assembled->reports;
    reports.erase(
        std::remove_if(reports.begin(), reports.end(),
                       [&request](const auto& each) { return each.first == request.name; }),
        reports.end());
  }
}

void Explain(const AssembledPlan& assembled) {
  for (const auto& [target, reports] : assembled.reports) {
    if (assembled.reports.size() > 1) std::fprintf(stderr, "target %s\n", target.c_str());
    std::fputs(ExplainText(reports).c_str(), stderr);
  }
}

absl::Status Compile(Options& options) {
  // Weights that are named suit every target; packed ones are laid out for each. A plan is lowered
  // again for what it has.
  const bool is_plan = absl::EndsWith(options.assemble.model, ".qplan");
  const char* const usual = options.weights == "ref" ? "cpu,cuda" : "cpu";
  std::vector<TargetFlag> targets(1);
  if (options.has_target || !is_plan) {
    auto parsed = ParseTargetFlag(options.has_target ? options.target : usual);
    if (!parsed.ok()) {
      return UsageError(absl::StrCat("quire compile: --target: ", parsed.status().message()));
    }
    targets = *std::move(parsed);
  }
  for (const TargetFlag& target : targets) {
    TargetRequest& request = options.assemble.targets.emplace_back();
    request.name = target.name;
    if (options.kv_dtype != "auto") request.kv_dtype = ParseDType(options.kv_dtype);
    request.page_tokens = options.page_tokens;
    request.is_optional = !options.has_target && !is_plan && target.name != "cpu";
  }
  if (options.emit == "ir") {
    if (options.has_target && (targets.size() > 1 || !targets[0].architectures.empty())) {
      return WithLine(UsageError(absl::StrCat("quire compile: --target=", options.target)),
                      "allowed", "with --emit=ir cpu or cuda");
    }
    return RunOpt(options);
  }
  if (options.has_passes) {
    QUIRE_ASSIGN_OR_RETURN(options.assemble.passes, ParsePassList(options.passes));
  }
  if (options.out.empty()) options.out = DefaultOut(options.assemble.model);
  // Found out before the work, and again by the writer.
  if (KindOfPath(options.out) == PathKind::kDirectory) {
    return WithLine(UsageError(absl::StrCat("quire compile: -o=", options.out, " is a folder")),
                    "fix", absl::StrCat("-o ", JoinPath(options.out, "x.qplan")));
  }
  if (!options.force && KindOfPath(options.out) != PathKind::kMissing) {
    return WithLine(absl::AlreadyExistsError(absl::StrCat(options.out, ": the file exists")), "fix",
                    "--force, or another name with -o");
  }
  options.assemble.plan_path = options.out;
  options.assemble.model_options.keeps_activations = options.activations == "keep";
  QUIRE_ASSIGN_OR_RETURN(AssembledPlan assembled, AssemblePlan(options.assemble));
  if (options.assemble.targets.size() > 1) LeaveOutWithoutKernels(options.assemble, &assembled);
  if (options.explain) Explain(assembled);
  const bool packs = options.weights == "pack" || (assembled.was_packed && !options.has_weights);
  QUIRE_RETURN_IF_ERROR(Write(options, targets, packs, assembled.plan.get()));
  std::fputs(CompileSummary(assembled, options.out).c_str(), stderr);
  return absl::OkStatus();
}

}  // namespace

VerbMain AddCompileVerb(CLI::App* app) {
  auto options = std::make_shared<Options>();
  AssembleOptions& assemble = options->assemble;
  app->add_option("model", assemble.model, "model directory, .gguf, .qir or .qplan")
      ->required()
      ->check(WrongName);
  app->add_option("-o,--output", options->out,
                  "the plan to write (default: the model's name with .qplan, here)")
      ->check(WrongName);
  app->add_flag("--force", options->force, "replace an existing file");
  CLI::Option* weights =
      app->add_option("--weights", options->weights,
                      "ref: name weight files; pack: copy them into the plan (ref, but of a .qplan "
                      "what it has)")
          ->check(OneOf({"ref", "pack"}));
  CLI::Option* target = app->add_option("--target", options->target,
                                        "what to lower for: cpu, cuda, or both; cuda:sm_90a builds "
                                        "kernels in (what the model can run on, with packed "
                                        "weights cpu; of a .qplan: what it has)");
  app->add_option("--kv-dtype", options->kv_dtype,
                  "element type of the KV cache: f32, f16, bf16 or f8e4m3 (by the weights' types)")
      ->check(OneOf({"auto", "f32", "f16", "bf16", "f8e4m3"}));
  app->add_option("--page-tokens", options->page_tokens, "tokens in one KV page")
      ->check(CLI::Range(1, 65536));
  app->add_option("--weights-dir", assemble.weights_dir,
                  "of a .qir: directory or .gguf with its weights; of a .qplan: directory where "
                  "its weight files are now")
      ->check(WrongName);
  app->add_option("--weights-map", assemble.weights_map,
                  "of a .qir: JSON from weight to tensor name")
      ->check(WrongName);
  app->add_option("--allow-config-key", assemble.model_options.allowed_config_keys,
                  "a key of config.json or of GGUF's metadata that is known to be harmless")
      ->allow_extra_args(false)
      ->check(WrongName);
  app->add_option("--activations", options->activations,
                  "of a checkpoint of 8-bit floats that means its linears to round what they read: "
                  "auto, as it says, or keep")
      ->check(OneOf({"auto", "keep"}));
  CLI::Option* passes = app->add_option(
      "--passes", options->passes,
      "run these passes only: a,b,... (all; of a .qplan: those it was asked for with)");
  app->add_option("--emit", options->emit, "ir: print the module on stdout and write no plan")
      ->check(OneOf({"ir"}));
  app->add_option("--dump-ir", assemble.pipeline.dump_ir_dir, "write the IR after every pass here")
      ->check(WrongName);
  app->add_flag("--explain", options->explain, "say what each pass did, or why it declined");
  return [options, app, passes, target, weights] {
    options->has_passes = passes->count() > 0;
    options->has_target = target->count() > 0;
    options->has_weights = weights->count() > 0;
    const std::string wrong = WrongUsage(*app, *options);
    if (!wrong.empty()) return FailUsage(absl::StrCat("quire compile: ", wrong));
    const absl::Status status = Compile(*options);
    return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
  };
}

}  // namespace quire
