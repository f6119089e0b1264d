#include "models/import/fp8.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

TensorInfo Tensor(absl::string_view name, DType dtype, std::vector<int64_t> extents) {
  TensorInfo tensor;
  tensor.name = std::string(name);
  tensor.dtype = dtype;
  tensor.extents = std::move(extents);
  return tensor;
}

TensorIndex IndexOf(std::vector<TensorInfo> tensors) {
  return {{"model.safetensors"}, std::move(tensors)};
}

TEST(PairScalesTest, MatricesGetTheirScalesByNameAndExtents) {
  TensorIndex index = IndexOf({
      Tensor("blocks.weight", DType::kF8E4M3, {200, 256}),
      Tensor("blocks.weight_scale_inv", DType::kBF16, {2, 2}),
      Tensor("rows.weight", DType::kF8E4M3, {200, 256}),
      Tensor("rows.weight_scale", DType::kF32, {200, 1}),
      Tensor("all.weight", DType::kF8E4M3, {200, 256}),
      Tensor("all.weight_scale", DType::kF32, {}),
      Tensor("none.weight", DType::kF8E4M3, {200, 256}),
      Tensor("other.weight", DType::kBF16, {200, 256}),
      Tensor("other.weight_scale", DType::kF32, {3}),
  });
  ASSERT_TRUE(PairScales(&index).ok());
  for (size_t i : {0u, 2u, 4u}) {
    EXPECT_EQ(index.tensors[i].dtype, DType::kF8E4M3_128);
    EXPECT_EQ(index.tensors[i].scale, index.tensors[i + 1].name);
  }
  EXPECT_EQ(index.tensors[6].dtype, DType::kF8E4M3);
  EXPECT_EQ(index.tensors[7].dtype, DType::kBF16);
}

TEST(PairScalesTest, WhatIsNoScaleIsRefused) {
  TensorIndex other = IndexOf(
      {Tensor("w", DType::kF8E4M3, {200, 256}), Tensor("w_scale_inv", DType::kF32, {2, 4})});
  EXPECT_EQ(PairScales(&other),
            absl::InvalidArgumentError("tensor w_scale_inv has extents [2, 4]\n"
                                       "  from: model.safetensors\n"
                                       "  allowed: [1], [200, 1], [2, 2], for [200, 256]"));
  TensorIndex odd =
      IndexOf({Tensor("w", DType::kF8E4M3, {200, 96}), Tensor("w_scale", DType::kF32, {1})});
  EXPECT_EQ(PairScales(&odd),
            absl::UnimplementedError("tensor w: rows of 96 8-bit floats\n"
                                     "  from: model.safetensors\n  allowed: a multiple of 128"));
  TensorIndex eight =
      IndexOf({Tensor("w", DType::kF8E4M3, {200, 256}), Tensor("w_scale", DType::kF32, {1})});
  eight.tensors[1].dtype.reset();
  eight.tensors[1].dtype_text = "F8_E8M0";
  EXPECT_EQ(PairScales(&eight),
            absl::UnimplementedError("tensor w_scale: scales of type F8_E8M0\n"
                                     "  from: model.safetensors\n  allowed: F32, F16, BF16"));
}

absl::Status Check(const std::string& quantization, std::vector<std::string> allowed = {}) {
  const auto config =
      nlohmann::json::parse("{\"quantization_config\": " + quantization + "}", nullptr, false);
  EXPECT_FALSE(config.is_discarded()) << quantization;
  return CheckFp8Config(config, "config.json", allowed);
}

std::string Compressed(const std::string& weights, const std::string& more = "") {
  return R"({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
             "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": {"num_bits": 8},
             "weights": {"num_bits": 8, "type": "float", "symmetric": true, "dynamic": false)" +
         weights + "}}}" + more + "}";
}

TEST(Fp8ConfigTest, FormsThatAreKnownAreAccepted) {
  for (const std::string& text : {
           std::string(R"({"quant_method": "fp8"})"),
           std::string(R"({"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                           "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]})"),
           std::string(R"({"quant_method": "fp8", "activation_scheme": "static",
                           "weight_block_size": null, "ignored_layers": []})"),
           std::string(R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
                           "modules_to_not_convert": null})"),
           Compressed(R"(, "strategy": "tensor", "group_size": null, "observer": "minmax")"),
           Compressed(R"(, "strategy": "block", "block_structure": [128, 128])",
                      R"(, "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor",
                          "symmetric": true, "dynamic": false}, "sparsity_config": {})"),
       }) {
    EXPECT_TRUE(Check(text).ok()) << text << Check(text);
  }
}

