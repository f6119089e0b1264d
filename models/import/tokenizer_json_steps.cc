// The steps of tokenizer.json: normalizers, pre-tokenizers, decoders.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "models/import/tokenizer_json_parts.h"

namespace quire {
namespace {

using plan::DecoderKind;
using plan::NormalizerKind;
using plan::PrependScheme;
using plan::PreTokenizerKind;
using plan::SplitBehavior;

constexpr absl::string_view kMetaspaceDefault = "\xe2\x96\x81";  // U+2581
constexpr int kMaxDepth = 16;

// One of a set of names.
template <typename Enum, size_t kCount>
absl::StatusOr<Enum> ReadName(const JsonNode& node,
                              const std::pair<absl::string_view, Enum> (&names)[kCount]) {
  QUIRE_ASSIGN_OR_RETURN(const std::string name, node.String());
  std::vector<absl::string_view> allowed;
  for (const auto& [text, value] : names) {
    if (text == name) return value;
    allowed.push_back(text);
  }
  return node.Unsupported(absl::StrJoin(allowed, ", "));
}

// {"String": text} or {"Regex": text}.
absl::Status ReadPattern(const JsonNode& step, std::string* pattern, bool* is_regex) {
  QUIRE_ASSIGN_OR_RETURN(const JsonNode field, step.Field("pattern"));
  QUIRE_RETURN_IF_ERROR(field.OnlyFields({"String", "Regex"}));
  *is_regex = field.Has("Regex");
  QUIRE_ASSIGN_OR_RETURN(const JsonNode text, field.Field(*is_regex ? "Regex" : "String"));
  QUIRE_ASSIGN_OR_RETURN(*pattern, text.String());
  if (pattern->empty()) return text.Invalid("is empty");
  return absl::OkStatus();
}

absl::StatusOr<SplitBehavior> ReadBehavior(const JsonNode& step, SplitBehavior otherwise) {
  static constexpr std::pair<absl::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"Contiguous", SplitBehavior::kContiguous},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext}};
  if (!step.Has("behavior")) return otherwise;
  QUIRE_ASSIGN_OR_RETURN(const JsonNode field, step.Field("behavior"));
  return ReadName(field, kNames);
}

// Metaspace's fields, which its pre-tokenizer and its decoder share.
absl::Status ReadMetaspace(const JsonNode& step, std::string* replacement, PrependScheme* scheme) {
  static constexpr std::pair<absl::string_view, PrependScheme> kNames[] = {
      {"always", PrependScheme::kAlways},
      {"first", PrependScheme::kFirst},
      {"never", PrependScheme::kNever}};
  QUIRE_RETURN_IF_ERROR(step.OnlyFields(
      {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}));
  QUIRE_ASSIGN_OR_RETURN(*replacement, step.StringOr("replacement", kMetaspaceDefault));
  if (replacement->empty()) return step.Invalid("has an empty replacement");
  *scheme = PrependScheme::kAlways;
  if (step.Has("prepend_scheme")) {
    QUIRE_ASSIGN_OR_RETURN(const JsonNode field, step.Field("prepend_scheme"));
    QUIRE_ASSIGN_OR_RETURN(*scheme, ReadName(field, kNames));
  }
  QUIRE_ASSIGN_OR_RETURN(const bool adds_prefix, step.BoolOr("add_prefix_space", true));
  if (!adds_prefix) *scheme = PrependScheme::kNever;
  return absl::OkStatus();
}

