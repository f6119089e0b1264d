#include "models/import/tokenizer_gguf.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/import/tokenizer_gguf_pre.h"

namespace quire {
namespace {

using plan::TokenizerT;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

GgufValue Array(GgufType element) {
  GgufValue value;
  value.type = GgufType::kArray;
  value.element = element;
  return value;
}

GgufValue Strings(std::vector<std::string> strings) {
  GgufValue value = Array(GgufType::kString);
  value.strings = std::move(strings);
  return value;
}

GgufValue Ints(std::vector<int64_t> integers) {
  GgufValue value = Array(GgufType::kI32);
  value.integers = std::move(integers);
  return value;
}

GgufValue Floats(std::vector<double> floats) {
  GgufValue value = Array(GgufType::kF32);
  value.floats = std::move(floats);
  return value;
}

GgufValue String(std::string text) {
  GgufValue value;
  value.type = value.element = GgufType::kString;
  value.strings = {std::move(text)};
  return value;
}

GgufValue Int(int64_t integer) {
  GgufValue value;
  value.type = value.element = GgufType::kU32;
  value.integers = {integer};
  return value;
}

GgufValue Bool(bool flag) {
  GgufValue value = Int(flag);
  value.type = value.element = GgufType::kBool;
  return value;
}

using Entries = std::vector<std::pair<std::string, GgufValue>>;

// The entries, each under "tokenizer.ggml."; later ones of equal keys replace earlier ones.
absl::StatusOr<TokenizerT> Import(Entries entries, Entries replaced = {}) {
  GgufMetadata metadata("m.gguf");
  for (auto& [key, value] : replaced) metadata.Add("tokenizer.ggml." + key, std::move(value));
  for (auto& [key, value] : entries) metadata.Add("tokenizer.ggml." + key, std::move(value));
  return ImportTokenizerGguf(metadata);
}

Entries Gpt2() {
  return {{"model", String("gpt2")},
          {"pre", String("smollm")},
          {"tokens", Strings({"<s>", "a", "b", "ab", "user"})},
          {"token_type", Ints({3, 1, 1, 1, 4})},
          {"merges", Strings({"a b"})},
          {"bos_token_id", Int(0)}};
}

Entries Llama() {
  return {{"model", String("llama")},         {"tokens", Strings({"<unk>", "<s>", "<0x41>", "a"})},
          {"token_type", Ints({2, 3, 6, 1})}, {"scores", Floats({0, 0, 0, -1.5})},
          {"unknown_token_id", Int(0)},       {"bos_token_id", Int(1)}};
}

TEST(TokenizerGgufTest, Gpt2) {
  const auto data = Import(Gpt2());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->model, plan::TokenizerModel::kBpe);
  EXPECT_THAT(data->token_ends,
              ElementsAre(0, 1, 2, 4, 4));  // tokens found in text are not the model's
  EXPECT_THAT(data->merges, ElementsAre(1, 2, 3));
  ASSERT_EQ(data->added_tokens.size(), 2u);
  EXPECT_TRUE(data->added_tokens[0]->special);
  EXPECT_EQ(data->added_tokens[1]->id, 4u);
  EXPECT_FALSE(data->added_tokens[1]->special);
  ASSERT_EQ(data->pre_tokenizers.size(), 2u);
  EXPECT_TRUE(data->pre_tokenizers[0]->individual_digits);
  EXPECT_TRUE(data->pre_tokenizers[1]->use_regex);
  EXPECT_EQ(data->bos_id, 0);
  EXPECT_THAT(data->prefix_ids, IsEmpty());
  EXPECT_THAT(Import(Gpt2(), {{"add_bos_token", Bool(true)}})->prefix_ids, ElementsAre(0));
  EXPECT_THAT(Import(Gpt2(), {{"pre", String("llama-bpe")}})->prefix_ids, ElementsAre(0));
  EXPECT_TRUE(Import(Gpt2(), {{"pre", String("llama-bpe")}})->ignore_merges);
}

TEST(TokenizerGgufTest, Llama) {
  const auto data = Import(Llama());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->model, plan::TokenizerModel::kScoredBpe);
  EXPECT_TRUE(data->byte_fallback);
  EXPECT_THAT(data->scores, ElementsAre(0, 0, 0, -1.5));
  EXPECT_THAT(data->prefix_ids, ElementsAre(1));
  EXPECT_EQ(data->normalizers.size(), 2u);
  EXPECT_EQ(data->decoders.size(), 4u);
  const auto plain = Import(Llama(), {{"add_space_prefix", Bool(false)}});
  EXPECT_EQ(plain->normalizers.size(), 1u);
  EXPECT_EQ(plain->decoders.size(), 3u);
}

TEST(TokenizerGgufTest, Refuses) {
  const auto expect = [](Entries entries, Entries replaced, absl::StatusCode code,
                         const char* part) {
    const absl::Status status = Import(std::move(entries), std::move(replaced)).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  };
  constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;
  constexpr auto kMalformed = absl::StatusCode::kInvalidArgument;
  expect(Gpt2(), {{"model", String("bert")}}, kUnsupported, "allowed: gpt2, llama");
  expect(Gpt2(), {{"pre", String("kimi-k2")}}, kUnsupported, "allowed: a.x-4.0, bailingmoe");
  expect(Gpt2(), {{"add_sep_token", Bool(true)}}, kUnsupported, "add_sep_token");
  expect(Gpt2(), {{"token_type", Ints({1})}}, kMalformed, "token_type");
  expect(Gpt2(), {{"merges", Strings({"a b", "b b"})}}, kMalformed,
         "tokenizer.ggml.merges[1]: \"bb\"");
  expect(Gpt2(), {{"merges", Strings({"ab"})}}, kMalformed, "merges[0]");
  expect(Gpt2(), {{"bos_token_id", Int(5)}}, kMalformed, "bos_token_id=5");
  expect(Llama(), {{"scores", Floats({1})}}, kMalformed, "scores");
  expect(Llama(), {{"tokens", Int(1)}}, kMalformed, "tokens");
  EXPECT_EQ(ImportTokenizerGguf(GgufMetadata()).status().code(), kMalformed);
}

TEST(TokenizerGgufTest, NoneIsWrittenAsTheGreatestId) {
  EXPECT_EQ(Import(Gpt2(), {{"bos_token_id", Int(0xffffffff)}})->bos_id, -1);
}

TEST(TokenizerGgufTest, KnowsPreTokenizersByEveryName) {
  for (const char* name :
       {"default", "llama-bpe", "qwen2", "gpt-2", "smollm", "refact", "starcoder", "command-r",
        "deepseek-llm", "deepseek-coder", "deepseek-v3", "tekken", "falcon", "gpt-4o", "viking"}) {
    EXPECT_NE(FindGgufPreTokenizer(name), nullptr) << name;
    EXPECT_THAT(GgufPreTokenizerNames(), HasSubstr(name));
  }
  EXPECT_EQ(FindGgufPreTokenizer(""), nullptr);
}

}  // namespace
}  // namespace quire
