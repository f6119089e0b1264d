// No key of a configuration is silently ignored, and no value of one crashes.
#include "models/config_keys.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/model_files.h"

namespace quire {
namespace {

using testing::FixtureConfig;
using ::testing::HasSubstr;
using testing::ReconfiguredFixture;
using testing::With;

constexpr const char* kFixtures[] = {"bart",
                                     "bart_untied",
                                     "mbart",
                                     "mt5",
                                     "t5",
                                     "t5_gated",
                                     "bloom",
                                     "gemma3",
                                     "gemma3_scaled",
                                     "gpt2",
                                     "gpt_bigcode_mha",
                                     "gpt_bigcode_mqa",
                                     "llama_gqa_tied",
                                     "llama_llama3",
                                     "llama_mha_bias",
                                     "llama_yarn_explicit",
                                     "mistral_window",
                                     "qwen2_window",
                                     "qwen3"};

// What transformers saves that the logits do not depend on. The last line: what other keys of the
// same file already say.
constexpr absl::string_view kNoMatter[] = {"architectures",
                                           "activation_dropout",
                                           "classifier_dropout",
                                           "decoder_layerdrop",
                                           "decoder_start_token_id",
                                           "dropout",
                                           "dropout_rate",
                                           "encoder_layerdrop",
                                           "forced_eos_token_id",
                                           "id2label",
                                           "init_std",
                                           "initializer_factor",
                                           "is_decoder",
                                           "label2id",
                                           "attention_dropout",
                                           "attention_softmax_in_fp32",
                                           "attn_pdrop",
                                           "bos_token_id",
                                           "dtype",
                                           "embd_pdrop",
                                           "eos_token_id",
                                           "hidden_dropout",
                                           "initializer_range",
                                           "pad_token_id",
                                           "pretraining_tp",
                                           "reorder_and_upcast_attn",
                                           "resid_pdrop",
                                           "scale_attention_softmax_in_fp32",
                                           "slow_but_exact",
                                           "summary_activation",
                                           "summary_first_dropout",
                                           "summary_proj_to_labels",
                                           "summary_type",
                                           "summary_use_proj",
                                           "transformers_version",
                                           "use_cache",
                                           "_sliding_window_pattern",
                                           "max_window_layers"};

// Another value of the same kind.
nlohmann::json Changed(const nlohmann::json& value) {
  if (value.is_boolean()) return value != true;
  if (value.is_number_integer()) return value == 1 ? 2 : 1;
  if (value.is_number()) return 0.125;
  if (value.is_string()) return "another";
  if (value.is_array()) return nlohmann::json::array({"sliding_attention"});
  return "not an object";
}

// Everything that a configuration decides, or the error.
std::string Outcome(const ReconfiguredFixture& fixture, const nlohmann::json& config) {
  const absl::StatusOr<ModelDef> model = fixture.Build(config);
  if (!model.ok()) return model.status().ToString();
  return absl::StrCat(model->max_positions, "\n", Print(model->module));
}

class KeysTest : public ::testing::TestWithParam<const char*> {
 protected:
  const ReconfiguredFixture fixture_{GetParam()};
  const nlohmann::json config_ = FixtureConfig(GetParam());
};

TEST_P(KeysTest, EveryKeyThatMattersIsHonouredOrRefused) {
  const std::string usual = Outcome(fixture_, config_);
  for (const auto& item : config_.items()) {
    // Null stands for absent. Kept as it is, a default saves nothing.
    if (item.value().is_null()) continue;
    nlohmann::json changed = config_;
    changed[item.key()] = Changed(item.value());
    const bool same = Outcome(fixture_, changed) == usual;
    // What a checkpoint of T5 stores decides, and scale_decoder_outputs says the rest.
    const bool is_idle = item.key() == "tie_word_embeddings" &&
                         absl::EndsWith(std::string(config_["model_type"]), "t5");
    EXPECT_EQ(same, is_idle || absl::c_linear_search(kNoMatter, item.key())) << item.key();
  }
}

TEST_P(KeysTest, NullIsNoValueWhereTransformersWantsOne) {
  for (const char* key :
       {"rms_norm_eps", "layer_norm_epsilon", "hidden_act", "activation_function", "vocab_size",
        "hidden_activation", "query_pre_attn_scalar", "max_position_embeddings", "attention_bias",
        "scale_attn_weights", "multi_query", "apply_residual_connection_post_layernorm",
        "feed_forward_proj", "dense_act_fn", "relative_attention_num_buckets"}) {
    if (!config_.contains(key)) continue;
    nlohmann::json changed = config_;
    changed[key] = nullptr;
    EXPECT_THAT(Outcome(fixture_, changed),
                HasSubstr(absl::StrCat("INVALID_ARGUMENT: ", key, "=null has no meaning")));
  }
}

TEST_P(KeysTest, NullIsAbsentWhereTransformersTakesItSo) {
  for (const char* key : {"num_key_value_heads", "n_inner", "num_decoder_layers",
                          "final_logit_softcapping", "use_bidirectional_attention"}) {
    nlohmann::json null = config_, absent = config_;
    null[key] = nullptr;
    absent.erase(key);
    const std::string expected = Outcome(fixture_, absent);
    // Some families want it.
    if (absl::StrContains(expected, "the key is missing")) continue;
    EXPECT_EQ(Outcome(fixture_, null), expected) << key;
  }
}

TEST_P(KeysTest, EveryRopeParameterIsHonouredOrRefused) {
  const std::string usual = Outcome(fixture_, config_);
  const auto rope = config_.find("rope_parameters");
  if (rope == config_.end()) return;
  for (const auto& item : rope->items()) {
    nlohmann::json changed = config_;
    changed["rope_parameters"][item.key()] = Changed(item.value());
    EXPECT_NE(Outcome(fixture_, changed), usual) << item.key();
  }
}

TEST_P(KeysTest, OddValuesAreRefusedOrMeanSomething) {
  const nlohmann::json odd = nlohmann::json::parse(
      R"([null, true, -1, 0, 3, 9223372036854775807, 18446744073709551615, 1e308, -0.0, "", "x",
          [], [[]], [1], ["full_attention"], {}, {"rope_type": "yarn"}, {"factor": 0}])",
      nullptr, false);
  int built = 0, refused = 0;
  for (const auto& item : config_.items()) {
    for (const nlohmann::json& value : odd) {
      nlohmann::json changed = config_;
      changed[item.key()] = value;
      const absl::StatusOr<ModelDef> model = fixture_.Build(changed);
      ++(model.ok() ? built : refused);
      if (model.ok()) continue;
      EXPECT_TRUE(absl::IsInvalidArgument(model.status()) || absl::IsUnimplemented(model.status()))
          << item.key() << "=" << value.dump() << ": " << model.status();
    }
  }
  EXPECT_GT(built, 0);
  EXPECT_GT(refused, built / 4);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, KeysTest, ::testing::ValuesIn(kFixtures),
                         [](const auto& instance) { return std::string(instance.param); });

