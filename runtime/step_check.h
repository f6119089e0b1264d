// Whether a step agrees with itself, with the plan and with the pool; every device asks this before
// it runs one.
#ifndef QUIRE_RUNTIME_STEP_CHECK_H_
#define QUIRE_RUNTIME_STEP_CHECK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/row_operands.h"
#include "ir/plan_generated.h"
#include "runtime/device.h"

namespace quire {

// What a program asks of a step.
struct StepLimits {
  int64_t vocabulary = 0;  // columns of the logits; 0: there are none
  // Exclusive. A device lowers them to the rows of the tables that ids and positions are looked up
  // in.
  int64_t ids = 0;
  // Ids behind the vocabulary that have rows in these tables.
  int64_t more_ids() const {
    return ids == std::numeric_limits<int32_t>::max() ? 0 : std::max<int64_t>(0, ids - vocabulary);
  }
  int64_t positions = std::numeric_limits<int32_t>::max();
  int64_t page_tokens = 1;
  bool reads_pages = false;    // has KV layers of its own
  bool reads_encoder = false;  // and of an encoder's output
  bool needs_encoder = false;  // of every sequence: else one without any sees nothing there
  int64_t states_width = 0;    // of the states that it reads instead of ids; 0: none
  bool is_encode = false;      // a sequence's rows are all of it
  // Tokens up to a row's own that some layer reads back; 0: all. Pages before them may be gone.
  int64_t window = 0;
};

// What a program's argument is of a step.
enum class StepArgument : uint8_t { kIds, kPositions, kLogitRows, kStates };
// By its name in the plan. INVALID_ARGUMENT with the names that there are.
absl::StatusOr<StepArgument> StepArgumentNamed(absl::string_view name);

// INVALID_ARGUMENT when the program's result, if it has one, is not logits with a fixed vocabulary.
absl::StatusOr<StepLimits> LimitsOf(const plan::TargetT& target, const plan::ProgramT& program);

// Lowers `limits` to the tables in which a launch of a row kernel looks up ids and positions.
// INVALID_ARGUMENT when it looks up or takes rows by any other numbers, which no step's check
// covers.
absl::Status LimitLookups(const RowOperands& rows, const plan::ProgramT& program,
                          const plan::LaunchT& launch, StepLimits& limits);

// INVALID_ARGUMENT naming the row or sequence, the value and what is allowed; FAILED_PRECONDITION
// when a sequence lacks the encoder output that the program reads.
absl::Status CheckStep(const Step& step, const StepLimits& limits, int32_t pool_pages,
                       size_t logit_floats);

}  // namespace quire

#endif  // QUIRE_RUNTIME_STEP_CHECK_H_
