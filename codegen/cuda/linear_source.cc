#include "codegen/cuda/linear_source.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "codegen/cuda/linear_e4m3.h"
#include "codegen/cuda/linear_parts.h"
#include "codegen/cuda/linear_rope.h"
#include "codegen/cuda/row_emit.h"
#include "codegen/cuda/tensor_core_model.h"

namespace quire {

absl::string_view CudaElementText(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "Bf16";
    case DType::kF16:
      return "F16";
    case DType::kF8E4M3:
      return "E4m3Pair";
    default:
      return "F32";
  }
}

namespace {

absl::string_view BoolText(bool value) { return value ? "true" : "false"; }

// The type that reads a block-quantised weight.
std::string FoursText(DType weight) {
  return absl::StrCat("FoursOf", absl::AsciiStrToUpper(DTypeText(weight)));
}

std::string BodyType(const LinearSpec& spec, const CudaLinearConfig& config) {
  if (IsE4m3Product(spec)) {
    return config.body == CudaLinearConfig::kNarrow
               ? absl::StrCat("LinearE4m3Narrow<", config.rows, ", ", config.tile_rows, ", ",
                              config.stages, ">")
               : absl::StrCat("LinearE4m3Warpgroup<", config.tile_rows, ", ", config.stages, ">");
  }
  const bool narrow = config.body == CudaLinearConfig::kNarrow;
  const std::string sizes =
      absl::StrCat(config.rows, ", ", narrow ? config.tile_rows : config.groups, ", ",
                   config.stages, spec.norm.has_value() ? ", NormedRows>" : ">");
  switch (config.body) {
    case CudaLinearConfig::kFew:
      if (!IsBlockType(spec.weight)) return absl::StrCat("LinearFew<", sizes);
      return absl::StrCat("LinearFewBlocks<", FoursText(spec.weight), "<>, ", config.tile_rows / 8,
                          ", ", sizes);
    case CudaLinearConfig::kTile:
      return absl::StrCat("LinearTile<", sizes);
    case CudaLinearConfig::kNarrow:
      if (!IsBlockType(spec.weight)) return absl::StrCat("LinearNarrow<", sizes);
      return absl::Substitute(
          "LinearNarrow<$0, $1, $2, LinearBlocksRing<$3<true>, $0, $1, $2, $4>>", config.rows,
          config.tile_rows, config.stages, FoursText(spec.weight), CudaLinearCopyK(spec));
    case CudaLinearConfig::kWarpgroup:
      return absl::StrCat("LinearWarpgroup<", config.tile_rows, ", ", config.stages, ", ",
                          BoolText(config.chained), ">");
  }
  return "";
}

// The activation, a function of math.cuh.
std::string ActText(const LinearSpec& spec) {
  absl::string_view value = "x";
  switch (spec.act) {
    case LinearAct::kNone:
      break;
    case LinearAct::kSilu:
      value = "Silu(x)";
      break;
    case LinearAct::kGelu:
      value = "Gelu(x)";
      break;
    case LinearAct::kGeluTanh:
      value = "GeluTanh(x)";
      break;
    case LinearAct::kGeluQuick:
      value = "GeluQuick(x)";
      break;
    case LinearAct::kRelu:
      value = "Relu(x)";
      break;
    case LinearAct::kTanh:
      value = "Tanh(x)";
      break;
    case LinearAct::kSigmoid:
      value = "Sigmoid(x)";
      break;
  }
  const bool has_act = spec.act != LinearAct::kNone;
  return absl::StrCat("constexpr bool kHasAct = ", BoolText(has_act),
                      ", kGated = ", BoolText(spec.gated), ";\nDEVICE float Act(float x) { return ",
                      value, "; }\n");
}

// Columns that go to pages.
std::string AppendConstants(const LinearSpec& spec, CudaLinearConfig::Body body) {
  const AppendSpec append = spec.append.value_or(AppendSpec{0, 1, 8, 8, 1});
  return absl::StrCat(
      "constexpr int kAppendLayers = ", append.layers, ", kKvHeads = ", append.heads,
      ", kKeyDim = ", append.d, ", kValueDim = ", append.dv, ", kPageTokens = ", append.page_tokens,
      ", kPairDistance = ", CudaPairDistance(spec),
      ";\nconstexpr bool kMayAppend = ", BoolText(CudaLinearMayAppend(spec, body)), ";\n");
}
std::string AppendParameters(const LinearSpec& spec) {
  if (!spec.append.has_value()) return "";
  return absl::StrCat(",\n    const int* slots, Output* pages, Output* next_pages",
                      spec.rope.has_value() ? ", const Rotation* turns" : "");
}
// LinearOperands, of what is between braces.
std::string OperandsText(const LinearSpec& spec, absl::string_view inside) {
  if (!spec.append.has_value()) return absl::StrCat("{", inside, "}");
  return absl::StrCat("Appending({", inside, "},\n            slots, pages, next_pages",
                      spec.rope.has_value() ? ", turns)" : ")");
}

std::string ParametersAndBody(const LinearSpec& spec, CudaLinearConfig::Body body) {
  switch (body) {
    case CudaLinearConfig::kFew: {
      const bool norm = spec.norm.has_value();
      return absl::StrCat(
          "(const Element* x, const Element* weight, const float* bias,\n"
          "    const Output* residual, Output* y, uint8_t* workspace, int rows, int first_row",
          norm ? ",\n    const void* norm_weight, const void* norm_bias" : "",
          AppendParameters(spec), ") {\n  Body::Run(",
          OperandsText(
              spec,
              absl::StrCat("x, weight, bias, residual, y, workspace, rows, 0, kN, kK, first_row",
                           norm ? ", 0,\n            norm_weight, norm_bias" : "")),
          ");\n}\n");
    }
    case CudaLinearConfig::kTile:
      return absl::StrCat(
          "(const Element* x, const Element* weight, const float* bias,\n"
          "    const Output* residual, Output* y, uint8_t* workspace, int rows, int "
          "whole_tiles,\n    int n, int k, int y_is_f32",
          AppendParameters(spec), ") {\n  Body::Run(",
          OperandsText(spec,
                       "x, weight, bias, residual, y, workspace, rows, whole_tiles, n, k,\n"
                       "            0, y_is_f32"),
          ");\n}\n");
    case CudaLinearConfig::kNarrow:
    case CudaLinearConfig::kWarpgroup: {
      const bool blocks = CudaLinearReadsBlocks(spec, body), e4m3 = IsE4m3Product(spec);
      return absl::StrCat(
          "(const __grid_constant__ TensorMap x, ",
          blocks ? "const Element* weight" : "const __grid_constant__ TensorMap weight",
          ",\n    const float* bias, const Output* residual, Output* y, uint8_t* workspace,\n"
          "    int rows, int whole_tiles, int n, int k, int y_is_f32",
          e4m3 ? ", const float* x_scales, const uint8_t* numbers" : "", AppendParameters(spec),
          ") {\n",
          // Behind the numbers.
          e4m3 ? absl::StrCat("  const auto* weight_scales = reinterpret_cast<const float*>(\n"
                              "      numbers + int64_t{",
                              spec.gated ? "2 * n" : "n", "} * k * 2);\n")
               : "",
          "  Body::Run(",
          OperandsText(spec,
                       absl::StrCat("nullptr, ", blocks ? "weight" : "nullptr",
                                    ", bias, residual, y, workspace, rows, whole_tiles, ",
                                    spec.gated ? "2 * n" : "n", ", k, 0, y_is_f32",
                                    e4m3 ? ", nullptr, nullptr, x_scales, weight_scales" : "")),
          ", x", blocks ? "" : ",\n            weight", ");\n}\n");
    }
  }
  return "";
}

// Of the linears that a text for many rows serves.
std::string SharedSpecText(LinearSpec spec, CudaLinearConfig::Body body) {
  if (CudaLinearReadsDequantized(spec, body)) spec.weight = spec.x;
  const std::string text = SpecText(spec);
  const size_t types = text.find(" w="), residual = text.find(" residual=");
  return absl::StrCat("linear n=any k=any", text.substr(types, residual - types), " residual=any",
                      text.substr(text.find(" layout=")));
}

// What the texts of all bodies have.
std::string CommonText(const LinearSpec& spec, const CudaLinearKernel& kernel) {
  const bool many = kernel.config.body != CudaLinearConfig::kFew;
  const bool is_written = CudaLinearReadsDequantized(spec, kernel.config.body);
  return absl::StrCat("using Element = ", CudaElementText(spec.x), ";\n",       //
                      "using Output = ", CudaElementText(spec.y), ";\n",        //
                      "constexpr int kGrain = ", CudaLinearGrain(spec.weight),  //
                      ", kSharedBytes = ", kernel.shared_bytes, ";\n",          //
                      "constexpr bool kHasBias = ", BoolText(spec.bias),        //
                      ", kHasResidual = ", BoolText(many || spec.residual),     //
                      ", kWholeStages = ",                                      //
                      BoolText(CudaLinearHasWholeStages(spec)),                 //
                      ", kWeightIsWritten = ", BoolText(is_written), ";\n",     //
                      AppendConstants(spec, kernel.config.body));
}

// What one has that is made for one linear.
std::string FewText(const LinearSpec& spec) {
  return absl::StrCat(
      "constexpr int kN = ", spec.n, ", kK = ", spec.k, ";\n",         //
      ActText(spec), spec.norm.has_value() ? CudaNormText(spec) : "",  //
      "#include \"", spec.norm.has_value() ? "linear_norm.cuh\"\n#include \"" : "",
      IsBlockType(spec.weight) ? "linear_few_blocks.cuh\"\n" : "linear_few.cuh\"\n");
}

// What one has that serves every n and k, with a residual or without.
std::string ManyText(const LinearSpec& spec, const CudaLinearConfig& config) {
  const bool blocks = CudaLinearReadsBlocks(spec, config.body);
  return absl::StrCat(
      "constexpr int kArrivalBytes = ", kCudaZeroBytes, ";\n",
      "constexpr bool kStoresEights = ", BoolText(spec.n % 8 == 0), ";\n", ActText(spec),
      IsE4m3Product(spec)
          ? absl::StrCat("constexpr bool kRowScales = ", BoolText(spec.row_scales), ";\n")
          : "",
      blocks ? "#include \"linear_blocks_ring.cuh\"\n" : "", "#include \"linear_",
      IsE4m3Product(spec) ? "e4m3_" : "", CudaLinearBodyText(config.body), ".cuh\"\n");
}

}  // namespace

