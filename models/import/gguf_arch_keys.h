// Reads the keys of one GGUF architecture, "llama.block_count" as "block_count".
//
// Like ir/builder.h it keeps the first error, so that a family is a list of what it reads, with one
// look at Finish() at its end. Finish() also refuses the keys that nobody read, since they may
// change the mathematics.
//
// Errors:  those of gguf_metadata.h; INVALID_ARGUMENT for a number out of range; UNIMPLEMENTED for
// a value that is
//          valid and not supported.
#ifndef QUIRE_MODELS_IMPORT_GGUF_ARCH_KEYS_H_
#define QUIRE_MODELS_IMPORT_GGUF_ARCH_KEYS_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "models/import/gguf_metadata.h"

namespace quire {

class GgufArchKeys {
 public:
  GgufArchKeys(const GgufMetadata& metadata, absl::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  bool Has(absl::string_view key) const { return metadata_.Has(Full(key)); }

  // A size, 1..2^40.
  int64_t Size(absl::string_view key);
  int64_t SizeOr(absl::string_view key, int64_t fallback);
  // A size, or 0 for none.
  int64_t SizeOrNone(absl::string_view key);
  // A finite number.
  double Number(absl::string_view key);
  double NumberOr(absl::string_view key, double fallback);
  std::string TextOr(absl::string_view key, absl::string_view fallback);

  // Keys that may only hold what is the case anyway.
  void OnlySize(absl::string_view key, int64_t supported);
  void OnlyNumber(absl::string_view key, double supported);
  void OnlyBool(absl::string_view key, bool supported);

  // Keeps "<key>=<value> <problem>" unless there is an error already.
  void Unsupported(absl::string_view key, absl::string_view problem, absl::string_view allowed);
  void Fail(const absl::Status& error);

  // The first error; else UNIMPLEMENTED if a key of the architecture was not read and is not off.
  // In these files the number 0 and false stand for what is absent.
  // `allowed`: keys that need not be known.
  absl::Status Finish(absl::Span<const std::string> allowed) const;

 private:
  std::string Full(absl::string_view key) const { return prefix_ + std::string(key); }
  template <typename T>
  T Take(absl::StatusOr<T> value, T fallback);

  const GgufMetadata& metadata_;
  std::string prefix_;
  std::set<std::string> read_;  // full keys
  absl::Status status_;
};

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_GGUF_ARCH_KEYS_H_
