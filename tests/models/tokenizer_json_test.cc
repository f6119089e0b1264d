#include "models/import/tokenizer_json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using plan::TokenizerT;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kBpe[] =
    R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 3}, "merges": ["a b"], "unk_token": "a"})";
constexpr char kTokens[] =
    R"("added_tokens": [{"id": 5, "content": "<s>", "special": true}, {"id": 6, "content": "</s>", "special": true}])";

// A file of these members, and the BPE above.
absl::StatusOr<TokenizerT> Import(const std::string& members, const std::string& config = "") {
  return ImportTokenizerJson(
      {absl::StrCat("{", kBpe, members.empty() ? "" : ", ", members, "}"), config, "", ""});
}

TEST(TokenizerJsonTest, ReadsVocabularyWithGapsAndMerges) {
  for (const char* merges : {R"(["a b"])", R"([["a", "b"]])"}) {
    const auto data = ImportTokenizerJson(
        {absl::StrCat(R"({"model": {"vocab": {"a": 0, "b": 1, "ab": 3}, "merges": )", merges, "}}"),
         "", "", ""});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(std::string(data->token_bytes.begin(), data->token_bytes.end()), "abab");
    EXPECT_THAT(data->token_ends, ElementsAre(1, 2, 2, 4));
    EXPECT_THAT(data->merges, ElementsAre(0, 1, 3));
    EXPECT_EQ(data->unk_id, -1);
  }
  EXPECT_EQ(Import("")->unk_id, 0);
}

// What tokenizers 0.23 has after reading these: a unit in the last place off in two.
TEST(TokenizerJsonTest, ScoresAreWhatTheTokenizersPackageReads) {
  const auto data = ImportTokenizerJson(
      {R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", -7.2198450191551204],
          ["b", -9.032439651413203], ["c", 0], ["d", -12.5], ["e", 3e-7], ["f", 1e21]]}})",
       "", "", ""});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->scores,
              ElementsAre(-7.21984501915512, -9.032439651413204, 0, -12.5, 3e-7, 1e21));
}

TEST(TokenizerJsonTest, FlattensSequencesInOrder) {
  const auto data = Import(
      R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"},
           {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "x"}]},
           {"type": "Replace", "pattern": {"Regex": " +"}, "content": "y"}]},
         "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
           {"type": "Split", "pattern": {"String": "q"}, "behavior": "MergedWithNext", "invert": true},
           {"type": "Metaspace", "replacement": "_", "add_prefix_space": false}]},
         "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]})");
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->normalizers.size(), 3u);
  EXPECT_EQ(data->normalizers[0]->kind, plan::NormalizerKind::kNfc);
  EXPECT_EQ(data->normalizers[1]->content, "x");
  EXPECT_EQ(data->normalizers[2]->pattern, " +");
  EXPECT_TRUE(data->normalizers[2]->is_regex);
  ASSERT_EQ(data->pre_tokenizers.size(), 2u);
  EXPECT_EQ(data->pre_tokenizers[0]->behavior, plan::SplitBehavior::kMergedWithNext);
  EXPECT_TRUE(data->pre_tokenizers[0]->invert);
  EXPECT_EQ(data->pre_tokenizers[1]->prepend_scheme, plan::PrependScheme::kNever);
  ASSERT_EQ(data->decoders.size(), 2u);
}

TEST(TokenizerJsonTest, PostProcessorsNest) {
  const std::string inner =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [5, 0],
      "tokens": ["<s>", "a"]}}})";
  const auto data = Import(
      absl::StrCat(kTokens, R"(, "post_processor": {"type": "Sequence", "processors": [)", inner,
                   R"(, {"type": "ByteLevel", "trim_offsets": false},
                                        {"type": "RobertaProcessing", "sep": ["</s>", 6], "cls": ["b", 1]}]})"));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->prefix_ids, ElementsAre(1, 5, 0));
  EXPECT_THAT(data->suffix_ids, ElementsAre(6));
}

TEST(TokenizerJsonTest, ConfigNamesTokensAndTemplate) {
  const auto data =
      Import(kTokens, R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
      "pad_token": "[PAD]", "chat_template": [{"name": "tool", "template": "T"}, {"name": "default", "template": "D"}],
      "tokenizer_class": "LlamaTokenizer", "model_max_length": 1e30})");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->bos_id, 5);
  EXPECT_EQ(data->eos_id, 6);
  EXPECT_EQ(data->pad_id, -1);  // not a token of this tokenizer
  EXPECT_EQ(data->chat_template, "D");
  EXPECT_THAT(data->prefix_ids, IsEmpty());
}

TEST(TokenizerJsonTest, ConfigFlagsReplaceThePostProcessor) {
  const std::string members = absl::StrCat(
      kTokens,
      R"(, "post_processor": {"type": "BertProcessing", "sep": ["</s>", 6], "cls": ["<s>", 5]})");
  const auto data =
      Import(members, R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true})");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->prefix_ids, ElementsAre(5));
  EXPECT_THAT(data->suffix_ids, IsEmpty());
}

TEST(TokenizerJsonTest, ConfigOverridesAddedTokens) {
  const auto data = Import(kTokens, R"({"added_tokens_decoder": {
      "5": {"content": "<s>", "special": true, "lstrip": true}, "9": {"content": "new", "special": false}}})");
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->added_tokens.size(), 3u);
  EXPECT_TRUE(data->added_tokens[0]->lstrip);
  EXPECT_EQ(data->added_tokens[2]->id, 9u);
  EXPECT_TRUE(
      data->added_tokens[2]->normalized);  // as tokens that are not special are unless they say so
}

