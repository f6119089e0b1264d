// A file with steps that a GPU ran launch by launch (tools/step_record.fbs).
//
//   FlatBuffer, then 8 bytes: its XXH3, little endian
//
// Errors: INVALID_ARGUMENT when a file cannot be read or written; DATA_LOSS when it is truncated or
//         corrupt.
#ifndef QUIRE_TOOLS_STEP_RECORD_H_
#define QUIRE_TOOLS_STEP_RECORD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/plan_generated.h"
#include "runtime/device.h"
#include "tools/step_record_generated.h"

namespace quire {

// The KV layer that a launch appends to.
std::optional<uint32_t> AppendedLayer(const plan::TargetT& target, const plan::LaunchT& launch);

// Runs one step, an append to the only sequence of `pool`, launch by launch, and adds it to
// `record`. `program` runs `lowered` of `target`.
absl::Status RecordStep(const plan::TargetT& target, const plan::ProgramT& lowered,
                        Program& program, const Step& step, PagePool& pool, int64_t vocabulary,
                        record::StepRecordT* record);

// What of a plan the record of a target's steps needs.
std::vector<uint8_t> PlanOfRecord(const plan::PlanT& plan, const plan::TargetT& target);

absl::Status WriteStepRecord(const record::StepRecordT& record, const std::string& path);
absl::StatusOr<std::unique_ptr<record::StepRecordT>> ReadStepRecord(const std::string& path);

}  // namespace quire

#endif  // QUIRE_TOOLS_STEP_RECORD_H_
