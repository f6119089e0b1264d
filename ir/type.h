// Types of values: an element type and extents, each an integer or one of the letters that a run
// binds.
//
//   bf16[T,32,128]
//
// Letters: T tokens this step, C context tokens of a sequence, S encoder tokens, R rows whose
// logits are wanted.
#ifndef QUIRE_IR_TYPE_H_
#define QUIRE_IR_TYPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/dtype.h"

namespace quire {

class Extent {
 public:
  Extent(int64_t value) : value_(value) {}  // NOLINT: an integer is an extent
  static Extent Letter(char letter) {
    Extent extent(0);
    extent.letter_ = letter;
    return extent;
  }

  bool is_letter() const { return letter_ != 0; }
  char letter() const { return letter_; }
  // REQUIRES: !is_letter().
  int64_t value() const { return value_; }
  std::string ToString() const;

  friend bool operator==(const Extent& a, const Extent& b) {
    return a.letter_ == b.letter_ && a.value_ == b.value_;
  }
  friend bool operator!=(const Extent& a, const Extent& b) { return !(a == b); }

 private:
  int64_t value_;
  char letter_ = 0;
};

using Extents = std::vector<Extent>;

// Letters that a function may use, in the order in which they are printed in tables.
inline constexpr absl::string_view kExtentLetters = "TCSR";

// What a run binds the letters to.
using Bindings = absl::flat_hash_map<char, int64_t>;

struct Type {
  DType dtype = DType::kF32;
  Extents extents;

  int rank() const { return static_cast<int>(extents.size()); }
  // "f32[T,4096]"; a scalar is "f32[]".
  std::string ToString() const;

  friend bool operator==(const Type& a, const Type& b) {
    return a.dtype == b.dtype && a.extents == b.extents;
  }
  friend bool operator!=(const Type& a, const Type& b) { return !(a == b); }
};

// Product of extents, the one place where extents are multiplied. INVALID_ARGUMENT on a negative
// extent, on an unbound letter and on overflow of int64.
absl::StatusOr<int64_t> Product(absl::Span<const int64_t> extents);
absl::StatusOr<int64_t> Product(absl::Span<const Extent> extents, const Bindings& bindings = {});

// An element count with its letters factored out: count * T^t * C^c ...; used to compare symbolic
// shapes.
struct SymbolicCount {
  int64_t constant = 1;
  std::string letters;  // sorted, one char for each factor
  friend bool operator==(const SymbolicCount& a, const SymbolicCount& b) {
    return a.constant == b.constant && a.letters == b.letters;
  }
};
absl::StatusOr<SymbolicCount> CountOf(absl::Span<const Extent> extents);

// Extents with every letter replaced by its binding; INVALID_ARGUMENT on an unbound letter.
absl::StatusOr<std::vector<int64_t>> Bind(absl::Span<const Extent> extents,
                                          const Bindings& bindings);

}  // namespace quire

#endif  // QUIRE_IR_TYPE_H_
