#include "runtime/tokenizer/pre_tokenizer.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "ir/status.h"
#include "runtime/tokenizer/byte_level.h"
#include "runtime/tokenizer/regex.h"
#include "runtime/tokenizer/split.h"
#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {
namespace {

using plan::PrependScheme;
using plan::PreTokenizerKind;
using plan::SplitBehavior;

Piece Derived(const Piece& from, absl::string_view text) {
  Piece piece = from;
  piece.text = text;
  return piece;
}

void AppendWords(const Piece& piece, WordScanner scan, std::vector<Piece>* out) {
  const char* p = piece.text.data();
  const char* const end = p + piece.text.size();
  bool at_start = piece.at_start;
  while (p < end) {
    const char* const word_end = scan(p, end);
    Piece word;
    word.text = absl::string_view(p, static_cast<size_t>(word_end - p));
    word.at_start = std::exchange(at_start, false);
    out->push_back(word);
    p = word_end;
  }
}

// Each character for which `is_match` holds is a match of its own.
template <typename IsMatch>
std::vector<Span> SpansOfChars(absl::string_view text, IsMatch is_match) {
  SpanBuilder spans(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const auto begin = static_cast<size_t>(p - text.data());
    if (is_match(NextChar(&p))) spans.AddMatch(begin, static_cast<size_t>(p - text.data()));
  }
  return std::move(spans).Finish();
}

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(const plan::PreTokenizerT& spec, bool keeps_bytes)
      : add_prefix_space_(spec.add_prefix_space),
        use_regex_(spec.use_regex),
        keeps_bytes_(keeps_bytes) {}

  absl::Status Split(const Piece& piece, TextArena* arena, std::vector<Piece>* out) const override {
    Piece text = piece;
    if (add_prefix_space_ && !absl::StartsWith(piece.text, " ")) {
      text = Derived(piece, arena->Add(absl::StrCat(" ", piece.text)));
    }
    const size_t first = out->size();
    if (use_regex_) {
      AppendWords(text, FindWordScanner(kGpt2Pattern), out);
    } else {
      out->push_back(text);
    }
    if (keeps_bytes_) return absl::OkStatus();
    for (size_t i = first; i < out->size(); ++i) {
      std::string mapped;
      AppendByteLevel((*out)[i].text, &mapped);
      (*out)[i].text = arena->Add(std::move(mapped));
    }
    return absl::OkStatus();
  }

 private:
  bool add_prefix_space_;
  bool use_regex_;
  bool keeps_bytes_;
};

