#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/tokenizer/unicode.h"

namespace quire::tokenizer {
namespace {

TEST(TokenizerUnicodeTest, EveryCharacterRoundTrips) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_EQ(ValidUtf8Prefix(text), text.size()) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(CharBytes(text[0]), text.size());
    ASSERT_EQ(LastChar("x" + text), c);
    const char* p = text.data();
    ASSERT_EQ(NextChar(&p), c);
    ASSERT_EQ(p, text.data() + text.size());
  }
}

// The counts are those of Python's bytes.decode("utf-8", errors="replace").
TEST(TokenizerUnicodeTest, EachMaximalInvalidPartBecomesOneReplacement) {
  const std::string r(kReplacementCharacter);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\x80z", "a" + r + "z"},
      {"\xc3", r},
      {"\xc3\xa9\xc3", "\xc3\xa9" + r},
      {"\xe2\x82z", r + "z"},  // one part of two bytes
      {"\xf0\x9f\x98", r},     // one part of three bytes
      {"\xf0\x9f\x98\xe2\x82\xac", r + "\xe2\x82\xac"},
      {"\xc0\xaf", r + r},                  // overlong
      {"\xe0\x80\x80", r + r + r},          // overlong
      {"\xed\xa0\x80", r + r + r},          // surrogate
      {"\xf4\x90\x80\x80", r + r + r + r},  // above U+10FFFF
      {"\xff\xfe", r + r},
      {std::string("\0a", 2), std::string("\0a", 2)},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(ReplaceInvalidUtf8(text), expected);
}

TEST(TokenizerUnicodeTest, FindsSpaceAtBothEnds) {
  EXPECT_EQ(LeadingSpaceBytes(" \xe3\x80\x80\xc2\x85x "), 6u);
  EXPECT_EQ(LeadingSpaceBytes("\xe2\x80\x8bx"), 0u);  // zero-width space is not white space
  EXPECT_EQ(TrailingSpaceBegin("x\xe3\x80\x80\t"), 1u);
  EXPECT_EQ(TrailingSpaceBegin("\xe3\x80\x80\t"), 0u);
  EXPECT_EQ(TrailingSpaceBegin("\xe6\x97\xa5"), 3u);
  EXPECT_EQ(TrailingSpaceBegin(""), 0u);
}

TEST(TokenizerUnicodeTest, ClassesAreThoseOfUnicode) {
  for (char32_t c = 0; c < 128; ++c)
    EXPECT_EQ(Classify(c), ClassifyNonAscii(c)) << static_cast<uint32_t>(c);
  EXPECT_EQ(Classify(0xbd), CharClass::kNumber);    // one half: No
  EXPECT_EQ(Classify(0x2167), CharClass::kNumber);  // roman numeral eight: Nl
  EXPECT_EQ(Classify(0x301), CharClass::kOther);    // combining acute
  EXPECT_TRUE(IsPunctuation('$'));                  // though Unicode has it as a symbol
  EXPECT_FALSE(IsPunctuation(0x20ac));              // euro sign
  EXPECT_TRUE(IsPunctuation(0x3002));
}

}  // namespace
}  // namespace quire::tokenizer