absl::string_view CudaLinearBodyText(CudaLinearConfig::Body body) {
  switch (body) {
    case CudaLinearConfig::kFew:
      return "few";
    case CudaLinearConfig::kTile:
      return "tile";
    case CudaLinearConfig::kNarrow:
      return "narrow";
    case CudaLinearConfig::kWarpgroup:
      return "warpgroup";
  }
  return "";
}

bool CudaLinearMayAppend(const LinearSpec& spec, CudaLinearConfig::Body body) {
  return body == CudaLinearConfig::kWarpgroup && spec.append.has_value() && !IsE4m3Product(spec);
}

int64_t CudaLinearGrain(DType weight) {
  if (weight == DType::kF8E4M3) return cuda_linear::kStageK;  // pairs
  return IsBlockType(weight) ? InfoOf(weight).block_elements : kTensorCoreStep;
}

bool CudaLinearHasWholeStages(const LinearSpec& spec) {
  return CudaLinearGrain(spec.weight) % cuda_linear::kStageK == 0 ||
         spec.k % (cuda_linear::kParts * cuda_linear::kStageK) == 0;
}

int64_t CudaLinearCopyK(const LinearSpec& spec) {
  for (int64_t k : {256, 128}) {
    if (CudaLinearGrain(spec.weight) % k == 0 || spec.k % (cuda_linear::kParts * k) == 0) return k;
  }
  return cuda_linear::kStageK;
}

