#include "models/import/generation.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "models/import/config_reader.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

absl::StatusOr<int32_t> CheckedId(const ConfigReader& reader, absl::string_view key, int64_t id) {
  if (id < 0 || id > kMaxId)
    return reader.Refuse(key, "is not a token id", absl::StrCat("0 .. ", kMaxId));
  return static_cast<int32_t>(id);
}

absl::Status ReadId(const ConfigReader& reader, absl::string_view key, int32_t* id) {
  if (!reader.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(int64_t value, reader.GetInt(key));
  if (value == -1) return absl::OkStatus();  // some files say "none" so
  QUIRE_ASSIGN_OR_RETURN(*id, CheckedId(reader, key, value));
  return absl::OkStatus();
}

// eos_token_id is one id or a list.
absl::Status ReadEosIds(const ConfigReader& reader, const json& object, std::vector<int32_t>* ids) {
  constexpr absl::string_view kKey = "eos_token_id";
  if (!reader.Has(kKey)) return absl::OkStatus();
  ids->clear();
  if (!object.find("eos_token_id")->is_array()) {
    int32_t id = -1;
    QUIRE_RETURN_IF_ERROR(ReadId(reader, kKey, &id));
    if (id >= 0) ids->push_back(id);
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(std::vector<int64_t> values, reader.GetInts(kKey));
  for (int64_t value : values) {
    QUIRE_ASSIGN_OR_RETURN(int32_t id, CheckedId(reader, kKey, value));
    ids->push_back(id);
  }
  return absl::OkStatus();
}

absl::Status ReadIds(const json& object, absl::string_view file, plan::GenerationT* generation) {
  const ConfigReader reader(object, file);
  QUIRE_RETURN_IF_ERROR(ReadId(reader, "bos_token_id", &generation->bos_id));
  QUIRE_RETURN_IF_ERROR(ReadId(reader, "pad_token_id", &generation->pad_id));
  QUIRE_RETURN_IF_ERROR(ReadId(reader, "decoder_start_token_id", &generation->decoder_start_id));
  QUIRE_RETURN_IF_ERROR(ReadId(reader, "forced_bos_token_id", &generation->forced_bos_id));
  QUIRE_RETURN_IF_ERROR(ReadId(reader, "forced_eos_token_id", &generation->forced_eos_id));
  return ReadEosIds(reader, object, &generation->eos_ids);
}

// early_stopping is a boolean or "never".
absl::Status ReadEarlyStopping(const ConfigReader& reader, const json& object,
                               plan::GenerationT* generation) {
  const auto value = object.find("early_stopping");
  if (value == object.end() || value->is_null()) return absl::OkStatus();
  if (value->is_boolean()) {
    generation->early_stopping = value->get<bool>() ? "true" : "false";
  } else if (*value == "never") {
    generation->early_stopping = "never";
  } else {
    return reader.Refuse("early_stopping", "is not known", "true, false, \"never\"");
  }
  return absl::OkStatus();
}

absl::Status ReadCount(const ConfigReader& reader, absl::string_view key, int64_t low,
                       int32_t* value) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t number, reader.GetIntOr(key, *value));
  if (number < low || number > kMaxId) {
    return reader.Refuse(key, "is out of range", absl::StrCat(low, " .. ", kMaxId));
  }
  *value = static_cast<int32_t>(number);
  return absl::OkStatus();
}

absl::Status ReadLengths(const json& object, absl::string_view file,
                         plan::GenerationT* generation) {
  const ConfigReader reader(object, file);
  QUIRE_RETURN_IF_ERROR(ReadCount(reader, "max_length", 0, &generation->max_length));
  return ReadCount(reader, "max_new_tokens", 0, &generation->max_new_tokens);
}

// Beams and what goes with them, which matter to encoder-decoders; the others' files do not have
// them.
absl::Status ReadSearch(const json& object, absl::string_view file, plan::GenerationT* generation) {
  const ConfigReader reader(object, file);
  QUIRE_RETURN_IF_ERROR(ReadCount(reader, "min_length", 0, &generation->min_length));
  QUIRE_RETURN_IF_ERROR(ReadCount(reader, "num_beams", 1, &generation->num_beams));
  QUIRE_RETURN_IF_ERROR(ReadCount(reader, "no_repeat_ngram_size", 0, &generation->no_repeat_ngram));
  QUIRE_ASSIGN_OR_RETURN(const double penalty,
                         reader.GetFloatOr("length_penalty", generation->length_penalty));
  if (!(penalty >= -100 && penalty <= 100)) {
    return reader.Refuse("length_penalty", "is out of range", "-100 .. 100");
  }
  generation->length_penalty = static_cast<float>(penalty);
  return ReadEarlyStopping(reader, object, generation);
}

