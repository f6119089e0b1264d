// Checkpoints of encoder-decoders that cannot be: what disagrees is named.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/import/checkpoint.h"
#include "tests/models/model_files.h"

namespace quire {
namespace {

using testing::FixtureFolder;
using ::testing::HasSubstr;
using testing::Stored;
using testing::TestTensor;

// A fixture's checkpoint with other tensors of these names, as (name, extents).
absl::Status BuildWith(absl::string_view fixture, const std::vector<TestTensor>& others) {
  const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(FixtureFolder(fixture));
  if (!checkpoint.ok()) return checkpoint.status();
  std::vector<TestTensor> tensors = others;
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    bool is_other = false;
    for (const TestTensor& other : others) is_other |= other.name == tensor.name;
    if (is_other) continue;
    tensors.push_back(Stored(tensor.name, tensor.extents));
    std::string& bytes = tensors.back().bytes;
    if (tensor.name == "final_logits_bias") bytes.assign(bytes.size(), '\0');
  }
  return testing::BuildFrom(checkpoint->config(), tensors).status();
}

TEST(EncoderDecoderTest, CrossAttentionOfAnotherShapeIsNamed) {
  const struct {
    const char *fixture, *name;
    std::vector<int64_t> extents;
  } cases[] = {
      {"bart", "model.decoder.layers.1.encoder_attn.k_proj.weight", {32, 40}},
      {"bart", "model.decoder.layers.0.encoder_attn.v_proj.weight", {40, 32}},
      {"bart", "model.decoder.layers.1.encoder_attn.q_proj.bias", {31}},
      {"mbart", "model.decoder.layers.0.encoder_attn.out_proj.weight", {16, 32}},
      {"t5", "decoder.block.1.layer.1.EncDecAttention.k.weight", {8, 8}},
  };
  for (const auto& c : cases) {
    ASSERT_TRUE(BuildWith(c.fixture, {}).ok()) << BuildWith(c.fixture, {});
    const absl::Status status = BuildWith(c.fixture, {Stored(c.name, c.extents)});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.name));
    EXPECT_THAT(std::string(status.message()), HasSubstr("allowed: ["));
  }
}

TEST(EncoderDecoderTest, ABiasOfTheLogitsMustBeZero) {
  TestTensor bias = Stored("final_logits_bias", {1, 96});
  bias.bytes.assign(bias.bytes.size(), '\0');
  EXPECT_TRUE(BuildWith("bart", {bias}).ok()) << BuildWith("bart", {bias});
  bias.bytes[7] = '\x3f';
  const absl::Status status = BuildWith("bart", {bias});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("final_logits_bias is not zero"));
}

}  // namespace
}  // namespace quire
