// The key-value part of a GGUF file, with typed access.
//
// Errors:  INVALID_ARGUMENT naming the key, the type found and the type wanted:
//            llama.block_count="x" is a string
//              from: m.gguf
//              allowed: an integer
// Owner:   values own their text; spans that accessors return live as long as the metadata.
#ifndef QUIRE_MODELS_IMPORT_GGUF_METADATA_H_
#define QUIRE_MODELS_IMPORT_GGUF_METADATA_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace quire {

// The numbers are the format's.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u32", "string", ...
absl::string_view GgufTypeText(GgufType type);

// Bytes of one value, or 0 for strings and arrays.
int GgufTypeBytes(GgufType type);

// One value. Integers and booleans are in `integers`, floats in `floats`, strings in `strings`: one
// element for a scalar, all of them for an array, whose element type is `element`. Nested arrays
// are in `arrays`.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of an array; otherwise equal to `type`
  std::vector<int64_t> integers;     // u64 keeps its 64 bits, so above 2^63 it is negative here
  std::vector<double> floats;
  std::vector<std::string> strings;
  std::vector<GgufValue> arrays;
};

class GgufMetadata {
 public:
  explicit GgufMetadata(absl::string_view file = "") : file_(file) {}

  // False, and nothing added, if the key is there already.
  bool Add(std::string key, GgufValue value);

  const GgufValue* Find(absl::string_view key) const;
  bool Has(absl::string_view key) const { return Find(key) != nullptr; }

  // An integer of any width, if its value fits.
  absl::StatusOr<int64_t> GetInt(absl::string_view key) const;
  absl::StatusOr<double> GetFloat(absl::string_view key) const;
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  absl::StatusOr<std::string> GetString(absl::string_view key) const;
  absl::StatusOr<absl::Span<const int64_t>> GetInts(absl::string_view key) const;
  absl::StatusOr<absl::Span<const double>> GetFloats(absl::string_view key) const;
  absl::StatusOr<absl::Span<const std::string>> GetStrings(absl::string_view key) const;

  // The same, or `fallback` where the key is absent.
  absl::StatusOr<int64_t> GetIntOr(absl::string_view key, int64_t fallback) const;
  absl::StatusOr<double> GetFloatOr(absl::string_view key, double fallback) const;
  absl::StatusOr<bool> GetBoolOr(absl::string_view key, bool fallback) const;
  absl::StatusOr<std::string> GetStringOr(absl::string_view key, absl::string_view fallback) const;

  // "<key>=<value> <problem>", then from and allowed.
  absl::Status Refuse(absl::string_view key, absl::string_view problem,
                      absl::string_view allowed) const;

  // In the file's order.
  absl::Span<const std::pair<std::string, GgufValue>> entries() const { return entries_; }
  const std::string& file() const { return file_; }

 private:
  absl::StatusOr<const GgufValue*> Require(absl::string_view key) const;
  absl::Status RefuseType(absl::string_view key, absl::string_view wanted) const;

  std::string file_;
  std::vector<std::pair<std::string, GgufValue>> entries_;
  absl::flat_hash_map<std::string, size_t> index_;
};

// A value fit for a message: a scalar as text, [1, 2, 3, ... (128 in all)].
std::string GgufValueText(const GgufValue& value);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_GGUF_METADATA_H_
