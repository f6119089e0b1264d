// The parts of tokenizer.json, each read into its fields of the plan's tokenizer.
#ifndef QUIRE_MODELS_IMPORT_TOKENIZER_JSON_PARTS_H_
#define QUIRE_MODELS_IMPORT_TOKENIZER_JSON_PARTS_H_

#include "absl/status/status.h"
#include "ir/plan_generated.h"
#include "models/import/tokenizer_json_node.h"

namespace quire {

// "model": the vocabulary, and merges or scores.
absl::Status ImportModel(const JsonNode& model, plan::TokenizerT* out);

// "normalizer", "pre_tokenizer", "decoder": sequences are flattened.
absl::Status ImportNormalizer(const JsonNode& normalizer, plan::TokenizerT* out);
absl::Status ImportPreTokenizer(const JsonNode& pre_tokenizer, plan::TokenizerT* out);
absl::Status ImportDecoder(const JsonNode& decoder, plan::TokenizerT* out);

// "post_processor": the ids it puts around a single sequence. Pairs are not read.
absl::Status ImportPostProcessor(const JsonNode& post_processor, plan::TokenizerT* out);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_TOKENIZER_JSON_PARTS_H_
