// Any bytes either are refused, or make a tokenizer whose streams agree with its decoder.
//
// The input is a tokenizer.json, and after a zero byte the text to encode.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "models/import/tokenizer_json.h"
#include "runtime/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string input(reinterpret_cast<const char*>(data), bytes);
  const size_t zero = input.find('\0');
  const auto imported = quire::ImportTokenizerJson({input.substr(0, zero), "", "", ""});
  if (!imported.ok()) return 0;
  const auto tokenizer = quire::Tokenizer::Create(*imported);
  if (!tokenizer.ok()) return 0;
  const std::string text =
      zero == std::string::npos ? "The  caf\xc3\xa9 1234\n" : input.substr(zero + 1);
  const auto ids = tokenizer->Encode(text);
  if (!ids.ok()) return 0;
  for (const int32_t id : *ids) {
    if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
  }
  for (const bool skip_special : {false, true}) {
    std::string streamed;
    quire::StreamDecoder decoder(*tokenizer, skip_special);
    for (const int32_t id : *ids) streamed += decoder.Push(id);
    streamed += decoder.Finish();
    if (streamed != tokenizer->Decode(*ids, skip_special)) std::abort();
  }
  return 0;
}