TEST(Fp8ConfigTest, WhatWouldChangeTheMathematicsIsRefusedByName) {
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {R"({"quant_method": "awq"})", "quantization_config.quant_method=\"awq\" is not supported"},
      {R"({"bits": 4})", "quantization_config.quant_method"},
      {R"({"quant_method": "fp8", "fmt": "e5m2"})", "quantization_config.fmt=\"e5m2\""},
      {R"({"quant_method": "fp8", "weight_block_size": [64, 64]})",
       "quantization_config.weight_block_size=[64, 64] is not supported"},
      {R"({"quant_method": "fp8", "twist": 1})", "quantization_config.twist is not known"},
      {Compressed(R"(, "strategy": "group")"),
       "quantization_config.config_groups.group_0.weights.strategy=\"group\""},
      {Compressed(R"(, "strategy": "tensor", "actorder": "weight")"),
       "weights.actorder=\"weight\""},
      {Compressed(R"(, "strategy": "tensor")", R"(, "kv_cache_scheme": {"num_bits": 4})"),
       "quantization_config.kv_cache_scheme.num_bits=4 is not supported"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4}}}})",
       "weights.num_bits=4 is not supported"},
  };
  for (const auto& c : cases) {
    const absl::Status status = Check(c.text);
    EXPECT_FALSE(status.ok()) << c.text;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
  EXPECT_TRUE(Check(R"({"quant_method": "fp8", "twist": 1})", {"quantization_config.twist"}).ok());
}

absl::StatusOr<ActivationRounding> Rounding(const std::string& quantization) {
  const auto config =
      nlohmann::json::parse("{\"quantization_config\": " + quantization + "}", nullptr, false);
  EXPECT_FALSE(config.is_discarded()) << quantization;
  return ActivationRoundingOf(config, "config.json");
}

std::string Groups(const std::string& activations) {
  return R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"input_activations": )" +
         activations + "}}}";
}

TEST(Fp8ConfigTest, SaysHowActivationsAreRounded) {
  using Kind = ActivationRounding::Kind;
  const struct {
    std::string text;
    Kind kind;
    int64_t columns;
    double most;
  } cases[] = {
      {R"({"quant_method": "fp8"})", Kind::kComputed, 0, 0},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128]})", Kind::kComputed, 128, 0},
      {R"({"quant_method": "fp8", "activation_scheme": "static"})", Kind::kGiven, 0, 0},
      {R"({"quant_method": "fbgemm_fp8"})", Kind::kComputed, 0, 1200},
      {R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 50.5})", Kind::kComputed, 0, 50.5},
      {Groups("null"), Kind::kNone, 0, 0},
      {Groups(R"({"num_bits": 8, "type": "float", "dynamic": true, "strategy": "token"})"),
       Kind::kComputed, 0, 0},
      {Groups(R"({"num_bits": 8, "dynamic": true, "strategy": "group", "group_size": 128})"),
       Kind::kComputed, 128, 0},
      {Groups(R"({"num_bits": 8, "dynamic": false, "strategy": "tensor"})"), Kind::kGiven, 0, 0},
  };
  for (const auto& c : cases) {
    const absl::StatusOr<ActivationRounding> rounding = Rounding(c.text);
    ASSERT_TRUE(rounding.ok()) << c.text << rounding.status();
    EXPECT_EQ(rounding->kind, c.kind) << c.text;
    EXPECT_EQ(rounding->columns, c.columns) << c.text;
    EXPECT_EQ(rounding->most, c.most) << c.text;
  }
}

TEST(Fp8ConfigTest, BoundsOfActivationsThatAreNoneAreRefused) {
  for (const char* most : {"0", "-3", "1e7", "1e-9"}) {
    const absl::Status status =
        Rounding(
            absl::StrCat(R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": )", most, "}"))
            .status();
    EXPECT_FALSE(status.ok()) << most;
    EXPECT_THAT(status.message(), HasSubstr("quantization_config.activation_scale_ub=")) << status;
    EXPECT_THAT(status.message(), HasSubstr("--activations=keep")) << status;
  }
}

// A scale of all rows of a step would have a row's result depend on the others.
TEST(Fp8ConfigTest, OtherRoundingsOfActivationsAreRefused) {
  for (const char* activations : {R"({"num_bits": 8, "dynamic": true, "strategy": "tensor"})",
                                  R"({"num_bits": 4, "dynamic": true, "strategy": "token"})",
                                  R"({"num_bits": 8, "dynamic": "local", "strategy": "token"})",
                                  R"({"num_bits": 8, "type": "int", "strategy": "tensor"})",
                                  R"({"num_bits": 8, "dynamic": true, "strategy": "group",
                                      "group_size": 64})"}) {
    const absl::Status status = Rounding(Groups(activations)).status();
    EXPECT_FALSE(status.ok()) << activations;
    EXPECT_THAT(status.message(), HasSubstr("config_groups.group_0.input_activations.")) << status;
    EXPECT_THAT(status.message(), HasSubstr("--activations=keep")) << status;
  }
}

}  // namespace
}  // namespace quire
