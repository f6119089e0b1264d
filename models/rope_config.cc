#include "models/rope_config.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;
constexpr int64_t kMaxTokens = int64_t{1} << 40;
constexpr absl::string_view kOriginalTokens = "original_max_position_embeddings";

double Log(double factor, double multiple) {
  return factor <= 1 ? 1 : 0.1 * multiple * std::log(factor) + 1;
}

// The length correction of YaRN (Peng et al. 2023, arXiv 2309.00071), where it is not given.
double YarnMagnitude(KeyReader& keys, double factor) {
  const double multiple = keys.Float("mscale", 0, 0, kMaxFactor);
  const double all_dims = keys.Float("mscale_all_dim", 0, 0, kMaxFactor);
  const double computed = multiple != 0 && all_dims != 0
                              ? Log(factor, multiple) / Log(factor, all_dims)
                              : Log(factor, 1);
  return keys.Float("attention_factor", computed, 1e-6, kMaxFactor);
}

// The length that the model was trained at: the object's own, or the configuration's.
int64_t OriginalTokens(KeyReader& keys, const RopeDefaults& defaults) {
  const int64_t outer =
      defaults.original_tokens == 0 ? defaults.max_positions : defaults.original_tokens;
  const int64_t own =
      keys.DimOr(kOriginalTokens, kMaxTokens, {outer, std::string(kOriginalTokens)});
  if (defaults.original_tokens != 0 && own != outer) {
    keys.Invalid(kOriginalTokens, absl::StrCat("differs from ", outer, " outside the object"),
                 "one length");
  }
  return own;
}

void ReadLlama3(KeyReader& keys, const RopeDefaults& defaults, RopeConfig& rope) {
  rope.factor = keys.Float("factor", 1e-3, kMaxFactor);
  rope.original_tokens = OriginalTokens(keys, defaults);
  rope.low_factor = keys.Float("low_freq_factor", 1e-6, kMaxFactor);
  rope.high_factor = keys.Float("high_freq_factor", 1e-6, kMaxFactor);
  if (keys.status().ok() && rope.high_factor <= rope.low_factor) {
    keys.Invalid("high_freq_factor", "is not above low_freq_factor", "a greater number");
  }
}

void ReadYarn(KeyReader& keys, const RopeDefaults& defaults, RopeConfig& rope) {
  rope.original_tokens = OriginalTokens(keys, defaults);
  const double ratio =
      static_cast<double>(defaults.max_positions) / static_cast<double>(rope.original_tokens);
  rope.factor = keys.Float("factor", ratio, 1e-3, kMaxFactor);
  rope.beta_fast = keys.Float("beta_fast", 32, 1e-6, kMaxFactor);
  rope.beta_slow = keys.Float("beta_slow", 1, 1e-6, kMaxFactor);
  rope.truncate = keys.Bool("truncate", true);
  rope.magnitude = YarnMagnitude(keys, rope.factor);
}

}  // namespace

RopeConfig ReadRopeObject(KeyReader& keys, const RopeDefaults& defaults) {
  RopeConfig rope;
  rope.theta = keys.Float("rope_theta", defaults.theta, 1e-3, kMaxTheta);
  keys.OnlyNumber("partial_rotary_factor", 1);
  const absl::string_view type_key = keys.Has("rope_type") ? "rope_type" : "type";
  const std::string type = keys.Text(type_key, "default");
  // Some versions write both names of the type.
  if (keys.Text("type", type) != type) keys.Invalid("type", "differs from rope_type", type);
  if (type == "default") return rope;
  rope.scaling = type;
  if (type == "linear") {
    rope.factor = keys.Float("factor", 1e-3, kMaxFactor);
  } else if (type == "dynamic") {
    rope.factor = keys.Float("factor", 1e-3, kMaxFactor);
    rope.original_tokens = defaults.max_positions;
  } else if (type == "llama3") {
    ReadLlama3(keys, defaults, rope);
  } else if (type == "yarn") {
    ReadYarn(keys, defaults, rope);
  } else {
    keys.Unsupported(type_key, "is not a supported rope type",
                     "default, linear, dynamic, llama3, yarn");
  }
  return rope;
}

RopeConfig ReadRope(KeyReader& keys, double default_theta, int64_t max_positions) {
  RopeDefaults defaults;
  defaults.theta = keys.Float("rope_theta", default_theta, 1e-3, kMaxTheta);
  defaults.max_positions = max_positions;
  defaults.original_tokens = keys.DimOr(kOriginalTokens, kMaxTokens, {});
  keys.OnlyNumber("partial_rotary_factor", 1);
  keys.config().Ignore({"rope_scaling", "rope_parameters"});
  if (keys.Has("rope_scaling") && keys.Has("rope_parameters")) {
    keys.Invalid("rope_scaling", "stands beside rope_parameters", "one of the two");
    return {};
  }
  const absl::string_view object = keys.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (keys.Has(object)) {
    return WithObject(keys, object,
                      [&](KeyReader& nested) { return ReadRopeObject(nested, defaults); });
  }
  RopeConfig rope;
  rope.theta = defaults.theta;
  return rope;
}

}  // namespace quire
