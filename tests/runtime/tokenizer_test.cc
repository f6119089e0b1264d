#include "runtime/tokenizer/tokenizer.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using plan::TokenizerT;
using testing::ElementsAre;
using testing::IsEmpty;

void SetVocabulary(const std::vector<std::string>& texts, TokenizerT* data) {
  data->token_bytes.clear();
  data->token_ends.clear();
  for (const std::string& text : texts) {
    data->token_bytes.insert(data->token_bytes.end(), text.begin(), text.end());
    data->token_ends.push_back(static_cast<uint32_t>(data->token_bytes.size()));
  }
}

plan::AddedTokenT* AddToken(uint32_t id, const std::string& content, bool special,
                            TokenizerT* data) {
  auto token = std::make_unique<plan::AddedTokenT>();
  token->id = id;
  token->content = content;
  token->special = special;
  data->added_tokens.push_back(std::move(token));
  return data->added_tokens.back().get();
}

// a b c ab abc <unk>, and the special tokens <s> and </s>.
TokenizerT SmallBpe() {
  TokenizerT data;
  SetVocabulary({"a", "b", "c", "ab", "abc", "<unk>"}, &data);
  data.merges = {0, 1, 3, 3, 2, 4};
  data.unk_id = 5;
  AddToken(6, "<s>", true, &data);
  AddToken(7, "</s>", true, &data);
  data.prefix_ids = {6};
  data.suffix_ids = {7};
  data.decoders.push_back(std::make_unique<plan::TokenDecoderT>());
  data.decoders.back()->kind = plan::DecoderKind::kFuse;
  return data;
}

