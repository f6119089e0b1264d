// What `quire verify` says of each launch of a CPU plan: nothing where kernels compute what the
// program says, and which launch where a weight or a kernel is a little wrong.
#include "tools/verify_launches.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/file.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "runtime/device.h"
#include "runtime/weights.h"
#include "tests/parity/fixture.h"
#include "tests/parity/fixture_runner.h"
#include "tools/assemble_plan.h"
#include "tools/pack_weights.h"
#include "tools/step_runner.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// A fixture as a plan for the CPU, made a little wrong, and its launches compared.
class Verified {
 public:
  // `change`: the plan before it is written.
  Verified(const std::string& fixture, bool pack,
           const std::function<void(plan::PlanT&)>& change = nullptr)
      : fixture_(fixture), is_packed_(pack) {
    status_ = Write(change);
  }

  // The section of the packed weight whose first part is of this tensor.
  void EditSection(const std::string& tensor, const std::function<void(uint8_t*, int64_t)>& edit) {
    ASSERT_TRUE(status_.ok()) << status_;
    for (const auto& slot : plan_->targets[0]->weights) {
      if (plan_->tensors[slot->parts[0]->tensor]->name != tensor) continue;
      std::vector<uint8_t> bytes(slot->bytes);
      FILE* file = std::fopen(path_.path().c_str(), "r+b");
      ASSERT_NE(file, nullptr);
      std::fseek(file, static_cast<long>(slot->offset), SEEK_SET);
      ASSERT_EQ(std::fread(bytes.data(), 1, bytes.size(), file), bytes.size());
      edit(bytes.data(), static_cast<int64_t>(bytes.size()));
      std::fseek(file, static_cast<long>(slot->offset), SEEK_SET);
      ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
      std::fclose(file);
      return;
    }
    FAIL() << "no weight is of " << tensor;
  }

  absl::StatusOr<std::unique_ptr<LaunchVerifier>> Run() {
    QUIRE_RETURN_IF_ERROR(status_);
    QUIRE_ASSIGN_OR_RETURN(const auto values, testing::ReadFixture(fixture_));
    QUIRE_ASSIGN_OR_RETURN(PlanFile opened, OpenPlan(path_.path()));
    opened_ = std::make_shared<const PlanFile>(std::move(opened));
    QUIRE_ASSIGN_OR_RETURN(const plan::TargetT* target, opened_->Target("cpu"));
    DeviceOptions options;
    options.kernel_cache_dir = "none";
    QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, CreateDevice("cpu", options));
    const auto weights = OpenWeights(opened_);
    QUIRE_ASSIGN_OR_RETURN(const auto program, device->Load(*target, "step", *weights));
    std::unique_ptr<Program> encoder;
    if (target->programs.size() > 1) {
      QUIRE_ASSIGN_OR_RETURN(encoder, device->Load(*target, "encode", *weights));
    }
    files_ = std::make_unique<TensorFiles>(opened_->plan(), FolderOf(path_.path()), "");
    QUIRE_ASSIGN_OR_RETURN(auto verifier,
                           LaunchVerifier::Create(opened_->plan(), *target, *files_));
    const auto prompt = values.ids.begin() + 6;
    QUIRE_ASSIGN_OR_RETURN(
        StepRunner runner,
        StepRunner::Create(program.get(),
                           {static_cast<int32_t>(values.vocab_size), target->page_tokens, 1, 8,
                            encoder.get(), values.source, values.states, verifier.get()},
                           1));
    QUIRE_RETURN_IF_ERROR(
        runner.Append({std::vector<int32_t>(values.ids.begin(), prompt)}).status());
    QUIRE_RETURN_IF_ERROR(runner.Append({std::vector<int32_t>(prompt, prompt + 1)}).status());
    return verifier;
  }

 private:
  absl::Status Write(const std::function<void(plan::PlanT&)>& change) {
    AssembleOptions options;
    options.model = testing::FixturePath(fixture_);
    options.plan_path = path_.path();
    QUIRE_ASSIGN_OR_RETURN(AssembledPlan assembled, AssemblePlan(options));
    plan_ = std::move(assembled.plan);
    if (change != nullptr) change(*plan_);
    QUIRE_ASSIGN_OR_RETURN(PlanWriter writer, PlanWriter::Create(path_.path()));
    if (is_packed_)
      QUIRE_RETURN_IF_ERROR(PackWeights(FolderOf(path_.path()), plan_.get(), &writer));
    return writer.Finish(*plan_);
  }

  const std::string fixture_;
  const bool is_packed_;
  const testing::PlanPath path_;
  absl::Status status_;
  std::unique_ptr<plan::PlanT> plan_;
  std::shared_ptr<const PlanFile> opened_;
  std::unique_ptr<TensorFiles> files_;
};

class VerifyLaunchesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(VerifyLaunchesTest, FindsNothingInAnHonestPlan) {
  const auto verifier = Verified(GetParam(), true).Run();
  ASSERT_TRUE(verifier.ok()) << verifier.status();
  for (const auto& off : (*verifier)->different()) {
    ADD_FAILURE() << off.launch << ": " << off.different << " of " << off.elements << "; "
                  << off.where << " is " << off.got << ", not " << off.expected << ", allowed "
                  << off.allowed;
  }
  EXPECT_GT((*verifier)->launches(), 10);
  EXPECT_GT((*verifier)->worst().ratio, 0);
}

INSTANTIATE_TEST_SUITE_P(All, VerifyLaunchesTest,
                         ::testing::Values("gguf_llama_q4_k_m", "gguf_mistral_q4_1",
                                           "gguf_qwen2_q5_0", "gguf_qwen2_q6_k", "gguf_qwen3_q5_k",
                                           "bart", "bloom", "gemma3", "gpt2", "mllama", "mt5"),
                         [](const auto& family) { return std::string(family.param); });

// The one launch of both steps that differs, or what is wrong with that.
void ExpectOnly(Verified& verified, const std::string& launch, const std::string& column) {
  const auto verifier = verified.Run();
  ASSERT_TRUE(verifier.ok()) << verifier.status();
  // The step of a prompt and that of one token.
  EXPECT_EQ((*verifier)->different_launches(), 2);
  ASSERT_FALSE((*verifier)->different().empty());
  EXPECT_THAT((*verifier)->different()[0].launch, HasSubstr(launch));
  EXPECT_THAT((*verifier)->different()[0].where, HasSubstr(absl::StrCat("column ", column, " of")));
}

TEST(VerifyLaunchesTest, FindsAWeightThatIsOneLevelOff) {
  Verified verified("gguf_mistral_q4_1", true);
  // After 16 scales and 16 minimums: column 0 of row 0 is the low half of the first byte.
  verified.EditSection("blk.1.ffn_down.weight", [](uint8_t* bytes, int64_t) { bytes[64] ^= 1; });
  ExpectOnly(verified, "(blk.1.ffn_down.weight)", "0");
}

TEST(VerifyLaunchesTest, FindsAFloatWeightThatIsALittleOff) {
  Verified verified("llama_gqa_tied", true);
  // The lowest bit of 16; rows of a strip lie side by side, so that this is row 1, column 0.
  verified.EditSection("model.layers.1.mlp.down_proj.weight",
                       [](uint8_t* bytes, int64_t) { bytes[2] ^= 1; });
  ExpectOnly(verified, "(model.layers.1.mlp.down_proj.weight)", "1");
}

TEST(VerifyLaunchesTest, FindsRowsThatAreSwapped) {
  Verified verified("gguf_llama_q8_0", false, [](plan::PlanT& plan) {
    for (const auto& slot : plan.targets[0]->weights) {
      if (plan.tensors[slot->parts[0]->tensor]->name != "blk.0.ffn_down.weight") continue;
      const plan::WeightPartT whole = *slot->parts[0];
      slot->parts.clear();
      for (const auto& [begin, end] :
           {std::pair<int64_t, int64_t>{1, 2}, {0, 1}, {2, whole.row_end}}) {
        slot->parts.push_back(std::make_unique<plan::WeightPartT>(whole));
        slot->parts.back()->row_begin = begin;
        slot->parts.back()->row_end = end;
      }
    }
  });
  const auto verifier = verified.Run();
  ASSERT_TRUE(verifier.ok()) << verifier.status();
  ASSERT_FALSE((*verifier)->different().empty());
  const LaunchVerifier::Worst& off = (*verifier)->different()[0];
  EXPECT_EQ((*verifier)->different_launches(), 2);
  EXPECT_THAT(off.launch, HasSubstr("blk.0.ffn_down.weight"));
  EXPECT_EQ(off.different, 12);  // two columns of six rows
}

TEST(VerifyLaunchesTest, FindsAnotherRope) {
  Verified verified("gguf_llama_q8_0", false, [](plan::PlanT& plan) {
    for (const auto& kernel : plan.targets[0]->kernels) {
      kernel->spec = absl::StrReplaceAll(kernel->spec, {{"theta=10000", "theta=10001"}});
    }
  });
  const auto verifier = verified.Run();
  ASSERT_TRUE(verifier.ok()) << verifier.status();
  ASSERT_FALSE((*verifier)->different().empty());
  EXPECT_THAT((*verifier)->different()[0].launch, HasSubstr("rows %"));
}

}  // namespace
}  // namespace quire
