#include "codegen/cuda/linear_source.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "codegen/cuda/tensor_core_model.h"

namespace quire {
namespace {

absl::string_view ElementText(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "Bf16";
    case DType::kF16:
      return "F16";
    default:
      return "F32";
  }
}
absl::string_view BoolText(bool value) { return value ? "true" : "false"; }

// The type that reads a block-quantised weight.
std::string FoursText(DType weight) {
  return absl::StrCat("FoursOf", absl::AsciiStrToUpper(DTypeText(weight)));
}

std::string BodyType(const LinearSpec& spec, const CudaLinearConfig& config) {
  const std::string sizes =
      absl::StrCat(config.rows, ", ", config.groups, ", ", config.stages, ">");
  switch (config.body) {
    case CudaLinearConfig::kFew:
      if (!IsBlockType(spec.weight)) return absl::StrCat("LinearFew<", sizes);
      return absl::StrCat("LinearFewBlocks<", FoursText(spec.weight), ", ", config.tile_rows / 8,
                          ", ", sizes);
    case CudaLinearConfig::kTile:
      return absl::StrCat("LinearTile<", sizes);
    case CudaLinearConfig::kWarpgroup:
      // A chain of warpgroups pays with the wide tile only.
      return absl::StrCat("LinearWarpgroup<", config.tile_rows, ", ", config.stages, ", ",
                          BoolText(config.tile_rows == 192), ">");
  }
  return "";
}

absl::string_view ParametersAndBody(CudaLinearConfig::Body body) {
  switch (body) {
    case CudaLinearConfig::kFew:
      return "(const Element* x, const Element* weight, const float* bias,\n"
             "    const Output* residual, Output* y, uint8_t* workspace, int rows, int first_row) "
             "{\n"
             "  Body::Run({x, weight, bias, residual, y, workspace, rows, 0, first_row});\n}\n";
    case CudaLinearConfig::kTile:
      return "(const Element* x, const Element* weight, const float* bias,\n"
             "    const Output* residual, Output* y, uint8_t* workspace, int rows, int "
             "whole_tiles) "
             "{\n"
             "  Body::Run({x, weight, bias, residual, y, workspace, rows, whole_tiles});\n}\n";
    case CudaLinearConfig::kWarpgroup:
      return "(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap weight,\n"
             "    const float* bias, const Output* residual, Output* y, uint8_t* workspace,\n"
             "    int rows, int whole_tiles) {\n"
             "  Body::Run({nullptr, nullptr, bias, residual, y, workspace, rows, whole_tiles}, x,\n"
             "            weight);\n}\n";
  }
  return "";
}

}  // namespace

absl::string_view CudaLinearBodyText(CudaLinearConfig::Body body) {
  switch (body) {
    case CudaLinearConfig::kFew:
      return "few";
    case CudaLinearConfig::kTile:
      return "tile";
    case CudaLinearConfig::kWarpgroup:
      return "warpgroup";
  }
  return "";
}

int64_t CudaLinearGrain(DType weight) {
  return IsBlockType(weight) ? InfoOf(weight).block_elements : kTensorCoreStep;
}

std::string CudaLinearSource(const LinearSpec& spec, const CudaLinearKernel& kernel) {
  const CudaLinearConfig& config = kernel.config;
  const bool blocks = IsBlockType(spec.weight);
  const bool reads_blocks = blocks && config.body == CudaLinearConfig::kFew;
  return absl::StrCat("// ", SpecText(spec), "\n",                                        //
                      "#include \"prelude.cuh\"\n",                                       //
                      "using Element = ", ElementText(spec.x), ";\n",                     //
                      "using Output = ", ElementText(spec.y), ";\n",                      //
                      "constexpr int kN = ", spec.n, ", kK = ", spec.k,                   //
                      ", kGrain = ", CudaLinearGrain(spec.weight), ";\n",                 //
                      "constexpr bool kHasBias = ", BoolText(spec.bias),                  //
                      ", kHasResidual = ", BoolText(spec.residual),                       //
                      ", kWeightIsWritten = ", BoolText(blocks && !reads_blocks), ";\n",  //
                      "constexpr int kSharedBytes = ", kernel.shared_bytes,               //
                      ", kArrivalBytes = ", kCudaZeroBytes, ";\n",                        //
                      "#include \"linear_", CudaLinearBodyText(config.body),
                      reads_blocks ? "_blocks" : "",
                      ".cuh\"\n",                                                             //
                      "using Body = ", BodyType(spec, config), ";\n",                         //
                      "static_assert(Body::kThreads == ", kernel.block_threads, ");\n",       //
                      "extern \"C\" __global__ void __launch_bounds__(Body::kThreads, 1)\n",  //
                      kernel.entry, ParametersAndBody(config.body));
}

std::string CudaDequantizeSource(const LinearSpec& spec) {
  return absl::StrCat("// ", SpecText(spec), "\n",                              //
                      "#include \"prelude.cuh\"\n",                             //
                      "using Element = ", ElementText(spec.x), ";\n",           //
                      "constexpr int kN = ", spec.n, ", kK = ", spec.k, ";\n",  //
                      "#include \"linear_dequantize.cuh\"\n",                   //
                      "extern \"C\" __global__ void __launch_bounds__(", kCudaDequantizeThreads,
                      ")\n",                                                              //
                      kCudaDequantizeEntry, "(const uint8_t* weight, Element* out) {\n",  //
                      "  DequantizeWeight<", FoursText(spec.weight), ", ", kCudaDequantizeThreads,
                      ">(weight, out);\n}\n");
}

}  // namespace quire
