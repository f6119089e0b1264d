#include "runtime/tokenizer/byte_level.h"

#include <array>

#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {
namespace {

struct Alphabet {
  std::array<char32_t, 256> chars{};
  std::array<int16_t, 324> bytes{};  // U+0143 is the last character used
};

Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const char32_t c = printable ? static_cast<char32_t>(byte) : next++;
    alphabet.chars[byte] = c;
    alphabet.bytes[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet = MakeAlphabet();
  return alphabet;
}

}  // namespace

char32_t ByteToChar(uint8_t byte) { return GetAlphabet().chars[byte]; }

int CharToByte(char32_t c) {
  const Alphabet& alphabet = GetAlphabet();
  return c < alphabet.bytes.size() ? alphabet.bytes[c] : -1;
}

void AppendByteLevel(absl::string_view bytes, std::string* out) {
  for (const char byte : bytes) AppendUtf8(ByteToChar(static_cast<uint8_t>(byte)), out);
}

bool AppendBytesOf(absl::string_view text, std::string* out) {
  const size_t before = out->size();
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const int byte = CharToByte(NextChar(&p));
    if (byte < 0) {
      out->resize(before);
      return false;
    }
    out->push_back(static_cast<char>(byte));
  }
  return true;
}

}  // namespace quire::tokenizer
