// The byte-level alphabet of GPT-2: each byte as one printable character, so that any bytes are
// text.
#ifndef QUIRE_RUNTIME_TOKENIZER_BYTE_LEVEL_H_
#define QUIRE_RUNTIME_TOKENIZER_BYTE_LEVEL_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace quire::tokenizer {

// The character of `byte`: itself where that is printable, otherwise the next of U+0100, U+0101,
// ...
char32_t ByteToChar(uint8_t byte);

// The byte that `c` stands for, or -1.
int CharToByte(char32_t c);

// Appends the characters of every byte of `bytes`.
void AppendByteLevel(absl::string_view bytes, std::string* out);

// Appends the bytes that `text` stands for; false, and nothing appended, if a character stands for
// none.
bool AppendBytesOf(absl::string_view text, std::string* out);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_BYTE_LEVEL_H_
