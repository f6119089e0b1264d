// The "model" of tokenizer.json.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "models/import/tokenizer_json_parts.h"
#include "models/import/tokenizer_vocab.h"

namespace quire {
namespace {

constexpr absl::string_view kModels = "BPE, Unigram";

// Ids may have gaps, but not so many that a short file takes much memory.
constexpr size_t kMaxGaps = 1 << 20;

// {"text": id, ...}
absl::StatusOr<std::vector<absl::string_view>> ReadVocabObject(const JsonNode& vocab) {
  if (!vocab.value().is_object()) return vocab.Invalid("is not an object");
  std::vector<absl::string_view> texts;
  const size_t limit = vocab.value().size() + kMaxGaps;
  for (auto it = vocab.value().begin(); it != vocab.value().end(); ++it) {
    const auto* id = it->get_ptr<const uint64_t*>();
    if (id == nullptr || *id >= limit) {
      return absl::InvalidArgumentError(
          absl::StrCat(vocab.path(), ".", it.key(), " is not an id in 0..", limit - 1));
    }
    if (it.key().empty())
      return absl::InvalidArgumentError(absl::StrCat(vocab.path(), " has an empty token"));
    if (*id >= texts.size()) texts.resize(*id + 1);
    if (!texts[*id].empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          vocab.path(), ": id ", *id, " has two tokens, ", texts[*id], " and ", it.key()));
    }
    texts[*id] = it.key();
  }
  return texts;
}

absl::Status RefuseUnless(const JsonNode& model, absl::string_view key, bool is_neutral,
                          absl::string_view allowed) {
  if (is_neutral || !model.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const JsonNode field, model.Field(key));
  return field.Unsupported(allowed);
}

absl::Status ImportMerges(const JsonNode& merges, const std::vector<absl::string_view>& texts,
                          plan::TokenizerT* out) {
  if (!merges.value().is_array()) return merges.Invalid("is not an array");
  const MergeBuilder builder(texts);
  out->merges.reserve(merges.value().size() * 3);
  size_t index = 0;
  for (const nlohmann::json& merge : merges.value()) {
    const JsonNode node(&merge, absl::StrCat(merges.path(), "[", index++, "]"));
    absl::Status added;
    if (const auto* text = merge.get_ptr<const std::string*>()) {
      added = builder.Add(*text, out);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      added = builder.Add(*merge[0].get_ptr<const std::string*>(),
                          *merge[1].get_ptr<const std::string*>(), out);
    } else {
      return node.Invalid("is neither \"left right\" nor [left, right]");
    }
    if (!added.ok()) return WithPrefix(added, node.path());
  }
  return absl::OkStatus();
}

