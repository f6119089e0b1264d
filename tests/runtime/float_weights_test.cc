#include "runtime/float_weights.h"

#include <cmath>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ir/plan_fixture.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OneWeight : public WeightSource {
 public:
  explicit OneWeight(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}
  explicit OneWeight(std::vector<float> values) : bytes_(4 * values.size()) {
    std::memcpy(bytes_.data(), values.data(), bytes_.size());
  }
  absl::StatusOr<SlotBytes> Load(const plan::WeightSlotT&) const override {
    return SlotBytes{bytes_, false, nullptr};
  }
  absl::StatusOr<SlotSpans> LoadPieces(const plan::WeightSlotT&) const override {
    return absl::UnimplementedError("");
  }
  const PlanFile& plan() const override { std::abort(); }

 private:
  std::vector<uint8_t> bytes_;
};

TEST(FloatWeightsTest, ReadsEveryFloatType) {
  const OneWeight halves(std::vector<uint8_t>{0x00, 0x3c, 0x00, 0xc0});
  EXPECT_THAT(*LoadFloats(*testing::MakeSlot("w", "f16", {2}), halves), ElementsAre(1, -2));
  EXPECT_THAT(*LoadFloats(*testing::MakeSlot("w", "bf16", {2, 1}), halves),
              ElementsAre(0x1.0p-7f, -2));
  EXPECT_THAT(*LoadFloats(*testing::MakeSlot("w", "f32", {1}), OneWeight(std::vector<float>{0.3f})),
              ElementsAre(0.3f));
  EXPECT_FALSE(LoadFloats(*testing::MakeSlot("w", "f16", {3}), halves).ok());
  EXPECT_FALSE(LoadFloats(*testing::MakeSlot("w", "i32", {1}), halves).ok());
}

TEST(FloatWeightsTest, ScalesAreOneOrOneForEachHead) {
  const auto load = [](std::vector<float> values, int64_t heads) {
    const auto count = static_cast<int64_t>(values.size());
    return LoadKvScales(*testing::MakeSlot("l0.k_scale", "f32", {count}),
                        OneWeight(std::move(values)), heads);
  };
  EXPECT_THAT(*load({0.5f}, 3), ElementsAre(0.5f, 0.5f, 0.5f));
  EXPECT_THAT(*load({0.5f, 1, 2}, 3), ElementsAre(0.5f, 1, 2));
  EXPECT_THAT(std::string(load({1, 2}, 3).status().message()), HasSubstr("2 scales"));
  for (const float wrong : {0.0f, -1.0f, std::nanf(""), INFINITY, -INFINITY}) {
    const absl::Status status = load({1, wrong}, 2).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("weight l0.k_scale: scale 1 of"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("allowed: positive numbers"));
  }
}

}  // namespace
}  // namespace quire
