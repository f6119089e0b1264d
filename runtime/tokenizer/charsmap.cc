#include "runtime/tokenizer/charsmap.h"

#include <unicode/brkiter.h>
#include <unicode/utext.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {
namespace {

uint32_t ReadU32(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
         static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
}

// One unit of the double array.
struct Unit {
  uint32_t bits;
  bool has_leaf() const { return (bits >> 8 & 1) != 0; }
  uint32_t value() const { return bits & 0x7fffffff; }
  uint32_t label() const { return bits & 0x800000ff; }
  uint32_t offset() const { return (bits >> 10) << ((bits & 0x200) >> 6); }
};

class Charsmap : public Normalizer {
 public:
  Charsmap(std::vector<Unit> units, std::string replacements)
      : units_(std::move(units)), replacements_(std::move(replacements)) {}

  absl::Status Apply(std::string* text, bool*) const override {
    UErrorCode code = U_ZERO_ERROR;
    const std::unique_ptr<icu::BreakIterator> graphemes(
        icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), code));
    UText utext = UTEXT_INITIALIZER;
    utext_openUTF8(&utext, text->data(), static_cast<int64_t>(text->size()), &code);
    if (U_SUCCESS(code)) graphemes->setText(&utext, code);
    if (U_FAILURE(code)) {
      utext_close(&utext);
      return absl::InternalError("charsmap: ICU has no grapheme rules");
    }
    std::string out;
    out.reserve(text->size());
    int32_t begin = graphemes->first();
    for (int32_t end = graphemes->next(); end != icu::BreakIterator::DONE;
         end = graphemes->next()) {
      AppendGrapheme(absl::string_view(*text).substr(begin, end - begin), &out);
      begin = end;
    }
    utext_close(&utext);
    *text = std::move(out);
    return absl::OkStatus();
  }

 private:
  void AppendGrapheme(absl::string_view grapheme, std::string* out) const {
    if (grapheme.size() < 6) {
      if (const auto mapped = Map(grapheme)) {
        out->append(mapped->data(), mapped->size());
        return;
      }
    }
    while (!grapheme.empty()) {
      const absl::string_view c = grapheme.substr(0, CharBytes(grapheme[0]));
      const absl::string_view mapped = Map(c).value_or(c);
      out->append(mapped.data(), mapped.size());
      grapheme.remove_prefix(c.size());
    }
  }

  // The replacement of the shortest stored key that starts `text`, if any.
  std::optional<absl::string_view> Map(absl::string_view text) const {
    size_t node = units_[0].offset();
    for (const char c : text) {
      if (c == '\0') return std::nullopt;
      node ^= static_cast<unsigned char>(c);
      if (node >= units_.size() || units_[node].label() != static_cast<unsigned char>(c))
        return std::nullopt;
      const bool has_leaf = units_[node].has_leaf();
      node ^= units_[node].offset();
      if (!has_leaf) continue;
      const size_t at = node < units_.size() ? units_[node].value() : replacements_.size();
      // A replacement starts with a character; that it ends, in a zero byte, MakeCharsmap checked.
      if (at >= replacements_.size() || (replacements_[at] & 0xc0) == 0x80) return std::nullopt;
      return absl::string_view(replacements_.c_str() + at);
    }
    return std::nullopt;
  }

  std::vector<Unit> units_;
  std::string replacements_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> MakeCharsmap(const std::vector<uint8_t>& charsmap) {
  const absl::Status malformed = absl::InvalidArgumentError("charsmap: truncated or malformed");
  if (charsmap.size() < 4) return malformed;
  const size_t trie_bytes = ReadU32(charsmap.data());
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > charsmap.size() - 4) return malformed;
  std::vector<Unit> units;
  for (size_t at = 4; at < 4 + trie_bytes; at += 4)
    units.push_back({ReadU32(charsmap.data() + at)});
  std::string replacements(charsmap.begin() + static_cast<ptrdiff_t>(4 + trie_bytes),
                           charsmap.end());
  if (replacements.empty() || replacements.back() != '\0') return malformed;
  if (ValidUtf8Prefix(replacements) != replacements.size()) return malformed;
  return std::make_unique<Charsmap>(std::move(units), std::move(replacements));
}

}  // namespace quire::tokenizer