Tokenizer Make(const TokenizerT& data) {
  auto tokenizer = Tokenizer::Create(data);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<int32_t> Ids(const Tokenizer& tokenizer, absl::string_view text,
                         EncodeOptions options = {false, true}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return *ids;
}

TEST(TokenizerTest, OptionsSayWhatBecomesOfSpecialTokens) {
  const Tokenizer tokenizer = Make(SmallBpe());
  EXPECT_THAT(Ids(tokenizer, "abc<s>a", {true, true}), ElementsAre(6, 4, 6, 0, 7));
  EXPECT_THAT(Ids(tokenizer, "abc<s>a", {false, true}), ElementsAre(4, 6, 0));
  EXPECT_THAT(Ids(tokenizer, "abc<s>a", {false, false}), ElementsAre(4, 5, 5, 5, 0));
  EXPECT_THAT(Ids(tokenizer, "", {true, true}), ElementsAre(6, 7));
  EXPECT_EQ(tokenizer.Decode({6, 4, 0, 7}), "abca");
  EXPECT_EQ(tokenizer.Decode({6, 4, 0, 7}, /*skip_special=*/false), "<s>abca</s>");
  EXPECT_EQ(tokenizer.Decode({4, -1, 99, 0}), "abca");
}

TEST(TokenizerTest, NamesTokens) {
  TokenizerT data = SmallBpe();
  data.bos_id = 6;
  data.chat_template = "{{ x }}";
  const Tokenizer tokenizer = Make(data);
  EXPECT_EQ(tokenizer.vocab_size(), 8);
  EXPECT_EQ(tokenizer.TokenText(3), "ab");
  EXPECT_EQ(tokenizer.TokenText(7), "</s>");
  EXPECT_EQ(tokenizer.TokenText(8), "");
  EXPECT_EQ(tokenizer.TokenId("abc"), 4);
  EXPECT_EQ(tokenizer.TokenId("<s>"), 6);
  EXPECT_EQ(tokenizer.TokenId("d"), -1);
  EXPECT_TRUE(tokenizer.IsSpecial(6));
  EXPECT_FALSE(tokenizer.IsSpecial(0));
  EXPECT_EQ(tokenizer.bos_id(), 6);
  EXPECT_EQ(tokenizer.eos_id(), -1);
  EXPECT_EQ(tokenizer.chat_template(), "{{ x }}");
}

TEST(TokenizerTest, UnknownCharactersFuseOnRequest) {
  TokenizerT data = SmallBpe();
  EXPECT_THAT(Ids(Make(data), "axyb"), ElementsAre(0, 5, 5, 1));
  data.fuse_unk = true;
  EXPECT_THAT(Ids(Make(data), "axyb"), ElementsAre(0, 5, 1));
  data.unk_id = -1;
  EXPECT_THAT(Ids(Make(data), "xab"),
              ElementsAre(3));  // what is not known is dropped, and does not part a and b
}

TEST(TokenizerTest, AddedTokenFlags) {
  TokenizerT data = SmallBpe();
  AddToken(8, "<m>", false, &data)->lstrip = true;
  AddToken(9, "<r>", false, &data)->rstrip = true;
  AddToken(10, "cab", false, &data)->single_word = true;
  AddToken(11, "<m><r>", false, &data);
  const Tokenizer tokenizer = Make(data);
  EXPECT_THAT(Ids(tokenizer, "a \t<m> b"), ElementsAre(0, 8, 5, 1));
  EXPECT_THAT(Ids(tokenizer, "a <r> \n b"), ElementsAre(0, 5, 9, 1));
  EXPECT_THAT(Ids(tokenizer, "<r> <m>a"),
              ElementsAre(9, 8, 0));                       // both want the space between them
  EXPECT_THAT(Ids(tokenizer, "<m><r>"), ElementsAre(11));  // the longest
  EXPECT_THAT(Ids(tokenizer, "cab"), ElementsAre(10));
  EXPECT_THAT(Ids(tokenizer, "cab!cab"), ElementsAre(10, 5, 10));
  EXPECT_THAT(Ids(tokenizer, "acab"), ElementsAre(0, 2, 3));
  EXPECT_THAT(Ids(tokenizer, "cab_"), ElementsAre(2, 3, 5));
}

TEST(TokenizerTest, NormalizedTokensMatchNormalizedText) {
  TokenizerT data = SmallBpe();
  data.normalizers.push_back(std::make_unique<plan::NormalizerT>());
  data.normalizers.back()->kind = plan::NormalizerKind::kLowercase;
  AddToken(8, "CAB", false, &data)->normalized = true;
  AddToken(9, "BAC", false, &data);
  const Tokenizer tokenizer = Make(data);
  EXPECT_THAT(Ids(tokenizer, "CABcabCab"), ElementsAre(8, 8, 8));
  EXPECT_THAT(Ids(tokenizer, "BACbac"), ElementsAre(9, 1, 0, 2));
  EXPECT_EQ(tokenizer.Decode({8}), "CAB");  // as it was written
}

TEST(TokenizerTest, InvalidUtf8IsReplaced) {
  TokenizerT data = SmallBpe();
  AddToken(8, "\xef\xbf\xbd", false, &data);
  const Tokenizer tokenizer = Make(data);
  EXPECT_THAT(Ids(tokenizer,
                  "a\xff\xe2\x82"
                  "b\xc3"),
              ElementsAre(0, 8, 8, 1, 8));
  EXPECT_THAT(Ids(tokenizer, std::string("a\0b", 3)), ElementsAre(0, 5, 1));
}

TEST(TokenizerTest, LongWordsEqualShortOnes) {
  const Tokenizer tokenizer = Make(SmallBpe());
  std::string text;
  std::vector<int32_t> expected;
  for (int i = 0; i < 50000; ++i) {
    text += "abcb";
    expected.push_back(4);
    expected.push_back(1);
  }
  EXPECT_EQ(Ids(tokenizer, text), expected);
}

TEST(TokenizerTest, ThreadsAgree) {
  TokenizerT data = SmallBpe();
  data.pre_tokenizers.push_back(std::make_unique<plan::PreTokenizerT>());
  data.pre_tokenizers.back()->kind = plan::PreTokenizerKind::kWhitespaceSplit;
  const Tokenizer tokenizer = Make(data);
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text += std::string(1 + i % 3, 'a') + "bc" + (i % 7 == 0 ? "x " : " ");
  const std::vector<int32_t> expected = Ids(tokenizer, text);
  std::vector<std::thread> threads;
  std::vector<int> differing(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i)
        differing[t] += *tokenizer.Encode(text, {false, true}) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(differing, testing::Each(0));
}

// Data that contradicts itself, as a damaged plan might; and where the message says it is.
TEST(TokenizerTest, CreateRefusesBadData) {
  const auto expect = [](const char* field, auto damage) {
    TokenizerT data = SmallBpe();
    damage(&data);
    const absl::Status status = Tokenizer::Create(data).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), field)) << status;
  };
  expect("token 2", [](TokenizerT* d) { d->token_ends[2] = 1; });
  expect("token 5", [](TokenizerT* d) { d->token_ends[5] = 1000; });
  expect("not UTF-8", [](TokenizerT* d) { d->token_bytes[0] = 0xff; });
  expect("triples", [](TokenizerT* d) { d->merges.pop_back(); });
  expect("merge 1", [](TokenizerT* d) { d->merges[3] = 6; });
  expect("unk_id=6", [](TokenizerT* d) { d->unk_id = 6; });
  expect("unk_id=-2", [](TokenizerT* d) { d->unk_id = -2; });
  expect("prefix id=8", [](TokenizerT* d) { d->prefix_ids = {8}; });
  expect("eos_id=8", [](TokenizerT* d) { d->eos_id = 8; });
  expect("id 4294967295", [](TokenizerT* d) { d->added_tokens[0]->id = UINT32_MAX; });
  expect("empty", [](TokenizerT* d) { d->added_tokens[0]->content.clear(); });
  expect("added tokens", [](TokenizerT* d) { d->added_tokens[0] = nullptr; });
  expect("model", [](TokenizerT* d) { d->model = static_cast<plan::TokenizerModel>(9); });
  expect("scores", [](TokenizerT* d) { d->model = plan::TokenizerModel::kScoredBpe; });
  expect("scores", [](TokenizerT* d) { d->model = plan::TokenizerModel::kUnigram; });
  expect("normalizers[0]", [](TokenizerT* d) { d->normalizers.emplace_back(); });
  expect("normalizers[0]", [](TokenizerT* d) {
    d->normalizers.push_back(std::make_unique<plan::NormalizerT>());
    d->normalizers[0]->kind = plan::NormalizerKind::kPrecompiled;
    d->normalizers[0]->charsmap = {4, 0, 0, 0, 1, 2, 3};
  });
  expect("pre_tokenizers[0]", [](TokenizerT* d) {
    d->pre_tokenizers.push_back(std::make_unique<plan::PreTokenizerT>());
    d->pre_tokenizers[0]->kind = static_cast<plan::PreTokenizerKind>(99);
  });
  expect("decoder",
         [](TokenizerT* d) { d->decoders[0]->kind = static_cast<plan::DecoderKind>(99); });
}

