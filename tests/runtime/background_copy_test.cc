#include "runtime/cpu/background_copy.h"

#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(BackgroundCopyTest, CopiesEveryArrayAndFindsNoOther) {
  std::vector<uint8_t> a(3'000'001), b(100), other(1);
  std::iota(a.begin(), a.end(), uint8_t{1});
  std::iota(b.begin(), b.end(), uint8_t{7});
  BackgroundCopy copy;
  copy.Add(a.data(), static_cast<int64_t>(a.size()));
  copy.Add(b.data(), static_cast<int64_t>(b.size()));
  EXPECT_FALSE(copy.IsDone());
  copy.Start();
  copy.Start();
  while (!copy.IsDone()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const auto* array : {&a, &b}) {
    const auto* found = static_cast<const uint8_t*>(copy.Find(array->data()));
    ASSERT_NE(found, array->data());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found) % 64, 0u);
    EXPECT_EQ(std::vector<uint8_t>(found, found + array->size()), *array);
  }
  EXPECT_EQ(copy.Find(other.data()), other.data());
}

TEST(BackgroundCopyTest, StopsWhereItIs) {
  const std::vector<uint8_t> large(size_t{64} << 20);
  for (int i = 0; i < 3; ++i) {
    BackgroundCopy copy;
    copy.Add(large.data(), static_cast<int64_t>(large.size()));
    copy.Start();
  }
  BackgroundCopy nothing;
  nothing.Start();
  EXPECT_FALSE(nothing.IsDone());
}

}  // namespace
}  // namespace quire
