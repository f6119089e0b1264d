#include "models/import/tokenizer_gguf_pre.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace quire {
namespace {

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define NEWLINES_AND_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
// cl100k and its kin: contractions, words with one leading mark, numbers, punctuation, white space.
#define CL100K(digits)                                \
  CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits \
               R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)" NEWLINES_AND_SPACES
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
// o200k and its kin: words split where lower case meets upper.
#define O200K(contractions, digits)                                                       \
  R"([^\r\n\p{L}\p{N}]?)" UPPER "*" LOWER "+" contractions R"(|[^\r\n\p{L}\p{N}]?)" UPPER \
  "+" LOWER "*" contractions "|" digits R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)" NEWLINES_AND_SPACES

constexpr absl::string_view kCl100k3 = CL100K(R"(\p{N}{1,3})");
constexpr absl::string_view kCl100k1 = CL100K(R"(\p{N})");
constexpr absl::string_view kCl100kAny = CL100K(R"(\p{N}+)");
constexpr absl::string_view kO200k = O200K(CONTRACTIONS "?", R"(\p{N}{1,3})");
constexpr absl::string_view kTekken = O200K("", R"(\p{N})");
constexpr absl::string_view kQwen35 = CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" NEWLINES_AND_SPACES;
constexpr absl::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr absl::string_view kSeedCoder =
    CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" NEWLINES_AND_SPACES;
constexpr absl::string_view kDeepSeekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*)" NEWLINES_AND_SPACES;
constexpr absl::string_view kDeepSeekLetters =  // cased letters, as of Unicode 11
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"
    R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"
    R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"
    R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"
    R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E})"
    R"(\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A})"
    R"(\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB})"
    R"(\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
constexpr absl::string_view kDeepSeekPunctuation = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr absl::string_view kDeepSeekCjk = R"([一-龥\x{800}-一가-\x{D7FF}]+)";
constexpr absl::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr absl::string_view kPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr absl::string_view kFalconPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr absl::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kThreeDigits = "[0-9][0-9][0-9]";

#undef CONTRACTIONS
#undef NEWLINES_AND_SPACES
#undef CL100K
#undef UPPER
#undef LOWER
#undef O200K

struct Family {
  GgufPreTokenizer pre_tokenizer;
  absl::string_view names;  // separated by spaces
};

constexpr Family kFamilies[] = {
    {{.gpt2_words = true},
     "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert "
     "exaone4 mpt olmo jais trillion granite-docling"},
    {{.single_digits = true, .gpt2_words = true},
     "smollm starcoder refact codeshell exaone minerva-7b mellum2"},
    {{.single_digits = true, .gpt2_words = true, .nfc = true}, "command-r"},
    {{.patterns = {kCl100k3}, .ignores_merges = true, .adds_bos = true},
     "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"},
    {{.patterns = {kCl100k3}}, "dbrx smaug-bpe chatglm-bpe"},
    {{.patterns = {kCl100k3}, .ignores_merges = true}, "glm4 glm5"},
    {{.patterns = {kCl100k1}, .nfc = true}, "qwen2"},
    {{.patterns = {kCl100k1}},
     "stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open grok-2"},
    {{.patterns = {kQwen35}, .nfc = true}, "qwen35"},
    {{.patterns = {R"(\p{N}{1,3})", kCl100kAny}, .ignores_merges = true}, "minicpm5"},
    {{.patterns = {kO200k}}, "gpt-4o llama4 kanana2 talkie minimax-m2"},
    {{.patterns = {kTekken}, .ignores_merges = true, .adds_bos = true}, "tekken"},
    {{.patterns = {kBailing}}, "bailingmoe bailingmoe2 llada-moe"},
    {{.patterns = {kSeedCoder}}, "seed-coder"},
    {{.patterns = {R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)", kDeepSeekV3}},
     "deepseek-v3 hunyuan-dense joyai-llm hy_v4"},
    {{.patterns = {R"([\r\n])", kDeepSeekLetters, kDeepSeekPunctuation, R"(\s+$)", kDeepSeekCjk,
                   R"(\p{N}+)"}},
     "deepseek-llm"},
    {{.patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekCjk, R"(\p{N})"}},
     "deepseek-coder"},
    {{.patterns = {kPunctuation, kGpt2, R"(\p{N}+)", kThreeDigits}}, "default"},
    {{.patterns = {kFalconPunctuation, kGpt2, kThreeDigits}}, "falcon"},
    {{.patterns = {kBloom}}, "bloom poro-chat gpt3-finnish"},
    {{.patterns = {kBloom, R"(\p{N})"}}, "viking"},
};

}  // namespace

const GgufPreTokenizer* FindGgufPreTokenizer(absl::string_view name) {
  for (const Family& family : kFamilies) {
    for (const absl::string_view known : absl::StrSplit(family.names, ' ')) {
      if (known == name) return &family.pre_tokenizer;
    }
  }
  return nullptr;
}

std::string GgufPreTokenizerNames() {
  std::vector<absl::string_view> names;
  for (const Family& family : kFamilies) {
    for (const absl::string_view name : absl::StrSplit(family.names, ' ')) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return absl::StrJoin(names, ", ");
}

}  // namespace quire
