#include "runtime/tokenizer/word_scanner.h"

#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {

// The patterns of Llama 3 and Qwen 2, which differ in the digits that one match takes.
#define QUIRE_LLAMA3(digits)                                         \
  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits \
  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

const absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const absl::string_view kLlama3Pattern = QUIRE_LLAMA3(R"(\p{N}{1,3})");
const absl::string_view kQwen2Pattern = QUIRE_LLAMA3(R"(\p{N})");
#undef QUIRE_LLAMA3

namespace {

// The end of the run of characters of class `wanted` at `p`, at most `max_chars` of them.
const char* SkipClass(const char* p, const char* end, CharClass wanted, int max_chars = INT32_MAX) {
  while (p < end && max_chars-- > 0) {
    const char* next = p;
    if (Classify(NextChar(&next)) != wanted) break;
    p = next;
  }
  return p;
}

// The end of one of 's 't 're 've 'm 'll 'd at the apostrophe `p`, or null. Case folding adds
// U+017F, the long s.
const char* MatchContraction(const char* p, const char* end, bool fold_case) {
  const auto at = [&](int i) -> char {
    if (end - p <= i) return '\0';
    return fold_case && p[i] >= 'A' && p[i] <= 'Z' ? static_cast<char>(p[i] | 0x20) : p[i];
  };
  switch (at(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return p + 2;
    case 'r':
    case 'v':
      return at(2) == 'e' ? p + 3 : nullptr;
    case 'l':
      return at(2) == 'l' ? p + 3 : nullptr;
    case '\xc5':
      return fold_case && at(2) == '\xbf' ? p + 3 : nullptr;
    default:
      return nullptr;
  }
}

// \s+(?!\S)|\s+ at white space that ends at `run_end`: all of it but the last character, which goes
// with the word that follows, unless it is the only one or the text ends.
const char* MatchSpaces(const char* p, const char* run_end, const char* end) {
  if (run_end == end) return run_end;
  const char* last = run_end - 1;
  while ((*last & 0xc0) == 0x80) --last;
  return last == p ? run_end : last;
}

const char* ScanGpt2(const char* p, const char* end) {
  if (*p == '\'') {
    if (const char* match = MatchContraction(p, end, /*fold_case=*/false)) return match;
  }
  const char* next = p;
  const CharClass first = Classify(NextChar(&next));
  if (first != CharClass::kSpace) return SkipClass(next, end, first);
  if (*p == ' ' && next < end) {
    const char* after = next;
    const CharClass second = Classify(NextChar(&after));
    if (second != CharClass::kSpace) return SkipClass(after, end, second);
  }
  return MatchSpaces(p, SkipClass(next, end, CharClass::kSpace), end);
}

template <int kMaxDigits>
const char* ScanLlama3(const char* p, const char* end) {
  if (*p == '\'') {
    if (const char* match = MatchContraction(p, end, /*fold_case=*/true)) return match;
  }
  const char* next = p;
  const CharClass first = Classify(NextChar(&next));
  if (first == CharClass::kLetter) return SkipClass(next, end, CharClass::kLetter);
  if (first == CharClass::kNumber) return SkipClass(p, end, CharClass::kNumber, kMaxDigits);
  CharClass second = CharClass::kSpace;
  const char* after = next;
  if (next < end) second = Classify(NextChar(&after));
  if (second == CharClass::kLetter && *p != '\r' && *p != '\n') {
    return SkipClass(after, end, CharClass::kLetter);
  }
  if (first == CharClass::kOther || (*p == ' ' && second == CharClass::kOther)) {
    const char* q = SkipClass(next, end, CharClass::kOther);
    while (q < end && (*q == '\r' || *q == '\n')) ++q;
    return q;
  }
  const char* run_end = SkipClass(next, end, CharClass::kSpace);
  for (const char* q = run_end; q > p; --q) {
    if (q[-1] == '\r' || q[-1] == '\n') return q;
  }
  return MatchSpaces(p, run_end, end);
}

}  // namespace

WordScanner FindWordScanner(absl::string_view pattern) {
  if (pattern == kGpt2Pattern) return &ScanGpt2;
  if (pattern == kLlama3Pattern) return &ScanLlama3<3>;
  if (pattern == kQwen2Pattern) return &ScanLlama3<1>;
  return nullptr;
}

}  // namespace quire::tokenizer
