#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/cuda/driver.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

TEST(CudaDriverTest, NoLibraryIsUnavailableWithAdvice) {
  const absl::StatusOr<CudaDriver> driver = CudaDriver::Open("libno-such-driver.so.1");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("libno-such-driver.so.1"));
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("fix: install the driver"));
}

TEST(CudaDriverTest, AnotherLibraryIsRefusedByTheFunctionItLacks) {
  const absl::StatusOr<CudaDriver> driver = CudaDriver::Open("libm.so.6");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("has no cuInit"));
}

TEST(CudaDriverTest, TheMachinesDriverWorksOrSaysWhy) {
  const absl::StatusOr<const CudaDriver*> driver = CudaDriver::Get();
  if (!driver.ok()) {
    EXPECT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(driver.status().message()), HasSubstr("fix: "));
    GTEST_SKIP() << driver.status();
  }
  int count = 0;
  EXPECT_EQ((*driver)->DeviceGetCount(&count), 0);
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace quire
