// Plans for CUDA that load on a GPU of host memory: without NVRTC, as every kernel's binary is its
// source, which tests/runtime/fake_kernels.h computes.
#ifndef QUIRE_TESTS_RUNTIME_CUDA_PLAN_H_
#define QUIRE_TESTS_RUNTIME_CUDA_PLAN_H_

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "codegen/cuda/architecture.h"
#include "codegen/cuda/greatest.h"
#include "codegen/cuda/target_kernels.h"
#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "tests/models/checkpoint_files.h"
#include "tests/parity/fixture.h"
#include "tools/assemble_plan.h"

namespace quire::testing {

inline constexpr char kArchitecture[] = "sm_90a";

// A fixture compiled for cuda, with binaries that are their kernels' sources.
class CudaPlan {
 public:
  // `dtype`: of values between kernels, keys and values. `portable`: as DeviceOptions has it.
  explicit CudaPlan(const std::string& fixture, int page_tokens = 3, DType dtype = DType::kBF16,
                    bool portable = false) {
    const absl::Status made = Make(FixturePath(fixture), page_tokens, dtype, portable);
    EXPECT_TRUE(made.ok()) << made;
  }
  const std::shared_ptr<const PlanFile>& file() const { return file_; }
  const plan::TargetT& target() const { return *file_->plan().targets[0]; }

 private:
  absl::Status Make(const std::string& model, int page_tokens, DType dtype, bool portable) {
    AssembleOptions options;
    options.model = model;
    options.plan_path = folder_.File("model.qplan");
    options.targets = {{"cuda", dtype, dtype, page_tokens}};
    QUIRE_ASSIGN_OR_RETURN(AssembledPlan assembled, AssemblePlan(options));
    plan::PlanT& plan = *assembled.plan;
    plan::TargetT& target = *plan.targets[0];
    QUIRE_ASSIGN_OR_RETURN(const CudaLimits limits, LimitsOfArchitecture(kArchitecture));
    QUIRE_ASSIGN_OR_RETURN(CudaKernels kernels,
                           MakeCudaKernels(target, portable ? limits.Portable() : limits));
    kernels.push_back(MakeCudaGreatest(plan.model->vocabulary));
    QUIRE_ASSIGN_OR_RETURN(PlanWriter writer, PlanWriter::Create(options.plan_path));
    for (size_t i = 0; i < kernels.size(); ++i) {
      for (const CudaEntry& entry : kernels[i]->entries()) {
        auto binary = std::make_unique<plan::KernelBinaryT>();
        binary->architecture = kArchitecture;
        binary->entry = entry.entry;
        binary->key = CudaBinaryName(CudaBinaryKey(entry, kArchitecture));
        const auto* text = reinterpret_cast<const uint8_t*>(entry.source.c_str());
        QUIRE_RETURN_IF_ERROR(writer.AddBinary({text, entry.source.size() + 1}, binary.get()));
        target.kernels[std::min(i, target.kernels.size() - 1)]->binaries.push_back(
            std::move(binary));
      }
    }
    QUIRE_RETURN_IF_ERROR(writer.Finish(plan));
    QUIRE_ASSIGN_OR_RETURN(PlanFile file, OpenPlan(options.plan_path));
    file_ = std::make_shared<const PlanFile>(std::move(file));
    return absl::OkStatus();
  }

  TempDir folder_;
  std::shared_ptr<const PlanFile> file_;
};

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RUNTIME_CUDA_PLAN_H_
