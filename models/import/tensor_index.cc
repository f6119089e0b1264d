#include "models/import/tensor_index.h"

#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace quire {

std::optional<uint64_t> CheckedMultiply(uint64_t a, uint64_t b) {
  if (b != 0 && a > std::numeric_limits<uint64_t>::max() / b) return std::nullopt;
  return a * b;
}

std::optional<uint64_t> ElementCount(absl::Span<const int64_t> extents) {
  uint64_t count = 1;
  for (const int64_t extent : extents) {
    const std::optional<uint64_t> product = CheckedMultiply(count, static_cast<uint64_t>(extent));
    if (!product.has_value()) return std::nullopt;
    count = *product;
  }
  return count;
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 120;
  if (text.size() <= kLongest) return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
  // Cut before a UTF-8 continuation byte, so that the message stays text.
  size_t cut = kLongest;
  while (cut > 0 && (static_cast<uint8_t>(text[cut]) & 0xc0u) == 0x80u) --cut;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, cut)), "...\"");
}

std::string ExtentsText(absl::Span<const int64_t> extents) {
  constexpr size_t kLongest = 16;
  if (extents.size() <= kLongest) return absl::StrCat("[", absl::StrJoin(extents, ", "), "]");
  return absl::StrCat("[", absl::StrJoin(extents.subspan(0, kLongest), ", "), ", ...]");
}

}  // namespace quire
