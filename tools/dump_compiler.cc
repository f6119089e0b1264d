// The outputs that ask the compiler: IR, passes, kernels.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/compile.h"
#include "compiler/pipeline.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "ir/text.h"
#include "tools/cuda_text.h"
#include "tools/dump.h"
#include "tools/kernel_text.h"

namespace quire {

using nlohmann::ordered_json;

absl::StatusOr<Dumped> DumpIr(const PlanFile& file, const DumpOptions& options) {
  Dumped dumped;
  if (options.phase == "raised") {
    dumped.text = file.plan().ir;
  } else {
    QUIRE_ASSIGN_OR_RETURN(const plan::TargetT* target, TargetToDump(file, options));
    // The text computes in f32; what a plan stores between groups is in its buffers.
    if (!target->activation.empty() && target->activation != DTypeText(DType::kF32)) {
      absl::StrAppend(&dumped.text, "// ", target->name,
                      ": values between groups (@) are stored as ", target->activation,
                      ", those that lead to the result row by row as f32\n");
    }
    for (const auto& program : target->programs) dumped.text += program->ir;
  }
  dumped.json = {{"phase", options.phase}, {"ir", dumped.text}};
  return dumped;
}

absl::StatusOr<Dumped> DumpPasses(const PlanFile& file, const DumpOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(const plan::TargetT* target, TargetToDump(file, options));
  QUIRE_ASSIGN_OR_RETURN(Module module, Parse(file.plan().ir, "ir"));
  QUIRE_ASSIGN_OR_RETURN(
      CompiledTarget compiled,
      CompileTarget(module, TargetOf(*target), OptionsOf(*target), file.plan().tensors));
  Dumped dumped;
  dumped.text = ExplainText(compiled.reports);
  dumped.json = ordered_json::array();
  for (const PassReport& report : compiled.reports) {
    ordered_json notes = ordered_json::array();
    for (const PassNote& note : report.notes) {
      notes.push_back({{"value", note.value}, {"fired", note.fired}, {"text", note.text}});
    }
    dumped.json.push_back({{"pass", report.pass},
                           {"function", report.func},
                           {"changed", report.changed},
                           {"ms", report.ms},
                           {"notes", std::move(notes)}});
  }
  return dumped;
}

namespace {

// What a kernel computes in each program, by the names of the values in its IR.
struct KernelLaunches {
  int64_t count = 0;
  std::string text;  // "2 in step (%l0.up, %l1.up), 1 in encode (%e0.up)"
  ordered_json by_program = ordered_json::object();
};

KernelLaunches LaunchesOf(const plan::TargetT& target, size_t kernel) {
  KernelLaunches launches;
  for (const auto& program : target.programs) {
    std::vector<std::string> names;
    for (const auto& launch : program->launches) {
      if (launch->kernel == kernel) names.push_back(launch->name);
    }
    if (names.empty()) continue;
    launches.count += static_cast<int64_t>(names.size());
    const std::string last = names.size() > 2 ? " .. " : ", ";
    absl::StrAppend(&launches.text, launches.text.empty() ? "" : ", ", names.size(), " in ",
                    program->name, " (%", names.front(),
                    names.size() > 1 ? absl::StrCat(last, "%", names.back()) : "", ")");
    launches.by_program[program->name] = std::move(names);
  }
  return launches;
}

}  // namespace

absl::string_view TargetOfEmit(absl::string_view emit) {
  if (emit == "spec") return "";
  return emit == "llvm" || emit == "asm" ? "cpu" : "cuda";
}

absl::StatusOr<Dumped> DumpKernels(const PlanFile& file, const DumpOptions& options) {
  const absl::string_view wanted = TargetOfEmit(options.emit);
  DumpOptions with_target = options;
  if (options.target.empty()) with_target.target = std::string(wanted);
  QUIRE_ASSIGN_OR_RETURN(const plan::TargetT* target, TargetToDump(file, with_target));
  std::vector<std::vector<CudaEntryText>> cuda;
  const std::string architecture =
      options.architecture.empty() ? ShownArchitecture(*target) : options.architecture;
  if (wanted == "cuda") {
    QUIRE_ASSIGN_OR_RETURN(cuda, CudaKernelTexts(file, *target, options.emit, architecture));
  }
  Dumped dumped;
  dumped.json = ordered_json::array();
  for (size_t i = 0; i < target->kernels.size(); ++i) {
    const std::string& spec = target->kernels[i]->spec;
    const KernelLaunches launches = LaunchesOf(*target, i);
    ordered_json kernel = {{"kernel", i},
                           {"launches", launches.count},
                           {"launches_by_program", launches.by_program},
                           {"spec", spec}};
    absl::StrAppend(&dumped.text, i == 0 ? "" : "\n", "// kernel ", i,
                    ", launches: ", launches.text, "\n", spec, "\n");
    for (const auto& binary : target->kernels[i]->binaries) {
      kernel["binaries"].push_back({{"architecture", binary->architecture},
                                    {"entry", binary->entry},
                                    {"bytes", binary->bytes}});
    }
    if (wanted == "cuda") {
      for (const CudaEntryText& entry : cuda[i]) {
        absl::StrAppend(&dumped.text, "\n", ResourcesText(entry, architecture), entry.code);
        kernel["entries"].push_back(ResourcesJson(entry, architecture));
        kernel["entries"].back()[options.emit] = entry.code;
      }
    } else if (wanted == "cpu") {
      QUIRE_ASSIGN_OR_RETURN(const std::string code, KernelText(spec, options.emit));
      absl::StrAppend(&dumped.text, "\n", code);
      kernel[options.emit] = code;
    }
    dumped.json.push_back(std::move(kernel));
  }
  return dumped;
}

}  // namespace quire
