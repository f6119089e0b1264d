// Weight slots as kernels read them: rows of checkpoint tensors joined along axis 0, then laid out.
//
// Units:   rows are of the slot's own element type; a quantised row is a sequence of whole blocks.
// Errors:  those of the reader.
#ifndef QUIRE_CODEGEN_WEIGHTS_H_
#define QUIRE_CODEGEN_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/plan_generated.h"

namespace quire {

// Reads tensors of a plan's table. runtime/weights.h has the one over files.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  // The bytes of Plan.tensors[tensor], as many as it says; they stay valid while the reader lives.
  virtual absl::StatusOr<absl::Span<const uint8_t>> Read(uint32_t tensor) const = 0;
};

// The rows of a slot. They are aligned to 4 bytes.
struct SlotRows {
  absl::Span<const uint8_t> bytes;
  // Holds `bytes` when they had to be copied; otherwise they are the reader's.
  std::vector<uint8_t> copied;

  SlotRows() = default;
  SlotRows(SlotRows&&) = default;
  SlotRows& operator=(SlotRows&&) = default;
};

// Joins the parts of `slot`. Copies nothing when it is one part that is neither transposed nor has
// scales apart.
// REQUIRES: `slot` and `tensors` are of a checked plan (ir/plan_check.h).
absl::StatusOr<SlotRows> RowsOfSlot(const plan::WeightSlotT& slot,
                                    absl::Span<const std::unique_ptr<plan::TensorT>> tensors,
                                    const TensorReader& reader);

// A whole tensor. An f8e4m3_128 that its file has as f8e4m3 gets its scales;
// DATA_LOSS where one is none: not finite, or 256 or more.
absl::StatusOr<SlotRows> RowsOfTensor(uint32_t tensor,
                                      absl::Span<const std::unique_ptr<plan::TensorT>> tensors,
                                      const TensorReader& reader);

// The rows of a slot in pieces that follow each other: those of each part where the reader has
// them.
struct SlotPieces {
  std::vector<absl::Span<const uint8_t>> pieces;  // of whole rows, not aligned
  SlotRows copied;  // holds the one piece where a part is transposed or has scales apart
};
absl::StatusOr<SlotPieces> PiecesOfSlot(const plan::WeightSlotT& slot,
                                        absl::Span<const std::unique_ptr<plan::TensorT>> tensors,
                                        const TensorReader& reader);

}  // namespace quire

#endif  // QUIRE_CODEGEN_WEIGHTS_H_
