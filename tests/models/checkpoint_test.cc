#include "models/import/checkpoint.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/checkpoint_files.h"

namespace quire {
namespace {

using ::quire::testing::BytesFor;
using ::quire::testing::GgufWriter;
using ::quire::testing::SafetensorsFile;
using ::quire::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kConfig[] = R"({"model_type": "llama", "hidden_size": 4})";

class CheckpointTest : public ::testing::Test {
 protected:
  void WriteWeights(absl::string_view name = "model.safetensors") {
    dir_.Write(name, SafetensorsFile({{"model.norm.weight", "F32", {4}, BytesFor("n", 16)},
                                      {"position_ids", "I64", {2}, BytesFor("p", 16)}}));
  }
  void ExpectError(const std::string& message,
                   absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const auto checkpoint = OpenCheckpoint(dir_.path());
    EXPECT_EQ(checkpoint.status().code(), code) << checkpoint.status();
    EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr(message));
  }

  TempDir dir_;
};

TEST_F(CheckpointTest, OpensADirectory) {
  WriteWeights();
  dir_.Write("config.json", kConfig);
  const auto checkpoint = OpenCheckpoint(dir_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->format(), CheckpointFormat::kSafetensors);
  EXPECT_THAT(checkpoint->files(), ElementsAre("model.safetensors"));
  EXPECT_EQ(checkpoint->config()["hidden_size"], 4);
  EXPECT_TRUE(checkpoint->generation_config().is_null());
  const auto norm = checkpoint->Require("model.norm.weight");
  ASSERT_TRUE(norm.ok()) << norm.status();
  EXPECT_EQ((*norm)->dtype, DType::kF32);
  EXPECT_EQ(checkpoint->PathOf(**norm), dir_.File("model.safetensors"));
  EXPECT_EQ(*checkpoint->ReadSmallTensor(**norm), BytesFor("n", 16));
}

TEST_F(CheckpointTest, ReadsGenerationConfig) {
  WriteWeights();
  dir_.Write("config.json", kConfig);
  dir_.Write("generation_config.json", R"({"eos_token_id": [1, 2]})");
  const auto checkpoint = OpenCheckpoint(dir_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->generation_config()["eos_token_id"].size(), 2u);
  dir_.Write("generation_config.json", "[");
  ExpectError("generation_config.json", absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, OpensShards) {
  WriteWeights("part-1.safetensors");
  dir_.Write("config.json", kConfig);
  dir_.Write("model.safetensors.index.json",
             R"({"weight_map": {"model.norm.weight": "part-1.safetensors"}})");
  const auto checkpoint = OpenCheckpoint(dir_.path() + "/");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->files(), ElementsAre("part-1.safetensors"));
  EXPECT_NE(checkpoint->Find("model.norm.weight"), nullptr);
}

TEST_F(CheckpointTest, RequireSuggestsTheNearestName) {
  WriteWeights();
  dir_.Write("config.json", kConfig);
  const auto checkpoint = OpenCheckpoint(dir_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->Find("norm.weight"), nullptr);
  EXPECT_EQ(checkpoint->Require("model.norms.weight").status(),
            absl::InvalidArgumentError(
                absl::StrCat("model.norms.weight: the tensor is missing\n  from: ", dir_.path(),
                             "\n  fix: the nearest name is \"model.norm.weight\"")));
}

TEST_F(CheckpointTest, UnsupportedTypesAreRefusedWhenAskedFor) {
  WriteWeights();
  dir_.Write("config.json", kConfig);
  const auto checkpoint = OpenCheckpoint(dir_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_NE(checkpoint->Find("position_ids"), nullptr);
  EXPECT_EQ(checkpoint->Require("position_ids").status(),
            absl::UnimplementedError(
                absl::StrCat("position_ids: the element type I64 is not supported\n  from: ",
                             dir_.File("model.safetensors"),
                             "\n  allowed: f32, f16, bf16, f8e4m3, i32, f8e4m3_128, q4_0, q4_1, "
                             "q5_0, q5_1, q8_0, q4_k, q5_k, "
                             "q6_k")));
}

TEST_F(CheckpointTest, OpensAGgufWhateverItsName) {
  const std::string file = GgufWriter()
                               .Str("general.architecture", "llama")
                               .Tensor("output_norm.weight", 0, {4}, BytesFor("n", 16))
                               .Build();
  const auto checkpoint = OpenCheckpoint(dir_.Write("weights", file));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->format(), CheckpointFormat::kGguf);
  EXPECT_EQ(checkpoint->directory(), dir_.path());
  EXPECT_THAT(checkpoint->files(), ElementsAre("weights"));
  EXPECT_EQ(*checkpoint->metadata().GetString("general.architecture"), "llama");
  EXPECT_TRUE(checkpoint->config().is_null());
  EXPECT_EQ(*checkpoint->ReadSmallTensor(*checkpoint->Find("output_norm.weight")),
            BytesFor("n", 16));
}

TEST_F(CheckpointTest, ErrorsSayWhatToDo) {
  ExpectError(dir_.path() + ": has neither model.safetensors nor model.safetensors.index.json");
  dir_.Write("pytorch_model.bin", "x");
  ExpectError(
      "found pytorch_model.bin, which are pickles\n  fix: load the model with transformers");
  dir_.Write("consolidated.safetensors", "x");
  ExpectError("fix: found consolidated.safetensors; rename the one to use to model.safetensors");
  dir_.Write("m.gguf", "x");
  ExpectError("fix: name the file instead of the directory: m.gguf");
  WriteWeights();
  ExpectError(dir_.path() + ": has no config.json");
  dir_.Write("config.json", "{\"a\" 1}");
  ExpectError("config.json:1:6: not JSON", absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, RefusesPathsThatAreNeither) {
  EXPECT_THAT(std::string(OpenCheckpoint(dir_.File("none")).status().message()),
              HasSubstr(dir_.File("none") + ": cannot open: No such file or directory\n  fix: "));
  EXPECT_THAT(std::string(OpenCheckpoint(dir_.Write("t.txt", "hello")).status().message()),
              HasSubstr("t.txt: is not a GGUF file\n  allowed: a model directory"));
  dir_.Write("config.json", "{}");
  EXPECT_THAT(std::string(OpenCheckpoint(dir_.File("t.txt")).status().message()),
              HasSubstr("\n  fix: name the folder that it is in: " + dir_.path()));
  EXPECT_THAT(std::string(OpenCheckpoint("/dev/null").status().message()),
              HasSubstr("is neither a directory nor a regular file"));
}

}  // namespace
}  // namespace quire
