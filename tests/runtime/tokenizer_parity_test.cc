// The tokenizers of tests/runtime/tokenizer, against what the Hugging Face tokenizers package
// recorded for them.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "models/import/tokenizer_json.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/runtime/tokenizer_lines.h"
#include "tests/testdata.h"

namespace quire {
namespace {

constexpr uint64_t kSeed = 11;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

class Fnv {
 public:
  void Add(absl::string_view bytes) {
    for (const char byte : bytes) value_ = (value_ ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
  }
  void Add(const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      for (int shift = 0; shift < 32; shift += 8)
        Add(std::string(1, static_cast<char>(id >> shift)));
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

class TokenizerParityTest : public testing::TestWithParam<const char*> {
 protected:
  std::string Path(const char* extension) const {
    return TestData("runtime/tokenizer/") + GetParam() + extension;
  }
};

TEST_P(TokenizerParityTest, TenThousandLines) {
  const auto data = ImportTokenizerJson({ReadFile(Path(".json")), "", "", ""});
  ASSERT_TRUE(data.ok()) << data.status();
  const auto tokenizer = Tokenizer::Create(*data);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();

  std::ifstream expected(Path(".expected"));
  int line_count = 0, block = 0, full = 0;
  expected >> line_count >> block >> full >> std::ws;
  ASSERT_EQ(line_count, 10000);
  std::vector<std::vector<int32_t>> full_ids;
  for (int i = 0; i < full; ++i) {
    std::string text;
    std::getline(expected, text);
    std::istringstream in(text);
    full_ids.emplace_back();
    for (int32_t id; in >> id;) full_ids.back().push_back(id);
  }
  TestLines lines(kSeed), draws(kSeed + 1);
  for (int begin = 0; begin < line_count; begin += block) {
    Fnv ids_hash, text_hash, random_hash;
    for (int i = begin; i < begin + block; ++i) {
      const std::string line = lines.Line();
      const auto ids = tokenizer->Encode(line);
      ASSERT_TRUE(ids.ok()) << ids.status();
      if (i < full) {
        ASSERT_EQ(*ids, full_ids[i]) << "line " << i << ": " << absl::CHexEscape(line);
      }
      ids_hash.Add(*ids);
      ids_hash.Add("\xff");
      text_hash.Add(tokenizer->Decode(*ids));
      text_hash.Add("\xff");
      std::vector<int32_t> drawn;
      for (int k = 0; k < 8; ++k) {
        drawn.push_back(
            static_cast<int32_t>(draws.Draw(static_cast<uint64_t>(tokenizer->vocab_size()))));
      }
      random_hash.Add(tokenizer->Decode(drawn, /*skip_special=*/false));
      random_hash.Add("\xff");
    }
    uint64_t ids_value = 0, text_value = 0, random_value = 0;
    expected >> std::hex >> ids_value >> text_value >> random_value;
    ASSERT_EQ(ids_hash.value(), ids_value) << "ids of lines " << begin << "..";
    ASSERT_EQ(text_hash.value(), text_value) << "text of lines " << begin << "..";
    ASSERT_EQ(random_hash.value(), random_value) << "text of random ids " << begin << "..";
  }
}

// Every text that a stream emits is whole characters, and all of them make what Decode makes.
TEST_P(TokenizerParityTest, StreamsDecodeAlike) {
  const auto data = ImportTokenizerJson({ReadFile(Path(".json")), "", "", ""});
  ASSERT_TRUE(data.ok()) << data.status();
  const auto tokenizer = Tokenizer::Create(*data);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  TestLines lines(kSeed + 2);
  for (int i = 0; i < 2000; ++i) {
    std::vector<int32_t> ids = *tokenizer->Encode(lines.Line());
    for (int k = 0; k < 8; ++k) {  // and what no text encodes to
      ids.push_back(
          static_cast<int32_t>(lines.Draw(static_cast<uint64_t>(tokenizer->vocab_size() + 3))));
    }
    for (const bool skip_special : {false, true}) {
      StreamDecoder decoder(*tokenizer, skip_special);
      std::string streamed;
      for (const int32_t id : ids) {
        const std::string text = decoder.Push(id);
        ASSERT_EQ(tokenizer::ValidUtf8Prefix(text), text.size());
        streamed += text;
      }
      streamed += decoder.Finish();
      ASSERT_EQ(streamed, tokenizer->Decode(ids, skip_special));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, TokenizerParityTest,
                         testing::Values("gpt2", "llama3", "qwen2", "mixed", "llama2", "mistral",
                                         "unigram"),
                         [](const auto& variant) { return std::string(variant.param); });

}  // namespace
}  // namespace quire