absl::Status ImportBpe(const JsonNode& model, plan::TokenizerT* out) {
  QUIRE_RETURN_IF_ERROR(model.OnlyFields(
      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  if (model.Has("dropout")) {
    QUIRE_ASSIGN_OR_RETURN(const JsonNode dropout, model.Field("dropout"));
    QUIRE_ASSIGN_OR_RETURN(const double probability, dropout.Number());
    if (probability != 0) return dropout.Unsupported("null or 0: ids may not depend on chance");
  }
  for (const absl::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    QUIRE_ASSIGN_OR_RETURN(const std::string affix, model.StringOr(key, ""));
    QUIRE_RETURN_IF_ERROR(RefuseUnless(model, key, affix.empty(), "null or empty"));
  }
  out->model = plan::TokenizerModel::kBpe;
  QUIRE_ASSIGN_OR_RETURN(out->fuse_unk, model.BoolOr("fuse_unk", false));
  QUIRE_ASSIGN_OR_RETURN(out->byte_fallback, model.BoolOr("byte_fallback", false));
  QUIRE_ASSIGN_OR_RETURN(out->ignore_merges, model.BoolOr("ignore_merges", false));

  QUIRE_ASSIGN_OR_RETURN(const JsonNode vocab, model.Field("vocab"));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<absl::string_view> texts, ReadVocabObject(vocab));
  QUIRE_RETURN_IF_ERROR(StoreVocabulary(texts, out));
  if (model.Has("unk_token")) {
    QUIRE_ASSIGN_OR_RETURN(const JsonNode unk, model.Field("unk_token"));
    QUIRE_ASSIGN_OR_RETURN(const std::string text, unk.String());
    const auto it = std::find(texts.begin(), texts.end(), absl::string_view(text));
    if (it == texts.end()) return unk.Invalid("is not in the vocabulary");
    out->unk_id = static_cast<int32_t>(it - texts.begin());
  }
  QUIRE_ASSIGN_OR_RETURN(const JsonNode merges, model.Field("merges"));
  return ImportMerges(merges, texts, out);
}

// A score as the tokenizers package has it. Its JSON reader makes the digits one integer and scales
// that by a power of ten, which now and then is a unit in the last place off the nearest number; of
// two segmentations with the same scores in another order, such units choose one.
double ScoreAsRead(double value) {
  char text[32];  // the shortest that stands for `value`: "-1.25e-05"
  const auto end = std::to_chars(text, std::end(text), value, std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  bool is_fraction = false;
  for (const char* at = text; at != end; ++at) {
    if (*at == 'e') {
      // from_chars takes no plus sign.
      int shift = 0;
      std::from_chars(at + (at[1] == '+' ? 2 : 1), end, shift);
      exponent += shift;
      break;
    }
    if (*at == '.') is_fraction = true;
    if (*at < '0' || *at > '9') continue;
    digits = digits * 10 + static_cast<uint64_t>(*at - '0');
    if (is_fraction) --exponent;
  }
  // Powers of ten up to this one are what they are in the source of a program.
  constexpr int kMostPower = 308;
  auto scaled = static_cast<double>(digits);
  for (; exponent < -kMostPower; exponent += kMostPower) scaled /= 1e308;
  const double power = std::strtod(absl::StrCat("1e", std::abs(exponent)).c_str(), nullptr);
  scaled = exponent < 0 ? scaled / power : scaled * power;
  return std::signbit(value) ? -scaled : scaled;
}

absl::Status ImportUnigram(const JsonNode& model, plan::TokenizerT* out) {
  QUIRE_RETURN_IF_ERROR(model.OnlyFields({"type", "unk_id", "vocab", "byte_fallback"}));
  out->model = plan::TokenizerModel::kUnigram;
  out->fuse_unk = true;
  QUIRE_ASSIGN_OR_RETURN(out->byte_fallback, model.BoolOr("byte_fallback", false));
  QUIRE_ASSIGN_OR_RETURN(const JsonNode vocab, model.Field("vocab"));
  if (!vocab.value().is_array()) return vocab.Invalid("is not an array");
  std::vector<absl::string_view> texts;
  for (const nlohmann::json& entry : vocab.value()) {
    const JsonNode node(&entry, absl::StrCat(vocab.path(), "[", texts.size(), "]"));
    const auto* text =
        entry.is_array() && entry.size() == 2 ? entry[0].get_ptr<const std::string*>() : nullptr;
    if (text == nullptr) return node.Invalid("is not [text, score]");
    QUIRE_ASSIGN_OR_RETURN(const double score,
                           JsonNode(&entry[1], absl::StrCat(node.path(), "[1]")).Number());
    texts.push_back(*text);
    out->scores.push_back(std::isfinite(score) ? ScoreAsRead(score) : score);
  }
  QUIRE_RETURN_IF_ERROR(StoreVocabulary(texts, out));
  QUIRE_ASSIGN_OR_RETURN(const JsonNode unk, model.Field("unk_id"));
  if (unk.value().is_null()) return unk.Unsupported("an id of the vocabulary");
  QUIRE_ASSIGN_OR_RETURN(const uint32_t unk_id, unk.Uint());
  if (unk_id >= texts.size()) return unk.Invalid("is not in the vocabulary");
  out->unk_id = static_cast<int32_t>(unk_id);
  return absl::OkStatus();
}

}  // namespace

absl::Status ImportModel(const JsonNode& model, plan::TokenizerT* out) {
  if (!model.Has("type")) {  // files of early versions
    return model.Has("merges") ? ImportBpe(model, out) : model.Invalid("has no type");
  }
  QUIRE_ASSIGN_OR_RETURN(const JsonNode type, model.Field("type"));
  if (type.value() == "BPE") return ImportBpe(model, out);
  if (type.value() == "Unigram") return ImportUnigram(model, out);
  return type.Unsupported(kModels);
}

}  // namespace quire
