#include "models/import/tokenizer_json_node.h"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr size_t kShownValueBytes = 60;

std::string Shown(const nlohmann::json& value) {
  if (value.is_object()) return "{...}";  // dump() recurses, and depth is the file's choice
  if (value.is_array()) return "[...]";
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kShownValueBytes) text = absl::StrCat(text.substr(0, kShownValueBytes), "...");
  return text;
}

}  // namespace

bool JsonNode::Has(absl::string_view key) const {
  if (!value_->is_object()) return false;
  const auto it = value_->find(std::string(key));
  return it != value_->end() && !it->is_null();
}

absl::StatusOr<JsonNode> JsonNode::Field(absl::string_view key) const {
  if (!value_->is_object()) return Invalid("is not an object");
  const auto it = value_->find(std::string(key));
  const std::string path = absl::StrCat(path_, absl::EndsWith(path_, ": ") ? "" : ".", key);
  if (it == value_->end()) return absl::InvalidArgumentError(absl::StrCat(path, " is missing"));
  return JsonNode(&*it, path);
}

absl::StatusOr<std::vector<JsonNode>> JsonNode::Elements() const {
  if (!value_->is_array()) return Invalid("is not an array");
  std::vector<JsonNode> elements;
  elements.reserve(value_->size());
  for (const nlohmann::json& element : *value_) {
    elements.emplace_back(&element, absl::StrCat(path_, "[", elements.size(), "]"));
  }
  return elements;
}

absl::StatusOr<std::string> JsonNode::String() const {
  const auto* text = value_->get_ptr<const std::string*>();
  if (text == nullptr) return Invalid("is not a string");
  return *text;
}

absl::StatusOr<bool> JsonNode::Bool() const {
  const auto* flag = value_->get_ptr<const bool*>();
  if (flag == nullptr) return Invalid("is not true or false");
  return *flag;
}

absl::StatusOr<uint32_t> JsonNode::Uint() const {
  const auto* number = value_->get_ptr<const uint64_t*>();
  if (number == nullptr || *number > std::numeric_limits<uint32_t>::max()) {
    return Invalid("is not an integer in 0..2^32-1");
  }
  return static_cast<uint32_t>(*number);
}

absl::StatusOr<double> JsonNode::Number() const {
  if (const auto* number = value_->get_ptr<const double*>()) return *number;
  if (const auto* number = value_->get_ptr<const uint64_t*>()) return static_cast<double>(*number);
  if (const auto* number = value_->get_ptr<const int64_t*>()) return static_cast<double>(*number);
  return Invalid("is not a number");
}

absl::StatusOr<std::string> JsonNode::StringOr(absl::string_view key,
                                               absl::string_view otherwise) const {
  if (!Has(key)) return std::string(otherwise);
  QUIRE_ASSIGN_OR_RETURN(const JsonNode field, Field(key));
  return field.String();
}

absl::StatusOr<bool> JsonNode::BoolOr(absl::string_view key, bool otherwise) const {
  if (!Has(key)) return otherwise;
  QUIRE_ASSIGN_OR_RETURN(const JsonNode field, Field(key));
  return field.Bool();
}

absl::StatusOr<uint32_t> JsonNode::UintOr(absl::string_view key, uint32_t otherwise) const {
  if (!Has(key)) return otherwise;
  QUIRE_ASSIGN_OR_RETURN(const JsonNode field, Field(key));
  return field.Uint();
}

absl::Status JsonNode::OnlyFields(std::initializer_list<absl::string_view> allowed) const {
  if (!value_->is_object()) return Invalid("is not an object");
  for (auto it = value_->begin(); it != value_->end(); ++it) {
    if (std::find(allowed.begin(), allowed.end(), absl::string_view(it.key())) != allowed.end())
      continue;
    QUIRE_ASSIGN_OR_RETURN(const JsonNode field, Field(it.key()));
    return WithLine(absl::UnimplementedError(absl::StrCat(field.path(), "=", Shown(*it),
                                                          " is not a field that Quire knows")),
                    "allowed", absl::StrJoin(allowed, ", "));
  }
  return absl::OkStatus();
}

absl::Status JsonNode::Unsupported(absl::string_view allowed) const {
  return WithLine(
      absl::UnimplementedError(absl::StrCat(path_, "=", Shown(*value_), " is not supported")),
      "allowed", allowed);
}

absl::Status JsonNode::Invalid(absl::string_view problem) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, "=", Shown(*value_), " ", problem));
}

}  // namespace quire
