#include "codegen/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ir/floats.h"
#include "ir/plan_check.h"
#include "ir/status.h"
#include "ir/weight_scales.h"

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

// Bytes of one row of a tensor; one number is a row.
uint64_t BytesOfRow(const Type& type) {
  if (type.rank() == 0) return BytesOfTensor(type);
  return BytesOfTensor(type) / static_cast<uint64_t>(type.extents[0].value());
}

absl::StatusOr<Type> TypeOf(const plan::TensorT& tensor) {
  return TypeOfTensor(tensor.dtype, tensor.extents);
}

bool IsCopied(const plan::WeightPartT& part,
              absl::Span<const std::unique_ptr<plan::TensorT>> tensors) {
  return part.transposed || tensors[part.tensor]->scale >= 0;
}

// The scales of a tensor as f32.
absl::StatusOr<std::vector<float>> ReadScales(const plan::TensorT& scales,
                                              absl::Span<const uint8_t> bytes) {
  const DType dtype = *ParseDType(scales.dtype);
  std::vector<float> values(bytes.size() / static_cast<size_t>(InfoOf(dtype).block_bytes));
  ReadFloats(dtype, bytes.data(), absl::MakeSpan(values));
  for (size_t i = 0; i < values.size(); ++i) {
    // Kernels multiply by 2^120 times it.
    if (!(std::fabs(values[i]) < 256)) {
      return absl::DataLossError(absl::StrCat("tensor ", scales.name, ": scale ", i, " is ",
                                              values[i], "\n  allowed: below 256"));
    }
  }
  return values;
}

// Rows of f8e4m3_128 from `bytes`, f8e4m3 of a tensor whose scales are apart.
absl::Status JoinScales(const plan::WeightPartT& part, absl::Span<const uint8_t> bytes,
                        absl::Span<const std::unique_ptr<plan::TensorT>> tensors,
                        const TensorReader& reader, uint8_t* target) {
  const plan::TensorT& tensor = *tensors[part.tensor];
  const auto index = static_cast<uint32_t>(tensor.scale);
  QUIRE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> scale_bytes, reader.Read(index));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<float> scales, ReadScales(*tensors[index], scale_bytes));
  const int64_t columns = tensor.extents[1];
  const std::optional<WeightScales> shape =
      WeightScalesOf(tensors[index]->extents, tensor.extents[0], columns);
  const uint8_t* from = bytes.data() + part.row_begin * columns;
  for (int64_t row = part.row_begin; row < part.row_end; ++row) {
    for (int64_t block = 0; block < columns / kScaleBlock; ++block) {
      std::memcpy(target, &scales[static_cast<size_t>(shape->IndexOf(row, block))], 4);
      std::memcpy(target + 4, from, kScaleBlock);
      target += 4 + kScaleBlock;
      from += kScaleBlock;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SlotRows> RowsOfSlot(const plan::WeightSlotT& slot,
                                    absl::Span<const std::unique_ptr<plan::TensorT>> tensors,
                                    const TensorReader& reader) {
  SlotRows rows;
  if (slot.parts.size() == 1 && !IsCopied(*slot.parts[0], tensors)) {
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
    if (tensors[part->tensor]->scale >= 0) {
      QUIRE_RETURN_IF_ERROR(JoinScales(*part, bytes, tensors, reader, target));
    } else if (!part->transposed) {
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

absl::StatusOr<SlotRows> RowsOfTensor(uint32_t tensor,
                                      absl::Span<const std::unique_ptr<plan::TensorT>> tensors,
                                      const TensorReader& reader) {
  plan::WeightSlotT slot;
  slot.dtype = tensors[tensor]->dtype;
  slot.extents = tensors[tensor]->extents;
  slot.parts.push_back(std::make_unique<plan::WeightPartT>());
  slot.parts[0]->tensor = tensor;
  slot.parts[0]->row_end = slot.extents.empty() ? 1 : slot.extents[0];  // one number is a row
  return RowsOfSlot(slot, tensors, reader);
}

absl::StatusOr<SlotPieces> PiecesOfSlot(const plan::WeightSlotT& slot,
                                        absl::Span<const std::unique_ptr<plan::TensorT>> tensors,
                                        const TensorReader& reader) {
  SlotPieces pieces;
  const bool is_copied = std::any_of(slot.parts.begin(), slot.parts.end(),
                                     [&](const auto& part) { return IsCopied(*part, tensors); });
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