class SplitOnPattern : public PreTokenizer {
 public:
  SplitOnPattern(Regex regex, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {
    // Where every part of a text is a match, only removal tells matches from the rest.
    const bool keeps_words =
        invert ? behavior == SplitBehavior::kRemoved || behavior == SplitBehavior::kIsolated
               : behavior == SplitBehavior::kIsolated;
    scanner_ = keeps_words ? regex_.scanner() : nullptr;
  }

  absl::Status Split(const Piece& piece, TextArena*, std::vector<Piece>* out) const override {
    if (scanner_ != nullptr) {
      AppendWords(piece, scanner_, out);
      return absl::OkStatus();
    }
    SpanBuilder builder(piece.text.size());
    QUIRE_RETURN_IF_ERROR(regex_.ForEachMatch(
        piece.text, [&](size_t begin, size_t end) { builder.AddMatch(begin, end); }));
    std::vector<Span> spans = std::move(builder).Finish();
    if (invert_) {
      for (Span& span : spans) span.is_match = !span.is_match;
    }
    AppendSplit(piece, std::move(spans), behavior_, out);
    return absl::OkStatus();
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
  WordScanner scanner_ = nullptr;
};

class Metaspace : public PreTokenizer {
 public:
  explicit Metaspace(const plan::PreTokenizerT& spec)
      : replacement_(spec.replacement), scheme_(spec.prepend_scheme), splits_(spec.splits) {}

  absl::Status Split(const Piece& piece, TextArena* arena, std::vector<Piece>* out) const override {
    std::string text = absl::StrReplaceAll(piece.text, {{" ", replacement_}});
    const bool prepends =
        scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.at_start);
    if (prepends && !absl::StartsWith(text, replacement_)) text.insert(0, replacement_);
    const Piece replaced = Derived(piece, arena->Add(std::move(text)));
    if (!splits_) {
      out->push_back(replaced);
      return absl::OkStatus();
    }
    SpanBuilder spans(replaced.text.size());
    QUIRE_RETURN_IF_ERROR(
        Regex::Literal(replacement_).ForEachMatch(replaced.text, [&](size_t begin, size_t end) {
          spans.AddMatch(begin, end);
        }));
    AppendSplit(replaced, std::move(spans).Finish(), SplitBehavior::kMergedWithNext, out);
    return absl::OkStatus();
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool splits_;
};

// Splits on characters of a class.
class SplitOnChars : public PreTokenizer {
 public:
  SplitOnChars(bool (*is_match)(char32_t), SplitBehavior behavior)
      : is_match_(is_match), behavior_(behavior) {}

  absl::Status Split(const Piece& piece, TextArena*, std::vector<Piece>* out) const override {
    AppendSplit(piece, SpansOfChars(piece.text, is_match_), behavior_, out);
    return absl::OkStatus();
  }

 private:
  bool (*is_match_)(char32_t);
  SplitBehavior behavior_;
};

bool IsNumber(char32_t c) { return Classify(c) == CharClass::kNumber; }
bool IsSpace(char32_t c) { return Classify(c) == CharClass::kSpace; }

// \w+|[^\w\s]+, white space removed.
class Whitespace : public PreTokenizer {
 public:
  absl::Status Split(const Piece& piece, TextArena*, std::vector<Piece>* out) const override {
    enum { kSpace, kWord, kOther };
    const auto classify = [](char32_t c) {
      return IsSpace(c) ? kSpace : IsWord(c) ? kWord : kOther;
    };
    const absl::string_view text = piece.text;
    const char* p = text.data();
    const char* const end = p + text.size();
    while (p < end) {
      const char* const begin = p;
      const auto kind = classify(NextChar(&p));
      for (const char* next = p; next < end && classify(NextChar(&next)) == kind;) p = next;
      if (kind == kSpace) continue;
      Piece word;
      word.text = absl::string_view(begin, static_cast<size_t>(p - begin));
      word.at_start = piece.at_start && begin == text.data();
      out->push_back(word);
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeSplit(const plan::PreTokenizerT& spec) {
  if (spec.pattern.empty()) return absl::InvalidArgumentError("split: the pattern is empty");
  if (!spec.is_regex) {
    return std::make_unique<SplitOnPattern>(Regex::Literal(spec.pattern), spec.behavior,
                                            spec.invert);
  }
  QUIRE_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(spec.pattern));
  return std::make_unique<SplitOnPattern>(std::move(regex), spec.behavior, spec.invert);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const plan::PreTokenizerT& spec) {
  if (spec.behavior > SplitBehavior::MAX || spec.prepend_scheme > PrependScheme::MAX) {
    return absl::InvalidArgumentError("pre-tokenizer: a behavior or scheme out of range");
  }
  switch (spec.kind) {
    case PreTokenizerKind::kByteLevel:
      return std::make_unique<ByteLevel>(spec, /*keeps_bytes=*/false);
    case PreTokenizerKind::kSplit:
      return MakeSplit(spec);
    case PreTokenizerKind::kDigits:
      return std::make_unique<SplitOnChars>(&IsNumber, spec.individual_digits
                                                           ? SplitBehavior::kIsolated
                                                           : SplitBehavior::kContiguous);
    case PreTokenizerKind::kMetaspace:
      if (spec.replacement.empty())
        return absl::InvalidArgumentError("metaspace: the replacement is empty");
      return std::make_unique<Metaspace>(spec);
    case PreTokenizerKind::kWhitespace:
      return std::make_unique<Whitespace>();
    case PreTokenizerKind::kWhitespaceSplit:
      return std::make_unique<SplitOnChars>(&IsSpace, SplitBehavior::kRemoved);
    case PreTokenizerKind::kPunctuation:
      return std::make_unique<SplitOnChars>(&IsPunctuation, spec.behavior);
  }
  return absl::InvalidArgumentError("pre-tokenizer: unknown kind");
}

std::unique_ptr<PreTokenizer> MakeRawByteLevel(const plan::PreTokenizerT& spec) {
  return std::make_unique<ByteLevel>(spec, /*keeps_bytes=*/true);
}

}  // namespace quire::tokenizer
