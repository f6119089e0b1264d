// The program of a record's steps (tools/step_record.h), as a device with any limits would launch
// it.
#ifndef QUIRE_TESTS_REPLAY_RECORDED_PROGRAM_H_
#define QUIRE_TESTS_REPLAY_RECORDED_PROGRAM_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/cuda/target_kernels.h"
#include "tools/step_record.h"

namespace quire::testing {

struct RecordedProgram {
  std::unique_ptr<record::StepRecordT> record;
  std::unique_ptr<plan::PlanT> plan;
  const plan::TargetT* target = nullptr;
  const plan::ProgramT* program = nullptr;
  CudaKernels kernels;  // of the target; last the one that finds the greatest logit
};

// Records in the tree: their path, and the checkpoint with their weights.
struct RecordPath {
  std::string path, weights_dir;
};
std::vector<RecordPath> RecordPaths();

// What kernels are chosen for: the record's device, and one without warpgroups' products, whose
// bits are the same.
std::vector<CudaLimits> LimitsOf(const record::StepRecordT& record);

absl::StatusOr<RecordedProgram> OpenRecord(const std::string& path, const CudaLimits& limits);

// A launch of a kernel.
struct KernelLaunch {
  size_t kernel = 0;  // index into RecordedProgram::kernels
  CudaLaunch launch;
};
// Those that come before a step's first launch, and those of launch `index` of the program, or of
// the greatest logit where that is the number of launches.
std::vector<KernelLaunch> PreparingLaunches(const RecordedProgram& program,
                                            const record::StepT& step);
std::vector<KernelLaunch> LaunchesOf(const RecordedProgram& program, const record::StepT& step,
                                     size_t index);

}  // namespace quire::testing

#endif  // QUIRE_TESTS_REPLAY_RECORDED_PROGRAM_H_
