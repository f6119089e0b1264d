// tokenizer.json and the files beside it, to the plan's neutral tokenizer data.
//
// tokenizer.json decides how text becomes ids. From tokenizer_config.json come bos, eos and pad,
// the chat template, added_tokens_decoder (entries that differ from tokenizer.json win) and, where
// they are given, add_bos_token and add_eos_token, which replace the post-processor.
// special_tokens_map.json names bos, eos and pad if tokenizer_config.json does not. truncation and
// padding belong to a call, not to the text: they are left out.
//
// Errors: INVALID_ARGUMENT for malformed data, UNIMPLEMENTED for valid data that Quire does not
// support; both name the file and the path in it, such as "tokenizer.json:
// pre_tokenizer.pretokenizers[1].type", and what is allowed.
#ifndef QUIRE_MODELS_IMPORT_TOKENIZER_JSON_H_
#define QUIRE_MODELS_IMPORT_TOKENIZER_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/plan_generated.h"

namespace quire {

// Contents of the files; all but the first may be empty.
struct HfTokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  std::string special_tokens_map_json;
  std::string chat_template_jinja;
};

absl::StatusOr<plan::TokenizerT> ImportTokenizerJson(const HfTokenizerFiles& files);

// Reads those files from a model directory. NOT_FOUND if it has no tokenizer.json.
absl::StatusOr<plan::TokenizerT> ImportTokenizerDirectory(const std::string& directory);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_TOKENIZER_JSON_H_
