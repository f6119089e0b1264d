// The "post_processor" of tokenizer.json: what it puts around a single sequence.
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "models/import/tokenizer_json_parts.h"

namespace quire {
namespace {

constexpr absl::string_view kPostProcessors =
    "TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing, Sequence";
constexpr int kMaxDepth = 16;

// The ids that "special_tokens" gives for the token named `name`.
absl::StatusOr<std::vector<uint32_t>> ReadIds(const JsonNode& processor, const JsonNode& name) {
  QUIRE_ASSIGN_OR_RETURN(const std::string key, name.String());
  QUIRE_ASSIGN_OR_RETURN(const JsonNode tokens, processor.Field("special_tokens"));
  QUIRE_ASSIGN_OR_RETURN(const JsonNode token, tokens.Field(key));
  QUIRE_ASSIGN_OR_RETURN(const JsonNode list, token.Field("ids"));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, list.Elements());
  std::vector<uint32_t> ids;
  for (const JsonNode& element : elements) {
    QUIRE_ASSIGN_OR_RETURN(const uint32_t id, element.Uint());
    ids.push_back(id);
  }
  return ids;
}

void Wrap(const std::vector<uint32_t>& prefix, const std::vector<uint32_t>& suffix,
          plan::TokenizerT* out) {
  out->prefix_ids.insert(out->prefix_ids.begin(), prefix.begin(), prefix.end());
  out->suffix_ids.insert(out->suffix_ids.end(), suffix.begin(), suffix.end());
}

absl::Status ReadTemplate(const JsonNode& processor, plan::TokenizerT* out) {
  QUIRE_RETURN_IF_ERROR(processor.OnlyFields({"type", "single", "pair", "special_tokens"}));
  QUIRE_ASSIGN_OR_RETURN(const JsonNode single, processor.Field("single"));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<JsonNode> pieces, single.Elements());
  std::vector<uint32_t> prefix, suffix;
  int sequences = 0;
  for (const JsonNode& piece : pieces) {
    QUIRE_RETURN_IF_ERROR(piece.OnlyFields({"SpecialToken", "Sequence"}));
    if (piece.Has("Sequence")) {
      ++sequences;
      continue;
    }
    QUIRE_ASSIGN_OR_RETURN(const JsonNode token, piece.Field("SpecialToken"));
    QUIRE_ASSIGN_OR_RETURN(const JsonNode name, token.Field("id"));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, ReadIds(processor, name));
    auto& side = sequences == 0 ? prefix : suffix;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (sequences != 1) return single.Unsupported("a template with the sequence in it once");
  Wrap(prefix, suffix, out);
  return absl::OkStatus();
}

// ["text", id]
absl::StatusOr<uint32_t> ReadNamedId(const JsonNode& processor, absl::string_view key) {
  QUIRE_ASSIGN_OR_RETURN(const JsonNode field, processor.Field(key));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, field.Elements());
  if (elements.size() != 2) return field.Invalid("is not [text, id]");
  return elements[1].Uint();
}

absl::Status ReadPostProcessor(const JsonNode& processor, int depth, plan::TokenizerT* out) {
  if (processor.value().is_null()) return absl::OkStatus();
  if (depth == 0)
    return processor.Unsupported(absl::StrCat("sequences at most ", kMaxDepth, " deep"));
  QUIRE_ASSIGN_OR_RETURN(const JsonNode type, processor.Field("type"));
  if (type.value() == "TemplateProcessing") return ReadTemplate(processor, out);
  if (type.value() == "ByteLevel") {  // concerns offsets, not ids
    return processor.OnlyFields({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  }
  if (type.value() == "RobertaProcessing" || type.value() == "BertProcessing") {
    QUIRE_RETURN_IF_ERROR(
        processor.OnlyFields({"type", "sep", "cls", "trim_offsets", "add_prefix_space"}));
    QUIRE_ASSIGN_OR_RETURN(const uint32_t cls, ReadNamedId(processor, "cls"));
    QUIRE_ASSIGN_OR_RETURN(const uint32_t sep, ReadNamedId(processor, "sep"));
    Wrap({cls}, {sep}, out);
    return absl::OkStatus();
  }
  if (type.value() == "Sequence") {
    QUIRE_RETURN_IF_ERROR(processor.OnlyFields({"type", "processors"}));
    QUIRE_ASSIGN_OR_RETURN(const JsonNode list, processor.Field("processors"));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, list.Elements());
    for (const JsonNode& element : elements)
      QUIRE_RETURN_IF_ERROR(ReadPostProcessor(element, depth - 1, out));
    return absl::OkStatus();
  }
  return type.Unsupported(kPostProcessors);
}

}  // namespace

absl::Status ImportPostProcessor(const JsonNode& post_processor, plan::TokenizerT* out) {
  return ReadPostProcessor(post_processor, kMaxDepth, out);
}

}  // namespace quire
