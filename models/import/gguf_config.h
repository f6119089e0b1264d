// GGUF metadata as the config.json that the same model has in Hugging Face form.
//
// So the families in models/ read one kind of configuration. What a GGUF file stores differently
// from a Hugging Face checkpoint is not configuration but layout, and stands beside it in flags.
//
// Errors:  UNIMPLEMENTED for an architecture, key or value that is not supported, by name;
// INVALID_ARGUMENT for keys
//          that are missing, of the wrong type or contradict the tensors.
// Source:  what each architecture stores and leaves out is llama.cpp's doing: its converters
// (conversion/*.py) and
//          defaults (src/models), as of 2026.
#ifndef QUIRE_MODELS_IMPORT_GGUF_CONFIG_H_
#define QUIRE_MODELS_IMPORT_GGUF_CONFIG_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/import/checkpoint.h"
#include "nlohmann/json.hpp"

namespace quire {

struct GgufConfig {
  nlohmann::json
      config;  // an object, with the keys of transformers 4: rope_theta and rope_scaling at the top

  // Rows of the query and key projections are permuted within each head, so that rope rotates
  // neighbours (2i, 2i + 1) where the Hugging Face form rotates halves (i, i + D/2).
  bool rope_interleaved = false;
  // rope_freqs.weight [D/2] is there; rope divides its frequencies by it. Llama 3.1 and later.
  bool rope_factors = false;
  // RMS norm weights are w, where the Hugging Face form stores w - 1. Gemma.
  bool norm_weights_include_one = false;
  // Matrices are [N, K] as everywhere in GGUF, where the Hugging Face form has [K, N]. GPT-2.
  bool linear_untransposed = false;
  // The packed projection's rows are [q | k | v], where the Hugging Face form has [Hq, 3, D].
  // BLOOM, and GPT-BigCode with a KV head for each query head.
  bool qkv_in_blocks = false;
};

// `allowed_keys`: of the metadata, that need not be known. REQUIRES: checkpoint.format() is kGguf.
absl::StatusOr<GgufConfig> ConfigFromGguf(const Checkpoint& checkpoint,
                                          absl::Span<const std::string> allowed_keys = {});

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_GGUF_CONFIG_H_
