// Configurations: what each key does to the definition, and what is refused.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/text.h"
#include "models/model.h"
#include "tests/models/model_files.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using testing::TextOf;

struct Case {
  const char* fixture;
  const char* changes;
  const char* text;  // a part of the definition or of the error
};

class ConfigTest : public ::testing::TestWithParam<Case> {};

TEST_P(ConfigTest, ShowsInTheTextOrIsRefused) {
  EXPECT_THAT(TextOf(GetParam().fixture, GetParam().changes), HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Honoured, ConfigTest,
    ::testing::Values(
        Case{"llama_linear", "{}", "{theta=10000, scaling=linear, scale_factor=2.5}"},
        Case{"llama_dynamic", "{}",
             "{theta=10000, scaling=dynamic, scale_factor=2, original_tokens=16}"},
        Case{"llama_llama3", "{}",
             "{theta=10000, scaling=llama3, scale_factor=8, "
             "original_tokens=64}"},
        Case{"llama_llama3", R"({"rope_parameters": {"low_freq_factor": 2}})", "low_factor=2"},
        Case{"llama_yarn", "{}",
             "{theta=10000, scaling=yarn, scale_factor=4, original_tokens=32, "
             "magnitude=1.138629436111989}"},
        Case{"llama_yarn", R"({"rope_parameters": {"factor": null}})", "scale_factor=4"},
        Case{"llama_yarn", R"({"rope_parameters": {"attention_factor": 1.25}})", "magnitude=1.25}"},
        Case{"llama_yarn_explicit", "{}",
             "beta_fast=2, beta_slow=0.25, truncate=0, magnitude=1.06"},
        Case{"llama_gqa_tied", R"({"hidden_act": "gelu"})", "%l0.act = gelu %l0.gate : f32"},
        Case{"llama_gqa_tied", R"({"rms_norm_eps": 0.25})", "{eps=0.25}"},
        Case{"mistral_window", "{}", "causal_mask %l1.scaled {window=8}"},
        Case{"mistral_window", R"({"sliding_window": null})", "causal_mask %l1.scaled : "},
        Case{"qwen2_window", "{}", "causal_mask %l1.scaled {window=7}"},
        Case{"qwen2_window", "{}", "causal_mask %l0.scaled : "},
        Case{"qwen2_window", R"({"layer_types": null, "max_window_layers": 0})",
             "causal_mask %l0.scaled {window=7}"},
        Case{"qwen2_window", R"({"layer_types": null, "use_sliding_window": false})",
             "causal_mask %l1.scaled : "},
        Case{"gemma3", "{}", "%l1.qr = rope %l1.q_norm, %pos {theta=1000000}"},
        Case{"gemma3", "{}", "%l0.qr = rope %l0.q_norm, %pos {theta=10000}"},
        Case{"gemma3", R"({"layer_types": null, "sliding_window_pattern": 3})",
             "causal_mask %l1.scaled {window=8}"},
        Case{"gemma3", R"({"layer_types": null, "sliding_window_pattern": 3})",
             "causal_mask %l2.scaled : "},
        Case{"gemma3", R"({"rope_parameters": null, "rope_theta": 500, "rope_scaling":
                           {"rope_type": "linear", "factor": 8.0}, "rope_local_base_freq": 20})",
             "%l1.qr = rope %l1.q_norm, %pos {theta=500, scaling=linear, scale_factor=8}"},
        Case{"gemma3", R"({"rope_parameters": null, "rope_local_base_freq": 20})",
             "%l0.qr = rope %l0.q_norm, %pos {theta=20}"},
        Case{"gemma3_scaled", "{}", "%logits = softcap %logits.raw {cap=9}"},
        Case{"gpt2", R"({"scale_attn_weights": false})", "scale %l0.qk {factor=1}"},
        Case{"gpt2_inverse_layer", "{}", "scale %l1.qk {factor=0.17677669529663687}"},
        Case{"gpt2", "{}", "%l0.q = slice %l0.qkv {axis=1, begin=0, end=32} : f32[T,32]"},
        Case{"gpt2", "{}", "%l0.qkv.wt = transpose %l0.qkv.w {perm=[1,0]} : f32[96,32]"},
        Case{"gpt_bigcode_mqa", "{}", "%l0.v = slice %l0.qkv {axis=1, begin=40, end=48}"},
        Case{"gpt_bigcode_mha", "{}", "%l0.ks = slice %l0.qkvh {axis=2, begin=1, end=2}"},
        Case{"bloom", "{}", "%l0.biased = alibi %l0.scaled {alibi_max=8} : f32[6,T,T]"},
        Case{"bloom", R"({"hidden_size": null, "n_embed": 48})", "linear %norm, %embed.w"},
        Case{"bloom_post_norm", "{}", "%l0.x = add %l0.attn_norm, %l0.o"},
        Case{"t5", R"({"dense_act_fn": "gelu"})", "%l0.act = gelu %l0.up : f32"},
        Case{"t5", R"({"is_gated_act": true})", "DenseReluDense.wi_0.weight [48, 32] is missing"},
        Case{"t5_gated", "{}", "%l0.act = gelu %l0.gate {approximate=tanh}"},
        Case{"t5_gated", R"({"dense_act_fn": "gelu"})", "%l0.act = gelu %l0.gate : f32"},
        Case{"t5_gated", R"({"feed_forward_proj": "relu"})",
             "%l0.act = gelu %l0.gate {approximate=tanh}"},
        Case{"mt5", R"({"dense_act_fn": "relu"})", "%l0.act = relu %l0.gate : f32"},
        Case{"mllama", "{}", "func @step(%ids: i32[T], %pos: i32[T], %states: f32[S,32]) {"},
        Case{"mllama", "{}", "%l1.attn_gate = mul %l1.o, %l1.attn_gate.row : f32[T,32]"}));

