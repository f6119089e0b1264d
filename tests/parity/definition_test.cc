// Every fixture's definition, evaluated by the reference interpreter, gives transformers' logits.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "ir/file.h"
#include "ir/reference/dequantize.h"
#include "ir/reference/interpreter.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/model.h"
#include "tests/parity/fixture.h"

namespace quire {
namespace {

using testing::Fixture;

// The numbers of a tensor, of elements of `dtype` in its file.
absl::StatusOr<reference::Tensor> ReadTensor(const Checkpoint& checkpoint, const TensorInfo& info,
                                             DType dtype) {
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(checkpoint.PathOf(info)));
  QUIRE_ASSIGN_OR_RETURN(reference::Tensor tensor, reference::Tensor::Zeros(info.extents));
  QUIRE_RETURN_IF_ERROR(Dequantize(dtype, file.bytes().subspan(info.offset, info.bytes),
                                   absl::MakeSpan(tensor.values)));
  return tensor;
}

// Gives the checkpoint's tensors to the interpreter.
reference::WeightFn WeightsOf(const Checkpoint& checkpoint) {
  return [&checkpoint](absl::string_view name, const Type&) -> absl::StatusOr<reference::Tensor> {
    QUIRE_ASSIGN_OR_RETURN(const TensorInfo* info, checkpoint.Require(name));
    if (info->scale.empty()) return ReadTensor(checkpoint, *info, *info->dtype);
    QUIRE_ASSIGN_OR_RETURN(reference::Tensor tensor, ReadTensor(checkpoint, *info, DType::kF8E4M3));
    QUIRE_ASSIGN_OR_RETURN(const TensorInfo* scale, checkpoint.Require(info->scale));
    QUIRE_ASSIGN_OR_RETURN(const reference::Tensor scales,
                           ReadTensor(checkpoint, *scale, *scale->dtype));
    const size_t columns = static_cast<size_t>(info->extents[1]);
    const bool by_block = scales.values.size() > 1 && scale->extents[0] != info->extents[0];
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      const size_t row = i / columns, column = i % columns;
      tensor.values[i] *= by_block ? scales.values[row / 128 * (columns / 128) + column / 128]
                                   : scales.values[scales.values.size() > 1 ? row : 0];
    }
    return tensor;
  };
}

class DefinitionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
    ASSERT_TRUE(fixture.ok()) << fixture.status();
    fixture_ = *std::move(fixture);
    absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(testing::FixturePath(GetParam()));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = std::make_unique<Checkpoint>(*std::move(checkpoint));
    absl::StatusOr<ModelDef> model = BuildModel(*checkpoint_);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  Func& step() { return *model_.module.Find("step"); }

  // The largest difference from transformers' logits over the largest of those.
  absl::StatusOr<double> RelativeError() {
    const auto tokens = static_cast<int64_t>(fixture_.ids.size());
    reference::Inputs inputs;
    inputs.weights = WeightsOf(*checkpoint_);
    const reference::Tensor ids{{tokens}, {fixture_.ids.begin(), fixture_.ids.end()}};
    reference::Tensor pos = ids;
    std::iota(pos.values.begin(), pos.values.end(), 0);
    inputs.args = {{"ids", ids}, {"pos", pos}};
    if (!fixture_.source.empty()) {
      const reference::Tensor source{{static_cast<int64_t>(fixture_.source.size())},
                                     {fixture_.source.begin(), fixture_.source.end()}};
      reference::Tensor source_pos = source;
      std::iota(source_pos.values.begin(), source_pos.values.end(), 0);
      inputs.args["source"] = source;
      inputs.args["source_pos"] = source_pos;
    }
    if (const Op* states = step().Find("states")) {
      const int64_t width = states->type.extents[1].value();
      inputs.args["states"] = {{static_cast<int64_t>(fixture_.states.size()) / width, width},
                               {fixture_.states.begin(), fixture_.states.end()}};
    }
    QUIRE_ASSIGN_OR_RETURN(const std::vector<reference::Tensor> results,
                           reference::Interpret(step(), inputs));
    const std::vector<double>& logits = results.front().values;
    if (logits.size() != fixture_.logits.size()) return absl::InternalError("another shape");
    double largest = 0, worst = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double expected = fixture_.logits[i];
      const double error = std::abs(logits[i] - expected);
      largest = std::max(largest, std::abs(expected));
      // Written so that NaN counts.
      if (!(error <= worst)) worst = error;
    }
    return worst / largest;
  }

  Fixture fixture_;
  std::unique_ptr<Checkpoint> checkpoint_;
  ModelDef model_;
};

constexpr double kTolerance = 1e-4;

TEST_P(DefinitionTest, GivesTheLogitsOfTransformers) {
  const absl::StatusOr<double> error = RelativeError();
  ASSERT_TRUE(error.ok()) << error.status();
  RecordProperty("relative_error", absl::StrCat(*error));
  EXPECT_LE(*error, kTolerance);
}

// The fixture would show a definition with any one number wrong.
TEST_P(DefinitionTest, EveryNumberMatters) {
  constexpr AttrKind kNumbers[] = {
      AttrKind::kEps,       AttrKind::kFactor,      AttrKind::kCap,
      AttrKind::kTheta,     AttrKind::kScaleFactor, AttrKind::kOriginalTokens,
      AttrKind::kLowFactor, AttrKind::kHighFactor,  AttrKind::kBetaFast,
      AttrKind::kBetaSlow,  AttrKind::kTruncate,    AttrKind::kMagnitude,
      AttrKind::kWindow,    AttrKind::kAlibiMax,    AttrKind::kWeightOffset};
  for (const AttrKind number : kNumbers) {
    std::vector<std::pair<Op*, AttrValue>> changed;
    for (const std::unique_ptr<Op>& op : step().ops()) {
      if (!op->Has(number)) continue;
      // Most fixtures have the usual epsilon, which is there to change nothing.
      if (number == AttrKind::kEps && op->Float(number) < 1e-3) continue;
      changed.emplace_back(op.get(), op->Get(number));
      if (number == AttrKind::kTruncate) {
        op->Set(number, 1 - op->Int(number));
      } else if (std::holds_alternative<double>(op->Get(number))) {
        op->Set(number, op->Float(number) * 1.25);
      } else {
        op->Set(number, op->Int(number) * 2);
      }
    }
    if (changed.empty()) continue;
    const absl::StatusOr<double> error = RelativeError();
    ASSERT_TRUE(error.ok()) << error.status();
    EXPECT_GT(*error, kTolerance) << DefOf(number).text << " does not matter";
    for (auto& [op, value] : changed) op->Set(number, value);
  }
}

TEST_P(DefinitionTest, TextIsAFixpoint) {
  const std::string text = Print(model_.module);
  const absl::StatusOr<Module> parsed = Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Print(*parsed), text);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, DefinitionTest, ::testing::ValuesIn(testing::FixtureNames()),
                         [](const auto& instance) { return instance.param; });

TEST(FixturesTest, AreAllThere) { EXPECT_GE(testing::FixtureNames().size(), 30u); }

}  // namespace
}  // namespace quire
