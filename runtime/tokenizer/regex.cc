#include "runtime/tokenizer/regex.h"

#include <unicode/regex.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/tokenizer/regex_syntax.h"
#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {
namespace {

// Bounds on backtracking, so that a hostile pattern ends: states held at once, and states saved in
// all. ICU reports every ten thousand of the latter. Patterns of real tokenizers save a few for
// each byte; two hundred are allowed.
constexpr int32_t kMaxStackBytes = 8 << 20;

struct Budget {
  int64_t reports;

  static UBool U_CALLCONV Report(const void* context, int32_t) {
    auto* budget = static_cast<Budget*>(const_cast<void*>(context));
    return --budget->reports >= 0;
  }
};

icu::UnicodeString ToUtf16(absl::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

// Maps UTF-16 offsets to byte offsets, for offsets that only grow.
class OffsetCursor {
 public:
  explicit OffsetCursor(absl::string_view text) : text_(text) {}

  size_t Advance(int32_t utf16) {
    while (utf16_ < utf16) {
      const size_t bytes = CharBytes(text_[bytes_]);
      bytes_ += bytes;
      utf16_ += bytes == 4 ? 2 : 1;
    }
    return bytes_;
  }

 private:
  absl::string_view text_;
  size_t bytes_ = 0;
  int32_t utf16_ = 0;
};

}  // namespace

struct Regex::Icu {
  std::string source;
  std::unique_ptr<icu::RegexPattern> pattern;
};

Regex::Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex Regex::Literal(absl::string_view text) {
  Regex regex;
  regex.literal_ = std::string(text);
  return regex;
}

absl::StatusOr<Regex> Regex::Compile(absl::string_view pattern) {
  if (pattern.empty()) return absl::InvalidArgumentError("regex: the pattern is empty");
  if (pattern.size() > 65536)
    return absl::InvalidArgumentError("regex: the pattern has over 65536 bytes");
  QUIRE_ASSIGN_OR_RETURN(const std::string syntax, ToIcuSyntax(pattern));
  auto icu = std::make_unique<Icu>();
  icu->source = std::string(pattern);
  UErrorCode code = U_ZERO_ERROR;
  UParseError where;
  icu->pattern.reset(icu::RegexPattern::compile(ToUtf16(syntax),
                                                UREGEX_MULTILINE | UREGEX_UNIX_LINES, where, code));
  if (U_FAILURE(code) || icu->pattern == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("regex ", pattern, ": ", u_errorName(code)));
  }
  Regex regex;
  regex.icu_ = std::move(icu);
  regex.scanner_ = FindWordScanner(pattern);
  return regex;
}

absl::Status Regex::ForEachMatch(absl::string_view text,
                                 absl::FunctionRef<void(size_t, size_t)> match) const {
  if (icu_ == nullptr) {
    for (size_t at = text.find(literal_); at != absl::string_view::npos;) {
      match(at, at + literal_.size());
      at = text.find(literal_, at + literal_.size());
    }
    return absl::OkStatus();
  }
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::ResourceExhaustedError("regex: the text has more than 2^31 - 1 bytes");
  }
  const icu::UnicodeString utf16 = ToUtf16(text);
  UErrorCode code = U_ZERO_ERROR;
  Budget budget{100 + static_cast<int64_t>(text.size()) / 50};
  const std::unique_ptr<icu::RegexMatcher> matcher(icu_->pattern->matcher(utf16, code));
  if (matcher != nullptr) {
    matcher->setStackLimit(kMaxStackBytes, code);
    matcher->setMatchCallback(&Budget::Report, &budget, code);
  }
  OffsetCursor cursor(text);
  int32_t last_end = -1;
  while (U_SUCCESS(code) && matcher->find(code)) {
    const int32_t begin = matcher->start(code);
    const int32_t end = matcher->end(code);
    if (begin == end && begin == last_end) continue;
    last_end = end;
    const size_t begin_byte = cursor.Advance(begin);
    match(begin_byte, cursor.Advance(end));
  }
  if (U_FAILURE(code)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "regex ", icu_->source, ": ", u_errorName(code), " on a text of ", text.size(), " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace quire::tokenizer
