#include "runtime/stop_scanner.h"

#include <random>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(StopScannerTest, HoldsBackWhatMayBeginAStop) {
  StopScanner scanner({"END", "\n\n"});
  EXPECT_EQ(scanner.Push("one E"), "one ");
  EXPECT_EQ(scanner.Push("N"), "");
  EXPECT_EQ(scanner.Push("Vy\n"), "ENVy");
  EXPECT_EQ(scanner.Push("two"), "\ntwo");
  EXPECT_EQ(scanner.Push(" EN"), " ");
  EXPECT_EQ(scanner.Push("D three"), "");
  EXPECT_TRUE(scanner.stopped());
  EXPECT_EQ(scanner.Finish(), "");
}

TEST(StopScannerTest, FinishReleasesWhatWasHeld) {
  StopScanner scanner({"END"});
  EXPECT_EQ(scanner.Push("an EN"), "an ");
  EXPECT_EQ(scanner.Finish(), "EN");
  EXPECT_FALSE(scanner.stopped());
}

TEST(StopScannerTest, WithoutStopsEverythingPasses) {
  StopScanner scanner({});
  EXPECT_EQ(scanner.Push("text"), "text");
  EXPECT_EQ(scanner.Finish(), "");
}

// The definition, byte by byte: cut at the first end; there, at the earliest beginning.
std::string Expected(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopScannerTest, CutDoesNotDependOnPieces) {
  std::mt19937 random(5);
  int stopped = 0;
  const auto draw_text = [&](size_t most) {
    std::string text(1 + random() % most, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) stop = draw_text(6);
    const std::string text = draw_text(40);
    StopScanner scanner(stops);
    std::string out;
    for (size_t at = 0; at < text.size() && !scanner.stopped();) {
      const size_t piece = 1 + random() % 7;
      out += scanner.Push(text.substr(at, piece));
      at += piece;
    }
    out += scanner.Finish();
    ASSERT_EQ(out, Expected(text, stops)) << text;
    stopped += scanner.stopped();
  }
  EXPECT_GT(stopped, 100);
  EXPECT_LT(stopped, 4990);
}

}  // namespace
}  // namespace quire
