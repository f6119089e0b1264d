#include "models/import/tokenizer_gguf.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "models/import/tokenizer_gguf_pre.h"
#include "models/import/tokenizer_vocab.h"

namespace quire {
namespace {

constexpr absl::string_view kModel = "tokenizer.ggml.model";
constexpr absl::string_view kPre = "tokenizer.ggml.pre";
constexpr absl::string_view kTokens = "tokenizer.ggml.tokens";
constexpr absl::string_view kTypes = "tokenizer.ggml.token_type";
constexpr absl::string_view kScores = "tokenizer.ggml.scores";
constexpr absl::string_view kMerges = "tokenizer.ggml.merges";
constexpr absl::string_view kSpace = "\xe2\x96\x81";  // U+2581

// The format's numbers for what a token is.
enum TokenType : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Source {
  const GgufMetadata& metadata;
  absl::Span<const std::string> tokens;
  absl::Span<const int64_t> types;  // empty: all normal

  int64_t TypeOf(size_t id) const { return types.empty() ? int64_t{kNormal} : types[id]; }
};

absl::StatusOr<Source> ReadTokens(const GgufMetadata& metadata) {
  Source source{metadata, {}, {}};
  QUIRE_ASSIGN_OR_RETURN(source.tokens, metadata.GetStrings(kTokens));
  if (metadata.Has(kTypes)) {
    QUIRE_ASSIGN_OR_RETURN(source.types, metadata.GetInts(kTypes));
    if (source.types.size() != source.tokens.size()) {
      return metadata.Refuse(kTypes, "has not one type for each token",
                             absl::StrCat(source.tokens.size()));
    }
  }
  return source;
}

// The id under `key`, or -1.
absl::StatusOr<int32_t> ReadId(const Source& source, absl::string_view key) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t id, source.metadata.GetIntOr(key, -1));
  // Files say "none" as -1, which is 2^32 - 1 in the unsigned type of the key.
  if (id < 0 || id == 0xffffffff) return -1;
  if (static_cast<uint64_t>(id) >= source.tokens.size()) {
    return source.metadata.Refuse(key, "is not a token",
                                  absl::StrCat("0..", source.tokens.size() - 1));
  }
  return static_cast<int32_t>(id);
}

// Tokens that are found in text are added tokens, and the model's own are its vocabulary. Returns
// the latter.
absl::StatusOr<std::vector<absl::string_view>> DivideTokens(const Source& source,
                                                            plan::TokenizerT* out) {
  std::vector<absl::string_view> texts(source.tokens.size());
  for (size_t id = 0; id < texts.size(); ++id) {
    const int64_t type = source.TypeOf(id);
    const std::string& text = source.tokens[id];
    if (type != kControl && type != kUserDefined && type != kUnknown) {
      texts[id] = text;
      continue;
    }
    if (text.empty()) continue;
    auto added = std::make_unique<plan::AddedTokenT>();
    added->id = static_cast<uint32_t>(id);
    added->content = text;
    added->special = type != kUserDefined;
    out->added_tokens.push_back(std::move(added));
  }
  QUIRE_RETURN_IF_ERROR(StoreVocabulary(texts, out));
  return texts;
}

absl::Status ReadEnds(const Source& source, bool adds_bos, plan::TokenizerT* out) {
  QUIRE_ASSIGN_OR_RETURN(out->bos_id, ReadId(source, "tokenizer.ggml.bos_token_id"));
  QUIRE_ASSIGN_OR_RETURN(out->eos_id, ReadId(source, "tokenizer.ggml.eos_token_id"));
  QUIRE_ASSIGN_OR_RETURN(out->pad_id, ReadId(source, "tokenizer.ggml.padding_token_id"));
  QUIRE_ASSIGN_OR_RETURN(adds_bos,
                         source.metadata.GetBoolOr("tokenizer.ggml.add_bos_token", adds_bos));
  QUIRE_ASSIGN_OR_RETURN(const bool adds_eos,
                         source.metadata.GetBoolOr("tokenizer.ggml.add_eos_token", false));
  QUIRE_ASSIGN_OR_RETURN(const bool adds_sep,
                         source.metadata.GetBoolOr("tokenizer.ggml.add_sep_token", false));
  if (adds_sep) {
    return absl::UnimplementedError(
        "tokenizer.ggml.add_sep_token=true is not supported\n  allowed: false");
  }
  if (adds_bos && out->bos_id >= 0) out->prefix_ids.push_back(static_cast<uint32_t>(out->bos_id));
  if (adds_eos && out->eos_id >= 0) out->suffix_ids.push_back(static_cast<uint32_t>(out->eos_id));
  QUIRE_ASSIGN_OR_RETURN(out->chat_template,
                         source.metadata.GetStringOr("tokenizer.chat_template", ""));
  return absl::OkStatus();
}

std::unique_ptr<plan::PreTokenizerT> MakePre(plan::PreTokenizerKind kind) {
  auto step = std::make_unique<plan::PreTokenizerT>();
  step->kind = kind;
  return step;
}

