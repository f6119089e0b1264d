// Rotary parameters of a configuration, in both spellings that transformers has had:
//
//   rope_theta, rope_scaling {type or rope_type, factor, ...}      up to 4.x
//   rope_parameters {rope_type, rope_theta, factor, ...}           from 5.0
//
// Errors: as in models/key_reader.h; a rope type that is not supported is UNIMPLEMENTED.
// Source: the parameter rules are those of transformers 5.24 (modeling_rope_utils.py).
#ifndef QUIRE_MODELS_ROPE_CONFIG_H_
#define QUIRE_MODELS_ROPE_CONFIG_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "models/config.h"
#include "models/key_reader.h"

namespace quire {

// The one rope of a model, from either spelling.
RopeConfig ReadRope(KeyReader& keys, double default_theta, int64_t max_positions);

// What holds where an object of rope parameters does not say it.
struct RopeDefaults {
  double theta = 10000;
  int64_t max_positions = 0;
  int64_t original_tokens = 0;  // the length it was trained at; 0: max_positions
};

// One object of rope parameters, `keys` being its reader.
RopeConfig ReadRopeObject(KeyReader& keys, const RopeDefaults& defaults);

// Opens the object under `key` and hands its reader to `read`; errors come back in `keys`.
template <typename Read>
RopeConfig WithObject(KeyReader& keys, absl::string_view key, const Read& read) {
  absl::StatusOr<ConfigReader> object = keys.config().GetObject(key);
  if (!object.ok()) {
    keys.Fail(object.status());
    return {};
  }
  KeyReader nested(*object);
  const RopeConfig rope = read(nested);
  keys.Fail(nested.status());
  return rope;
}

}  // namespace quire

#endif  // QUIRE_MODELS_ROPE_CONFIG_H_
