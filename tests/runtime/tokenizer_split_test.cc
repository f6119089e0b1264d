#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/split.h"

namespace quire::tokenizer {
namespace {

using plan::PrependScheme;
using plan::PreTokenizerKind;
using plan::SplitBehavior;
using testing::ElementsAre;

std::vector<std::string> Words(const plan::PreTokenizerT& spec, const std::string& text,
                               bool at_start = true) {
  const auto step = MakePreTokenizer(spec);
  EXPECT_TRUE(step.ok()) << step.status();
  TextArena arena;
  std::vector<Piece> pieces;
  EXPECT_TRUE((*step)->Split({text, -1, at_start}, &arena, &pieces).ok());
  std::vector<std::string> words;
  for (size_t i = 0; i < pieces.size(); ++i) {
    words.emplace_back(pieces[i].text);
    EXPECT_FALSE(pieces[i].at_start && (i > 0 || !at_start));
  }
  return words;
}

plan::PreTokenizerT SplitOn(const char* pattern, SplitBehavior behavior, bool invert = false) {
  plan::PreTokenizerT spec;
  spec.kind = PreTokenizerKind::kSplit;
  spec.pattern = pattern;
  spec.is_regex = true;
  spec.behavior = behavior;
  spec.invert = invert;
  return spec;
}

TEST(TokenizerSplitTest, Behaviors) {
  const std::string text = "the-final--countdown-";
  EXPECT_THAT(Words(SplitOn("-", SplitBehavior::kRemoved), text),
              ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(Words(SplitOn("-", SplitBehavior::kIsolated), text),
              ElementsAre("the", "-", "final", "-", "-", "countdown", "-"));
  EXPECT_THAT(Words(SplitOn("-", SplitBehavior::kContiguous), text),
              ElementsAre("the", "-", "final", "--", "countdown", "-"));
  EXPECT_THAT(Words(SplitOn("-", SplitBehavior::kMergedWithPrevious), text),
              ElementsAre("the-", "final-", "-", "countdown-"));
  EXPECT_THAT(Words(SplitOn("-", SplitBehavior::kMergedWithNext), text),
              ElementsAre("the", "-final", "-", "-countdown", "-"));
  EXPECT_THAT(Words(SplitOn("[a-z]+", SplitBehavior::kRemoved, /*invert=*/true), text),
              ElementsAre("the", "final", "countdown"));
}

TEST(TokenizerSplitTest, CharacterClasses) {
  plan::PreTokenizerT spec;
  spec.kind = PreTokenizerKind::kDigits;
  EXPECT_THAT(Words(spec,
                    "a12\xc2\xbd"
                    "b3"),
              ElementsAre("a", "12\xc2\xbd", "b", "3"));
  spec.individual_digits = true;
  EXPECT_THAT(Words(spec, "a12"), ElementsAre("a", "1", "2"));
  spec.kind = PreTokenizerKind::kWhitespace;
  EXPECT_THAT(Words(spec, " ab_1!?  \xe3\x80\x80z"), ElementsAre("ab_1", "!?", "z"));
  spec.kind = PreTokenizerKind::kWhitespaceSplit;
  EXPECT_THAT(Words(spec, " ab!  c\t"), ElementsAre("ab!", "c"));
  spec.kind = PreTokenizerKind::kPunctuation;
  spec.behavior = SplitBehavior::kIsolated;
  EXPECT_THAT(Words(spec, "a$$b\xe2\x82\xac"), ElementsAre("a", "$", "$", "b\xe2\x82\xac"));
}

TEST(TokenizerSplitTest, MetaspacePrepends) {
  plan::PreTokenizerT spec;
  spec.kind = PreTokenizerKind::kMetaspace;
  spec.replacement = "_";
  spec.splits = true;
  spec.prepend_scheme = PrependScheme::kAlways;
  EXPECT_THAT(Words(spec, "a b", false), ElementsAre("_a", "_b"));
  EXPECT_THAT(Words(spec, " a"), ElementsAre("_a"));
  spec.prepend_scheme = PrependScheme::kFirst;
  EXPECT_THAT(Words(spec, "a  b"), ElementsAre("_a", "_", "_b"));
  EXPECT_THAT(Words(spec, "a b", false), ElementsAre("a", "_b"));
  spec.prepend_scheme = PrependScheme::kNever;
  spec.splits = false;
  EXPECT_THAT(Words(spec, "a b"), ElementsAre("a_b"));
}

TEST(TokenizerSplitTest, ByteLevel) {
  plan::PreTokenizerT spec;
  spec.kind = PreTokenizerKind::kByteLevel;
  spec.add_prefix_space = spec.use_regex = true;
  EXPECT_THAT(Words(spec, "a\xc3\xa9 b"), ElementsAre("\xc4\xa0"
                                                      "a\xc3\x83\xc2\xa9",
                                                      "\xc4\xa0"
                                                      "b"));
  spec.add_prefix_space = spec.use_regex = false;
  EXPECT_THAT(Words(spec, "a b"), ElementsAre("a\xc4\xa0"
                                              "b"));
}

// What normalizers make of a text, and whether its start is still the input's.
std::pair<std::string, bool> Normalized(const plan::NormalizerT& spec, std::string text) {
  const auto normalizer = MakeNormalizer(spec);
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  bool at_start = true;
  EXPECT_TRUE((*normalizer)->Apply(&text, &at_start).ok());
  return {text, at_start};
}

TEST(TokenizerSplitTest, NormalizersSayWhetherTheStartIsGone) {
  using Result = std::pair<std::string, bool>;
  plan::NormalizerT spec;
  spec.kind = plan::NormalizerKind::kStrip;
  spec.left = true;
  EXPECT_EQ(Normalized(spec, " a "), Result("a ", false));
  EXPECT_EQ(Normalized(spec, "a "), Result("a ", true));
  spec.kind = plan::NormalizerKind::kStripAccents;
  EXPECT_EQ(Normalized(spec,
                       "\xcc\x81"
                       "e\xcc\x81"),
            Result("e", false));
  EXPECT_EQ(Normalized(spec, "e\xcc\x81"), Result("e", true));
  spec.kind = plan::NormalizerKind::kReplace;
  spec.pattern = "a";
  EXPECT_EQ(Normalized(spec, "aba"), Result("b", false));
  spec.content = "xy";
  EXPECT_EQ(Normalized(spec, "aba"), Result("xybxy", true));
  spec.kind = plan::NormalizerKind::kPrepend;
  EXPECT_EQ(Normalized(spec, "b"), Result("xyb", true));
  EXPECT_EQ(Normalized(spec, ""), Result("", true));
  spec.kind = plan::NormalizerKind::kLowercase;
  EXPECT_EQ(Normalized(spec, "A\xc4\xb0\xce\xa3"),
            Result("ai\xcc\x87\xcf\x83", true));  // no final sigma
  spec.kind = plan::NormalizerKind::kNfc;
  EXPECT_EQ(Normalized(spec, "e\xcc\x81\xef\xac\x81"), Result("\xc3\xa9\xef\xac\x81", true));
  spec.kind = plan::NormalizerKind::kNfkd;
  EXPECT_EQ(Normalized(spec, "\xc3\xa9\xef\xac\x81"), Result("e\xcc\x81"
                                                             "fi",
                                                             true));
}

}  // namespace
}  // namespace quire::tokenizer
