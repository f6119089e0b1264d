// The fixed parts of a plan file as structs; ir/plan_io.h has the layout.
#ifndef QUIRE_IR_PLAN_FORMAT_H_
#define QUIRE_IR_PLAN_FORMAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/plan_io.h"

namespace quire {

inline constexpr uint32_t kPlanFormatVersion = 1;
inline constexpr uint64_t kPlanHeaderBytes = 128;

struct PlanHeader {
  uint64_t file_bytes = 0;
  uint64_t flatbuffer_offset = 0, flatbuffer_bytes = 0, flatbuffer_checksum = 0;
  uint64_t table_offset = 0, table_bytes = 0, table_checksum = 0;
};

uint64_t PlanChecksum(absl::Span<const uint8_t> bytes);
bool IsZeroBytes(absl::Span<const uint8_t> bytes);

std::string EncodeHeader(const PlanHeader& header);
std::string EncodeTable(absl::Span<const PlanSection> sections);

// Decoded and checked against the file: every range lies inside, nothing overlaps, checksums of
// header, FlatBuffer and table agree. Errors: as in ir/plan_io.h.
absl::StatusOr<PlanHeader> DecodeHeader(absl::Span<const uint8_t> file);
absl::StatusOr<std::vector<PlanSection>> DecodeTable(absl::Span<const uint8_t> file,
                                                     const PlanHeader& header);

}  // namespace quire

#endif  // QUIRE_IR_PLAN_FORMAT_H_
