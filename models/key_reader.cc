#include "models/key_reader.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"

namespace quire {
namespace {

struct ActivationName {
  absl::string_view text;
  OpKind kind;
  absl::string_view approximate;
};

// The names that transformers gives these functions; several are spellings of one formula.
constexpr ActivationName kActivations[] = {
    {"silu", OpKind::kSilu, "none"},
    {"swish", OpKind::kSilu, "none"},
    {"gelu", OpKind::kGelu, "none"},
    {"gelu_python", OpKind::kGelu, "none"},
    {"gelu_new", OpKind::kGelu, "tanh"},
    {"gelu_fast", OpKind::kGelu, "tanh"},
    {"gelu_accurate", OpKind::kGelu, "tanh"},
    {"gelu_python_tanh", OpKind::kGelu, "tanh"},
    {"gelu_pytorch_tanh", OpKind::kGelu, "tanh"},
    {"quick_gelu", OpKind::kGelu, "quick"},
    {"relu", OpKind::kRelu, "none"},
    {"sigmoid", OpKind::kSigmoid, "none"},
    {"tanh", OpKind::kTanh, "none"},
};

// Keys whose null stands for something in transformers: what the absent key does, too.
constexpr absl::string_view kNullable[] = {
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "factor",
    "final_logit_softcapping",
    "mscale",
    "mscale_all_dim",
    "n_inner",
    "num_decoder_layers",
    "num_key_value_heads",
    "scale_embedding",
    "seq_length",
    "use_bidirectional_attention",
};

}  // namespace

void KeyReader::Fail(const absl::Status& error) {
  if (status_.ok()) status_ = error;
}

void KeyReader::Invalid(absl::string_view key, absl::string_view problem,
                        absl::string_view allowed) {
  Fail(config_.Refuse(key, problem, allowed));
}

void KeyReader::Unsupported(absl::string_view key, absl::string_view problem,
                            absl::string_view allowed) {
  Fail(absl::UnimplementedError(config_.Refuse(key, problem, allowed).message()));
}

Dimension KeyReader::Dim(std::initializer_list<absl::string_view> keys, int64_t limit) {
  Dimension found;
  for (const absl::string_view key : keys) {
    if (!Has(key)) continue;
    const int64_t value = Take(config_.GetInt(key), int64_t{1});
    if (value < 1 || value > limit) {
      Invalid(key, "is out of range", absl::StrCat("1..", limit));
    } else if (!found.key.empty() && value != found.value) {
      Invalid(key, absl::StrCat("differs from ", found.key, "=", found.value),
              "one key for one size");
    } else if (found.key.empty()) {
      found = {value, std::string(key)};
    }
  }
  if (!found.key.empty()) return found;
  const absl::string_view key = *keys.begin();
  // Absent under every name: let the reader word it.
  Take(config_.GetInt(key), int64_t{0});
  return {1, std::string(key)};
}

bool KeyReader::IsAbsent(absl::string_view key, absl::string_view fallback) {
  config_.Ignore({key});
  if (Has(key)) return false;
  if (config_.IsNull(key) &&
      std::find(std::begin(kNullable), std::end(kNullable), key) == std::end(kNullable)) {
    Invalid(key, "has no meaning",
            absl::StrCat("a value, or no such key, for the default, ", fallback));
  }
  return true;
}

Dimension KeyReader::DimOr(absl::string_view key, int64_t limit, const Dimension& fallback) {
  return IsAbsent(key, absl::StrCat(fallback.value)) ? fallback : Dim({key}, limit);
}

double KeyReader::Float(absl::string_view key, double fallback, double low, double high) {
  return IsAbsent(key, absl::StrCat(fallback)) ? fallback : Float(key, low, high);
}

double KeyReader::Float(absl::string_view key, double low, double high) {
  const absl::StatusOr<double> value = config_.GetFloat(key);
  if (!value.ok()) {
    Fail(value.status());
    return low;
  }
  // Written so that NaN is refused.
  if (*value >= low && *value <= high) return *value;
  Invalid(key, "is out of range", absl::StrCat(low, "..", high));
  return low;
}

bool KeyReader::Bool(absl::string_view key, bool fallback) {
  if (IsAbsent(key, fallback ? "true" : "false")) return fallback;
  return Take(config_.GetBool(key), fallback);
}

std::string KeyReader::Text(absl::string_view key, absl::string_view fallback) {
  if (IsAbsent(key, fallback)) return std::string(fallback);
  return Take(config_.GetString(key), std::string(fallback));
}

std::vector<std::string> KeyReader::Texts(absl::string_view key) {
  return Take(config_.GetStrings(key), std::vector<std::string>());
}

std::vector<int64_t> KeyReader::Ints(absl::string_view key, int64_t low, int64_t high) {
  std::vector<int64_t> values = Take(config_.GetInts(key), std::vector<int64_t>());
  for (const int64_t value : values) {
    if (value >= low && value <= high) continue;
    Invalid(key, absl::StrCat("holds ", value), absl::StrCat(low, "..", high));
    return {};
  }
  return values;
}

ActivationConfig KeyReader::ReadActivation(absl::string_view key, absl::string_view fallback) {
  return ActivationOf(key, Text(key, fallback));
}

ActivationConfig KeyReader::ActivationOf(absl::string_view key, absl::string_view text) {
  std::vector<absl::string_view> known;
  for (const ActivationName& name : kActivations) {
    if (name.text == text) return {name.kind, std::string(name.approximate)};
    known.push_back(name.text);
  }
  Unsupported(key, "is not a supported activation", absl::StrJoin(known, ", "));
  return {};
}

void KeyReader::Only(absl::string_view key, bool supported) {
  if (Bool(key, supported) == supported) return;
  Unsupported(key, "is not supported", supported ? "true" : "false");
}

void KeyReader::OnlyNumber(absl::string_view key, double supported) {
  if (IsAbsent(key, absl::StrCat(supported))) return;
  if (Take(config_.GetFloat(key), supported) == supported) return;
  Unsupported(key, "is not supported", absl::StrCat(supported));
}

}  // namespace quire
