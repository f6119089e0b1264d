#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/tokenizer/decoder.h"

namespace quire::tokenizer {
namespace {

using plan::DecoderKind;
using testing::ElementsAre;

using Specs = std::vector<std::unique_ptr<plan::TokenDecoderT>>;

void Add(DecoderKind kind, const char* pattern, const char* content, uint32_t start, uint32_t stop,
         Specs* specs) {
  auto spec = std::make_unique<plan::TokenDecoderT>();
  spec->kind = kind;
  spec->pattern = pattern;
  spec->content = content;
  spec->start = start;
  spec->stop = stop;
  specs->push_back(std::move(spec));
}

// What each token, and last the end, adds to the output.
std::vector<std::string> Steps(const Specs& specs, const std::vector<std::string>& tokens) {
  EXPECT_TRUE(CheckDecoders(specs).ok());
  std::string out;
  DecodeChain chain(specs, &out);
  std::vector<std::string> steps;
  for (const std::string& token : tokens) {
    chain.Push(token);
    steps.push_back(std::exchange(out, ""));
  }
  chain.Finish();
  steps.push_back(out);
  return steps;
}

TEST(TokenizerDecoderTest, ByteLevelHoldsBackPartOfACharacter) {
  Specs specs;
  Add(DecoderKind::kByteLevel, "", "", 0, 0, &specs);
  // U+20AC is E2 82 AC: in the byte alphabet U+00E2, U+0124, U+00AC.
  EXPECT_THAT(Steps(specs, {"x\xc3\xa2", "\xc4\xa4", "\xc2\xac\xc4\xa0y"}),
              ElementsAre("x", "", "\xe2\x82\xac y", ""));
  EXPECT_THAT(Steps(specs, {"\xc3\xa2\xc4\xa4", "x"}), ElementsAre("", "\xef\xbf\xbdx", ""));
  EXPECT_THAT(Steps(specs, {"\xc3\xa2\xc4\xa4"}), ElementsAre("", "\xef\xbf\xbd"));
  EXPECT_THAT(Steps(specs, {"<| |>"}),
              ElementsAre("<| |>", ""));  // a space is no byte character: text as it is
}

TEST(TokenizerDecoderTest, ByteRunsAreUtf8OrReplacements) {
  Specs specs;
  Add(DecoderKind::kByteFallback, "", "", 0, 0, &specs);
  Add(DecoderKind::kFuse, "", "", 0, 0, &specs);
  EXPECT_THAT(Steps(specs, {"a", "<0xE2>", "<0x82>", "<0xaC>", "b"}), ElementsAre("a", "", "", "",
                                                                                  "\xe2\x82\xac"
                                                                                  "b",
                                                                                  ""));
  EXPECT_THAT(Steps(specs, {"<0x41>", "<0xFF>", "b"}), ElementsAre("", "",
                                                                   "\xef\xbf\xbd\xef\xbf\xbd"
                                                                   "b",
                                                                   ""));
  EXPECT_THAT(Steps(specs, {"<0x4G>", "<0x041>"}), ElementsAre("<0x4G>", "<0x041>", ""));
}

TEST(TokenizerDecoderTest, ReplaceSeesMatchesAcrossFusedTokens) {
  Specs specs;
  Add(DecoderKind::kFuse, "", "", 0, 0, &specs);
  Add(DecoderKind::kReplace, "aab", "X", 0, 0, &specs);
  EXPECT_THAT(Steps(specs, {"a", "a", "a", "b", "aa", "c"}),
              ElementsAre("", "", "a", "X", "", "aac", ""));
  EXPECT_THAT(Steps(specs, {"caa"}), ElementsAre("c", "aa"));
  Specs apart;
  Add(DecoderKind::kReplace, "aab", "X", 0, 0, &apart);
  EXPECT_THAT(Steps(apart, {"aa", "b", "aab"}), ElementsAre("aa", "b", "X", ""));
}

TEST(TokenizerDecoderTest, StripCountsPerToken) {
  Specs specs;
  Add(DecoderKind::kStrip, "", " ", 1, 2, &specs);
  EXPECT_THAT(Steps(specs, {"  a   ", "   ", "b"}), ElementsAre(" a ", "", "b", ""));
  Specs fused;
  Add(DecoderKind::kFuse, "", "", 0, 0, &fused);
  Add(DecoderKind::kStrip, "", " ", 1, 1, &fused);
  EXPECT_THAT(Steps(fused, {" ", " a ", " ", "b", " "}), ElementsAre("", " a", " ", " b", "", ""));
}

TEST(TokenizerDecoderTest, MetaspaceDropsThePrefixOfTheFirstTokenOnly) {
  Specs specs;
  Add(DecoderKind::kMetaspace, "_", "", 0, 0, &specs);
  EXPECT_THAT(Steps(specs, {"_a_b", "_c"}), ElementsAre("ab", " c", ""));
  specs[0]->prepend_scheme = plan::PrependScheme::kNever;
  EXPECT_THAT(Steps(specs, {"_a", "_c"}), ElementsAre(" a", " c", ""));
}

TEST(TokenizerDecoderTest, NoDecoderJoinsWithSpaces) {
  EXPECT_THAT(Steps({}, {"a", "b", "c"}), ElementsAre("a", " b", " c", ""));
}

TEST(TokenizerDecoderTest, RefusesEmptyPatterns) {
  for (const DecoderKind kind :
       {DecoderKind::kReplace, DecoderKind::kMetaspace, DecoderKind::kStrip}) {
    Specs specs;
    Add(kind, "", "", 0, 0, &specs);
    EXPECT_EQ(CheckDecoders(specs).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace quire::tokenizer
