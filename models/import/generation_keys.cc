#include "models/import/generation_keys.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "models/import/json.h"

namespace quire {
namespace {

// Sorted. What is returned beside the tokens; caches, memory and speed; how an assistant drafts,
// which is not asked for by these; where the file is from.
constexpr absl::string_view kHarmless[] = {
    "_commit_hash",
    "_from_model_config",
    "assistant_confidence_threshold",
    "assistant_ensemble_weight",
    "assistant_lookbehind",
    "cache_config",
    "cache_implementation",
    "compile_config",
    "continuous_batching_config",
    "disable_compile",
    "is_assistant",
    "low_memory",
    "max_cache_len",
    "max_matching_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "prefill_chunk_size",
    "remove_invalid_values",
    "return_dict_in_generate",
    "speculation_type",
    "target_lookbehind",
    "transformers_version",
    "use_cache",
};

static_assert(std::is_sorted(std::begin(kHarmless), std::end(kHarmless)));

// Keys that change what is generated, with the value at which they do not. Null and what is empty
// do not either.
struct Neutral {
  absl::string_view key;
  absl::string_view value;  // as JSON
};
constexpr Neutral kNeutral[] = {
    {"assistant_early_exit", "null"},
    {"bad_words_ids", "null"},
    {"constraints", "null"},
    {"diversity_penalty", "0"},
    {"dola_layers", "null"},
    {"encoder_no_repeat_ngram_size", "0"},
    {"encoder_repetition_penalty", "1"},
    {"epsilon_cutoff", "0"},
    {"eta_cutoff", "0"},
    {"exponential_decay_length_penalty", "null"},
    {"force_bos_token_to_be_generated", "false"},
    {"force_words_ids", "null"},
    {"forced_decoder_ids", "null"},
    {"guidance_scale", "1"},
    {"max_time", "null"},
    {"num_beam_groups", "1"},
    {"num_return_sequences", "1"},
    {"penalty_alpha", "0"},
    {"prompt_lookup_num_tokens", "null"},
    {"renormalize_logits", "false"},
    {"sequence_bias", "null"},
    {"token_healing", "false"},
    {"top_h", "null"},
    {"typical_p", "1"},
    {"use_mtp", "false"},
    {"watermarking_config", "null"},
};

}  // namespace

std::vector<std::string> UnhonouredKeys(const ConfigReader& settings, const nlohmann::json& object,
                                        bool with_unknown) {
  std::vector<std::string> notes;
  for (const std::string& key : settings.UnreadKeys()) {
    const nlohmann::json& value = *object.find(key);
    // Of null, of {} and of [].
    if (value.empty()) continue;
    if (std::binary_search(std::begin(kHarmless), std::end(kHarmless), absl::string_view(key))) {
      continue;
    }
    const auto* known = std::find_if(std::begin(kNeutral), std::end(kNeutral),
                                     [&](const Neutral& neutral) { return neutral.key == key; });
    const bool is_known = known != std::end(kNeutral);
    if (is_known ? value == nlohmann::json::parse(known->value, nullptr, false) : !with_unknown) {
      continue;
    }
    notes.push_back(absl::StrCat(key, "=", JsonValueText(value), " of ", settings.file(),
                                 is_known ? " is not honoured" : " is not known and not honoured"));
  }
  return notes;
}

}  // namespace quire
