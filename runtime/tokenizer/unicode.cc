#include "runtime/tokenizer/unicode.h"

#include <unicode/uchar.h>

namespace quire::tokenizer {

constinit const std::array<CharClass, 128> kAsciiClass = [] {
  std::array<CharClass, 128> classes{};
  for (char c = 'a'; c <= 'z'; ++c) classes[c] = classes[c - 'a' + 'A'] = CharClass::kLetter;
  for (char c = '0'; c <= '9'; ++c) classes[c] = CharClass::kNumber;
  for (const char c : {' ', '\t', '\n', '\v', '\f', '\r'}) classes[c] = CharClass::kSpace;
  return classes;
}();

CharClass ClassifyNonAscii(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  const uint32_t mask = U_GET_GC_MASK(point);
  if (mask & U_GC_L_MASK) return CharClass::kLetter;
  if (mask & U_GC_N_MASK) return CharClass::kNumber;
  return u_isUWhiteSpace(point) ? CharClass::kSpace : CharClass::kOther;
}

bool IsPunctuation(char32_t c) {
  if (c < 128) return c > 32 && c < 127 && kAsciiClass[c] == CharClass::kOther;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_P_MASK) != 0;
}

bool IsWord(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  return (U_GET_GC_MASK(point) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_isUAlphabetic(point) || u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL);
}

bool IsCombiningMark(char32_t c) {
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_M_MASK) != 0;
}

void AppendLowercase(char32_t c, std::string* out) {
  if (c == 0x130) {  // the only character whose lower case is two characters whatever follows
    out->append("i\xcc\x87");
    return;
  }
  AppendUtf8(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))), out);
}

char32_t LastChar(absl::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (text[begin] & 0xc0) == 0x80) --begin;
  const char* p = text.data() + begin;
  return NextChar(&p);
}

void AppendUtf8(char32_t c, std::string* out) {
  const auto low_bits = [c](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->append({static_cast<char>(0xc0 | c >> 6), low_bits(0)});
  } else if (c < 0x10000) {
    out->append({static_cast<char>(0xe0 | c >> 12), low_bits(6), low_bits(0)});
  } else {
    out->append({static_cast<char>(0xf0 | c >> 18), low_bits(12), low_bits(6), low_bits(0)});
  }
}

Utf8Start ScanUtf8(absl::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, Utf8Start::kValid};
  if (first < 0xc2 || first > 0xf4) return {1, Utf8Start::kInvalid};
  const size_t wanted = CharBytes(text[0]);
  // The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (size_t bytes = 1; bytes < wanted; ++bytes) {
    if (bytes == text.size()) return {bytes, Utf8Start::kTruncated};
    const auto next = static_cast<unsigned char>(text[bytes]);
    if (next < (bytes == 1 ? low : 0x80) || next > (bytes == 1 ? high : 0xbf))
      return {bytes, Utf8Start::kInvalid};
  }
  return {wanted, Utf8Start::kValid};
}

size_t ValidUtf8Prefix(absl::string_view text) {
  size_t valid = 0;
  while (valid < text.size()) {
    const Utf8Start start = ScanUtf8(text.substr(valid));
    if (start.kind != Utf8Start::kValid) break;
    valid += start.bytes;
  }
  return valid;
}

std::string ReplaceInvalidUtf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    out.append(text.data(), valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    text.remove_prefix(ScanUtf8(text).bytes);
    out.append(kReplacementCharacter.data(), kReplacementCharacter.size());
  }
  return out;
}

size_t LeadingSpaceBytes(absl::string_view text) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char* next = p;
    if (Classify(NextChar(&next)) != CharClass::kSpace) break;
    p = next;
  }
  return static_cast<size_t>(p - text.data());
}

size_t TrailingSpaceBegin(absl::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (text[begin] & 0xc0) == 0x80) --begin;
    const char* p = text.data() + begin;
    if (Classify(NextChar(&p)) != CharClass::kSpace) break;
    end = begin;
  }
  return end;
}

}  // namespace quire::tokenizer
