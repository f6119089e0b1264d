// quire dump: what is in a plan, and the tables that describe Quire itself.
#include <cstdio>
#include <memory>
#include <string>

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

}  // namespace

VerbMain AddDumpVerb(CLI::App* app) {
  auto options = std::make_shared<Options>();
  app->add_option("plan", options->plan, "the .qplan to look into");
  app->add_option("--output", options->output,
                  "what to show: summary, ir, passes, kernels, memory, weights or metadata")
      ->check(
          CLI::IsMember({"summary", "ir", "passes", "kernels", "memory", "weights", "metadata"}));
  app->add_option("--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  app->add_option("--phase", options->dump.phase, "of the IR: raised or lowered")
      ->check(CLI::IsMember({"raised", "lowered"}));
  app->add_option("--emit", options->dump.emit,
                  "of kernels: spec; of the CPU's llvm or asm; of CUDA's cuda, ptx or sass")
      ->check(CLI::IsMember({"spec", "llvm", "asm", "cuda", "ptx", "sass"}));
  app->add_option("--target", options->dump.target,
                  "of a plan with several (default: the first, or the one --emit is of)");
  app->add_option("--arch", options->dump.architecture,
                  "of CUDA kernels (default: that of the plan's binaries, else sm_90a)");
  app->add_flag("--ops", options->ops, "the table of ops, as Markdown");
  app->add_flag("--passes-table", options->passes, "the table of passes, as Markdown");
  app->add_flag("--flags-table", options->flags, "the table of flags, as Markdown");
  return [options, app] {
    if (options->ops || options->passes || options->flags) {
      const Table table = options->ops      ? OpTable()
                          : options->passes ? PassTable()
                                            : FlagTable(*app->get_parent());
      std::fputs(table.Markdown().c_str(), stdout);
      return static_cast<int>(kExitOk);
    }
    if (options->plan.empty())
      return FailUsage("quire dump: name a plan, or --ops or another table");
    const absl::Status status = DumpPlan(*options);
    return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
  };
}

}  // namespace quire
