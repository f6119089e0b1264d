// The keys of a configuration that no family reads: known to be harmless, or refused.
#ifndef QUIRE_MODELS_CONFIG_KEYS_H_
#define QUIRE_MODELS_CONFIG_KEYS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "models/import/config_reader.h"
#include "nlohmann/json.hpp"

namespace quire {

// Call when a family has read everything it knows. OK if each unread key is null, does not change
// the logits whatever its value, holds the one value that changes nothing, or is among `allowed`.
//
// Errors: UNIMPLEMENTED naming the key and its value.
absl::Status RefuseUnknownKeys(const ConfigReader& config, const nlohmann::json& json,
                               absl::Span<const std::string> allowed);

}  // namespace quire

#endif  // QUIRE_MODELS_CONFIG_KEYS_H_
