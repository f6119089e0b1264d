#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/tokenizer/regex.h"
#include "runtime/tokenizer/unicode.h"
#include "tests/runtime/tokenizer_lines.h"

namespace quire::tokenizer {
namespace {

std::vector<std::string> Matches(const Regex& regex, absl::string_view text) {
  std::vector<std::string> matches;
  const absl::Status status = regex.ForEachMatch(text, [&](size_t begin, size_t end) {
    matches.emplace_back(text.substr(begin, end - begin));
  });
  EXPECT_TRUE(status.ok()) << status;
  return matches;
}

std::vector<std::string> Matches(absl::string_view pattern, absl::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  return Matches(*regex, text);
}

// The hand-written matchers cut text where ICU's regex does.
TEST(TokenizerRegexTest, ScannersEqualTheirPatterns) {
  for (const absl::string_view pattern : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern}) {
    const WordScanner scan = FindWordScanner(pattern);
    ASSERT_NE(scan, nullptr);
    const auto regex = Regex::Compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status();
    TestLines lines(21);
    for (int i = 0; i < 20000; ++i) {
      const std::string line = ReplaceInvalidUtf8(lines.Line());
      std::vector<std::string> words;
      for (const char *p = line.data(), *end = p + line.size(); p < end;) {
        const char* const word_end = scan(p, end);
        ASSERT_GT(word_end, p);
        words.emplace_back(p, word_end);
        p = word_end;
      }
      ASSERT_EQ(words, Matches(*regex, line)) << pattern << " on " << absl::CHexEscape(line);
    }
  }
}

// What Oniguruma and ICU mean differently; expected values are Oniguruma's.
TEST(TokenizerRegexTest, MeansWhatOnigurumaMeans) {
  using List = std::vector<std::string>;
  EXPECT_EQ(Matches(R"(\w+)",
                    "a\xe2\x80\x8d"
                    "b_1\xc2\xbd"),
            (List{"a", "b_1\xc2\xbd"}));                        // no joiner, one half
  EXPECT_EQ(Matches(R"([\w]+)", "1\xc2\xbd"), (List{"1"}));     // no one half in a set
  EXPECT_EQ(Matches(R"(\v)", "\n\x0b"), (List{"\x0b"}));        // not any vertical space
  EXPECT_EQ(Matches(R"(.+)", "a\rb\nc"), (List{"a\rb", "c"}));  // only \n ends a line
  EXPECT_EQ(Matches(R"(^.)", "ab\ncd"), (List{"a", "c"}));      // lines, without an option
  EXPECT_EQ(Matches(R"(.$)", "ab\ncd"), (List{"b", "d"}));
  EXPECT_EQ(Matches(R"(\b.)", "e\xcc\x81 x"), (List{"e", " ", "x"}));  // marks are word characters
  EXPECT_EQ(Matches(R"(\s+)", "a\x0b\xc2\x85\xe3\x80\x80z"), (List{"\x0b\xc2\x85\xe3\x80\x80"}));
  EXPECT_EQ(Matches(R"((?i:'s))", "'\xc5\xbf"), (List{"'\xc5\xbf"}));  // the long s folds to s
  EXPECT_EQ(Matches(R"(a*)", "baab"),
            (List{"", "aa", ""}));  // the empty match after "aa" does not count
}

TEST(TokenizerRegexTest, RefusesWhatItCannotMean) {
  for (const absl::string_view pattern :
       {"(?m)a.",  "(?i)a|b", "(?<name>a)", "(?#x)",   "[[:alpha:]]", R"(\h)", R"(\G)",
        R"(\K)",   R"(\X)",   R"((a)\1)",   "a{1,2}+", "a{2}?",       "a{,2}", "[a-z--b]",
        "[a-[b]]", "[]a]",    R"(\p{^L})",  R"(\pL)",  "a{x}",        "[a",    "\\"}) {
    const auto regex = Regex::Compile(pattern);
    EXPECT_EQ(regex.status().code(), absl::StatusCode::kUnimplemented) << pattern;
    EXPECT_TRUE(absl::StrContains(regex.status().message(), pattern)) << regex.status();
  }
  for (const absl::string_view pattern : {"", "(a", "a)", "*", R"(\p{Nonsense})"}) {
    EXPECT_EQ(Regex::Compile(pattern).status().code(), absl::StatusCode::kInvalidArgument)
        << pattern;
  }
}

TEST(TokenizerRegexTest, HostilePatternsEnd) {
  const auto regex = Regex::Compile("(x+x+)+y");
  ASSERT_TRUE(regex.ok());
  const absl::Status status = regex->ForEachMatch(std::string(64, 'x'), [](size_t, size_t) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(TokenizerRegexTest, LiteralsDoNotOverlap) {
  std::vector<std::pair<size_t, size_t>> matches;
  ASSERT_TRUE(Regex::Literal("aa")
                  .ForEachMatch("aaaaa",
                                [&](size_t begin, size_t end) { matches.emplace_back(begin, end); })
                  .ok());
  EXPECT_EQ(matches, (std::vector<std::pair<size_t, size_t>>{{0, 2}, {2, 4}}));
}

}  // namespace
}  // namespace quire::tokenizer