std::string CudaNormText(const LinearSpec& spec) {
  const NormSpec norm = spec.norm.value_or(NormSpec());
  return absl::StrCat(
      "using NormWeight = ", CudaElementText(norm.weight.value_or(DType::kF32)),
      ";\nusing NormBias = ", CudaElementText(norm.bias.value_or(DType::kF32)), ";\n",
      "constexpr bool kNormHasWeight = ", BoolText(norm.weight.has_value()),
      ", kNormHasBias = ", BoolText(norm.bias.has_value()),
      ", kNormCentres = ", BoolText(norm.kind == NormSpec::Kind::kLayer), ";\n",
      "constexpr float kNormPerElement = ", FloatText(1.0 / static_cast<double>(spec.k)),
      ", kNormEps = ", FloatText(norm.eps), ", kNormOffset = ", FloatText(norm.weight_offset),
      ";\n");
}

std::string CudaLinearSource(const LinearSpec& spec, const CudaLinearKernel& kernel) {
  const CudaLinearConfig& config = kernel.config;
  const bool few = config.body == CudaLinearConfig::kFew;
  return absl::StrCat("// ", few ? SpecText(spec) : SharedSpecText(spec, config.body), "\n",  //
                      "#include \"prelude.cuh\"\n",                                           //
                      IsE4m3Product(spec) ? "#include \"hopper.cuh\"\n" : "",                 //
                      spec.act == LinearAct::kNone ? "" : "#include \"math.cuh\"\n",          //
                      CommonText(spec, kernel),                                               //
                      few ? FewText(spec) : ManyText(spec, config),                           //
                      "using Body = ", BodyType(spec, config), ";\n",                         //
                      "static_assert(Body::kThreads == ", kernel.block_threads, ");\n",       //
                      "extern \"C\" __global__ void __launch_bounds__(Body::kThreads, 1)\n",  //
                      kernel.entry, ParametersAndBody(spec, config.body));
}

std::string CudaFinishText(const LinearSpec& spec) {
  CudaLinearKernel none;
  none.config.body = CudaLinearConfig::kTile;
  return absl::StrCat("#include \"prelude.cuh\"\n", CommonText(spec, none),
                      "constexpr int kArrivalBytes = ", kCudaZeroBytes,
                      ";\nconstexpr bool kStoresEights = true;\n");
}

std::string CudaDequantizeSource(const LinearSpec& spec) {
  return absl::StrCat("// ", SpecText(spec), "\n",                                          //
                      "#include \"prelude.cuh\"\n",                                         //
                      "using Element = ", CudaElementText(spec.x), ";\n",                   //
                      "constexpr int kN = ", spec.weight_rows(), ", kK = ", spec.k, ";\n",  //
                      "#include \"linear_dequantize.cuh\"\n",                               //
                      "extern \"C\" __global__ void __launch_bounds__(", kCudaDequantizeThreads,
                      ")\n",                                                              //
                      kCudaDequantizeEntry, "(const uint8_t* weight, Element* out) {\n",  //
                      "  DequantizeWeight<", FoursText(spec.weight), "<>, ", kCudaDequantizeThreads,
                      ">(weight, out);\n}\n");
}

}  // namespace quire
