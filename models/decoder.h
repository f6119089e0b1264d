// A decoder-only model's definition:
//
//   func @step(%ids: i32[T], %pos: i32[T])        logits f32[T,V]
//
// Plain mathematics on one whole sequence: no cache, batch or device. Activations are f32.
#ifndef QUIRE_MODELS_DECODER_H_
#define QUIRE_MODELS_DECODER_H_

#include "absl/status/status.h"
#include "ir/graph.h"
#include "models/config.h"
#include "models/weights_map.h"

namespace quire {

// Appends the definition to `func`, which must be empty. On an error `func` is of no use.
absl::Status BuildDecoder(const DecoderConfig& config, WeightsMap& weights, Func& func);

}  // namespace quire

#endif  // QUIRE_MODELS_DECODER_H_
