#include "models/import/tokenizer_json.h"

#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ir/file.h"
#include "ir/status.h"
#include "models/import/json.h"
#include "models/import/tokenizer_json_parts.h"

namespace quire {
namespace {

// The tokenizer under construction, and where its tokens are.
class Builder {
 public:
  plan::TokenizerT& out() { return out_; }

  // To be called once the model's vocabulary is in out().
  void IndexVocabulary() {
    uint32_t begin = 0;
    for (size_t id = 0; id < out_.token_ends.size(); ++id) {
      const auto first = out_.token_bytes.begin() + begin;
      const auto last = out_.token_bytes.begin() + out_.token_ends[id];
      if (first != last) model_ids_[std::string(first, last)] = static_cast<uint32_t>(id);
      begin = out_.token_ends[id];
    }
  }

  // The id of a token by its content, added or of the model; -1 if there is none.
  int32_t FindToken(const std::string& content) const {
    if (const auto it = added_.find(content); it != added_.end()) {
      return static_cast<int32_t>(out_.added_tokens[it->second]->id);
    }
    const auto it = model_ids_.find(content);
    return it == model_ids_.end() ? -1 : static_cast<int32_t>(it->second);
  }

  // Adds `token`, or replaces the one with its content, which keeps its id.
  absl::Status Store(plan::AddedTokenT token, const std::string& path) {
    if (const auto it = added_.find(token.content); it != added_.end()) {
      token.id = out_.added_tokens[it->second]->id;
      *out_.added_tokens[it->second] = std::move(token);
      return absl::OkStatus();
    }
    const auto it = model_ids_.find(token.content);
    if (it != model_ids_.end() && it->second != token.id) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ".id=", token.id, " is ", it->second, " in the vocabulary"));
    }
    added_.emplace(token.content, out_.added_tokens.size());
    out_.added_tokens.push_back(std::make_unique<plan::AddedTokenT>(std::move(token)));
    return absl::OkStatus();
  }

 private:
  plan::TokenizerT out_;
  absl::flat_hash_map<std::string, uint32_t> model_ids_;
  absl::flat_hash_map<std::string, size_t> added_;  // index in out_.added_tokens
};

absl::StatusOr<plan::AddedTokenT> ReadAddedToken(const JsonNode& node) {
  plan::AddedTokenT token;
  QUIRE_ASSIGN_OR_RETURN(const JsonNode content, node.Field("content"));
  QUIRE_ASSIGN_OR_RETURN(token.content, content.String());
  if (token.content.empty()) return content.Invalid("is empty");
  QUIRE_ASSIGN_OR_RETURN(token.special, node.BoolOr("special", false));
  QUIRE_ASSIGN_OR_RETURN(token.normalized, node.BoolOr("normalized", !token.special));
  QUIRE_ASSIGN_OR_RETURN(token.lstrip, node.BoolOr("lstrip", false));
  QUIRE_ASSIGN_OR_RETURN(token.rstrip, node.BoolOr("rstrip", false));
  QUIRE_ASSIGN_OR_RETURN(token.single_word, node.BoolOr("single_word", false));
  return token;
}

absl::Status ImportAddedTokens(const JsonNode& list, Builder* builder) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, list.Elements());
  for (const JsonNode& element : elements) {
    QUIRE_RETURN_IF_ERROR(element.OnlyFields(
        {"id", "content", "special", "normalized", "lstrip", "rstrip", "single_word"}));
    QUIRE_ASSIGN_OR_RETURN(plan::AddedTokenT token, ReadAddedToken(element));
    QUIRE_ASSIGN_OR_RETURN(const JsonNode id, element.Field("id"));
    QUIRE_ASSIGN_OR_RETURN(token.id, id.Uint());
    QUIRE_RETURN_IF_ERROR(builder->Store(std::move(token), element.path()));
  }
  return absl::OkStatus();
}