absl::Status ReadSampling(const json& object, absl::string_view file,
                          plan::GenerationT* generation) {
  const ConfigReader reader(object, file);
  auto read = [&reader](absl::string_view key, double low, double high,
                        float* value) -> absl::Status {
    QUIRE_ASSIGN_OR_RETURN(double number, reader.GetFloatOr(key, *value));
    if (!(number >= low && number <= high)) {
      return reader.Refuse(key, "is out of range", absl::StrCat(low, " .. ", high));
    }
    *value = static_cast<float>(number);
    return absl::OkStatus();
  };
  QUIRE_ASSIGN_OR_RETURN(generation->do_sample,
                         reader.GetBoolOr("do_sample", generation->do_sample));
  QUIRE_RETURN_IF_ERROR(read("temperature", 0, 100, &generation->temperature));
  QUIRE_RETURN_IF_ERROR(read("top_p", 0, 1, &generation->top_p));
  QUIRE_RETURN_IF_ERROR(read("repetition_penalty", 1e-3, 1e3, &generation->repetition_penalty));
  QUIRE_ASSIGN_OR_RETURN(int64_t top_k, reader.GetIntOr("top_k", generation->top_k));
  if (top_k < 0 || top_k > kMaxId) {
    return reader.Refuse("top_k", "is out of range", absl::StrCat("0 (off) .. ", kMaxId));
  }
  generation->top_k = static_cast<int32_t>(top_k);
  return absl::OkStatus();
}

absl::Status ReadGgufIds(const GgufMetadata& metadata, plan::GenerationT* generation) {
  auto read = [&metadata](absl::string_view key, int32_t* id) -> absl::Status {
    QUIRE_ASSIGN_OR_RETURN(int64_t value, metadata.GetIntOr(key, -1));
    // All ones, as an unsigned id, is how writers say "none".
    if (value == -1 || value == int64_t{0xffffffff}) return absl::OkStatus();
    if (value < 0 || value > kMaxId) {
      return metadata.Refuse(key, "is not a token id", absl::StrCat("0 .. ", kMaxId));
    }
    *id = static_cast<int32_t>(value);
    return absl::OkStatus();
  };
  QUIRE_RETURN_IF_ERROR(read("tokenizer.ggml.bos_token_id", &generation->bos_id));
  QUIRE_RETURN_IF_ERROR(read("tokenizer.ggml.padding_token_id", &generation->pad_id));
  for (absl::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                "tokenizer.ggml.eom_token_id"}) {
    int32_t id = -1;
    QUIRE_RETURN_IF_ERROR(read(key, &id));
    if (id >= 0) generation->eos_ids.push_back(id);
  }
  QUIRE_ASSIGN_OR_RETURN(generation->chat_template,
                         metadata.GetStringOr("tokenizer.chat_template", ""));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<plan::GenerationT>> ImportGeneration(const Checkpoint& checkpoint) {
  auto generation = std::make_unique<plan::GenerationT>();
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    QUIRE_RETURN_IF_ERROR(ReadGgufIds(checkpoint.metadata(), generation.get()));
    return generation;
  }
  // generation_config.json wins over config.json, as in transformers.
  QUIRE_RETURN_IF_ERROR(ReadIds(checkpoint.config(), "config.json", generation.get()));
  const json& config = checkpoint.generation_config();
  const json& model = checkpoint.config();
  const auto has_encoder = model.find("is_encoder_decoder");
  if (has_encoder != model.end() && *has_encoder == true) {
    // Files of before generation_config.json have it all in config.json.
    const bool is_own = config.is_object();
    const json& object = is_own ? config : model;
    const absl::string_view file = is_own ? "generation_config.json" : "config.json";
    QUIRE_RETURN_IF_ERROR(ReadLengths(object, file, generation.get()));
    QUIRE_RETURN_IF_ERROR(ReadSearch(object, file, generation.get()));
  }
  if (config.is_object()) {
    QUIRE_RETURN_IF_ERROR(ReadLengths(config, "generation_config.json", generation.get()));
    QUIRE_RETURN_IF_ERROR(ReadIds(config, "generation_config.json", generation.get()));
    QUIRE_RETURN_IF_ERROR(ReadSampling(config, "generation_config.json", generation.get()));
  }
  return generation;
}

}  // namespace quire