INSTANTIATE_TEST_SUITE_P(
    Refused, ConfigTest,
    ::testing::Values(
        Case{"llama_linear", R"({"rope_parameters": {"rope_type": "longrope"}})",
             "UNIMPLEMENTED: rope_parameters.rope_type=\"longrope\" is not a supported rope type"},
        Case{"llama_linear", R"({"rope_parameters": {"extrapolate": 2}})",
             "key rope_parameters.extrapolate is not known"},
        Case{"llama_linear", R"({"rope_parameters": {"factor": "4"}})",
             "rope_parameters.factor=\"4\" is a string"},
        Case{"llama_linear", R"({"rope_scaling": {"type": "linear", "factor": 2.0}})",
             "stands beside rope_parameters"},
        Case{"llama_linear", R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
             "UNIMPLEMENTED: rope_parameters.partial_rotary_factor=0.5 is not supported"},
        Case{"llama_llama3", R"({"rope_parameters": {"high_freq_factor": 1}})",
             "high_freq_factor=1 is not above low_freq_factor"},
        Case{"llama_llama3", R"({"original_max_position_embeddings": 32})",
             "original_max_position_embeddings=64 differs from 32 outside the object"},
        Case{"llama_gqa_tied", R"({"hidden_act": "relu2"})",
             "UNIMPLEMENTED: hidden_act=\"relu2\" is not a supported activation"},
        Case{"llama_gqa_tied", R"({"num_key_value_heads": 3})",
             "num_key_value_heads=3 does not divide num_attention_heads=4"},
        Case{"llama_gqa_tied", R"({"head_dim": 12})",
             "UNIMPLEMENTED: head_dim=12 is not a "
             "multiple of 8"},
        Case{"llama_gqa_tied", R"({"head_dim": null, "hidden_size": 33})",
             "num_attention_heads=4 does not divide hidden_size=33"},
        Case{"llama_gqa_tied", R"({"num_hidden_layers": 0})",
             "num_hidden_layers=0 is out of range\n"},
        Case{"llama_gqa_tied", R"({"vocab_size": null})", "vocab_size: the key is missing"},
        Case{"llama_gqa_tied", R"({"rms_norm_eps": -1})", "rms_norm_eps=-1 is out of range"},
        Case{"llama_gqa_tied", R"({"is_encoder_decoder": true})",
             "is_encoder_decoder=true is not supported"},
        Case{"llama_gqa_tied", R"({"quantization_config": {"bits": 4}})",
             "quantization_config.quant_method"},
        Case{"llama_gqa_tied", R"({"hidden_size": 1e3})", "hidden_size=1000.0 is a fraction"},
        Case{"qwen2_window", R"({"layer_types": ["full_attention", "chunked_attention"]})",
             "holds chunked_attention"},
        Case{"qwen2_window", R"({"layer_types": ["full_attention"]})",
             "does not have num_hidden_layers=2 elements"},
        Case{"qwen2_window", R"({"use_sliding_window": false})",
             "has sliding_attention, but no sliding_window is in force"},
        Case{"qwen2_window", R"({"sliding_window": null})", "sliding_window: the key is missing"},
        Case{"gemma3", R"({"attn_logit_softcapping": 50.0})",
             "UNIMPLEMENTED: attn_logit_softcapping=50.0 is not supported"},
        Case{"gemma3", R"({"use_bidirectional_attention": true})",
             "UNIMPLEMENTED: use_bidirectional_attention=true is not supported"},
        Case{"gpt2", R"({"add_cross_attention": true})", "add_cross_attention=true"},
        Case{"gpt_bigcode_mqa", R"({"num_key_value_heads": 4})", "contradicts multi_query"},
        Case{"bart", R"({"decoder_attention_heads": 2})",
             "UNIMPLEMENTED: decoder_attention_heads=2 differs from encoder_attention_heads=4"},
        Case{"bart", R"({"normalize_before": true})",
             "UNIMPLEMENTED: normalize_before=true is not supported"},
        Case{"t5", R"({"dense_act_fn": "relu2"})",
             "UNIMPLEMENTED: dense_act_fn=\"relu2\" is not a supported activation"},
        Case{"t5", R"({"feed_forward_proj": "relu2"})",
             "UNIMPLEMENTED: feed_forward_proj=\"relu2\" is not a supported activation"},
        Case{"t5", R"({"relative_attention_max_distance": 3})",
             "INVALID_ARGUMENT: relative_attention_max_distance=3 is too small for "},
        Case{"t5", R"({"relative_attention_num_buckets": 6})",
             "INVALID_ARGUMENT: relative_attention_num_buckets=6 cannot be halved twice"},
        Case{"mllama", R"({"cross_attention_layers": [1, 4]})",
             "INVALID_ARGUMENT: cross_attention_layers=[1, 4] holds 4"},
        Case{"mllama", R"({"tie_word_embeddings": true})",
             "UNIMPLEMENTED: tie_word_embeddings=true is not supported"},
        Case{"mllama", R"({"vision_output_dim": 7})", "key vision_output_dim is not known"},
        Case{"bloom", R"({"n_embed": 64})", "n_embed=64 differs from hidden_size=48"},
        Case{"bloom", R"({"n_inner": 64})", "UNIMPLEMENTED: n_inner=64 is not supported"}));

