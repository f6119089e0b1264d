// The trained byte-level tokenizers, handed over as GGUF metadata, encode as their tokenizer.json
// does; and every pre-tokenizer that GGUF files name has patterns that compile.
#include "models/import/tokenizer_gguf.h"

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "models/import/json.h"
#include "models/import/tokenizer_gguf_pre.h"
#include "models/import/tokenizer_json.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/runtime/tokenizer_lines.h"
#include "tests/testdata.h"

namespace quire {
namespace {

std::string ReadFixture(absl::string_view name) {
  std::ifstream file(TestData(absl::StrCat("runtime/tokenizer/", name, ".json")), std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

GgufValue Array(GgufType element, std::vector<std::string> strings, std::vector<int64_t> integers) {
  GgufValue value;
  value.type = GgufType::kArray;
  value.element = element;
  value.strings = std::move(strings);
  value.integers = std::move(integers);
  return value;
}

GgufValue Scalar(GgufType type, std::string text, int64_t integer) {
  GgufValue value = Array(type, {std::move(text)}, {integer});
  value.type = type;
  return value;
}

GgufMetadata ToGguf(const nlohmann::json& root, const std::string& pre) {
  std::vector<std::string> tokens, merges;
  std::vector<int64_t> types;
  const auto set = [&](const std::string& text, size_t id, int64_t type) {
    if (id >= tokens.size()) {
      tokens.resize(id + 1);
      types.resize(id + 1, 1);
    }
    tokens[id] = text;
    types[id] = type;
  };
  for (const auto& [text, id] : root["model"]["vocab"].items()) set(text, id, 1);
  for (const auto& token : root["added_tokens"])
    set(token["content"], token["id"], token["special"] ? 3 : 4);
  for (const auto& merge : root["model"]["merges"]) {
    merges.push_back(absl::StrCat(merge[0].get<std::string>(), " ", merge[1].get<std::string>()));
  }
  GgufMetadata metadata;
  metadata.Add("tokenizer.ggml.model", Scalar(GgufType::kString, "gpt2", 0));
  metadata.Add("tokenizer.ggml.pre", Scalar(GgufType::kString, pre, 0));
  metadata.Add("tokenizer.ggml.tokens", Array(GgufType::kString, tokens, {}));
  metadata.Add("tokenizer.ggml.token_type", Array(GgufType::kI32, {}, types));
  metadata.Add("tokenizer.ggml.merges", Array(GgufType::kString, merges, {}));
  metadata.Add("tokenizer.ggml.bos_token_id", Scalar(GgufType::kU32, "", types.size() - 2));
  return metadata;
}

TEST(TokenizerGgufEncodeTest, EqualsTokenizerJson) {
  const std::pair<const char*, const char*> pairs[] = {{"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}};
  for (const auto& [name, pre] : pairs) {
    const std::string text = ReadFixture(name);
    const auto from_json = Tokenizer::Create(*ImportTokenizerJson({text, "", "", ""}));
    const auto root = ParseJsonObject(text, name);
    ASSERT_TRUE(root.ok()) << root.status();
    const auto data = ImportTokenizerGguf(ToGguf(*root, pre));
    ASSERT_TRUE(data.ok()) << data.status();
    const auto from_gguf = Tokenizer::Create(*data);
    ASSERT_TRUE(from_gguf.ok()) << from_gguf.status();
    TestLines lines(31);
    for (int i = 0; i < 2000; ++i) {
      const std::string line = lines.Line();
      const std::vector<int32_t> expected = *from_json->Encode(line, {.add_special = false});
      ASSERT_EQ(*from_gguf->Encode(line, {.add_special = false}), expected) << name << " " << i;
      ASSERT_EQ(from_gguf->Decode(expected), from_json->Decode(expected));
    }
  }
}

TEST(TokenizerGgufEncodeTest, EveryPreTokenizerSplitsWithoutLoss) {
  const auto root = ParseJsonObject(ReadFixture("gpt2"), "gpt2");
  ASSERT_TRUE(root.ok()) << root.status();
  const std::vector<std::string> names = absl::StrSplit(GgufPreTokenizerNames(), ", ");
  for (const std::string& name : names) {
    const auto data = ImportTokenizerGguf(ToGguf(*root, name));
    ASSERT_TRUE(data.ok()) << data.status();
    const auto tokenizer = Tokenizer::Create(*data);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    TestLines lines(32);
    for (int i = 0; i < 50; ++i) {
      std::string line = tokenizer::ReplaceInvalidUtf8(lines.Line());
      if (!data->normalizers.empty()) {
        line = tokenizer->Decode(*tokenizer->Encode(line), false);  // in NFC now
      }
      const auto ids = tokenizer->Encode(line, {.add_special = false});
      ASSERT_TRUE(ids.ok()) << name << ": " << ids.status();
      ASSERT_EQ(tokenizer->Decode(*ids, /*skip_special=*/false), line) << name;
    }
  }
}

}  // namespace
}  // namespace quire
