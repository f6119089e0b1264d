#include "models/import/generation.h"

#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/file.h"
#include "ir/status.h"
#include "models/import/config_reader.h"
#include "models/import/generation_keys.h"
#include "models/import/json.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

// A file's object, and what was read of it.
struct Settings {
  const json* object;
  ConfigReader reader;
};

// Whether no step can meet a token, which `notes` get to say.
bool IsBehind(absl::string_view key, int64_t id, absl::string_view file, int64_t vocabulary,
              std::vector<std::string>* notes) {
  if (id < vocabulary) return false;
  notes->push_back(absl::StrCat(key, "=", id, " of ", file, " is behind the last token, ",
                                vocabulary - 1, ", and not honoured"));
  return true;
}

absl::StatusOr<int32_t> CheckedId(const ConfigReader& reader, absl::string_view key, int64_t id,
                                  int64_t max_id) {
  if (id < 0 || id > max_id)
    return reader.Refuse(key, "is not a token id", absl::StrCat("0 .. ", max_id));
  return static_cast<int32_t>(id);
}

// One id or a list of them, as transformers has eos_token_id and others.
absl::Status ReadIdList(const Settings& settings, absl::string_view key, int64_t max_id,
                        std::vector<int32_t>* ids) {
  const ConfigReader& reader = settings.reader;
  std::vector<int64_t> values;
  if (reader.Has(key) && settings.object->find(std::string(key))->is_array()) {
    QUIRE_ASSIGN_OR_RETURN(values, reader.GetInts(key));
  } else {
    QUIRE_ASSIGN_OR_RETURN(const int64_t value, reader.GetIntOr(key, -1));
    if (value != -1) values.push_back(value);  // some files say "none" so
  }
  for (const int64_t value : values) {
    QUIRE_ASSIGN_OR_RETURN(const int32_t id, CheckedId(reader, key, value, max_id));
    ids->push_back(id);
  }
  return absl::OkStatus();
}

absl::Status ReadId(const Settings& settings, absl::string_view key, int64_t max_id, int32_t* id) {
  std::vector<int32_t> ids;
  QUIRE_RETURN_IF_ERROR(ReadIdList(settings, key, max_id, &ids));
  if (ids.size() > 1) return settings.reader.Refuse(key, "has several ids", "one id");
  if (!ids.empty()) *id = ids[0];
  return absl::OkStatus();
}

// Each id from generation_config.json if that has it, as in transformers. The first and the last
// token of texts may lie behind the vocabulary, in small models that have the ids of a large one:
// no step can meet those, which `notes` say.
absl::Status ReadIds(const Settings& model, const Settings& own, int64_t vocabulary,
                     plan::GenerationT* generation, std::vector<std::string>* notes) {
  const auto owner = [&](absl::string_view key) -> const Settings& {
    return own.reader.Has(key) ? own : model;
  };
  const auto read = [&](absl::string_view key, int64_t max_id, int32_t* id) {
    return ReadId(owner(key), key, max_id, id);
  };
  const int64_t max_id = vocabulary - 1;
  const auto is_behind = [&](absl::string_view key, int32_t id) {
    return IsBehind(key, id, owner(key).reader.file(), vocabulary, notes);
  };
  QUIRE_RETURN_IF_ERROR(read("bos_token_id", kMaxId, &generation->bos_id));
  if (is_behind("bos_token_id", generation->bos_id)) generation->bos_id = -1;
  // Never chosen nor fed: files of models without one name an id behind the last.
  QUIRE_RETURN_IF_ERROR(read("pad_token_id", kMaxId, &generation->pad_id));
  QUIRE_RETURN_IF_ERROR(read("decoder_start_token_id", max_id, &generation->decoder_start_id));
  QUIRE_RETURN_IF_ERROR(read("forced_bos_token_id", max_id, &generation->forced_bos_id));
  QUIRE_RETURN_IF_ERROR(read("forced_eos_token_id", max_id, &generation->forced_eos_id));
  std::vector<int32_t> eos_ids;
  QUIRE_RETURN_IF_ERROR(ReadIdList(owner("eos_token_id"), "eos_token_id", kMaxId, &eos_ids));
  for (const int32_t id : eos_ids) {
    if (!is_behind("eos_token_id", id)) generation->eos_ids.push_back(id);
  }
  return absl::OkStatus();
}

