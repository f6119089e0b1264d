// quire dump: what is in a plan, and the tables that describe Quire itself.
#include <cstdio>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "codegen/cuda/architecture.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "tools/cli.h"
#include "tools/dump.h"
#include "tools/reference_tables.h"
#include "tools/session.h"

namespace quire {
namespace {

struct Output {
  const char* name;
  DumpFn dump;
};

constexpr Output kOutputs[] = {
    {"summary", DumpSummary},   {"ir", DumpIr},         {"passes", DumpPasses},
    {"kernels", DumpKernels},   {"memory", DumpMemory}, {"weights", DumpWeights},
    {"metadata", DumpMetadata},
};

struct Options {
  std::string plan, output = "summary", format = "text";
  DumpOptions dump;
  bool ops = false, passes = false, flags = false;
};

absl::Status DumpPlan(const Options& options) {
  QUIRE_RETURN_IF_ERROR(CheckIsNoModel(options.plan));
  QUIRE_ASSIGN_OR_RETURN(PlanFile file, OpenPlan(options.plan));
  if (!options.dump.target.empty()) {
    QUIRE_RETURN_IF_ERROR(file.Target(options.dump.target).status());
  }
  for (const Output& output : kOutputs) {
    if (options.output != output.name) continue;
    QUIRE_ASSIGN_OR_RETURN(Dumped dumped, output.dump(file, options.dump));
    if (options.format == "json") {
      // Text of a checkpoint may be no UTF-8.
      dumped.text =
          dumped.json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    }
    std::fwrite(dumped.text.data(), 1, dumped.text.size(), stdout);
  }
  return absl::OkStatus();
}

// What is wrong with the flags beside each other; "" if nothing.
std::string WrongUsage(const CLI::App& app, const Options& options) {
  const int tables = options.ops + options.passes + options.flags;
  if (tables > 1) return "several tables\n  allowed: --ops, --passes-table or --flags-table";
  if (tables == 0 && options.plan.empty()) {
    return "no plan\n  allowed: a .qplan, or without one --ops, --passes-table or --flags-table";
  }
  if (tables > 0 && !options.plan.empty()) return "a plan beside a table\n  allowed: one of them";
  const bool is_kernels = options.output == "kernels";
  const std::string& emit = options.dump.emit;
  const bool is_lowered = (options.output == "ir" && options.dump.phase == "lowered") ||
                          is_kernels || options.output == "passes" || options.output == "memory" ||
                          options.output == "weights";
  const absl::string_view emitted = TargetOfEmit(emit);
  if (is_kernels && !emitted.empty() && !options.dump.target.empty() &&
      options.dump.target != emitted) {
    return absl::StrCat("--emit=", emit, " is of ", emitted, ", not of ", options.dump.target,
                        "\n  fix: --target=", emitted);
  }
  if (!options.dump.architecture.empty()) {
    const absl::Status known = LimitsOfArchitecture(options.dump.architecture).status();
    if (!known.ok()) return absl::StrCat("--arch: ", known.message());
  }
  return IdleFlag(app,
                  {{"--output", tables == 0, "a plan"},
                   {"--format", tables == 0, "a plan"},
                   {"--phase", tables == 0 && options.output == "ir", "--output=ir"},
                   {"--emit", tables == 0 && is_kernels, "--output=kernels"},
                   {"--arch", is_kernels && (emit == "cuda" || emit == "ptx" || emit == "sass"),
                    "--output=kernels --emit=cuda, ptx or sass"},
                   {"--target", tables == 0 && is_lowered,
                    "--output=passes, kernels, memory, weights, or ir --phase=lowered"}});
}

}  // namespace

VerbMain AddDumpVerb(CLI::App* app) {
  auto options = std::make_shared<Options>();
  app->add_option("plan", options->plan, "the .qplan to look into")->check(WrongName);
  app->add_option("--output", options->output,
                  "what to show: summary, ir, passes, kernels, memory, weights or metadata")
      ->check(OneOf({"summary", "ir", "passes", "kernels", "memory", "weights", "metadata"}));
  app->add_option("--format", options->format, "text or json")->check(OneOf({"text", "json"}));
  app->add_option("--phase", options->dump.phase, "of the IR: raised or lowered")
      ->check(OneOf({"raised", "lowered"}));
  app->add_option("--emit", options->dump.emit,
                  "of kernels: spec; of the CPU's llvm or asm; of CUDA's cuda, ptx or sass")
      ->check(OneOf({"spec", "llvm", "asm", "cuda", "ptx", "sass"}));
  app->add_option("--target", options->dump.target,
                  "of a plan with several (default: the first, or the one --emit is of)")
      ->check(OneOf({"cpu", "cuda"}));
  app->add_option("--arch", options->dump.architecture,
                  "of CUDA kernels (default: that of the plan's binaries, else sm_90a)");
  app->add_flag("--ops", options->ops, "the table of ops, as Markdown");
  app->add_flag("--passes-table", options->passes, "the table of passes, as Markdown");
  app->add_flag("--flags-table", options->flags, "the table of flags, as Markdown");
  return [options, app] {
    const std::string wrong = WrongUsage(*app, *options);
    if (!wrong.empty()) return FailUsage(absl::StrCat("quire dump: ", wrong));
    if (options->ops || options->passes || options->flags) {
      const Table table = options->ops      ? OpTable()
                          : options->passes ? PassTable()
                                            : FlagTable(*app->get_parent());
      std::fputs(table.Markdown().c_str(), stdout);
      return static_cast<int>(kExitOk);
    }
    const absl::Status status = DumpPlan(*options);
    return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
  };
}

}  // namespace quire