absl::Status ReadNormalizer(const JsonNode& step, NormalizerKind kind, plan::NormalizerT* out) {
  switch (kind) {
    case NormalizerKind::kStrip: {
      QUIRE_RETURN_IF_ERROR(step.OnlyFields({"type", "strip_left", "strip_right"}));
      QUIRE_ASSIGN_OR_RETURN(out->left, step.BoolOr("strip_left", true));
      QUIRE_ASSIGN_OR_RETURN(out->right, step.BoolOr("strip_right", true));
      return absl::OkStatus();
    }
    case NormalizerKind::kPrepend: {
      QUIRE_RETURN_IF_ERROR(step.OnlyFields({"type", "prepend"}));
      QUIRE_ASSIGN_OR_RETURN(out->content, step.StringOr("prepend", ""));
      return absl::OkStatus();
    }
    case NormalizerKind::kReplace: {
      QUIRE_RETURN_IF_ERROR(step.OnlyFields({"type", "pattern", "content"}));
      QUIRE_RETURN_IF_ERROR(ReadPattern(step, &out->pattern, &out->is_regex));
      QUIRE_ASSIGN_OR_RETURN(out->content, step.StringOr("content", ""));
      return absl::OkStatus();
    }
    case NormalizerKind::kPrecompiled: {
      QUIRE_RETURN_IF_ERROR(step.OnlyFields({"type", "precompiled_charsmap"}));
      QUIRE_ASSIGN_OR_RETURN(const JsonNode field, step.Field("precompiled_charsmap"));
      QUIRE_ASSIGN_OR_RETURN(const std::string base64, field.String());
      std::string charsmap;
      if (!absl::Base64Unescape(base64, &charsmap)) return field.Invalid("is not base64");
      out->charsmap.assign(charsmap.begin(), charsmap.end());
      return absl::OkStatus();
    }
    default:
      return step.OnlyFields({"type"});
  }
}

