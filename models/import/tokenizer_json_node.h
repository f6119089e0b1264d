// A value inside a JSON file that knows where it is, so that every error can say so.
#ifndef QUIRE_MODELS_IMPORT_TOKENIZER_JSON_NODE_H_
#define QUIRE_MODELS_IMPORT_TOKENIZER_JSON_NODE_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace quire {

class JsonNode {
 public:
  // `path` is "file: key.key[i]"; `value` must outlive the node.
  JsonNode(const nlohmann::json* value, std::string path) : value_(value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // True if the field is there and not null. A node that is not an object has no fields.
  bool Has(absl::string_view key) const;

  // The field, which must be there; its errors name it.
  absl::StatusOr<JsonNode> Field(absl::string_view key) const;

  // The elements of an array.
  absl::StatusOr<std::vector<JsonNode>> Elements() const;

  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> Bool() const;
  absl::StatusOr<uint32_t> Uint() const;
  absl::StatusOr<double> Number() const;

  // The field's value, or `otherwise` where the field is missing or null.
  absl::StatusOr<std::string> StringOr(absl::string_view key, absl::string_view otherwise) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool otherwise) const;
  absl::StatusOr<uint32_t> UintOr(absl::string_view key, uint32_t otherwise) const;

  // Refuses, by name, a field that is none of these.
  absl::Status OnlyFields(std::initializer_list<absl::string_view> allowed) const;

  // "path=value is not supported", with the allowed set.
  absl::Status Unsupported(absl::string_view allowed) const;
  absl::Status Invalid(absl::string_view problem) const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_TOKENIZER_JSON_NODE_H_
