#include "codegen/relative_bias.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/reference/interpreter.h"
#include "ir/text.h"

namespace quire {
namespace {

// By hand, of T5's 32 buckets up to 128: half of them for each direction.
TEST(RelativeBiasTest, BucketsOfDistances) {
  AttentionSpec spec;
  spec.buckets = 32, spec.max_distance = 128;
  const auto expect = [&](bool both, int64_t distance, int64_t bucket) {
    spec.both_directions = both;
    EXPECT_EQ(BucketOfDistance(spec, distance), bucket) << both << " " << distance;
  };
  for (const auto& [distance, bucket] : std::vector<std::pair<int64_t, int64_t>>{{0, 0},
                                                                                 {-1, 1},
                                                                                 {-7, 7},
                                                                                 {-8, 8},
                                                                                 {-11, 8},
                                                                                 {-12, 9},
                                                                                 {-16, 10},
                                                                                 {-127, 15},
                                                                                 {-128, 15},
                                                                                 {-9000, 15},
                                                                                 {1, 17},
                                                                                 {8, 24},
                                                                                 {64, 30},
                                                                                 {5000, 31}}) {
    expect(true, distance, bucket);
  }
  for (const auto& [distance, bucket] : std::vector<std::pair<int64_t, int64_t>>{
           {5, 0}, {0, 0}, {-15, 15}, {-16, 16}, {-19, 17}, {-127, 31}, {-100000, 31}}) {
    expect(false, distance, bucket);
  }
}

// Unrolled by distance they are those of the op, row by row.
TEST(RelativeBiasTest, BiasesByDistanceAreThoseOfTheOp) {
  for (const bool causal : {true, false}) {
    for (const bool both : {true, false}) {
      AttentionSpec spec;
      spec.hq = 3, spec.buckets = 8, spec.max_distance = 20;
      spec.causal = causal, spec.both_directions = both;
      constexpr int64_t kRows = 40, kContext = 50;
      reference::Inputs inputs;
      inputs.args["s"] = *reference::Tensor::Zeros({spec.hq, kRows, kContext});
      reference::Tensor& table = inputs.args["t"] = *reference::Tensor::Zeros({8, spec.hq});
      for (size_t i = 0; i < table.values.size(); ++i) table.values[i] = static_cast<double>(i);
      const absl::StatusOr<Module> module = Parse(
          absl::StrCat("func @f(%s: f32[3,40,50], %t: f32[8,3]) {\n  %y = relative_bias %s, %t "
                       "{max_distance=20, direction=",
                       both ? "both" : "back", "} : f32[3,40,50]\n  return %y\n}\n"));
      ASSERT_TRUE(module.ok()) << module.status();
      const auto expected = reference::Interpret(*module->funcs[0], inputs);
      ASSERT_TRUE(expected.ok()) << expected.status();
      const std::vector<float> biases =
          BiasesByDistance(spec, std::vector<float>(table.values.begin(), table.values.end()));
      const int64_t distances = BiasDistances(spec), zero = causal ? 0 : distances / 2;
      ASSERT_EQ(biases.size(), static_cast<size_t>(spec.hq * distances));
      for (int64_t head = 0; head < spec.hq; ++head) {
        for (int64_t row = 0; row < kRows; ++row) {
          const int64_t position = kContext - kRows + row;
          for (int64_t token = 0; token < (causal ? position + 1 : kContext); ++token) {
            const int64_t at = std::clamp<int64_t>(position - token + zero, 0, distances - 1);
            EXPECT_EQ(
                biases[static_cast<size_t>(head * distances + at)],
                (*expected)[0].values[static_cast<size_t>((head * kRows + row) * kContext + token)])
                << head << " " << row << " " << token;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
