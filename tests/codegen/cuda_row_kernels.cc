// Writes a C++ text of the row kernels of cuda_row_cases.h for the emulator: a namespace each, and
// a table of functions that call them. Run by the build.
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/cuda/row.h"
#include "tests/codegen/cuda_row_cases.h"

int main() {
  std::string text =
      "#include \"tests/codegen/cuda_row_emulated.h\"\n"
      "namespace quire::emulated {\n";
  std::string table;
  int number = 0;
  for (const quire::RowSpec& spec : quire::testing::CudaRowCases()) {
    const auto kernel = quire::MakeCudaRow(spec, quire::testing::kRowLimits);
    if (!kernel.ok()) {
      std::fprintf(stderr, "%s\n%s\n", spec.func.c_str(), kernel.status().ToString().c_str());
      return 1;
    }
    const std::string source =
        absl::StrReplaceAll((*kernel)->entries()[0].source, {{"#include \"row.cuh\"\n", ""},
                                                             {"#include \"step.cuh\"\n", ""},
                                                             {"extern \"C\" ", "static "}});
    absl::StrAppend(&text, "namespace row", number, " {\n", source, "}\n");
    absl::StrAppend(&table, "    Calls<row", number++, "::row>,\n");
  }
  absl::StrAppend(&text, "const RowCall kRowCalls[] = {\n", table, "};\n}\n");
  std::fputs(text.c_str(), stdout);
  return 0;
}
