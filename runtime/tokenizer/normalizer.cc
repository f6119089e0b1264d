#include "runtime/tokenizer/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/tokenizer/charsmap.h"
#include "runtime/tokenizer/regex.h"
#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {
namespace {

using plan::NormalizerKind;

bool IsAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(const icu::Normalizer2* form) : form_(form) {}

  absl::Status Apply(std::string* text, bool*) const override {
    if (IsAscii(*text)) return absl::OkStatus();  // ASCII is in every form already
    UErrorCode code = U_ZERO_ERROR;
    std::string out;
    icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text->size()));
    form_->normalizeUTF8(0, icu::StringPiece(*text), sink, nullptr, code);
    if (U_FAILURE(code))
      return absl::InternalError(absl::StrCat("normalizer: ", u_errorName(code)));
    *text = std::move(out);
    return absl::OkStatus();
  }

 private:
  const icu::Normalizer2* form_;
};

class Lowercase : public Normalizer {
 public:
  absl::Status Apply(std::string* text, bool*) const override {
    std::string out;
    out.reserve(text->size());
    const char* p = text->data();
    const char* const end = p + text->size();
    while (p < end) AppendLowercase(NextChar(&p), &out);
    *text = std::move(out);
    return absl::OkStatus();
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  absl::Status Apply(std::string* text, bool* at_start) const override {
    if (right_) text->resize(TrailingSpaceBegin(*text));
    const size_t leading = left_ ? LeadingSpaceBytes(*text) : 0;
    if (leading > 0) *at_start = false;
    text->erase(0, leading);
    return absl::OkStatus();
  }

 private:
  bool left_;
  bool right_;
};

class StripAccents : public Normalizer {
 public:
  absl::Status Apply(std::string* text, bool* at_start) const override {
    std::string out;
    out.reserve(text->size());
    const char* p = text->data();
    const char* const end = p + text->size();
    while (p < end) {
      const char* const begin = p;
      if (!IsCombiningMark(NextChar(&p))) {
        out.append(begin, p);
      } else if (begin == text->data()) {
        *at_start = false;
      }
    }
    *text = std::move(out);
    return absl::OkStatus();
  }
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string content) : content_(std::move(content)) {}

  absl::Status Apply(std::string* text, bool*) const override {
    if (!text->empty()) text->insert(0, content_);
    return absl::OkStatus();
  }

 private:
  std::string content_;
};

class Replace : public Normalizer {
 public:
  Replace(Regex regex, std::string content)
      : regex_(std::move(regex)), content_(std::move(content)) {}

  absl::Status Apply(std::string* text, bool* at_start) const override {
    std::string out;
    size_t copied = 0;
    QUIRE_RETURN_IF_ERROR(regex_.ForEachMatch(*text, [&](size_t begin, size_t end) {
      if (begin == 0 && end > 0 && content_.empty()) *at_start = false;
      out.append(*text, copied, begin - copied);
      out.append(content_);
      copied = end;
    }));
    if (copied == 0 && out.empty()) return absl::OkStatus();
    out.append(*text, copied, std::string::npos);
    *text = std::move(out);
    return absl::OkStatus();
  }

 private:
  Regex regex_;
  std::string content_;
};

absl::StatusOr<std::unique_ptr<Normalizer>> MakeUnicodeForm(NormalizerKind kind) {
  UErrorCode code = U_ZERO_ERROR;
  const icu::Normalizer2* form =
      kind == NormalizerKind::kNfc    ? icu::Normalizer2::getNFCInstance(code)
      : kind == NormalizerKind::kNfd  ? icu::Normalizer2::getNFDInstance(code)
      : kind == NormalizerKind::kNfkc ? icu::Normalizer2::getNFKCInstance(code)
                                      : icu::Normalizer2::getNFKDInstance(code);
  if (U_FAILURE(code)) return absl::InternalError(absl::StrCat("normalizer: ", u_errorName(code)));
  return std::make_unique<UnicodeForm>(form);
}

absl::StatusOr<std::unique_ptr<Normalizer>> MakeReplace(const plan::NormalizerT& spec) {
  if (spec.pattern.empty()) return absl::InvalidArgumentError("replace: the pattern is empty");
  if (!spec.is_regex) return std::make_unique<Replace>(Regex::Literal(spec.pattern), spec.content);
  QUIRE_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(spec.pattern));
  return std::make_unique<Replace>(std::move(regex), spec.content);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> MakeNormalizer(const plan::NormalizerT& spec) {
  switch (spec.kind) {
    case NormalizerKind::kNfc:
    case NormalizerKind::kNfd:
    case NormalizerKind::kNfkc:
    case NormalizerKind::kNfkd:
      return MakeUnicodeForm(spec.kind);
    case NormalizerKind::kLowercase:
      return std::make_unique<Lowercase>();
    case NormalizerKind::kStrip:
      return std::make_unique<Strip>(spec.left, spec.right);
    case NormalizerKind::kStripAccents:
      return std::make_unique<StripAccents>();
    case NormalizerKind::kPrepend:
      return std::make_unique<Prepend>(spec.content);
    case NormalizerKind::kReplace:
      return MakeReplace(spec);
    case NormalizerKind::kPrecompiled:
      return MakeCharsmap(spec.charsmap);
  }
  return absl::InvalidArgumentError("normalizer: unknown kind");
}

}  // namespace quire::tokenizer
