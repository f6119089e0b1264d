#include "runtime/cpu/cpu_weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/cpu/pack.h"
#include "ir/status.h"
#include "ir/type.h"
#include "runtime/float_weights.h"

namespace quire {
namespace {

struct Shape {
  DType dtype;
  int64_t rows, columns;
};

absl::StatusOr<Shape> ShapeOf(const plan::WeightSlotT& slot) {
  const std::optional<DType> dtype = ParseDType(slot.dtype);
  if (!dtype.has_value() || slot.extents.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("weight ", slot.name, ": ", slot.dtype));
  }
  const int64_t columns = slot.extents.back();
  QUIRE_ASSIGN_OR_RETURN(const int64_t rows, Product(absl::MakeConstSpan(slot.extents.data(),
                                                                         slot.extents.size() - 1)));
  // Also packed and padded to 64 rows, its bytes fit 63 bits.
  int64_t elements;
  if (__builtin_mul_overflow(rows, columns, &elements) || elements > (int64_t{1} << 52)) {
    return absl::ResourceExhaustedError(absl::StrCat("weight ", slot.name, ": too large"));
  }
  if (rows <= 0 || columns <= 0 || columns % InfoOf(*dtype).block_elements != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("weight ", slot.name, ": ", columns, " columns of ", slot.dtype));
  }
  return Shape{*dtype, rows, columns};
}

WeightLayout WantedLayout(const Shape& shape, WeightLayout stated) {
  return IsBlockType(shape.dtype) ? WeightLayout::kRows16 : stated;
}

absl::Status WrongSize(const plan::WeightSlotT& slot, size_t bytes, int64_t expected) {
  return absl::DataLossError(
      absl::StrCat("weight ", slot.name, ": ", bytes, " bytes\n  allowed: ", expected));
}

}  // namespace

absl::StatusOr<int64_t> PackedRoom(const plan::WeightSlotT& slot) {
  QUIRE_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(slot));
  QUIRE_ASSIGN_OR_RETURN(const WeightLayout stated, ParseLayout(slot.layout));
  const WeightLayout wanted = WantedLayout(shape, stated);
  const WeightLayout stored = slot.packed ? stated : WeightLayout::kRows;
  return stored == wanted ? 0 : PackedBytes(wanted, shape.dtype, shape.rows, shape.columns);
}

absl::StatusOr<CpuWeight> LoadCpuWeight(const plan::WeightSlotT& slot, const WeightSource& source,
                                        absl::Span<uint8_t> room) {
  QUIRE_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(slot));
  QUIRE_ASSIGN_OR_RETURN(const WeightLayout stated, ParseLayout(slot.layout));
  QUIRE_ASSIGN_OR_RETURN(SlotBytes bytes, source.Load(slot));
  if (bytes.packed != slot.packed) {
    return absl::InternalError(absl::StrCat("weight ", slot.name, ": not as the plan says"));
  }
  const WeightLayout found = bytes.packed ? stated : WeightLayout::kRows;
  const int64_t expected = PackedBytes(found, shape.dtype, shape.rows, shape.columns);
  if (static_cast<int64_t>(bytes.bytes.size()) != expected) {
    return WrongSize(slot, bytes.bytes.size(), expected);
  }
  if (room.empty()) return CpuWeight{bytes.bytes.data(), std::move(bytes.owner)};
  const int64_t row_bytes = RowBytes(shape.dtype, shape.columns);
  std::vector<const uint8_t*> rows;
  rows.reserve(static_cast<size_t>(shape.rows));
  for (int64_t row = 0; row < shape.rows; ++row) {
    rows.push_back(bytes.bytes.data() + row * row_bytes);
  }
  QUIRE_RETURN_IF_ERROR(Pack(WantedLayout(shape, stated), shape.dtype, shape.columns, rows, room));
  return CpuWeight{room.data(), nullptr};
}

absl::StatusOr<std::vector<float>> LoadBias(const plan::WeightSlotT& slot,
                                            const WeightSource& source) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<float> bias, LoadFloats(slot, source));
  bias.resize((bias.size() + 15) / 16 * 16);
  return bias;
}

}  // namespace quire