// early_stopping is a boolean or "never".
absl::Status ReadEarlyStopping(const Settings& settings, plan::GenerationT* generation) {
  settings.reader.Ignore({"early_stopping"});  // of two types: read here
  if (!settings.reader.Has("early_stopping")) return absl::OkStatus();
  const auto value = settings.object->find("early_stopping");
  if (value->is_boolean()) {
    generation->early_stopping = value->get<bool>() ? "true" : "false";
  } else if (*value == "never") {
    generation->early_stopping = "never";
  } else {
    return settings.reader.Refuse("early_stopping", "is not known", "true, false, \"never\"");
  }
  return absl::OkStatus();
}

absl::Status ReadCount(const ConfigReader& reader, absl::string_view key, int64_t low, int64_t most,
                       int32_t* value) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t number, reader.GetIntOr(key, *value));
  if (number < low || number > most) {
    return reader.Refuse(key, "is out of range", absl::StrCat(low, " .. ", most));
  }
  *value = static_cast<int32_t>(number);
  return absl::OkStatus();
}

absl::Status ReadLengths(const ConfigReader& reader, plan::GenerationT* generation) {
  QUIRE_RETURN_IF_ERROR(ReadCount(reader, "max_length", 0, kMaxId, &generation->max_length));
  return ReadCount(reader, "max_new_tokens", 0, kMaxId, &generation->max_new_tokens);
}

// Beams and what goes with them.
absl::Status ReadSearch(const Settings& settings, plan::GenerationT* generation) {
  const ConfigReader& reader = settings.reader;
  QUIRE_RETURN_IF_ERROR(ReadCount(reader, "min_length", 0, kMaxId, &generation->min_length));
  QUIRE_RETURN_IF_ERROR(
      ReadCount(reader, "min_new_tokens", 0, kMaxId, &generation->min_new_tokens));
  QUIRE_RETURN_IF_ERROR(ReadCount(reader, "num_beams", 1, kMaxBeams, &generation->num_beams));
  QUIRE_RETURN_IF_ERROR(
      ReadCount(reader, "no_repeat_ngram_size", 0, kMaxId, &generation->no_repeat_ngram));
  QUIRE_ASSIGN_OR_RETURN(const double penalty,
                         reader.GetFloatOr("length_penalty", generation->length_penalty));
  if (!(penalty >= -100 && penalty <= 100)) {
    return reader.Refuse("length_penalty", "is out of range", "-100 .. 100");
  }
  generation->length_penalty = static_cast<float>(penalty);
  return ReadEarlyStopping(settings, generation);
}

// A string, or a list of them.
absl::Status ReadStopStrings(const Settings& settings, plan::GenerationT* generation) {
  constexpr absl::string_view kKey = "stop_strings";
  const ConfigReader& reader = settings.reader;
  if (!reader.Has(kKey)) return absl::OkStatus();
  if (settings.object->find("stop_strings")->is_string()) {
    QUIRE_ASSIGN_OR_RETURN(std::string one, reader.GetString(kKey));
    generation->stop_strings.push_back(std::move(one));
  } else {
    QUIRE_ASSIGN_OR_RETURN(generation->stop_strings, reader.GetStrings(kKey));
  }
  for (const std::string& text : generation->stop_strings) {
    if (text.empty()) return reader.Refuse(kKey, "has an empty one", "texts of a byte or more");
  }
  return absl::OkStatus();
}

// Those of the vocabulary; `notes` get to say of others, which are never chosen. -1 is how some
// files say "none".
absl::Status ReadTokens(const ConfigReader& reader, absl::string_view key, int64_t vocabulary,
                        std::vector<int32_t>* ids, std::vector<std::string>* notes) {
  if (!reader.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> values, reader.GetInts(key));
  std::vector<int64_t> behind;
  for (const int64_t value : values) {
    if (value < -1) return reader.Refuse(key, "has what is no token id", "ids from 0 on");
    if (value >= vocabulary) behind.push_back(value);
    if (value >= 0 && value < vocabulary) ids->push_back(static_cast<int32_t>(value));
  }
  if (behind.size() == 1) IsBehind(key, behind[0], reader.file(), vocabulary, notes);
  if (behind.size() > 1) {
    notes->push_back(absl::StrCat(key, " of ", reader.file(), ": ", JsonValueText(behind),
                                  " are behind the last token, ", vocabulary - 1,
                                  ", and not honoured"));
  }
  return absl::OkStatus();
}

