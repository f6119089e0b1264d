#include "codegen/cuda/linear_rope.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "codegen/cuda/linear_source.h"
#include "codegen/cuda/row_emit.h"
#include "codegen/rope.h"

namespace quire {
namespace {

RopeOp OpOf(const LinearSpec& spec) {
  return ParseRopeOp(spec.rope->attributes, spec.append->d).value();
}

std::string TableText(absl::string_view name, const std::vector<double>& numbers) {
  return absl::StrCat(
      "__device__ const double ", name, "[] = {",
      absl::StrJoin(numbers, ", ",
                    [](std::string* out, double number) { out->append(DoubleText(number)); }),
      "};\n");
}

}  // namespace

CudaRowOrder CudaLinearRowOrder(const LinearSpec& spec) {
  if (CudaPairDistance(spec) < 8) return {};
  return {spec.y_columns() / spec.append->d + spec.append->heads, spec.append->d};
}

int CudaPairDistance(const LinearSpec& spec) {
  if (!spec.rope.has_value()) return 0;
  return OpOf(spec).op->Text(AttrKind::kStyle) == "half" ? 8 : 1;
}

int64_t CudaTurnBytes(const LinearSpec& spec) { return spec.append->d / 2 * 8; }

CudaEntry CudaTurnsEntry(const LinearSpec& spec) {
  const RopeOp rope = OpOf(spec);
  const Op& op = *rope.op;
  const int64_t d = spec.append->d;
  std::string tables = TableText("kFrequencies", RopeFrequencies(op, d));
  std::string frequency = "Frequencies<1>(kFrequencies + pair)";
  if (op.Text(AttrKind::kScaling) == "dynamic") {
    absl::StrAppend(&tables, TableText("kExponents", RopeGrowthExponents(d)));
    frequency = absl::StrCat(
        "Shrink(", frequency, ", Frequencies<1>(kExponents + pair),\n",
        "      LogGrowth(position, ", DoubleText(op.Float(AttrKind::kScaleFactor)), ", ",
        DoubleText(static_cast<double>(op.Int(AttrKind::kOriginalTokens))), "))");
  }
  if (spec.rope->factors.has_value()) {
    frequency = absl::StrCat("Divide(", frequency, ",\n      Load<1>(static_cast<const ",
                             CudaElementText(*spec.rope->factors), "*>(factors) + pair))");
  }
  CudaEntry entry;
  entry.entry = "linear_turns";
  entry.block_threads = kCudaTurnsThreads;
  entry.source = absl::StrCat(
      "// ", SpecText(spec), "\n#include \"row.cuh\"\n", tables, "constexpr int kPairs = ", d / 2,
      ";\nconstexpr float kMagnitude = ", FloatText(op.Float(AttrKind::kMagnitude)), ";\n",
      "DEVICE Angles<1> FrequencyOf([[maybe_unused]] int position, int pair,\n"
      "                             [[maybe_unused]] const void* factors) {\n  return ",
      frequency, ";\n}\n#include \"linear_turns.cuh\"\n",
      "extern \"C\" __global__ void __launch_bounds__(", kCudaTurnsThreads, ")\n", entry.entry,
      "(const StepHeader* header, const int* positions, const void* factors, Rotation* turns) {\n",
      "  WriteTurns(header, positions, factors, turns, ", kCudaTurnsThreads, ");\n}\n");
  return entry;
}

CudaEntry CudaFinishEntry(const LinearSpec& spec) {
  CudaEntry entry;
  entry.entry = "linear_finish";
  entry.block_threads = kCudaFinishThreads;
  entry.source = absl::StrCat(
      "// ", SpecText(spec), "\n", CudaFinishText(spec), "#include \"linear_finish.cuh\"\n",
      "extern \"C\" __global__ void __launch_bounds__(", kCudaFinishThreads, ")\n", entry.entry,
      "(const float* sums, const float* bias, Output* y, int rows,\n"
      "    const int* slots, Output* pages, const Rotation* turns) {\n"
      "  FinishSums(sums,\n"
      "             Appending({nullptr, nullptr, bias, nullptr, y, nullptr, rows, 0, ",
      spec.n, ", ", spec.k,
      "},\n                       slots, pages, pages, turns),\n             ", kCudaFinishThreads,
      ");\n}\n");
  return entry;
}

}  // namespace quire