void AddNormalizer(plan::NormalizerKind kind, absl::string_view pattern, absl::string_view content,
                   plan::TokenizerT* out) {
  auto step = std::make_unique<plan::NormalizerT>();
  step->kind = kind;
  step->pattern = std::string(pattern);
  step->content = std::string(content);
  out->normalizers.push_back(std::move(step));
}

void AddDecoder(plan::DecoderKind kind, absl::string_view pattern, absl::string_view content,
                plan::TokenizerT* out) {
  auto step = std::make_unique<plan::TokenDecoderT>();
  step->kind = kind;
  step->pattern = std::string(pattern);
  step->content = std::string(content);
  step->start = kind == plan::DecoderKind::kStrip ? 1 : 0;
  out->decoders.push_back(std::move(step));
}

absl::Status ImportGpt2(const Source& source, plan::TokenizerT* out) {
  QUIRE_ASSIGN_OR_RETURN(const std::string name, source.metadata.GetStringOr(kPre, "default"));
  const GgufPreTokenizer* const pre = FindGgufPreTokenizer(name);
  if (pre == nullptr) {
    return WithLine(
        absl::UnimplementedError(absl::StrCat(kPre, "=\"", name, "\" is not supported")), "allowed",
        GgufPreTokenizerNames());
  }
  out->model = plan::TokenizerModel::kBpe;
  out->ignore_merges = pre->ignores_merges;
  QUIRE_ASSIGN_OR_RETURN(const std::vector<absl::string_view> texts, DivideTokens(source, out));
  QUIRE_ASSIGN_OR_RETURN(const absl::Span<const std::string> merges,
                         source.metadata.GetStrings(kMerges));
  const MergeBuilder builder(texts);
  for (size_t i = 0; i < merges.size(); ++i) {
    const absl::Status added = builder.Add(merges[i], out);
    if (!added.ok()) return WithPrefix(added, absl::StrCat(kMerges, "[", i, "]"));
  }
  if (pre->nfc) AddNormalizer(plan::NormalizerKind::kNfc, "", "", out);
  if (pre->single_digits) {
    out->pre_tokenizers.push_back(MakePre(plan::PreTokenizerKind::kDigits));
    out->pre_tokenizers.back()->individual_digits = true;
  }
  for (const absl::string_view pattern : pre->patterns) {
    if (pattern.empty()) break;
    out->pre_tokenizers.push_back(MakePre(plan::PreTokenizerKind::kSplit));
    out->pre_tokenizers.back()->pattern = std::string(pattern);
    out->pre_tokenizers.back()->is_regex = true;
    out->pre_tokenizers.back()->behavior = plan::SplitBehavior::kIsolated;
  }
  out->pre_tokenizers.push_back(MakePre(plan::PreTokenizerKind::kByteLevel));
  out->pre_tokenizers.back()->use_regex = pre->gpt2_words;
  AddDecoder(plan::DecoderKind::kByteLevel, "", "", out);
  return ReadEnds(source, pre->adds_bos, out);
}

absl::Status ImportLlama(const Source& source, plan::TokenizerT* out) {
  out->model = plan::TokenizerModel::kScoredBpe;
  out->byte_fallback = true;
  QUIRE_RETURN_IF_ERROR(DivideTokens(source, out).status());
  QUIRE_ASSIGN_OR_RETURN(const absl::Span<const double> scores, source.metadata.GetFloats(kScores));
  if (scores.size() != source.tokens.size()) {
    return source.metadata.Refuse(kScores, "has not one score for each token",
                                  absl::StrCat(source.tokens.size()));
  }
  out->scores.assign(scores.begin(), scores.end());
  QUIRE_ASSIGN_OR_RETURN(out->unk_id, ReadId(source, "tokenizer.ggml.unknown_token_id"));
  QUIRE_ASSIGN_OR_RETURN(const bool adds_space,
                         source.metadata.GetBoolOr("tokenizer.ggml.add_space_prefix", true));
  if (adds_space) AddNormalizer(plan::NormalizerKind::kPrepend, "", kSpace, out);
  AddNormalizer(plan::NormalizerKind::kReplace, " ", kSpace, out);
  AddDecoder(plan::DecoderKind::kReplace, kSpace, " ", out);
  AddDecoder(plan::DecoderKind::kByteFallback, "", "", out);
  AddDecoder(plan::DecoderKind::kFuse, "", "", out);
  if (adds_space) AddDecoder(plan::DecoderKind::kStrip, "", " ", out);
  return ReadEnds(source, /*adds_bos=*/true, out);
}

}  // namespace

absl::StatusOr<plan::TokenizerT> ImportTokenizerGguf(const GgufMetadata& metadata) {
  QUIRE_ASSIGN_OR_RETURN(const std::string model, metadata.GetString(kModel));
  QUIRE_ASSIGN_OR_RETURN(const Source source, ReadTokens(metadata));
  plan::TokenizerT out;
  if (model == "gpt2") {
    QUIRE_RETURN_IF_ERROR(ImportGpt2(source, &out));
  } else if (model == "llama") {
    QUIRE_RETURN_IF_ERROR(ImportLlama(source, &out));
  } else {
    return WithLine(
        absl::UnimplementedError(absl::StrCat(kModel, "=\"", model, "\" is not supported")),
        "allowed", "gpt2, llama");
  }
  return out;
}

}  // namespace quire
