// Every fixture's definition, evaluated by the reference interpreter, gives transformers' logits.
#include <algorithm>
#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "ir/reference/dequantize.h"
#include "ir/reference/interpreter.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/import/file.h"
#include "models/model.h"
#include "tests/parity/fixture.h"

namespace quire {
namespace {

using testing::Fixture;

// Gives the checkpoint's tensors to the interpreter.
reference::WeightFn WeightsOf(const Checkpoint& checkpoint) {
  return [&checkpoint](absl::string_view name, const Type&) -> absl::StatusOr<reference::Tensor> {
    QUIRE_ASSIGN_OR_RETURN(const TensorInfo* info, checkpoint.Require(name));
    QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(checkpoint.PathOf(*info)));
    QUIRE_ASSIGN_OR_RETURN(reference::Tensor tensor, reference::Tensor::Zeros(info->extents));
    QUIRE_RETURN_IF_ERROR(Dequantize(*info->dtype, file.bytes().subspan(info->offset, info->bytes),
                                     absl::MakeSpan(tensor.values)));
    return tensor;
  };
}

class DefinitionTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DefinitionTest, GivesTheLogitsOfTransformers) {
  const absl::StatusOr<Fixture> fixture = testing::ReadFixture(GetParam());
  ASSERT_TRUE(fixture.ok()) << fixture.status();
  const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(testing::FixturePath(GetParam()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const absl::StatusOr<ModelDef> model = BuildModel(*checkpoint);
  ASSERT_TRUE(model.ok()) << model.status();

  const auto tokens = static_cast<int64_t>(fixture->ids.size());
  reference::Inputs inputs;
  inputs.weights = WeightsOf(*checkpoint);
  reference::Tensor ids{{tokens}, {fixture->ids.begin(), fixture->ids.end()}};
  reference::Tensor pos = ids;
  for (size_t i = 0; i < pos.values.size(); ++i) pos.values[i] = static_cast<double>(i);
  inputs.args = {{"ids", ids}, {"pos", pos}};
  const absl::StatusOr<std::vector<reference::Tensor>> results =
      reference::Interpret(*model->module.Find("step"), inputs);
  ASSERT_TRUE(results.ok()) << results.status();
  const reference::Tensor& logits = results->front();
  ASSERT_EQ(logits.extents, (std::vector<int64_t>{tokens, fixture->vocab_size}));

  double largest = 0, worst = 0;
  int64_t worst_row = 0;
  for (int64_t row = 0; row < tokens; ++row) {
    for (int64_t v = 0; v < fixture->vocab_size; ++v) {
      const double expected = fixture->row(static_cast<size_t>(row))[v];
      const double error = std::abs(logits.row(row)[v] - expected);
      largest = std::max(largest, std::abs(expected));
      // Written so that NaN counts.
      if (!(error <= worst)) worst = error, worst_row = row;
    }
  }
  RecordProperty("relative_error", std::to_string(worst / largest));
  EXPECT_LE(worst / largest, 1e-4) << "worst in row " << worst_row;
}

TEST_P(DefinitionTest, TextIsAFixpoint) {
  const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(testing::FixturePath(GetParam()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const absl::StatusOr<ModelDef> model = BuildModel(*checkpoint);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string text = Print(model->module);
  const absl::StatusOr<Module> parsed = Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(Print(*parsed), text);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, DefinitionTest, ::testing::ValuesIn(testing::FixtureNames()),
                         [](const auto& instance) { return instance.param; });

TEST(FixturesTest, EveryFamilyHasOne) { EXPECT_GE(testing::FixtureNames().size(), 19u); }

}  // namespace
}  // namespace quire