TEST(TokenizerJsonTest, SpecialTokensMapNamesWhatTheConfigDoesNot) {
  const auto data =
      ImportTokenizerJson({absl::StrCat("{", kBpe, ", ", kTokens, "}"), R"({"eos_token": "<s>"})",
                           R"({"bos_token": "<s>", "eos_token": "</s>"})", "template"});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->bos_id, 5);
  EXPECT_EQ(data->eos_id, 5);
  EXPECT_EQ(data->chat_template, "template");
}

struct Refusal {
  const char* members;
  absl::StatusCode code;
  const char* place;    // path in the file
  const char* allowed;  // a part of what is allowed
};

constexpr absl::StatusCode kUnsupported = absl::StatusCode::kUnimplemented;
constexpr absl::StatusCode kMalformed = absl::StatusCode::kInvalidArgument;

TEST(TokenizerJsonTest, RefusesByPath) {
  const Refusal refusals[] = {
      {R"("normalizer": {"type": "BertNormalizer"})", kUnsupported,
       "tokenizer.json: normalizer.type", "NFC"},
      {R"("normalizer": {"type": "NFC", "form": 2})", kUnsupported, "normalizer.form=2", "type"},
      {R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]})",
       kUnsupported, "normalizer.normalizers[1].type=\"Nmt\"", "NFKC"},
      {R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "*"})", kMalformed,
       "precompiled_charsmap", ""},
      {R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]})",
       kUnsupported, "pre_tokenizer.pretokenizers[0].type", "ByteLevel"},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "x"}, "behavior": "Dropped"})",
       kUnsupported, "pre_tokenizer.behavior", "Isolated"},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"String": ""}})", kMalformed,
       "pattern.String", ""},
      {R"("pre_tokenizer": {"type": "ByteLevel", "use_regex": "yes"})", kMalformed,
       "pre_tokenizer.use_regex", ""},
      {R"("decoder": {"type": "WordPiece"})", kUnsupported, "decoder.type", "Metaspace"},
      {R"("decoder": {"type": "Replace", "pattern": {"Regex": "x"}})", kUnsupported,
       "decoder.pattern", "String"},
      {R"("post_processor": {"type": "Custom"})", kUnsupported, "post_processor.type",
       "TemplateProcessing"},
      {R"("post_processor": {"type": "TemplateProcessing", "single": []})", kUnsupported,
       "post_processor.single", "once"},
      {R"("added_tokens": [{"id": 2, "content": "ab"}])", kMalformed, "added_tokens[0].id=2", ""},
      {R"("added_tokens": [{"id": -1, "content": "x"}])", kMalformed, "added_tokens[0].id", ""},
      {R"("added_tokens": [{"id": 7, "content": ""}])", kMalformed, "added_tokens[0].content", ""},
      {R"("version": "2.0")", kUnsupported, "version", "1.0"},
      {R"("post_tokenizer": {})", kUnsupported, "post_tokenizer", "decoder"},
  };
  for (const Refusal& refusal : refusals) {
    const absl::Status status = Import(refusal.members).status();
    EXPECT_EQ(status.code(), refusal.code) << refusal.members << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.place));
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.allowed));
    EXPECT_THAT(std::string(status.message()), HasSubstr("tokenizer.json"));
  }
}

TEST(TokenizerJsonTest, RefusesModels) {
  const Refusal refusals[] = {
      {R"({"type": "WordPiece"})", kUnsupported, "model.type=\"WordPiece\"", "BPE, Unigram"},
      {R"({"vocab": {}})", kMalformed, "has no type", ""},
      {R"({"type": "BPE", "merges": []})", kMalformed, "model.vocab is missing", ""},
      {R"({"type": "BPE", "vocab": {"a": 0}})", kMalformed, "model.merges is missing", ""},
      {R"({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})", kMalformed,
       "id 0 has two tokens", ""},
      {R"({"type": "BPE", "vocab": {"a": 99999999}, "merges": []})", kMalformed, "model.vocab.a",
       ""},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]})", kMalformed,
       "model.merges[0]: \"aa\"", ""},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a a"]})", kMalformed, "model.merges[0]",
       ""},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": [1]})", kMalformed, "model.merges[0]", ""},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "u"})", kMalformed,
       "model.unk_token", ""},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1})", kUnsupported,
       "model.dropout", "0"},
      {R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"})",
       kUnsupported, "model.end_of_word_suffix", "empty"},
      {R"({"type": "Unigram", "vocab": [["a", -1]]})", kMalformed, "model.unk_id is missing", ""},
      {R"({"type": "Unigram", "vocab": [["a", -1]], "unk_id": 1})", kMalformed, "model.unk_id", ""},
      {R"({"type": "Unigram", "vocab": [["a", "b"]], "unk_id": 0})", kMalformed,
       "model.vocab[0][1]", ""},
      {R"({"type": "Unigram", "vocab": [["a"]], "unk_id": 0})", kMalformed, "model.vocab[0]", ""},
  };
  for (const Refusal& refusal : refusals) {
    const absl::Status status =
        ImportTokenizerJson({absl::StrCat(R"({"model": )", refusal.members, "}"), "", "", ""})
            .status();
    EXPECT_EQ(status.code(), refusal.code) << refusal.members << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.place));
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.allowed));
  }
  for (const char* none : {"", "[]", "{\"model\": "}) {
    EXPECT_EQ(ImportTokenizerJson({none, "", "", ""}).status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(ImportTokenizerDirectory("/nonexistent").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace quire
