#include "runtime/slot_map.h"

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(SlotMapTest, FindsWhatAMapFindsAndGivesNoIdTwice) {
  std::mt19937 random(1);
  SlotMap<std::string> slots;
  std::map<int64_t, std::string> expected;
  std::set<int64_t> given;
  for (int i = 0; i < 3000; ++i) {
    if (random() % 2 == 0 || expected.empty()) {
      const int64_t id = slots.Add(std::to_string(i));
      EXPECT_GT(id, 0);
      EXPECT_TRUE(given.insert(id).second) << id;
      expected[id] = std::to_string(i);
    } else {
      const auto gone = std::next(expected.begin(), random() % expected.size());
      slots.Erase(gone->first);
      expected.erase(gone);
    }
  }
  for (const int64_t id : given) {
    const auto found = expected.find(id);
    const std::string* const value = slots.Find(id);
    ASSERT_EQ(value != nullptr, found != expected.end()) << id;
    if (value != nullptr) {
      EXPECT_EQ(*value, found->second);
    }
  }
  std::map<int64_t, std::string> visited;
  slots.ForEach([&](int64_t id, const std::string& value) { visited[id] = value; });
  EXPECT_EQ(visited, expected);
}

TEST(SlotMapTest, UnknownIdsFindNothing) {
  SlotMap<int> slots;
  for (const int64_t id : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{1} << 40, INT64_MAX}) {
    EXPECT_EQ(slots.Find(id), nullptr) << id;
  }
  const int64_t id = slots.Add(7);
  EXPECT_EQ(*slots.Find(id), 7);
  slots.Erase(id);
  EXPECT_EQ(slots.Find(id), nullptr);
  EXPECT_EQ(slots.Find(-1), nullptr);
}

}  // namespace
}  // namespace quire