// Keys that published files of these families carry beside those that transformers saves today.
TEST(PublishedKeysTest, AreAccepted) {
  const auto accepts = [](absl::string_view fixture, absl::string_view keys) {
    const absl::StatusOr<ModelDef> model =
        ReconfiguredFixture(fixture).Build(With(FixtureConfig(fixture), keys));
    EXPECT_TRUE(model.ok()) << model.status();
  };
  accepts("gpt2", R"({"n_ctx": 1024, "task_specific_params":
                      {"text-generation": {"do_sample": true, "max_length": 50}}})");
  accepts("bloom", R"({"masked_softmax_fusion": true, "bias_dropout_fusion": true,
                       "attention_softmax_in_fp32": true, "offset_alibi": 100, "seq_length": 2048,
                       "skip_bias_add": true, "skip_bias_add_qkv": false, "unk_token_id": 0})");
  accepts("gpt_bigcode_mqa", R"({"inference_runner": 0, "max_batch_size": null,
                                 "max_sequence_length": null, "pad_key_length": true,
                                 "pre_allocate_kv_cache": false, "validate_runner_input": true})");
  accepts("llama_gqa_tied", R"({"_name_or_path": "x", "torch_dtype": "float16",
                                "is_llama_config": true, "rope_interleaved": false,
                                "transformers.js_config": {"dtype": "q4"}})");
  accepts("qwen2_tied", R"({"use_mrope": false, "torch_dtype": "bfloat16"})");
  accepts("gemma3", R"({"cache_implementation": "hybrid", "eos_token_id": [1, 106]})");
}

TEST(RefuseUnknownKeysTest, ANestedKeyIsNamedInFull) {
  const nlohmann::json config = nlohmann::json::parse(R"({"a": {"b": 1}, "use_cache": 2})");
  const ConfigReader reader(config, "config.json");
  ASSERT_TRUE(reader.GetObject("a").ok());
  EXPECT_THAT(std::string(RefuseUnknownKeys(reader, config, {}).message()),
              HasSubstr("key a.b is not known"));
  EXPECT_TRUE(RefuseUnknownKeys(reader, config, {"a.b"}).ok());
}

}  // namespace
}  // namespace quire
