// UTF-8 and the character classes that tokenizers speak of.
//
// Classes follow ICU's Unicode version. Functions that take UTF-8 require it to be valid: text from
// outside passes through ReplaceInvalidUtf8 once.
#ifndef QUIRE_RUNTIME_TOKENIZER_UNICODE_H_
#define QUIRE_RUNTIME_TOKENIZER_UNICODE_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace quire::tokenizer {

inline constexpr absl::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

// What the GPT family of split patterns asks of a character; every character is exactly one of
// these.
enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

CharClass ClassifyNonAscii(char32_t c);
extern const std::array<CharClass, 128> kAsciiClass;

inline CharClass Classify(char32_t c) { return c < 128 ? kAsciiClass[c] : ClassifyNonAscii(c); }

bool IsPunctuation(char32_t c);  // ASCII symbols too
bool IsWord(char32_t c);         // \w: alphabetic, mark, decimal digit, connector or joiner
bool IsCombiningMark(char32_t c);
void AppendLowercase(char32_t c, std::string* out);  // without regard to neighbours

// Decodes the character at `*p` and advances. REQUIRES: valid UTF-8, p < end.
inline char32_t NextChar(const char** p) {
  const auto* b = reinterpret_cast<const unsigned char*>(*p);
  if (b[0] < 0x80) {
    *p += 1;
    return b[0];
  }
  if (b[0] < 0xe0) {
    *p += 2;
    return static_cast<char32_t>((b[0] & 0x1f) << 6 | (b[1] & 0x3f));
  }
  if (b[0] < 0xf0) {
    *p += 3;
    return static_cast<char32_t>((b[0] & 0x0f) << 12 | (b[1] & 0x3f) << 6 | (b[2] & 0x3f));
  }
  *p += 4;
  return static_cast<char32_t>((b[0] & 0x07) << 18 | (b[1] & 0x3f) << 12 | (b[2] & 0x3f) << 6 |
                               (b[3] & 0x3f));
}

// Bytes of the character that starts with `first`. REQUIRES: valid UTF-8.
inline size_t CharBytes(char first) {
  const auto b = static_cast<unsigned char>(first);
  return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

// The character that ends at `text`'s end. REQUIRES: valid UTF-8, not empty.
char32_t LastChar(absl::string_view text);

void AppendUtf8(char32_t c, std::string* out);

// What `text` starts with: a character, or the maximal part of one that is invalid, as Unicode
// (section 3.9) defines it and as Python's errors="replace" counts; truncated if text ends inside a
// character that is valid so far.
struct Utf8Start {
  enum Kind { kValid, kInvalid, kTruncated };
  size_t bytes;
  Kind kind;
};
Utf8Start ScanUtf8(absl::string_view text);  // REQUIRES: not empty

// The longest valid prefix of `text`, in bytes; text.size() if all of it is valid UTF-8.
size_t ValidUtf8Prefix(absl::string_view text);

// Every maximal invalid part becomes one U+FFFD.
std::string ReplaceInvalidUtf8(absl::string_view text);

// White space at the start, and from where it runs at the end.
size_t LeadingSpaceBytes(absl::string_view text);
size_t TrailingSpaceBegin(absl::string_view text);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_UNICODE_H_
