#include "models/import/config_reader.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "models/import/json.h"

namespace quire {
namespace {

using nlohmann::json;

std::optional<int64_t> AsInt(const json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = *value.get_ptr<const uint64_t*>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return *value.get_ptr<const int64_t*>();
  return std::nullopt;
}

std::optional<double> AsFloat(const json& value) {
  if (value.is_number_unsigned()) {
    return static_cast<double>(*value.get_ptr<const uint64_t*>());
  }
  if (value.is_number_integer()) return static_cast<double>(*value.get_ptr<const int64_t*>());
  if (value.is_number_float()) return *value.get_ptr<const double*>();
  return std::nullopt;
}

std::optional<bool> AsBool(const json& value) {
  if (!value.is_boolean()) return std::nullopt;
  return *value.get_ptr<const bool*>();
}

std::optional<std::string> AsString(const json& value) {
  if (!value.is_string()) return std::nullopt;
  return *value.get_ptr<const std::string*>();
}

absl::string_view TypeText(const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "an array";
    case json::value_t::string:
      return "a string";
    case json::value_t::boolean:
      return "a boolean";
    case json::value_t::null:
      return "null";
    default:
      return value.is_number_float() ? "a fraction" : "an integer";
  }
}

}  // namespace

ConfigReader::ConfigReader(const json& object, absl::string_view file)
    : object_(&object), file_(file), read_(std::make_shared<std::set<std::string>>()) {}

std::string ConfigReader::FullKey(absl::string_view key) const {
  return absl::StrCat(prefix_, key);
}

bool ConfigReader::Has(absl::string_view key) const {
  if (!object_->is_object()) return false;
  const auto found = object_->find(std::string(key));
  return found != object_->end() && !found->is_null();
}

bool ConfigReader::IsNull(absl::string_view key) const {
  return object_->is_object() && object_->contains(std::string(key)) && !Has(key);
}

const json* ConfigReader::Find(absl::string_view key) const {
  read_->insert(FullKey(key));
  return Has(key) ? &*object_->find(std::string(key)) : nullptr;
}

absl::StatusOr<const json*> ConfigReader::Require(absl::string_view key) const {
  const json* value = Find(key);
  if (value != nullptr) return value;
  std::vector<std::string> keys;
  if (object_->is_object()) {
    for (const auto& item : object_->items()) keys.push_back(item.key());
  }
  const std::string near = Nearest(key, keys);
  const absl::Status missing =
      WithLine(absl::InvalidArgumentError(absl::StrCat(
                   FullKey(key), IsNull(key) ? "=null has no meaning" : ": the key is missing")),
               "from", file_);
  if (near.empty() || near == key) return missing;
  return WithLine(missing, "fix", absl::StrCat("did you mean ", FullKey(near), "?"));
}

absl::Status ConfigReader::Refuse(absl::string_view key, absl::string_view problem,
                                  absl::string_view allowed) const {
  const json* value = Find(key);
  return WithLine(WithLine(absl::InvalidArgumentError(absl::StrCat(
                               FullKey(key), "=", value == nullptr ? "null" : JsonValueText(*value),
                               " ", problem)),
                           "from", file_),
                  "allowed", allowed);
}

template <typename T, typename Convert>
absl::StatusOr<T> ConfigReader::Get(absl::string_view key, absl::string_view wanted,
                                    Convert convert) const {
  QUIRE_ASSIGN_OR_RETURN(const json* value, Require(key));
  std::optional<T> converted = convert(*value);
  if (converted.has_value()) return *std::move(converted);
  return Refuse(key, absl::StrCat("is ", TypeText(*value)), wanted);
}

template <typename T, typename Convert>
absl::StatusOr<std::vector<T>> ConfigReader::GetArray(absl::string_view key,
                                                      absl::string_view wanted,
                                                      Convert convert) const {
  QUIRE_ASSIGN_OR_RETURN(const json* value, Require(key));
  if (!value->is_array()) return Refuse(key, absl::StrCat("is ", TypeText(*value)), wanted);
  std::vector<T> out;
  for (const json& element : *value) {
    std::optional<T> converted = convert(element);
    if (!converted.has_value()) {
      return Refuse(key, absl::StrCat("holds ", JsonValueText(element)), wanted);
    }
    out.push_back(*std::move(converted));
  }
  return out;
}

absl::StatusOr<int64_t> ConfigReader::GetInt(absl::string_view key) const {
  return Get<int64_t>(key, "an integer", AsInt);
}
absl::StatusOr<double> ConfigReader::GetFloat(absl::string_view key) const {
  return Get<double>(key, "a number", AsFloat);
}
absl::StatusOr<bool> ConfigReader::GetBool(absl::string_view key) const {
  return Get<bool>(key, "true or false", AsBool);
}
absl::StatusOr<std::string> ConfigReader::GetString(absl::string_view key) const {
  return Get<std::string>(key, "a string", AsString);
}
absl::StatusOr<std::vector<int64_t>> ConfigReader::GetInts(absl::string_view key) const {
  return GetArray<int64_t>(key, "an array of integers", AsInt);
}
absl::StatusOr<std::vector<double>> ConfigReader::GetFloats(absl::string_view key) const {
  return GetArray<double>(key, "an array of numbers", AsFloat);
}
absl::StatusOr<std::vector<std::string>> ConfigReader::GetStrings(absl::string_view key) const {
  return GetArray<std::string>(key, "an array of strings", AsString);
}

absl::StatusOr<ConfigReader> ConfigReader::GetObject(absl::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const json* value, Require(key));
  if (!value->is_object()) return Refuse(key, absl::StrCat("is ", TypeText(*value)), "an object");
  ConfigReader nested(*this);
  nested.object_ = value;
  nested.prefix_ = absl::StrCat(FullKey(key), ".");
  // The prefix itself marks that the object was opened, so that its keys are reported one by one.
  read_->insert(nested.prefix_);
  return nested;
}

absl::StatusOr<int64_t> ConfigReader::GetIntOr(absl::string_view key, int64_t fallback) const {
  return Find(key) == nullptr ? fallback : GetInt(key);
}
absl::StatusOr<double> ConfigReader::GetFloatOr(absl::string_view key, double fallback) const {
  return Find(key) == nullptr ? fallback : GetFloat(key);
}
absl::StatusOr<bool> ConfigReader::GetBoolOr(absl::string_view key, bool fallback) const {
  return Find(key) == nullptr ? fallback : GetBool(key);
}
absl::StatusOr<std::string> ConfigReader::GetStringOr(absl::string_view key,
                                                      absl::string_view fallback) const {
  if (Find(key) == nullptr) return std::string(fallback);
  return GetString(key);
}

void ConfigReader::Ignore(absl::Span<const absl::string_view> keys) const {
  for (const absl::string_view key : keys) read_->insert(FullKey(key));
}

std::vector<std::string> ConfigReader::UnreadKeys() const {
  std::vector<std::string> unread;
  AppendUnread(*object_, prefix_, unread);
  return unread;
}

void ConfigReader::AppendUnread(const json& object, const std::string& prefix,
                                std::vector<std::string>& unread) const {
  if (!object.is_object()) return;
  for (const auto& item : object.items()) {
    const std::string key = absl::StrCat(prefix, item.key());
    const std::string nested = absl::StrCat(key, ".");
    if (read_->count(nested) != 0) {
      AppendUnread(item.value(), nested, unread);
    } else if (read_->count(key) == 0) {
      unread.push_back(key);
    }
  }
}

}  // namespace quire
