#include "codegen/weights.h"

#include <algorithm>
#include <cstring>

#include "ir/plan_check.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr uintptr_t kAlignmentBytes = 4;

// Copies rows [begin, end) of the transpose of `source`, which is [columns, rows] of `Element`.
template <typename Element>
void Transpose(absl::Span<const uint8_t> source, int64_t rows, int64_t columns, int64_t begin,
               int64_t end, uint8_t* target) {
  // Square tiles: either side alone would touch a new cache line for every element.
  constexpr int64_t kTile = 32;
  for (int64_t row0 = begin; row0 < end; row0 += kTile) {
    const int64_t row1 = std::min(row0 + kTile, end);
    for (int64_t column0 = 0; column0 < columns; column0 += kTile) {
      const int64_t column1 = std::min(column0 + kTile, columns);
      for (int64_t row = row0; row < row1; ++row) {
        for (int64_t column = column0; column < column1; ++column) {
          std::memcpy(target + ((row - begin) * columns + column) * sizeof(Element),
                      source.data() + (column * rows + row) * sizeof(Element), sizeof(Element));
        }
      }
    }
  }
}

// Bytes of one row of a tensor of rank 1 or more.
uint64_t BytesOfRow(const Type& type) {
  return BytesOfTensor(type) / static_cast<uint64_t>(type.extents[0].value());
}

absl::StatusOr<Type> TypeOf(const plan::TensorT& tensor) {
  return TypeOfTensor(tensor.dtype, tensor.extents);
}

}  // namespace

absl::StatusOr<SlotRows> RowsOfSlot(const plan::WeightSlotT& slot,
                                    absl::Span<const std::unique_ptr<plan::TensorT>> tensors,
                                    const TensorReader& reader) {
  SlotRows rows;
  if (slot.parts.size() == 1 && !slot.parts[0]->transposed) {
    const plan::WeightPartT& part = *slot.parts[0];
    QUIRE_ASSIGN_OR_RETURN(const Type type, TypeOf(*tensors[part.tensor]));
    QUIRE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes, reader.Read(part.tensor));
    const uint64_t row_bytes = BytesOfRow(type);
    rows.bytes =
        bytes.subspan(part.row_begin * row_bytes, (part.row_end - part.row_begin) * row_bytes);
    if (reinterpret_cast<uintptr_t>(rows.bytes.data()) % kAlignmentBytes == 0) return rows;
    rows.copied.assign(rows.bytes.begin(), rows.bytes.end());
    rows.bytes = rows.copied;
    return rows;
  }
  QUIRE_ASSIGN_OR_RETURN(const Type type, TypeOfTensor(slot.dtype, slot.extents));
  rows.copied.resize(BytesOfTensor(type));
  uint8_t* target = rows.copied.data();
  const uint64_t row_bytes = BytesOfRow(type);
  for (const auto& part : slot.parts) {
    QUIRE_ASSIGN_OR_RETURN(const Type source, TypeOf(*tensors[part->tensor]));
    QUIRE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes, reader.Read(part->tensor));
    const uint64_t part_bytes = (part->row_end - part->row_begin) * row_bytes;
    if (!part->transposed) {
      std::memcpy(target, bytes.data() + part->row_begin * row_bytes, part_bytes);
    } else {
      const auto transpose =
          InfoOf(source.dtype).block_bytes == 2 ? Transpose<uint16_t> : Transpose<uint32_t>;
      transpose(bytes, source.extents[1].value(), source.extents[0].value(), part->row_begin,
                part->row_end, target);
    }
    target += part_bytes;
  }
  rows.bytes = rows.copied;
  return rows;
}

absl::StatusOr<SlotPieces> PiecesOfSlot(const plan::WeightSlotT& slot,
                                        absl::Span<const std::unique_ptr<plan::TensorT>> tensors,
                                        const TensorReader& reader) {
  SlotPieces pieces;
  const bool is_copied = std::any_of(slot.parts.begin(), slot.parts.end(),
                                     [](const auto& part) { return part->transposed; });
  if (is_copied) {
    QUIRE_ASSIGN_OR_RETURN(pieces.copied, RowsOfSlot(slot, tensors, reader));
    pieces.pieces.push_back(pieces.copied.bytes);
    return pieces;
  }
  for (const auto& part : slot.parts) {
    QUIRE_ASSIGN_OR_RETURN(const Type type, TypeOf(*tensors[part->tensor]));
    QUIRE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes, reader.Read(part->tensor));
    const uint64_t row_bytes = BytesOfRow(type);
    pieces.pieces.push_back(
        bytes.subspan(part->row_begin * row_bytes, (part->row_end - part->row_begin) * row_bytes));
  }
  return pieces;
}

}  // namespace quire
