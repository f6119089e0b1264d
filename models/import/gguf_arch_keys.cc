#include "models/import/gguf_arch_keys.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 40;

// Where the numbers came from and whether a model was trained at its stretched length: no part of
// the function.
constexpr absl::string_view kHarmless[] = {"rope.scaling.finetuned", "tensor_data_layout"};

bool IsOff(const GgufValue& value) {
  if (value.type == GgufType::kArray || value.type == GgufType::kString) return false;
  return value.floats.empty() ? value.integers[0] == 0 : value.floats[0] == 0;
}

}  // namespace

template <typename T>
T GgufArchKeys::Take(absl::StatusOr<T> value, T fallback) {
  if (value.ok()) return *std::move(value);
  Fail(value.status());
  return fallback;
}

void GgufArchKeys::Fail(const absl::Status& error) {
  if (status_.ok()) status_ = error;
}

void GgufArchKeys::Unsupported(absl::string_view key, absl::string_view problem,
                               absl::string_view allowed) {
  const absl::Status refused = metadata_.Refuse(Full(key), problem, allowed);
  Fail(absl::UnimplementedError(refused.message()));
}

int64_t GgufArchKeys::Size(absl::string_view key) {
  read_.insert(Full(key));
  const int64_t size = Take(metadata_.GetInt(Full(key)), int64_t{1});
  if (size >= 1 && size <= kMaxSize) return size;
  Fail(metadata_.Refuse(Full(key), "is out of range", absl::StrCat("1..", kMaxSize)));
  return 1;
}

int64_t GgufArchKeys::SizeOr(absl::string_view key, int64_t fallback) {
  return Has(key) ? Size(key) : fallback;
}

int64_t GgufArchKeys::SizeOrNone(absl::string_view key) {
  const GgufValue* value = metadata_.Find(Full(key));
  if (value == nullptr || IsOff(*value)) return 0;
  return Size(key);
}

double GgufArchKeys::Number(absl::string_view key) {
  read_.insert(Full(key));
  const double number = Take(metadata_.GetFloat(Full(key)), 1.0);
  if (std::isfinite(number)) return number;
  Fail(metadata_.Refuse(Full(key), "is out of range", "a finite number"));
  return 1;
}

double GgufArchKeys::NumberOr(absl::string_view key, double fallback) {
  return Has(key) ? Number(key) : fallback;
}

std::string GgufArchKeys::TextOr(absl::string_view key, absl::string_view fallback) {
  read_.insert(Full(key));
  return Take(metadata_.GetStringOr(Full(key), fallback), std::string(fallback));
}

void GgufArchKeys::OnlySize(absl::string_view key, int64_t supported) {
  if (SizeOr(key, supported) == supported) return;
  Unsupported(key, "is not supported", absl::StrCat(supported));
}

void GgufArchKeys::OnlyNumber(absl::string_view key, double supported) {
  if (NumberOr(key, supported) == supported) return;
  Unsupported(key, "is not supported", absl::StrCat(supported));
}

void GgufArchKeys::OnlyBool(absl::string_view key, bool supported) {
  read_.insert(Full(key));
  if (Take(metadata_.GetBoolOr(Full(key), supported), supported) == supported) return;
  Unsupported(key, "is not supported", supported ? "true" : "false");
}

absl::Status GgufArchKeys::Finish(absl::Span<const std::string> allowed) const {
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : metadata_.entries()) {
    if (!absl::StartsWith(key, prefix_) || read_.count(key) != 0 || IsOff(value)) continue;
    const absl::string_view suffix = absl::string_view(key).substr(prefix_.size());
    if (std::find(std::begin(kHarmless), std::end(kHarmless), suffix) != std::end(kHarmless)) {
      continue;
    }
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    return WithLine(WithLine(absl::UnimplementedError(
                                 absl::StrCat(key, "=", GgufValueText(value),
                                              " is not known; it may change the mathematics")),
                             "from", metadata_.file()),
                    "fix", absl::StrCat("if it does not, pass --allow-config-key=", key));
  }
  return absl::OkStatus();
}

}  // namespace quire
