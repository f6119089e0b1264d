// Reads a family's configuration keys with ranges and aliases. Like ir/builder.h it keeps the first
// error, so that a family's file is a list of what it reads, with one look at status() at its end.
//
// Errors:  INVALID_ARGUMENT for a value of the wrong type or out of range, and for aliases that
// differ;
//          UNIMPLEMENTED for a value that is valid but not supported. Null is INVALID_ARGUMENT
//          where transformers does not take it for an absent key.
#ifndef QUIRE_MODELS_KEY_READER_H_
#define QUIRE_MODELS_KEY_READER_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/config.h"
#include "models/import/config_reader.h"

namespace quire {

class KeyReader {
 public:
  explicit KeyReader(const ConfigReader& config) : config_(config) {}

  const absl::Status& status() const { return status_; }
  // Keeps the error unless there is one already.
  void Fail(const absl::Status& error);
  bool Has(absl::string_view key) const { return config_.Has(key); }
  const ConfigReader& config() const { return config_; }

  // A size, 1..limit, under the first of `keys` that is present; those present must agree.
  Dimension Dim(std::initializer_list<absl::string_view> keys, int64_t limit);
  // The same for one key, or `fallback` where it is absent.
  Dimension DimOr(absl::string_view key, int64_t limit, const Dimension& fallback);
  double Float(absl::string_view key, double fallback, double low, double high);
  // A number that must be there.
  double Float(absl::string_view key, double low, double high);
  bool Bool(absl::string_view key, bool fallback);
  std::string Text(absl::string_view key, absl::string_view fallback);
  std::vector<std::string> Texts(absl::string_view key);
  // Integers that must be there, each low..high.
  std::vector<int64_t> Ints(absl::string_view key, int64_t low, int64_t high);
  ActivationConfig ReadActivation(absl::string_view key, absl::string_view fallback);
  // Of that name, which is a part of the key's value.
  ActivationConfig ActivationOf(absl::string_view key, absl::string_view name);

  // Keys that are read only to see that they do not ask for what is not supported.
  void Only(absl::string_view key, bool supported);
  void OnlyNumber(absl::string_view key, double supported);

  // Keeps "<key>=<value> <problem>" as UNIMPLEMENTED.
  void Unsupported(absl::string_view key, absl::string_view problem, absl::string_view allowed);
  // The same as INVALID_ARGUMENT.
  void Invalid(absl::string_view key, absl::string_view problem, absl::string_view allowed);

 private:
  // Whether the key has no value and its default holds, which `fallback` names in the message that
  // refuses a null.
  bool IsAbsent(absl::string_view key, absl::string_view fallback);

  template <typename T>
  T Take(absl::StatusOr<T> value, T fallback) {
    if (value.ok()) return *std::move(value);
    Fail(value.status());
    return fallback;
  }

  ConfigReader config_;
  absl::Status status_;
};

}  // namespace quire

#endif  // QUIRE_MODELS_KEY_READER_H_
