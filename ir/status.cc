#include "ir/status.h"

#include <algorithm>
#include <vector>

namespace quire {

absl::Status WithLine(const absl::Status& status, absl::string_view label, absl::string_view text) {
  if (status.ok()) return status;
  std::string message(status.message());
  // What to do stands behind where the value was read and what is allowed.
  const size_t fix =
      label == "from" || label == "allowed" ? message.rfind("\n  fix: ") : message.npos;
  message.insert(std::min(fix, message.size()), absl::StrCat("\n  ", label, ": ", text));
  return absl::Status(status.code(), message);
}

absl::Status WithPrefix(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace quire
