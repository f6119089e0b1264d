#include "models/config_keys.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "models/import/fp8.h"
#include "models/import/json.h"

namespace quire {
namespace {

// Sorted. Names, provenance and types of the file itself; training and dropout; generation
// defaults; special tokens; heads for other tasks; choices of implementation that leave the
// function alone.
constexpr absl::string_view kHarmless[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "_num_labels",
    "activation_dropout",
    "architectures",
    "attention_dropout",
    "attention_softmax_in_fp32",
    "attn_implementation",
    "attn_pdrop",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bias_dropout_fusion",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classif_dropout",
    "classifier_dropout",
    "decoder_layerdrop",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dropout",
    "dropout_rate",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_layerdrop",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "force_bos_token_to_be_generated",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "inference_runner",
    "init_std",
    "initializer_factor",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "masked_softmax_fusion",
    "max_batch_size",
    "max_length",
    "max_sequence_length",
    "min_length",
    "model_type",
    "n_ctx",
    "n_positions",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "offset_alibi",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_key_length",
    "pad_token_id",
    "pre_allocate_kv_cache",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "reorder_and_upcast_attn",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "save_step",
    "scale_attention_softmax_in_fp32",
    "sep_token_id",
    "seq_length",
    "skip_bias_add",
    "skip_bias_add_qkv",
    "slow_but_exact",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "validate_runner_input",
};

static_assert(std::is_sorted(std::begin(kHarmless), std::end(kHarmless)));

// Keys that would change the function, with the value at which they do not.
struct NoOp {
  absl::string_view key;
  absl::string_view value;  // as JSON
};
constexpr NoOp kNoOps[] = {
    {"add_cross_attention", "false"}, {"is_encoder_decoder", "false"}, {"per_layer_config", "{}"},
    {"pruned_heads", "{}"},           {"rope_interleaved", "false"},   {"use_mrope", "false"},
};

// Whether `key` may keep `value`, and if not, what else is allowed.
bool IsNoOp(absl::string_view key, const nlohmann::json& value, std::string& supported) {
  for (const NoOp& no_op : kNoOps) {
    if (no_op.key != key) continue;
    supported = std::string(no_op.value);
    return value == nlohmann::json::parse(supported, nullptr, false);
  }
  return false;
}

}  // namespace

absl::Status RefuseUnknownKeys(const ConfigReader& config, const nlohmann::json& json,
                               absl::Span<const std::string> allowed) {
  for (const std::string& key : config.UnreadKeys()) {
    if (std::binary_search(std::begin(kHarmless), std::end(kHarmless), absl::string_view(key))) {
      continue;
    }
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    if (key == "quantization_config" && !json.at(key).is_null()) {
      QUIRE_RETURN_IF_ERROR(CheckFp8Config(json, config.file(), allowed));
      continue;
    }
    // A key of a nested object is "outer.inner" and never in the tables.
    const auto found = json.find(key);
    std::string value = key, supported;
    if (found != json.end()) {
      if (found->is_null() || IsNoOp(key, *found, supported)) continue;
      absl::StrAppend(&value, "=", JsonValueText(*found));
    }
    if (!supported.empty()) {
      return WithLine(WithLine(absl::UnimplementedError(absl::StrCat(value, " is not supported")),
                               "from", config.file()),
                      "allowed", supported);
    }
    return WithLine(
        WithLine(absl::UnimplementedError(absl::StrCat(
                     "config.json key ", key, " is not known; it may change the mathematics")),
                 "from", absl::StrCat(config.file(), " ", value)),
        "fix", absl::StrCat("if it does not, pass --allow-config-key=", key));
  }
  return absl::OkStatus();
}

}  // namespace quire