TEST(TokenizerTest, ScoredBpeMergesTheBestScoreFirst) {
  TokenizerT data;
  data.model = plan::TokenizerModel::kScoredBpe;
  SetVocabulary({"<unk>", "a", "b", "c", "ab", "bc", "abc", "<0xC3>", "<0xA9>", "cc"}, &data);
  data.scores = {0, 0, 0, 0, -2, -1, -3, 0, 0, -1};
  data.unk_id = 0;
  EXPECT_THAT(Ids(Make(data), "abc"), ElementsAre(6));     // bc, then abc
  EXPECT_THAT(Ids(Make(data), "bcc"), ElementsAre(5, 3));  // of equal scores the leftmost
  EXPECT_THAT(Ids(Make(data),
                  "a\xc3\xa9"
                  "b"),
              ElementsAre(1, 0, 2));
  data.byte_fallback = true;
  EXPECT_THAT(Ids(Make(data),
                  "a\xc3\xa9"
                  "b"),
              ElementsAre(1, 7, 8, 2));
  EXPECT_THAT(Ids(Make(data),
                  "a\xc3\xa8"
                  "b"),
              ElementsAre(1, 0, 2));  // not all bytes have a token
}

TEST(TokenizerTest, UnigramTakesTheBestSum) {
  TokenizerT data;
  data.model = plan::TokenizerModel::kUnigram;
  SetVocabulary({"<unk>", "a", "b", "ab", "ba", "aba"}, &data);
  data.scores = {0, -1, -1, -1.5, -1.25, -2.5};
  data.unk_id = 0;
  EXPECT_THAT(Ids(Make(data), "aba"), ElementsAre(1, 4));       // -2.25, against -2.5 and -2.5
  EXPECT_THAT(Ids(Make(data), "axyba"), ElementsAre(1, 0, 4));  // the unknown fuse
  EXPECT_THAT(Ids(Make(data), ""), IsEmpty());
}

}  // namespace
}  // namespace quire
