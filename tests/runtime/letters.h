// A tokenizer of letters: id 0 is "a", id 25 "z", then a space, a newline and two bytes of a
// character.
#ifndef QUIRE_TESTS_RUNTIME_LETTERS_H_
#define QUIRE_TESTS_RUNTIME_LETTERS_H_

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/tokenizer/tokenizer.h"

namespace quire::testing {

inline constexpr int32_t kLetterVocabulary = 30;
inline constexpr int32_t kFirstByteOfE = 28, kSecondByteOfE = 29;  // of U+00E9

inline plan::TokenizerT LetterTokenizerData() {
  plan::TokenizerT data;
  data.model = plan::TokenizerModel::kBpe;
  std::vector<std::string> texts;
  for (char c = 'a'; c <= 'z'; ++c) texts.push_back(std::string(1, c));
  texts.insert(texts.end(), {" ", "\n", "<0xC3>", "<0xA9>"});
  for (const std::string& text : texts) {
    data.token_bytes.insert(data.token_bytes.end(), text.begin(), text.end());
    data.token_ends.push_back(static_cast<uint32_t>(data.token_bytes.size()));
  }
  for (const auto kind : {plan::DecoderKind::kByteFallback, plan::DecoderKind::kFuse}) {
    data.decoders.push_back(std::make_unique<plan::TokenDecoderT>());
    data.decoders.back()->kind = kind;
  }
  return data;
}

inline Tokenizer LetterTokenizer() {
  auto tokenizer = Tokenizer::Create(LetterTokenizerData());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::move(tokenizer).value();
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RUNTIME_LETTERS_H_
