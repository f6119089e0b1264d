#include "runtime/tokenizer/model.h"

#include "absl/strings/str_cat.h"
#include "runtime/tokenizer/bpe.h"
#include "runtime/tokenizer/unigram.h"

namespace quire::tokenizer {

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const plan::TokenizerT& spec,
                                                 const Vocabulary& vocabulary, bool raw_bytes) {
  if (spec.unk_id < kNoToken || spec.unk_id >= vocabulary.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: unk_id=", spec.unk_id, " is not in the vocabulary"));
  }
  switch (spec.model) {
    case plan::TokenizerModel::kBpe:
      return MakeBpe(spec, vocabulary, raw_bytes);
    case plan::TokenizerModel::kScoredBpe:
      return MakeScoredBpe(spec, vocabulary);
    case plan::TokenizerModel::kUnigram:
      return MakeUnigram(spec, vocabulary);
  }
  return absl::InvalidArgumentError("model: unknown kind");
}

}  // namespace quire::tokenizer
