// Scales of an f8e4m3 matrix [rows, columns] that a checkpoint has beside it: one for the matrix,
// one a row, or one for each 128 rows and 128 columns.
#ifndef QUIRE_IR_WEIGHT_SCALES_H_
#define QUIRE_IR_WEIGHT_SCALES_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"

namespace quire {

inline constexpr int64_t kScaleBlock = 128;

struct WeightScales {
  int64_t rows;        // that share a scale
  int64_t row_scales;  // scales of each such: 1, or one for each 128 columns

  // Of a row's elements from kScaleBlock * block on.
  int64_t IndexOf(int64_t row, int64_t block) const {
    return row / rows * row_scales + block % row_scales;
  }
};

// By the extents of the scales; nothing if they are of no such matrix.
inline std::optional<WeightScales> WeightScalesOf(absl::Span<const int64_t> extents, int64_t rows,
                                                  int64_t columns) {
  if (extents.size() > 2 || rows < 1 || columns < 1 || columns % kScaleBlock != 0) {
    return std::nullopt;
  }
  const int64_t first = extents.empty() ? 1 : extents[0];
  const int64_t second = extents.size() < 2 ? 1 : extents[1];
  if (first == 1 && second == 1) return WeightScales{rows, 1};
  if (first == rows && second == 1) return WeightScales{1, 1};
  if (first == (rows - 1) / kScaleBlock + 1 && second == columns / kScaleBlock) {
    return WeightScales{kScaleBlock, second};
  }
  return std::nullopt;
}

}  // namespace quire

#endif  // QUIRE_IR_WEIGHT_SCALES_H_