absl::Status ImportFile(const JsonNode& root, Builder* builder) {
  QUIRE_RETURN_IF_ERROR(
      root.OnlyFields({"version", "truncation", "padding", "added_tokens", "normalizer",
                       "pre_tokenizer", "post_processor", "decoder", "model"}));
  if (root.Has("version")) {
    QUIRE_ASSIGN_OR_RETURN(const JsonNode version, root.Field("version"));
    if (version.value() != "1.0") return version.Unsupported("\"1.0\"");
  }
  QUIRE_ASSIGN_OR_RETURN(const JsonNode model, root.Field("model"));
  QUIRE_RETURN_IF_ERROR(ImportModel(model, &builder->out()));
  builder->IndexVocabulary();
  if (root.Has("added_tokens")) {
    QUIRE_ASSIGN_OR_RETURN(const JsonNode added, root.Field("added_tokens"));
    QUIRE_RETURN_IF_ERROR(ImportAddedTokens(added, builder));
  }
  using ImportPart = absl::Status (*)(const JsonNode&, plan::TokenizerT*);
  static constexpr std::pair<absl::string_view, ImportPart> kParts[] = {
      {"normalizer", &ImportNormalizer},
      {"pre_tokenizer", &ImportPreTokenizer},
      {"decoder", &ImportDecoder},
      {"post_processor", &ImportPostProcessor}};
  for (const auto& [key, import] : kParts) {
    if (!root.Has(key)) continue;
    QUIRE_ASSIGN_OR_RETURN(const JsonNode part, root.Field(key));
    QUIRE_RETURN_IF_ERROR(import(part, &builder->out()));
  }
  return absl::OkStatus();
}

// The token that `config` names under `key`, as a string or as {"content": ...}; `*id` stays if it
// names none, or one that the tokenizer does not have.
absl::Status ReadNamedToken(const JsonNode& config, absl::string_view key, const Builder& builder,
                            int32_t* id) {
  if (!config.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(JsonNode name, config.Field(key));
  if (name.value().is_object()) {
    QUIRE_ASSIGN_OR_RETURN(name, name.Field("content"));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string content, name.String());
  const int32_t found = builder.FindToken(content);
  if (found >= 0) *id = found;
  return absl::OkStatus();
}

absl::Status ReadNamedTokens(const JsonNode& config, Builder* builder) {
  QUIRE_RETURN_IF_ERROR(ReadNamedToken(config, "bos_token", *builder, &builder->out().bos_id));
  QUIRE_RETURN_IF_ERROR(ReadNamedToken(config, "eos_token", *builder, &builder->out().eos_id));
  return ReadNamedToken(config, "pad_token", *builder, &builder->out().pad_id);
}

// A string, or a list of named templates of which "default" counts.
absl::StatusOr<std::string> ReadChatTemplate(const JsonNode& field) {
  if (!field.value().is_array()) return field.String();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<JsonNode> templates, field.Elements());
  for (const JsonNode& entry : templates) {
    QUIRE_ASSIGN_OR_RETURN(const std::string name, entry.StringOr("name", ""));
    if (name == "default") return entry.StringOr("template", "");
  }
  return std::string();
}

absl::Status ImportAddedTokensDecoder(const JsonNode& decoder, Builder* builder) {
  if (!decoder.value().is_object()) return decoder.Invalid("is not an object");
  for (auto it = decoder.value().begin(); it != decoder.value().end(); ++it) {
    const JsonNode node(&*it, absl::StrCat(decoder.path(), ".", it.key()));
    QUIRE_ASSIGN_OR_RETURN(plan::AddedTokenT token, ReadAddedToken(node));
    if (!absl::SimpleAtoi(it.key(), &token.id)) return node.Invalid("has a key that is not an id");
    QUIRE_RETURN_IF_ERROR(builder->Store(std::move(token), node.path()));
  }
  return absl::OkStatus();
}

