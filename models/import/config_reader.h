// A JSON configuration read key by key, remembering what was read.
//
// A key that nobody read may change the mathematics, so after building a configuration the caller
// asks for UnreadKeys() and refuses what it does not know to be harmless. Null reads as absent;
// whether it may, a caller asks IsNull().
//
//   ConfigReader config(json, "config.json");
//   QUIRE_ASSIGN_OR_RETURN(const int64_t width, config.GetInt("hidden_size"));
//
// Errors:  INVALID_ARGUMENT in the form of ir/status.h, with key, value, wanted type and file:
//            rope_scaling.factor="8" is a string
//              from: config.json
//              allowed: a number
// Owner:   the JSON value is the caller's and must outlive the reader and the readers of its nested
// objects; these
//          share one record of read keys. Not safe for concurrent use.
#ifndef QUIRE_MODELS_IMPORT_CONFIG_READER_H_
#define QUIRE_MODELS_IMPORT_CONFIG_READER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace quire {

class ConfigReader {
 public:
  // `file` is named in errors. A value that is not an object reads as an empty one.
  ConfigReader(const nlohmann::json& object, absl::string_view file);

  // Whether the key is there and not null. Does not count as reading it.
  bool Has(absl::string_view key) const;
  // Whether the key is there, and null.
  bool IsNull(absl::string_view key) const;

  // The key must be there. An integer may be written as 7, not as 7.0; a number as either.
  absl::StatusOr<int64_t> GetInt(absl::string_view key) const;
  absl::StatusOr<double> GetFloat(absl::string_view key) const;
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  absl::StatusOr<std::string> GetString(absl::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetInts(absl::string_view key) const;
  absl::StatusOr<std::vector<double>> GetFloats(absl::string_view key) const;
  absl::StatusOr<std::vector<std::string>> GetStrings(absl::string_view key) const;
  // Its keys read "key.inner" in errors and in UnreadKeys().
  absl::StatusOr<ConfigReader> GetObject(absl::string_view key) const;

  // The same, or `fallback` where the key is absent or null.
  absl::StatusOr<int64_t> GetIntOr(absl::string_view key, int64_t fallback) const;
  absl::StatusOr<double> GetFloatOr(absl::string_view key, double fallback) const;
  absl::StatusOr<bool> GetBoolOr(absl::string_view key, bool fallback) const;
  absl::StatusOr<std::string> GetStringOr(absl::string_view key, absl::string_view fallback) const;

  // Counts keys as read: they are known not to change the mathematics.
  void Ignore(absl::Span<const absl::string_view> keys) const;

  // An error about a key's value, in the form above: "<key>=<value> <problem>", then from and
  // allowed.
  absl::Status Refuse(absl::string_view key, absl::string_view problem,
                      absl::string_view allowed) const;

  // Keys never read, nulls included, in order. A nested object that was opened contributes its own
  // keys.
  std::vector<std::string> UnreadKeys() const;

  const std::string& file() const { return file_; }

 private:
  // Null where the key is absent or null; marks it read.
  const nlohmann::json* Find(absl::string_view key) const;
  absl::StatusOr<const nlohmann::json*> Require(absl::string_view key) const;
  std::string FullKey(absl::string_view key) const;
  void AppendUnread(const nlohmann::json& object, const std::string& prefix,
                    std::vector<std::string>& unread) const;

  template <typename T, typename Convert>
  absl::StatusOr<T> Get(absl::string_view key, absl::string_view wanted, Convert convert) const;
  template <typename T, typename Convert>
  absl::StatusOr<std::vector<T>> GetArray(absl::string_view key, absl::string_view wanted,
                                          Convert convert) const;

  const nlohmann::json* object_;
  std::string file_;
  std::string prefix_;                           // "" or "rope_scaling."
  std::shared_ptr<std::set<std::string>> read_;  // full keys
};

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_CONFIG_READER_H_
