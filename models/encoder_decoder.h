// An encoder-decoder's definition:
//
//   func @step(%ids: i32[T], %pos: i32[T], %source: i32[S], %source_pos: i32[S])   logits f32[T,V]
//
// Plain mathematics on one pair of whole sequences: the encoder runs over the S source tokens, the
// decoder over the T target tokens, and each decoder layer projects the encoder's output anew. No
// cache, batch or device. Activations are f32.
#ifndef QUIRE_MODELS_ENCODER_DECODER_H_
#define QUIRE_MODELS_ENCODER_DECODER_H_

#include "absl/status/status.h"
#include "ir/graph.h"
#include "models/config.h"
#include "models/import/checkpoint.h"
#include "models/weights_map.h"

namespace quire {

// Appends the definition to `func`, which must be empty. On an error `func` is of no use.
absl::Status BuildEncoderDecoder(const EncoderDecoderConfig& config, WeightsMap& weights,
                                 Func& func);

// BART's checkpoints hold a bias of the logits that nobody trains. UNIMPLEMENTED when it is not
// zero.
absl::Status CheckLogitsBias(const Checkpoint& checkpoint);

}  // namespace quire

#endif  // QUIRE_MODELS_ENCODER_DECODER_H_
