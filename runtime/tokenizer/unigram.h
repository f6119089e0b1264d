// Unigram: the segmentation of a word with the greatest sum of token scores (Viterbi).
//
// A character that no token starts with costs the lowest score less 10 and becomes the unknown
// token; unknown characters in a row become one. With byte fallback they become byte tokens where
// the vocabulary has all of them. Source: Kudo 2018 (arXiv 1804.10959); the penalty is
// SentencePiece's.
#ifndef QUIRE_RUNTIME_TOKENIZER_UNIGRAM_H_
#define QUIRE_RUNTIME_TOKENIZER_UNIGRAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/model.h"

namespace quire::tokenizer {

absl::StatusOr<std::unique_ptr<Model>> MakeUnigram(const plan::TokenizerT& spec,
                                                   const Vocabulary& vocabulary);

}  // namespace quire::tokenizer

#endif  // QUIRE_RUNTIME_TOKENIZER_UNIGRAM_H_
