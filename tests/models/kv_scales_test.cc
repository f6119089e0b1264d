// Scales of a narrow KV cache, as checkpoints have them.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/model_files.h"

namespace quire {
namespace {

using testing::BuildFrom;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Stored;
using testing::TestTensor;
using testing::TinyLlamaConfig;
using testing::TinyLlamaTensors;
using testing::With;

// The text of a tiny Llama of two KV heads with more tensors, or the error.
std::string TextWith(const std::vector<TestTensor>& scales) {
  std::vector<TestTensor> tensors = TinyLlamaTensors();
  for (TestTensor& tensor : tensors) {
    const bool is_kv =
        absl::StrContains(tensor.name, "k_proj") || absl::StrContains(tensor.name, "v_proj");
    if (is_kv) tensor = Stored(tensor.name, {16, 16});
  }
  tensors.insert(tensors.end(), scales.begin(), scales.end());
  const absl::StatusOr<ModelDef> model =
      BuildFrom(With(TinyLlamaConfig(), R"({"num_key_value_heads": 2})"), tensors);
  return model.ok() ? Print(model->module) : model.status().ToString();
}

TEST(KvScalesTest, StandBesideKeysAndValues) {
  const std::string text = TextWith({Stored("model.layers.0.self_attn.k_scale", {2}),
                                     Stored("model.layers.0.self_attn.v_scale", {}, "BF16")});
  EXPECT_THAT(text, HasSubstr("%l0.k_scale = weight {name=\"model.layers.0.self_attn.k_scale\"} : "
                              "f32[2]\n"));
  EXPECT_THAT(text, HasSubstr("%l0.v_scale = weight {name=\"model.layers.0.self_attn.v_scale\"} : "
                              "bf16[]\n"));
  EXPECT_THAT(text, HasSubstr("%l0.ks = kv_scale %l0.kr, %l0.k_scale : f32[T,2,8]\n"));
  EXPECT_THAT(text, HasSubstr("%l0.vs = kv_scale %l0.vh, %l0.v_scale : f32[T,2,8]\n"));
}

TEST(KvScalesTest, GoByOtherNames) {
  for (const char* name :
       {"layers.0.self_attn.k_proj.output_scale", "model.layers.0.self_attn.k_proj.k_scale"}) {
    const std::string text = TextWith({Stored(name, {1})});
    EXPECT_THAT(text, HasSubstr(absl::StrCat("weight {name=\"", name, "\"} : f32[1]\n")));
    EXPECT_THAT(text, Not(HasSubstr("%l0.vs = kv_scale")));
  }
  EXPECT_THAT(TextWith({}), Not(HasSubstr("kv_scale")));
}

TEST(KvScalesTest, RefusesOtherShapesAndTypes) {
  const std::string name = "model.layers.0.self_attn.v_scale";
  std::string text = TextWith({Stored(name, {3})});
  EXPECT_THAT(text, HasSubstr("tensor model.layers.0.self_attn.v_scale has extents [3]\n"));
  EXPECT_THAT(text, HasSubstr("\n  allowed: one number, or [2], one for each head"));
  EXPECT_THAT(TextWith({Stored(name, {2, 1})}), HasSubstr("has extents [2, 1]\n"));
  EXPECT_THAT(TextWith({Stored(name, {2}, "I32")}), HasSubstr("has elements of i32\n"));
}

}  // namespace
}  // namespace quire
