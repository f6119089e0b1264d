// Writes a C++ text of the kernels that recorded steps launch, for the emulator: a namespace each,
// and the table of emulated_kernels.h. Run by the build.
#include <cstdio>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/cuda/source.h"
#include "ir/status.h"
#include "tests/replay/recorded_program.h"

namespace quire::testing {
namespace {

// Headers are written for one kernel; those that the emulator stands for stay out.
std::string ForgetHeaders() {
  std::string text;
  for (const auto& [name, header] : CudaKernelHeaders()) {
    if (name == "prelude.cuh" || name == "hopper.cuh") continue;
    const std::string guard = absl::StrReplaceAll(absl::AsciiStrToUpper(name), {{".", "_"}});
    absl::StrAppend(&text, "#undef QUIRE_", guard, "_\n");
  }
  return text;
}

absl::Status Write() {
  std::set<std::string> written;
  std::string text =
      "#include \"tests/codegen/cuda_emulated_calls.h\"\n"
      "#include \"tests/codegen/cuda_hopper_emulator.h\"\n"
      "#include \"tests/replay/emulated_kernels.h\"\n"
      "namespace quire::emulated {\n";
  std::string table;
  const auto add = [&](const CudaEntry& entry) {
    if (!written.insert(entry.source).second) return;
    const std::string name = absl::StrCat("kernel", written.size());
    // Names that headers overload.
    absl::StrAppend(&text, ForgetHeaders(), "namespace ", name,
                    " {\nusing emulated::Add;\nusing emulated::Mul;\n",
                    absl::StrReplaceAll(entry.source, {{"extern \"C\" ", "static "}}), "}\n");
    absl::StrAppend(&table, "    {R\"cuda(", entry.source, ")cuda\", Calls<", name,
                    "::", entry.entry, ">},\n");
  };
  for (const RecordPath& path : RecordPaths()) {
    QUIRE_ASSIGN_OR_RETURN(const auto record, ReadStepRecord(path.path));
    for (const CudaLimits& limits : LimitsOf(*record)) {
      QUIRE_ASSIGN_OR_RETURN(const RecordedProgram program, OpenRecord(path.path, limits));
      for (const auto& step : program.record->steps) {
        for (const KernelLaunch& launch : PreparingLaunches(program, *step)) {
          add(program.kernels[launch.kernel]->entries()[launch.launch.entry]);
        }
        for (size_t i = 0; i <= program.program->launches.size(); ++i) {
          for (const KernelLaunch& launch : LaunchesOf(program, *step, i)) {
            add(program.kernels[launch.kernel]->entries()[launch.launch.entry]);
          }
        }
      }
    }
  }
  std::printf("%sconst EmulatedKernel kEmulatedKernels[] = {\n%s    {nullptr, nullptr}};\n}\n",
              text.c_str(), table.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire::testing

int main() {
  const absl::Status status = quire::testing::Write();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
