// What linears that turn heads compute beside the product, for FakeKernels.
#ifndef QUIRE_TESTS_RUNTIME_FAKE_ROPE_H_
#define QUIRE_TESTS_RUNTIME_FAKE_ROPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/cuda/linear_rope.h"
#include "codegen/spec.h"
#include "gtest/gtest.h"
#include "ir/reference/interpreter.h"
#include "ir/text.h"

namespace quire::testing {

// Cosine and sine of each row's pairs: what the rope makes of heads whose pairs are (1, 0).
inline std::vector<float> FakeTurns(const LinearSpec& spec, const reference::Tensor& positions,
                                    const std::optional<reference::Tensor>& factors) {
  const int64_t rows = positions.extent(0), d = spec.append->d;
  const bool is_half = CudaPairDistance(spec) == 8;
  reference::Inputs inputs;
  reference::Tensor& ones = inputs.args["x"] = *reference::Tensor::Zeros({rows, 1, d});
  for (int64_t i = 0; i < rows * d; ++i) {
    const bool is_first = is_half ? i % d < d / 2 : i % 2 == 0;
    ones.values[static_cast<size_t>(i)] = is_first ? 1 : 0;
  }
  inputs.args["pos"] = positions;
  if (factors.has_value()) inputs.args["factors"] = *factors;
  const std::string type = absl::StrCat("f32[", rows, ",1,", d, "]");
  const absl::StatusOr<Module> module =
      Parse(absl::StrCat("func @f(%x: ", type, ", %pos: i32[", rows, "]",
                         factors.has_value() ? absl::StrCat(", %factors: f32[", d / 2, "]") : "",
                         ") {\n  %y = rope %x, %pos", factors.has_value() ? ", %factors" : "", " {",
                         absl::StrReplaceAll(spec.rope->attributes, {{",", ", "}}), "} : ", type,
                         "\n  return %y\n}\n"));
  EXPECT_TRUE(module.ok()) << module.status();
  const auto turned = reference::Interpret(*module->funcs[0], inputs);
  EXPECT_TRUE(turned.ok()) << turned.status();
  std::vector<float> turns;
  for (int64_t i = 0; i < rows * d / 2; ++i) {
    const int64_t row = i / (d / 2), pair = i % (d / 2);
    const double* head = &(*turned)[0].values[static_cast<size_t>(row * d)];
    turns.push_back(static_cast<float>(head[is_half ? pair : 2 * pair]));
    turns.push_back(static_cast<float>(head[is_half ? pair + d / 2 : 2 * pair + 1]));
  }
  return turns;
}

// Heads of a product, by their turns.
inline void FakeTurnHeads(const LinearSpec& spec, const float* turns, reference::Tensor* product) {
  const int64_t d = spec.append->d, turned = spec.n - spec.append->heads * spec.append->dv;
  const bool is_half = CudaPairDistance(spec) == 8;
  for (int64_t row = 0; row < product->extents[0]; ++row) {
    for (int64_t head = 0; head < turned; head += d) {
      for (int64_t pair = 0; pair < d / 2; ++pair) {
        double* first =
            &product
                 ->values[static_cast<size_t>(row * spec.n + head + (is_half ? pair : 2 * pair))];
        double& second = first[is_half ? d / 2 : 1];
        const float* turn = turns + (row * d / 2 + pair) * 2;
        const double cosine = turn[0], sine = turn[1], a = *first, b = second;
        *first = a * cosine - b * sine;
        second = b * cosine + a * sine;
      }
    }
  }
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RUNTIME_FAKE_ROPE_H_
