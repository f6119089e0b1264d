#include "compiler/pipeline.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/builder.h"
#include "tests/compiler/compile_helpers.h"
#include "tests/testdata.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::string_view kText = R"(func @f(%x: f32[T,8]) {
  %y = silu %x : f32[T,8]
  return %y
}
)";

std::string ReadAll(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A folder that is removed with the test.
class PipelineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/pipeline_test." +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  absl::Status Run(PassFn pass) {
    module_ = *Parse(kText);
    const PassDef def = {"made-up", pass, PassPhase::kRaise, ""};
    PipelineOptions options;
    options.reproducer_dir = dir_;
    return RunPasses(module_, {&def}, Target{}, options, &reports_);
  }

  std::string dir_;
  Module module_;
  std::vector<PassReport> reports_;
};

absl::StatusOr<bool> Rename(Func& func, const Target&, Notes& notes) {
  func.Rename(func.Find("y"), "z");
  notes.Fired("z", "renamed");
  return true;
}

absl::StatusOr<bool> RenameSecretly(Func& func, const Target&, Notes&) {
  func.Rename(func.Find("y"), "z");
  return false;
}

absl::StatusOr<bool> Boast(Func&, const Target&, Notes&) { return true; }

absl::StatusOr<bool> BreakTypes(Func& func, const Target&, Notes&) {
  func.Find("y")->type.extents[1] = 9;
  return true;
}

absl::StatusOr<bool> Fail(Func& func, const Target&, Notes&) {
  func.Rename(func.Find("y"), "z");
  return absl::UnimplementedError("%y: silu: not today");
}

absl::StatusOr<bool> FailInternally(Func&, const Target&, Notes&) {
  return absl::InternalError("lost");
}

TEST_F(PipelineTest, ReportsWhatAPassDid) {
  ASSERT_TRUE(Run(Rename).ok());
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].pass, "made-up");
  EXPECT_EQ(reports_[0].func, "f");
  EXPECT_TRUE(reports_[0].changed);
  EXPECT_GE(reports_[0].ms, 0);
  EXPECT_THAT(ExplainText(reports_),
              AllOf(HasSubstr("made-up @f: changed, "), HasSubstr("  %z: renamed\n")));
}

TEST_F(PipelineTest, CatchesASecretChange) {
  const absl::Status status = Run(RenameSecretly);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("made-up: changed the function, but says that it did not"));
  EXPECT_EQ(Print(module_), std::string(kText));
}

TEST_F(PipelineTest, CatchesAFalseChange) {
  EXPECT_THAT(std::string(Run(Boast).message()),
              HasSubstr("made-up: says that it changed the function, but did not"));
}

TEST_F(PipelineTest, CatchesInvalidIrAndWritesAReproducer) {
  const absl::Status status = Run(BreakTypes);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  const std::string path = dir_ + "/reproduce-made-up.qir";
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("left invalid IR: @f: %y: silu: type f32[T,9] is declared"),
                    HasSubstr("\n  reproduce: " + path)));
  EXPECT_EQ(ReadAll(path),
            "// RUN: quire compile %s --passes=made-up --emit=ir\n" + std::string(kText));
  EXPECT_TRUE(Parse(ReadAll(path)).ok());
}

TEST_F(PipelineTest, AnInternalErrorOfAPassIsReproducible) {
  EXPECT_THAT(std::string(Run(FailInternally).message()), HasSubstr("reproduce: " + dir_));
}

TEST_F(PipelineTest, CarriesTheIrWhenTheReproducerCannotBeWritten) {
  std::ofstream(dir_) << "a file where the folder should be";
  EXPECT_THAT(std::string(Run(Boast).message()), HasSubstr("\n  ir: func @f(%x: f32[T,8]) {"));
}

TEST_F(PipelineTest, ARefusalKeepsItsCodeAndTheModule) {
  const absl::Status status = Run(Fail);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "made-up: %y: silu: not today");
  EXPECT_EQ(Print(module_), std::string(kText));
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

TEST_F(PipelineTest, DumpsEveryPhase) {
  module_ = *Parse(kText);
  absl::StatusOr<std::vector<const PassDef*>> passes = ParsePassList("narrow-outputs, fuse");
  ASSERT_TRUE(passes.ok());
  PipelineOptions options;
  options.dump_ir_dir = dir_ + "/deep";
  ASSERT_TRUE(RunPasses(module_, *passes, Target{}, options, &reports_).ok());
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.dump_ir_dir)) {
    files.push_back(entry.path().filename().string());
  }
  std::sort(files.begin(), files.end());
  EXPECT_THAT(files, ElementsAre("00-input.qir", "01-narrow-outputs.qir", "02-fuse.qir"));
  EXPECT_EQ(ReadAll(options.dump_ir_dir + "/00-input.qir"), std::string(kText));
  EXPECT_EQ(ReadAll(options.dump_ir_dir + "/02-fuse.qir"), Print(module_));
}

TEST_F(PipelineTest, ADumpThatCannotBeWrittenIsAnError) {
  module_ = *Parse(kText);
  PipelineOptions options;
  std::ofstream(dir_) << "a file where the folder should be";
  options.dump_ir_dir = dir_;
  EXPECT_EQ(RunPasses(module_, {}, Target{}, options, &reports_).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PassListTest, KnowsEveryPass) {
  std::string list;
  for (const PassDef& pass : AllPasses())
    absl::StrAppend(&list, list.empty() ? "" : ",", pass.name);
  EXPECT_EQ(
      list,
      "recognise-attention,remove-kv-expansion,split-cross-qkv,merge-projections,split-phases,"
      "split-rows,cache-kv,narrow-outputs,fuse");
  absl::StatusOr<std::vector<const PassDef*>> passes = ParsePassList(list);
  ASSERT_TRUE(passes.ok());
  EXPECT_EQ(*passes, DefaultPasses());
}

TEST(PassListTest, RefusesAnUnknownNameWithTheNearest) {
  const absl::Status status = ParsePassList("cache-kv,fusee").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("passes=fusee is not known\n  allowed: recognise-attention, "),
                    HasSubstr("\n  fix: did you mean fuse?")));
}

// One name for flag, file, function and tests.
TEST(PassListTest, EveryPassHasItsFileAndItsTests) {
  for (const PassDef& pass : AllPasses()) {
    std::string file = pass.name;
    std::replace(file.begin(), file.end(), '-', '_');
    const std::filesystem::path source =
        std::filesystem::path(TestData("")).parent_path().parent_path() / "compiler/passes" /
        (file + ".cc");
    EXPECT_THAT(ReadAll(source), ::testing::StartsWith(absl::StrCat("// ", pass.name, ": ")));
    EXPECT_TRUE(
        std::filesystem::exists(std::filesystem::path(TestData("compiler")) / (file + ".qir")))
        << file;
  }
}

}  // namespace
}  // namespace quire
