#include "tests/replay/recorded_program.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/greatest.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "runtime/cuda/step_block.h"
#include "tests/testdata.h"

namespace quire::testing {
namespace {

std::vector<KernelLaunch> WithWork(size_t kernel, std::vector<CudaLaunch> launches,
                                   const record::StepT& step) {
  std::vector<KernelLaunch> with_work;
  for (CudaLaunch& launch : launches) {
    const auto rows = static_cast<int64_t>(step.ids.size());
    if (!launch.work.HasWork(rows, step.context_tokens)) continue;
    with_work.push_back({kernel, std::move(launch)});
  }
  return with_work;
}

}  // namespace

std::vector<RecordPath> RecordPaths() {
  std::vector<RecordPath> paths;
  for (const char* name : {"story", "wide"}) {
    paths.push_back(
        {TestData(absl::StrCat("replay/", name, ".steps")), TestData("../models/demo/story")});
  }
  for (const char* name : {"bloom", "gguf_llama_q4_k_m", "gpt2"}) {
    paths.push_back({TestData(absl::StrCat("replay/", name, ".steps")),
                     TestData(absl::StrCat("parity/fixtures/", name))});
  }
  return paths;
}

std::vector<CudaLimits> LimitsOf(const record::StepRecordT& record) {
  return {{record.major, record.minor, record.shared_bytes, record.multiprocessors},
          {8, 0, 163 * 1024, 108}};
}

absl::StatusOr<RecordedProgram> OpenRecord(const std::string& path, const CudaLimits& limits) {
  RecordedProgram opened;
  QUIRE_ASSIGN_OR_RETURN(opened.record, ReadStepRecord(path));
  QUIRE_ASSIGN_OR_RETURN(opened.plan, UnpackPlan(opened.record->plan));
  opened.target = opened.plan->targets.at(0).get();
  for (const auto& program : opened.target->programs) {
    if (program->name == "step") opened.program = program.get();
  }
  QUIRE_ASSIGN_OR_RETURN(opened.kernels, MakeCudaKernels(*opened.target, limits));
  opened.kernels.push_back(MakeCudaGreatest(opened.plan->model->vocabulary));
  return opened;
}

std::vector<KernelLaunch> PreparingLaunches(const RecordedProgram& program,
                                            const record::StepT& step) {
  std::vector<KernelLaunch> all;
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const CudaKernel::Preparation preparation =
        program.kernels[i]->Prepare(BucketOf(static_cast<int64_t>(step.ids.size())), 1,
                                    static_cast<int64_t>(step.pages.size()));
    for (const CudaLaunch& launch : preparation.launches) all.push_back({i, launch});
  }
  return all;
}

std::vector<KernelLaunch> LaunchesOf(const RecordedProgram& program, const record::StepT& step,
                                     size_t index) {
  const int64_t T = BucketOf(static_cast<int64_t>(step.ids.size()));
  const int64_t R = BucketOf(static_cast<int64_t>(step.logit_rows.size()));
  if (index == program.program->launches.size()) {
    const size_t last = program.kernels.size() - 1;
    return WithWork(last, program.kernels[last]->Launches(R).launches, step);
  }
  const plan::LaunchT& launch = *program.program->launches[index];
  return WithWork(launch.kernel,
                  program.kernels[launch.kernel]->Launches(launch.rows == "T" ? T : R).launches,
                  step);
}

}  // namespace quire::testing
