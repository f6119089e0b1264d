#include "ir/type.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"

namespace quire {

std::string Extent::ToString() const {
  return is_letter() ? std::string(1, letter_) : absl::StrCat(value_);
}

std::string Type::ToString() const {
  return absl::StrCat(
      DTypeText(dtype), "[",
      absl::StrJoin(extents, ",",
                    [](std::string* out, const Extent& extent) { out->append(extent.ToString()); }),
      "]");
}

absl::StatusOr<int64_t> Product(absl::Span<const int64_t> extents) {
  int64_t product = 1;
  for (int64_t extent : extents) {
    if (extent < 0) {
      return absl::InvalidArgumentError(absl::StrCat("extent ", extent, " is negative"));
    }
    if (__builtin_mul_overflow(product, extent, &product)) {
      return absl::InvalidArgumentError(
          absl::StrCat("extents [", absl::StrJoin(extents, ","), "] overflow 64 bits"));
    }
  }
  return product;
}

absl::StatusOr<int64_t> Product(absl::Span<const Extent> extents, const Bindings& bindings) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<int64_t> bound, Bind(extents, bindings));
  return Product(bound);
}

absl::StatusOr<SymbolicCount> CountOf(absl::Span<const Extent> extents) {
  SymbolicCount count;
  std::vector<int64_t> constants;
  for (const Extent& extent : extents) {
    if (extent.is_letter()) {
      count.letters.push_back(extent.letter());
    } else {
      constants.push_back(extent.value());
    }
  }
  std::sort(count.letters.begin(), count.letters.end());
  QUIRE_ASSIGN_OR_RETURN(count.constant, Product(constants));
  return count;
}

absl::StatusOr<std::vector<int64_t>> Bind(absl::Span<const Extent> extents,
                                          const Bindings& bindings) {
  std::vector<int64_t> bound;
  bound.reserve(extents.size());
  for (const Extent& extent : extents) {
    if (!extent.is_letter()) {
      bound.push_back(extent.value());
      continue;
    }
    auto it = bindings.find(extent.letter());
    if (it == bindings.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("extent ", extent.ToString(), " is not bound"));
    }
    bound.push_back(it->second);
  }
  return bound;
}

}  // namespace quire
