// Logits of token sequences straight from a program, without an engine: what `quire verify`
// compares.
#ifndef QUIRE_TOOLS_STEP_RUNNER_H_
#define QUIRE_TOOLS_STEP_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/device.h"

namespace quire {

// Sees every launch of the steps that a runner runs.
class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  virtual absl::Status Begin(absl::string_view program, const Step& step) = 0;
  virtual absl::Status After(size_t launch, const LaunchMemory& memory) = 0;
};

struct StepRunnerShape {
  int32_t vocabulary = 0;
  int32_t page_tokens = 0;
  int32_t sequences = 1;
  int32_t max_tokens = 0;  // of each sequence
  // Of a model with an encoder: what every sequence decodes over.
  Program* encoder = nullptr;
  std::vector<int32_t> source = {};
  std::vector<float> states = {};  // instead of `source`, where the encoder reads states
  StepWatcher* watcher = nullptr;  // must outlive the runner
};

class StepRunner {
 public:
  // `program`, and the encoder, must outlive the runner. The sequences' pages lie in an order drawn
  // from `page_seed`.
  static absl::StatusOr<StepRunner> Create(Program* program, const StepRunnerShape& shape,
                                           uint32_t page_seed);

  // One step that appends ids[s] to sequence s; a sequence with no ids takes no part. Returns
  // logits [T, V] of all rows, sequence after sequence.
  absl::StatusOr<std::vector<float>> Append(absl::Span<const std::vector<int32_t>> ids);

 private:
  StepRunner(Program* program, const StepRunnerShape& shape) : program_(program), shape_(shape) {}
  int32_t encoder_tokens() const;
  absl::Status Encode();
  absl::Status Run(absl::string_view name, Program& program, const Step& step, PagePool& pool,
                   absl::Span<float> logits) const;

  Program* program_;
  StepRunnerShape shape_;
  std::unique_ptr<PagePool> pool_, encoder_pool_;
  std::vector<int32_t> encoder_pages_;
  std::vector<std::vector<int32_t>> pages_;  // block tables
  std::vector<int32_t> tokens_;              // in each sequence
};

}  // namespace quire

#endif  // QUIRE_TOOLS_STEP_RUNNER_H_
