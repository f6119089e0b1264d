#include "models/import/gguf_metadata.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "models/import/tensor_index.h"

namespace quire {
namespace {

bool IsInteger(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kU16:
    case GgufType::kI16:
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kU64:
    case GgufType::kI64:
      return true;
    default:
      return false;
  }
}

bool IsFloating(GgufType type) { return type == GgufType::kF32 || type == GgufType::kF64; }

size_t ElementCountOf(const GgufValue& value) {
  return std::max(
      {value.integers.size(), value.floats.size(), value.strings.size(), value.arrays.size()});
}

}  // namespace

absl::string_view GgufTypeText(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "u8";
    case GgufType::kI8:
      return "i8";
    case GgufType::kU16:
      return "u16";
    case GgufType::kI16:
      return "i16";
    case GgufType::kU32:
      return "u32";
    case GgufType::kI32:
      return "i32";
    case GgufType::kF32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "u64";
    case GgufType::kI64:
      return "i64";
    case GgufType::kF64:
      return "f64";
  }
  return "?";
}

int GgufTypeBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

namespace {

// "[1, 2, 3]", or the first few of them; arrays in it are only counted.
std::string ArrayText(const GgufValue& array) {
  constexpr size_t kShown = 8;
  const size_t count = ElementCountOf(array);
  const size_t shown = array.element == GgufType::kArray ? 0 : std::min(count, kShown);
  std::vector<std::string> elements;
  for (size_t i = 0; i < shown; ++i) {
    GgufValue one;
    one.type = one.element = array.element;
    if (!array.integers.empty()) one.integers = {array.integers[i]};
    if (!array.floats.empty()) one.floats = {array.floats[i]};
    if (!array.strings.empty()) one.strings = {array.strings[i]};
    elements.push_back(GgufValueText(one));
  }
  if (shown < count) elements.push_back(absl::StrCat("... (", count, " in all)"));
  return absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
}

}  // namespace

std::string GgufValueText(const GgufValue& value) {
  if (value.type == GgufType::kArray) return ArrayText(value);
  if (value.type == GgufType::kString) return Quoted(value.strings[0]);
  if (IsFloating(value.type)) return absl::StrCat(value.floats[0]);
  if (value.type == GgufType::kBool) return value.integers[0] != 0 ? "true" : "false";
  if (value.type == GgufType::kU64) return absl::StrCat(static_cast<uint64_t>(value.integers[0]));
  return absl::StrCat(value.integers[0]);
}

bool GgufMetadata::Add(std::string key, GgufValue value) {
  if (!index_.emplace(key, entries_.size()).second) return false;
  entries_.emplace_back(std::move(key), std::move(value));
  return true;
}

const GgufValue* GgufMetadata::Find(absl::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

absl::StatusOr<const GgufValue*> GgufMetadata::Require(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value != nullptr) return value;
  return WithLine(absl::InvalidArgumentError(absl::StrCat(key, ": the key is missing")), "from",
                  file_);
}

absl::Status GgufMetadata::Refuse(absl::string_view key, absl::string_view problem,
                                  absl::string_view allowed) const {
  const GgufValue* value = Find(key);
  return WithLine(
      WithLine(absl::InvalidArgumentError(absl::StrCat(
                   key, "=", value == nullptr ? "nothing" : GgufValueText(*value), " ", problem)),
               "from", file_),
      "allowed", allowed);
}

absl::Status GgufMetadata::RefuseType(absl::string_view key, absl::string_view wanted) const {
  const GgufValue* value = Find(key);
  if (value->type == GgufType::kArray) {
    return Refuse(key, absl::StrCat("is of type array of ", GgufTypeText(value->element)), wanted);
  }
  return Refuse(key, absl::StrCat("is of type ", GgufTypeText(value->type)), wanted);
}

absl::StatusOr<int64_t> GgufMetadata::GetInt(absl::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (!IsInteger(value->type)) return RefuseType(key, "an integer");
  if (value->type == GgufType::kU64 && value->integers[0] < 0) {
    return Refuse(key, "does not fit", "an integer below 2^63");
  }
  return value->integers[0];
}

absl::StatusOr<double> GgufMetadata::GetFloat(absl::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (!IsFloating(value->type)) return RefuseType(key, "f32 or f64");
  return value->floats[0];
}

absl::StatusOr<bool> GgufMetadata::GetBool(absl::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufType::kBool) return RefuseType(key, "bool");
  return value->integers[0] != 0;
}

absl::StatusOr<std::string> GgufMetadata::GetString(absl::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufType::kString) return RefuseType(key, "string");
  return value->strings[0];
}

absl::StatusOr<absl::Span<const int64_t>> GgufMetadata::GetInts(absl::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufType::kArray || !IsInteger(value->element)) {
    return RefuseType(key, "an array of integers");
  }
  if (value->element == GgufType::kU64 &&
      std::any_of(value->integers.begin(), value->integers.end(),
                  [](int64_t i) { return i < 0; })) {
    return Refuse(key, "holds a number that does not fit", "integers below 2^63");
  }
  return absl::MakeConstSpan(value->integers);
}

absl::StatusOr<absl::Span<const double>> GgufMetadata::GetFloats(absl::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufType::kArray || !IsFloating(value->element)) {
    return RefuseType(key, "an array of f32 or f64");
  }
  return absl::MakeConstSpan(value->floats);
}

absl::StatusOr<absl::Span<const std::string>> GgufMetadata::GetStrings(
    absl::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufType::kArray || value->element != GgufType::kString) {
    return RefuseType(key, "an array of strings");
  }
  return absl::MakeConstSpan(value->strings);
}

absl::StatusOr<int64_t> GgufMetadata::GetIntOr(absl::string_view key, int64_t fallback) const {
  return Has(key) ? GetInt(key) : fallback;
}
absl::StatusOr<double> GgufMetadata::GetFloatOr(absl::string_view key, double fallback) const {
  return Has(key) ? GetFloat(key) : fallback;
}
absl::StatusOr<bool> GgufMetadata::GetBoolOr(absl::string_view key, bool fallback) const {
  return Has(key) ? GetBool(key) : fallback;
}
absl::StatusOr<std::string> GgufMetadata::GetStringOr(absl::string_view key,
                                                      absl::string_view fallback) const {
  if (!Has(key)) return std::string(fallback);
  return GetString(key);
}

}  // namespace quire
