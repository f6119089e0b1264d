// JSON files, read strictly.
//
// nlohmann::json alone keeps the last of two equal keys, says nothing about where a file is wrong,
// and recurses when it copies or prints a value. So a text is first walked for position, depth and
// duplicate keys, then built.
//
// Errors:  DATA_LOSS, "file:line:column: what is wrong".
#ifndef QUIRE_MODELS_IMPORT_JSON_H_
#define QUIRE_MODELS_IMPORT_JSON_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace quire {

// The deepest nesting that is accepted; real files need six levels.
inline constexpr int kMaxJsonDepth = 64;

// Parses a text whose root must be an object without duplicate keys at any level. `file` is for
// messages.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text, absl::string_view file);

// The same for a file on disk; messages carry its path.
absl::StatusOr<nlohmann::json> ReadJsonObject(absl::string_view path);

// An error about what a file says, INVALID_ARGUMENT, with what to do about it unless it says so. Of
// others the file is not to blame.
absl::Status WithFileFix(const absl::Status& status);

// A value fit for a message: as written, but for long strings, arrays and objects, which are cut:
// [1, 2, 3, ... (128 in all)].
std::string JsonValueText(const nlohmann::json& value);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_JSON_H_
