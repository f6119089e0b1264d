#include "runtime/device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/cuda/driver.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

plan::PlanT PlanFor(std::initializer_list<const char*> names) {
  plan::PlanT plan;
  for (const char* name : names) {
    plan.targets.push_back(std::make_unique<plan::TargetT>());
    plan.targets.back()->name = name;
  }
  return plan;
}

TEST(DeviceTest, AnUnknownNameIsUnavailableWithTheOthers) {
  const absl::Status status = CreateDevice("tpu").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda"));
}

TEST(DeviceTest, CudaIsThereOrSaysWhatToDo) {
  const auto device = CreateDevice("cuda");
  EXPECT_EQ(device.ok(), CudaDriver::Get().ok());
  if (device.ok()) {
    EXPECT_THAT((*device)->Description(), HasSubstr("cuda: "));
  } else {
    EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(device.status().message()), HasSubstr("fix: "));
  }
}

TEST(DeviceTest, AutoIsTheGpuThatThePlanIsFor) {
  const std::string best = CudaDriver::Get().ok() ? "cuda" : "cpu";
  EXPECT_EQ(ChooseDevice("auto", PlanFor({"cpu", "cuda"})), best);
  EXPECT_EQ(ChooseDevice("auto", PlanFor({"cpu"})), "cpu");
  EXPECT_EQ(ChooseDevice("auto", PlanFor({"cuda"})), best);
  EXPECT_EQ(ChooseDevice("cuda", PlanFor({"cpu"})), "cuda");
  EXPECT_EQ(ChooseDevice("cpu", PlanFor({"cpu", "cuda"})), "cpu");
}

}  // namespace
}  // namespace quire