absl::Status ImportConfig(const JsonNode& config, Builder* builder) {
  if (config.Has("added_tokens_decoder")) {
    QUIRE_ASSIGN_OR_RETURN(const JsonNode decoder, config.Field("added_tokens_decoder"));
    QUIRE_RETURN_IF_ERROR(ImportAddedTokensDecoder(decoder, builder));
  }
  QUIRE_RETURN_IF_ERROR(ReadNamedTokens(config, builder));
  plan::TokenizerT* const out = &builder->out();
  if (config.Has("chat_template")) {
    QUIRE_ASSIGN_OR_RETURN(const JsonNode field, config.Field("chat_template"));
    QUIRE_ASSIGN_OR_RETURN(out->chat_template, ReadChatTemplate(field));
  }
  if (!config.Has("add_bos_token") && !config.Has("add_eos_token")) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const bool adds_bos, config.BoolOr("add_bos_token", false));
  QUIRE_ASSIGN_OR_RETURN(const bool adds_eos, config.BoolOr("add_eos_token", false));
  out->prefix_ids.clear();
  out->suffix_ids.clear();
  if (adds_bos && out->bos_id >= 0) out->prefix_ids.push_back(static_cast<uint32_t>(out->bos_id));
  if (adds_eos && out->eos_id >= 0) out->suffix_ids.push_back(static_cast<uint32_t>(out->eos_id));
  return absl::OkStatus();
}

// The file's content; empty if there is none.
absl::StatusOr<std::string> ReadFile(const std::string& path) {
  if (KindOfPath(path) == PathKind::kMissing) return std::string();
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return std::string(file.text());
}

}  // namespace

absl::StatusOr<plan::TokenizerT> ImportTokenizerJson(const HfTokenizerFiles& files) {
  Builder builder;
  QUIRE_ASSIGN_OR_RETURN(const nlohmann::json root,
                         ParseJsonObject(files.tokenizer_json, "tokenizer.json"));
  QUIRE_RETURN_IF_ERROR(ImportFile(JsonNode(&root, "tokenizer.json: "), &builder));
  if (!files.special_tokens_map_json.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const nlohmann::json map, ParseJsonObject(files.special_tokens_map_json,
                                                                     "special_tokens_map.json"));
    QUIRE_RETURN_IF_ERROR(ReadNamedTokens(JsonNode(&map, "special_tokens_map.json: "), &builder));
  }
  if (!files.tokenizer_config_json.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const nlohmann::json config,
                           ParseJsonObject(files.tokenizer_config_json, "tokenizer_config.json"));
    QUIRE_RETURN_IF_ERROR(ImportConfig(JsonNode(&config, "tokenizer_config.json: "), &builder));
  }
  if (!files.chat_template_jinja.empty()) builder.out().chat_template = files.chat_template_jinja;
  return std::move(builder.out());
}

absl::StatusOr<plan::TokenizerT> ImportTokenizerDirectory(const std::string& directory) {
  HfTokenizerFiles files;
  if (KindOfPath(JoinPath(directory, "tokenizer.json")) == PathKind::kMissing) {
    return absl::NotFoundError(absl::StrCat(directory, ": no tokenizer.json"));
  }
  QUIRE_ASSIGN_OR_RETURN(files.tokenizer_json, ReadFile(JoinPath(directory, "tokenizer.json")));
  QUIRE_ASSIGN_OR_RETURN(files.tokenizer_config_json,
                         ReadFile(JoinPath(directory, "tokenizer_config.json")));
  QUIRE_ASSIGN_OR_RETURN(files.special_tokens_map_json,
                         ReadFile(JoinPath(directory, "special_tokens_map.json")));
  QUIRE_ASSIGN_OR_RETURN(files.chat_template_jinja,
                         ReadFile(JoinPath(directory, "chat_template.jinja")));
  absl::StatusOr<plan::TokenizerT> tokenizer = ImportTokenizerJson(files);
  if (tokenizer.ok()) return tokenizer;
  // Messages begin with the file's name.
  return absl::Status(tokenizer.status().code(), JoinPath(directory, tokenizer.status().message()));
}

}  // namespace quire