// The keys that transformers wrote before 5.0 and those it writes now say the same.
struct Spelling {
  const char* fixture;
  const char* older;
};

class SpellingTest : public ::testing::TestWithParam<Spelling> {};

TEST_P(SpellingTest, OldAndNewKeysGiveOneDefinition) {
  EXPECT_EQ(TextOf(GetParam().fixture, GetParam().older), TextOf(GetParam().fixture, "{}"));
}

INSTANTIATE_TEST_SUITE_P(
    All, SpellingTest,
    ::testing::Values(
        Spelling{"llama_gqa_tied", R"({"rope_parameters": null, "rope_theta": 10000.0,
                   "rope_scaling": null, "dtype": null, "torch_dtype": "bfloat16"})"},
        Spelling{"llama_linear", R"({"rope_parameters": null, "rope_scaling":
                   {"type": "linear", "factor": 2.5}})"},
        Spelling{"llama_dynamic", R"({"rope_parameters": null, "rope_theta": 10000,
                   "rope_scaling": {"rope_type": "dynamic", "type": "dynamic", "factor": 2.0}})"},
        Spelling{"llama_llama3", R"({"rope_parameters": null, "rope_scaling": {
                   "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})"},
        Spelling{"llama_yarn", R"({"rope_parameters": null,
                   "original_max_position_embeddings": 32,
                   "rope_scaling": {"type": "yarn", "factor": 4.0}})"},
        Spelling{"gemma3_scaled", R"({"rope_parameters": null, "rope_theta": 1000000.0,
                   "rope_local_base_freq": 10000.0, "layer_types": null,
                   "sliding_window_pattern": 2, "rope_scaling":
                   {"rope_type": "linear", "factor": 8.0}})"},
        Spelling{"qwen2_window", R"({"layer_types": null})"},
        Spelling{"t5", R"({"dense_act_fn": null, "is_gated_act": null})"},
        Spelling{"t5_gated", R"({"dense_act_fn": null, "is_gated_act": null})"},
        Spelling{"mt5", R"({"dense_act_fn": null, "is_gated_act": null})"},
        Spelling{"bloom", R"({"n_head": null, "num_attention_heads": 6, "n_layer": null,
                   "num_hidden_layers": 2, "hidden_size": null, "n_embed": 48, "n_inner": null,
                   "offset_alibi": 100, "seq_length": 2048, "skip_bias_add": true})"}));

}  // namespace
}  // namespace quire
