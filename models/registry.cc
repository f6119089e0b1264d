#include "models/registry.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "models/import/tensor_index.h"

namespace quire {

absl::Span<const Family> AllFamilies() {
  static const Family families[] = {
      {.model_type = "bart",
       .prefix = "model.",
       .names = BartNames(),
       .read_encoder_decoder = ReadBart,
       .encoder_names = BartEncoderNames()},
      {"bloom", "transformer.", BloomNames(), ReadBloom},
      {"gemma3_text", "model.", Gemma3Names(), ReadGemma3},
      {"gpt2", "transformer.", Gpt2Names(), ReadGpt2},
      {"gpt_bigcode", "transformer.", Gpt2Names(), ReadGptBigCode},
      {"llama", "model.", LlamaNames(), ReadLlama},
      {.model_type = "mbart",
       .prefix = "model.",
       .names = BartNames(),
       .read_encoder_decoder = ReadMbart,
       .encoder_names = BartEncoderNames()},
      {"mistral", "model.", LlamaNames(), ReadMistral},
      {"mllama_text_model", "model.", MllamaNames(), ReadMllama},
      {.model_type = "mt5",
       .prefix = "",
       .names = T5Names(),
       .read_encoder_decoder = ReadMt5,
       .encoder_names = T5EncoderNames()},
      {"qwen2", "model.", LlamaNames(), ReadQwen2},
      {"qwen3", "model.", LlamaNames(), ReadQwen3},
      {.model_type = "t5",
       .prefix = "",
       .names = T5Names(),
       .read_encoder_decoder = ReadT5,
       .encoder_names = T5EncoderNames()},
  };
  return families;
}

absl::StatusOr<const Family*> FindFamily(absl::string_view model_type, absl::string_view file) {
  std::vector<absl::string_view> known;
  for (const Family& family : AllFamilies()) {
    if (family.model_type == model_type) return &family;
    known.push_back(family.model_type);
  }
  absl::Status status = absl::UnimplementedError(
      absl::StrCat("model_type=", Quoted(model_type), " is not a known architecture"));
  status = WithLine(status, "from", file);
  status = WithLine(status, "allowed", absl::StrJoin(known, ", "));
  const std::string near = Nearest(model_type, known);
  return WithLine(status, "fix",
                  absl::StrCat(near.empty() ? "" : absl::StrCat("the nearest is ", near, "; "),
                               "or write the architecture as a .qir file with a name map"));
}

}  // namespace quire