// What no output has, at its begin or anywhere, and what ends it.
absl::Status ReadSuppressed(const Settings& settings, int64_t vocabulary,
                            plan::GenerationT* generation, std::vector<std::string>* notes) {
  QUIRE_RETURN_IF_ERROR(ReadStopStrings(settings, generation));
  const ConfigReader& reader = settings.reader;
  std::set<int32_t> suppressed;
  for (const auto& [key, ids] :
       {std::pair("suppress_tokens", &generation->suppress_tokens),
        std::pair("begin_suppress_tokens", &generation->begin_suppress_tokens)}) {
    QUIRE_RETURN_IF_ERROR(ReadTokens(reader, key, vocabulary, ids, notes));
    suppressed.insert(ids->begin(), ids->end());
    // At the begin of an output both hold.
    if (static_cast<int64_t>(suppressed.size()) < vocabulary || ids->empty()) continue;
    return reader.Refuse(key, "leaves no token to choose",
                         absl::StrCat("fewer than all ", vocabulary, " tokens"));
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(const ConfigReader& reader, plan::GenerationT* generation) {
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
  QUIRE_RETURN_IF_ERROR(read("min_p", 0, 1, &generation->min_p));
  QUIRE_RETURN_IF_ERROR(read("repetition_penalty", 1e-3, 1e3, &generation->repetition_penalty));
  QUIRE_ASSIGN_OR_RETURN(int64_t top_k, reader.GetIntOr("top_k", generation->top_k));
  if (top_k < 0 || top_k > kMaxId) {
    return reader.Refuse("top_k", "is out of range", absl::StrCat("0 (off) .. ", kMaxId));
  }
  generation->top_k = static_cast<int32_t>(top_k);
  return absl::OkStatus();
}

absl::Status ReadGgufIds(const GgufMetadata& metadata, int64_t vocabulary,
                         plan::GenerationT* generation, std::vector<std::string>* notes) {
  const auto is_behind = [&](absl::string_view key, int32_t id) {
    return IsBehind(key, id, metadata.file(), vocabulary, notes);
  };
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
  constexpr absl::string_view kBos = "tokenizer.ggml.bos_token_id";
  QUIRE_RETURN_IF_ERROR(read(kBos, &generation->bos_id));
  if (is_behind(kBos, generation->bos_id)) generation->bos_id = -1;
  QUIRE_RETURN_IF_ERROR(read("tokenizer.ggml.padding_token_id", &generation->pad_id));
  for (absl::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                "tokenizer.ggml.eom_token_id"}) {
    int32_t id = -1;
    QUIRE_RETURN_IF_ERROR(read(key, &id));
    if (id >= 0 && !is_behind(key, id)) generation->eos_ids.push_back(id);
  }
  QUIRE_ASSIGN_OR_RETURN(generation->chat_template,
                         metadata.GetStringOr("tokenizer.chat_template", ""));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImportedGeneration> ImportGeneration(const Checkpoint& checkpoint,
                                                    int64_t vocabulary) {
  ImportedGeneration imported;
  imported.generation = std::make_unique<plan::GenerationT>();
  plan::GenerationT* generation = imported.generation.get();
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    QUIRE_RETURN_IF_ERROR(
        ReadGgufIds(checkpoint.metadata(), vocabulary, generation, &imported.notes));
    return imported;
  }
  const auto settings_of = [&checkpoint](const json& object, absl::string_view file) {
    return Settings{&object, ConfigReader(object, JoinPath(checkpoint.directory(), file))};
  };
  const Settings model = settings_of(checkpoint.config(), "config.json");
  const Settings own = settings_of(checkpoint.generation_config(), "generation_config.json");
  QUIRE_RETURN_IF_ERROR(ReadIds(model, own, vocabulary, generation, &imported.notes));
  // Models of before generation_config.json have it all in config.json.
  const bool is_own = own.object->is_object();
  const Settings& settings = is_own ? own : model;
  QUIRE_RETURN_IF_ERROR(ReadLengths(settings.reader, generation));
  QUIRE_RETURN_IF_ERROR(ReadSearch(settings, generation));
  QUIRE_RETURN_IF_ERROR(ReadSampling(settings.reader, generation));
  QUIRE_RETURN_IF_ERROR(ReadSuppressed(settings, vocabulary, generation, &imported.notes));
  for (std::string& note : UnhonouredKeys(settings.reader, *settings.object, is_own)) {
    imported.notes.push_back(std::move(note));
  }
  if (generation->do_sample && generation->num_beams > 1) {
    imported.notes.push_back(absl::StrCat("num_beams=", generation->num_beams, " of ",
                                          settings.reader.file(),
                                          " is not honoured beside do_sample=true"));
  } else if (!generation->stop_strings.empty() && generation->num_beams > 1) {
    imported.notes.push_back(absl::StrCat(
        "stop_strings of ", settings.reader.file(),
        " do not end beams, of which num_beams=", generation->num_beams, " asks for some"));
  }
  return imported;
}

}  // namespace quire