absl::Status ReadPreTokenizer(const JsonNode& step, PreTokenizerKind kind,
                              plan::PreTokenizerT* out) {
  switch (kind) {
    case PreTokenizerKind::kByteLevel: {
      QUIRE_RETURN_IF_ERROR(
          step.OnlyFields({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
      QUIRE_ASSIGN_OR_RETURN(out->add_prefix_space, step.BoolOr("add_prefix_space", true));
      QUIRE_ASSIGN_OR_RETURN(out->use_regex, step.BoolOr("use_regex", true));
      return absl::OkStatus();
    }
    case PreTokenizerKind::kSplit: {
      QUIRE_RETURN_IF_ERROR(step.OnlyFields({"type", "pattern", "behavior", "invert"}));
      QUIRE_RETURN_IF_ERROR(ReadPattern(step, &out->pattern, &out->is_regex));
      QUIRE_ASSIGN_OR_RETURN(out->invert, step.BoolOr("invert", false));
      QUIRE_ASSIGN_OR_RETURN(out->behavior, ReadBehavior(step, SplitBehavior::kRemoved));
      return absl::OkStatus();
    }
    case PreTokenizerKind::kDigits: {
      QUIRE_RETURN_IF_ERROR(step.OnlyFields({"type", "individual_digits"}));
      QUIRE_ASSIGN_OR_RETURN(out->individual_digits, step.BoolOr("individual_digits", false));
      return absl::OkStatus();
    }
    case PreTokenizerKind::kMetaspace: {
      QUIRE_RETURN_IF_ERROR(ReadMetaspace(step, &out->replacement, &out->prepend_scheme));
      QUIRE_ASSIGN_OR_RETURN(out->splits, step.BoolOr("split", true));
      return absl::OkStatus();
    }
    case PreTokenizerKind::kPunctuation: {
      QUIRE_RETURN_IF_ERROR(step.OnlyFields({"type", "behavior"}));
      QUIRE_ASSIGN_OR_RETURN(out->behavior, ReadBehavior(step, SplitBehavior::kIsolated));
      return absl::OkStatus();
    }
    default:
      return step.OnlyFields({"type"});
  }
}

absl::Status ReadDecoder(const JsonNode& step, DecoderKind kind, plan::TokenDecoderT* out) {
  switch (kind) {
    case DecoderKind::kByteLevel:  // its fields concern encoding
      return step.OnlyFields({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    case DecoderKind::kMetaspace:
      return ReadMetaspace(step, &out->pattern, &out->prepend_scheme);
    case DecoderKind::kReplace: {
      QUIRE_RETURN_IF_ERROR(step.OnlyFields({"type", "pattern", "content"}));
      bool is_regex;
      QUIRE_RETURN_IF_ERROR(ReadPattern(step, &out->pattern, &is_regex));
      if (is_regex) {
        QUIRE_ASSIGN_OR_RETURN(const JsonNode pattern, step.Field("pattern"));
        return pattern.Unsupported("{\"String\": ...}");
      }
      QUIRE_ASSIGN_OR_RETURN(out->content, step.StringOr("content", ""));
      return absl::OkStatus();
    }
    case DecoderKind::kStrip: {
      QUIRE_RETURN_IF_ERROR(step.OnlyFields({"type", "content", "start", "stop"}));
      QUIRE_ASSIGN_OR_RETURN(out->content, step.StringOr("content", ""));
      if (out->content.empty()) return step.Invalid("has an empty content");
      QUIRE_ASSIGN_OR_RETURN(out->start, step.UintOr("start", 0));
      QUIRE_ASSIGN_OR_RETURN(out->stop, step.UintOr("stop", 0));
      return absl::OkStatus();
    }
    default:
      return step.OnlyFields({"type"});
  }
}

// Reads one step, or each of a "Sequence" whose steps are under `list_key`, into `out`.
template <typename Step, typename Kind, size_t kCount>
absl::Status ReadSteps(const JsonNode& step, absl::string_view list_key,
                       const std::pair<absl::string_view, Kind> (&kinds)[kCount],
                       absl::Status (*read)(const JsonNode&, Kind, Step*), int depth,
                       std::vector<std::unique_ptr<Step>>* out) {
  if (step.value().is_null()) return absl::OkStatus();
  if (depth == 0) return step.Unsupported(absl::StrCat("sequences at most ", kMaxDepth, " deep"));
  QUIRE_ASSIGN_OR_RETURN(const JsonNode type, step.Field("type"));
  if (type.value() == "Sequence") {
    QUIRE_RETURN_IF_ERROR(step.OnlyFields({"type", list_key}));
    QUIRE_ASSIGN_OR_RETURN(const JsonNode list, step.Field(list_key));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, list.Elements());
    for (const JsonNode& element : elements) {
      QUIRE_RETURN_IF_ERROR(ReadSteps(element, list_key, kinds, read, depth - 1, out));
    }
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const Kind kind, ReadName(type, kinds));
  auto result = std::make_unique<Step>();
  result->kind = kind;
  QUIRE_RETURN_IF_ERROR(read(step, kind, result.get()));
  out->push_back(std::move(result));
  return absl::OkStatus();
}

}  // namespace

absl::Status ImportNormalizer(const JsonNode& normalizer, plan::TokenizerT* out) {
  static constexpr std::pair<absl::string_view, NormalizerKind> kKinds[] = {
      {"NFC", NormalizerKind::kNfc},
      {"NFD", NormalizerKind::kNfd},
      {"NFKC", NormalizerKind::kNfkc},
      {"NFKD", NormalizerKind::kNfkd},
      {"Lowercase", NormalizerKind::kLowercase},
      {"Strip", NormalizerKind::kStrip},
      {"StripAccents", NormalizerKind::kStripAccents},
      {"Prepend", NormalizerKind::kPrepend},
      {"Replace", NormalizerKind::kReplace},
      {"Precompiled", NormalizerKind::kPrecompiled}};
  return ReadSteps(normalizer, "normalizers", kKinds, &ReadNormalizer, kMaxDepth,
                   &out->normalizers);
}

absl::Status ImportPreTokenizer(const JsonNode& pre_tokenizer, plan::TokenizerT* out) {
  static constexpr std::pair<absl::string_view, PreTokenizerKind> kKinds[] = {
      {"ByteLevel", PreTokenizerKind::kByteLevel},
      {"Split", PreTokenizerKind::kSplit},
      {"Digits", PreTokenizerKind::kDigits},
      {"Metaspace", PreTokenizerKind::kMetaspace},
      {"Whitespace", PreTokenizerKind::kWhitespace},
      {"WhitespaceSplit", PreTokenizerKind::kWhitespaceSplit},
      {"Punctuation", PreTokenizerKind::kPunctuation}};
  return ReadSteps(pre_tokenizer, "pretokenizers", kKinds, &ReadPreTokenizer, kMaxDepth,
                   &out->pre_tokenizers);
}

absl::Status ImportDecoder(const JsonNode& decoder, plan::TokenizerT* out) {
  static constexpr std::pair<absl::string_view, DecoderKind> kKinds[] = {
      {"ByteLevel", DecoderKind::kByteLevel}, {"ByteFallback", DecoderKind::kByteFallback},
      {"Fuse", DecoderKind::kFuse},           {"Metaspace", DecoderKind::kMetaspace},
      {"Replace", DecoderKind::kReplace},     {"Strip", DecoderKind::kStrip}};
  return ReadSteps(decoder, "decoders", kKinds, &ReadDecoder, kMaxDepth, &out->decoders);
}

}  // namespace quire
