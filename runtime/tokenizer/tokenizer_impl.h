// What Tokenizer and StreamDecoder share.
#ifndef QUIRE_RUNTIME_TOKENIZER_TOKENIZER_IMPL_H_
#define QUIRE_RUNTIME_TOKENIZER_TOKENIZER_IMPL_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/model.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/vocabulary.h"
#include "runtime/tokenizer/word_cache.h"

namespace quire {

struct Tokenizer::Impl {
  Impl(tokenizer::Vocabulary v, tokenizer::AddedTokens a)
      : vocabulary(std::move(v)), added(std::move(a)) {}

  tokenizer::Vocabulary vocabulary;
  tokenizer::AddedTokens added;
  std::vector<std::unique_ptr<tokenizer::Normalizer>> normalizers;
  std::vector<std::unique_ptr<tokenizer::PreTokenizer>> pre_tokenizers;
  std::unique_ptr<tokenizer::Model> model;
  std::vector<std::unique_ptr<plan::TokenDecoderT>> decoders;
  std::vector<int32_t> prefix_ids;
  std::vector<int32_t> suffix_ids;
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  int32_t pad_id = -1;
  std::string chat_template;

  // One call of Encode at a time uses the cache; others run without, to the same ids.
  mutable std::mutex cache_mutex;
  mutable tokenizer::WordCache cache;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_TOKENIZER_TOKENIZER_IMPL_H_
