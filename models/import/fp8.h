// Weights of 8-bit floats in Hugging Face directories: f8e4m3 matrices with their scales beside
// them, NAME_scale_inv or NAME_scale. Both multiply.
//
// And how a checkpoint means linears to round their rows of x to 8 bits before products with these:
// of each row, or of each so many of its columns, by a scale of their own, or by one that is given.
//
// Source:  transformers' FineGrainedFP8Config and FbgemmFp8Config; compressed-tensors'
//          QuantizationConfig.
#ifndef QUIRE_MODELS_IMPORT_FP8_H_
#define QUIRE_MODELS_IMPORT_FP8_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "models/import/tensor_index.h"
#include "nlohmann/json.hpp"

namespace quire {

// Whether config.json's quantization_config says what PairScales() then finds. UNIMPLEMENTED names
// the key that says something else; INVALID_ARGUMENT one of a wrong type. `allowed` are keys that
// the user says are harmless.
absl::Status CheckFp8Config(const nlohmann::json& config, absl::string_view file,
                            absl::Span<const std::string> allowed);

// What linears do with their rows of x where the weight is f8e4m3_128.
struct ActivationRounding {
  enum class Kind { kNone, kComputed, kGiven };
  Kind kind = Kind::kNone;
  int64_t columns = 0;  // kComputed: that have a scale in common; 0: a row
  double most = 0;      // kComputed: of the greatest |x|; 0: unlimited
};

// By quantization_config, of a configuration that CheckFp8Config() takes. UNIMPLEMENTED names the
// key that asks for something else, such as one scale for all rows of a step.
absl::StatusOr<ActivationRounding> ActivationRoundingOf(const nlohmann::json& config,
                                                        absl::string_view file);

// Makes every f8e4m3 matrix that has scales an f8e4m3_128. INVALID_ARGUMENT where they are not of
// its extents, UNIMPLEMENTED where its rows are no multiple of 128.
absl::Status PairScales(TensorIndex* index);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_FP8_H_
