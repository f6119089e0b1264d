// Which keys of generation_config.json change what is generated, and at which values.
#ifndef QUIRE_MODELS_IMPORT_GENERATION_KEYS_H_
#define QUIRE_MODELS_IMPORT_GENERATION_KEYS_H_

#include <string>
#include <vector>

#include "models/import/config_reader.h"
#include "nlohmann/json.hpp"

namespace quire {

// Of the keys of `settings` that were not read, those that change what is generated: a note for
// each, "key=value of FILE is not honoured". With `with_unknown` those that are not known at all,
// too; config.json has many, which are the definition's.
std::vector<std::string> UnhonouredKeys(const ConfigReader& settings, const nlohmann::json& object,
                                        bool with_unknown);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_GENERATION_KEYS_H_
