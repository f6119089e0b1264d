// Weights of 8-bit floats in Hugging Face directories: f8e4m3 matrices with their scales beside
// them, NAME_scale_inv or NAME_scale. Both multiply.
//
// Activations stay in their own type: how a checkpoint would have them rounded to 8 bits, per token
// or by a scale of its own, is not followed, as transformers does not where it dequantises.
//
// Source:  transformers' FineGrainedFP8Config and FbgemmFp8Config; compressed-tensors'
//          QuantizationConfig.
#ifndef QUIRE_MODELS_IMPORT_FP8_H_
#define QUIRE_MODELS_IMPORT_FP8_H_

#include <string>

#include "absl/status/status.h"
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

// Makes every f8e4m3 matrix that has scales an f8e4m3_128. INVALID_ARGUMENT where they are not of
// its extents, UNIMPLEMENTED where its rows are no multiple of 128.
absl::Status PairScales(TensorIndex* index);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_FP8_H_
