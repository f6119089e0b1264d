// What a decoder-only model or an encoder-decoder computes, free of how any family spells it.
//
// The families' files read config.json into one of these forms, and models/decoder.cc and
// models/encoder_decoder.cc write the mathematics from it. Every field changes the result; what
// does not is not here.
//
// Letters: E width, F feed-forward width, Hq query heads, Hkv KV heads, D head size, V vocabulary,
// L layers.
#ifndef QUIRE_MODELS_CONFIG_H_
#define QUIRE_MODELS_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ir/op.h"

namespace quire {

// A size, with the configuration key that it was read from for messages.
struct Dimension {
  int64_t value = 0;
  std::string key;

  operator int64_t() const { return value; }  // NOLINT: a dimension is a number
};

// Rotary positions; the fields are those of the rope op in ir/attrs.def.
struct RopeConfig {
  double theta = 10000;
  std::string scaling = "none";  // none, linear, dynamic, llama3 or yarn
  double factor = 1;
  int64_t original_tokens = 0;
  double low_factor = 1;
  double high_factor = 4;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  // Of cos and sin alike, so scores grow by its square.
  double magnitude = 1;
};

enum class NormKind { kRms, kLayer };

// How the query, key and value projections are stored.
enum class QkvLayout {
  kSeparate,    // three matrices
  kBlocks,      // one matrix, rows [Hq*D of q | Hkv*D of k | Hkv*D of v]
  kInterleaved  // one matrix, rows [Hq, 3, D]; needs Hkv = Hq
};

struct ActivationConfig {
  OpKind kind = OpKind::kSilu;
  std::string approximate = "none";  // of gelu
};

struct LayerConfig {
  int64_t window = 0;  // keys that a query sees, itself included; 0: all before it
  int rope = -1;       // into DecoderConfig::ropes; -1: none
  // Keys and values are those of the given states instead of the text, with a norm of each head of
  // q and k; attention and MLP each pass a gate, which is shut where a row sees no state.
  bool over_states = false;
  double attention_scale = 1;  // of q . k
};

struct DecoderConfig {
  Dimension vocab, width, ffn, layers, heads, kv_heads, head_dim;
  // The longest sequence the model was made for; 0 where the configuration sets no limit.
  Dimension max_positions;
  Dimension states_width;   // of the given states; 0: there are none
  int64_t more_tokens = 0;  // rows of the embedding behind those of the vocabulary

  // Token embedding, then scale, then learned positions, then norm.
  double embed_scale = 1;
  bool learned_positions = false;  // a table of max_positions rows
  bool embed_norm = false;

  NormKind norm = NormKind::kRms;
  double norm_eps = 0;
  // Added to the stored weight of an rms norm.
  double norm_weight_offset = 0;
  // Norms after attention and after the MLP, before the residual is added.
  bool post_norms = false;
  // The residual starts behind the norm instead of before it.
  bool residual_from_norm = false;

  QkvLayout qkv_layout = QkvLayout::kSeparate;
  bool qkv_bias = false;
  bool out_bias = false;
  bool qk_norm = false;     // rms norm of each head of q and of k, before rope
  double alibi_max = 0;     // 0: no linear bias
  double attn_softcap = 0;  // 0: none
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layer;  // one for each layer

  ActivationConfig activation;
  bool gated_mlp = false;  // down(act(gate(x)) * up(x)), else down(act(up(x)))
  bool mlp_bias = false;

  // Pairs of a head that rope rotates: neighbours instead of halves, as GGUF stores Llama.
  bool rope_interleaved = false;
  // A tensor divides the rope frequencies.
  bool rope_factors = false;

  // Matrices of linear layers are stored [K,N] instead of [N,K].
  bool transposed_linear = false;
  bool tied_head = false;
  double final_softcap = 0;  // 0: none
};

// What an encoder-decoder computes: two stacks of layers of one width. The decoder's layers have an
// attention over the encoder's output between their own attention and the MLP.
struct StackConfig {
  Dimension layers, heads, ffn;
};

struct EncoderDecoderConfig {
  Dimension vocab, width, head_dim;
  // Rows of each stack's table of positions, which are also the longest source and target; 0 where
  // the configuration sets no limit.
  Dimension max_positions;
  StackConfig encoder, decoder;

  // Token embedding, then scale, then learned positions, then norm: in both stacks.
  double embed_scale = 1;
  bool learned_positions = false;
  int64_t position_offset = 0;  // rows of the table before that of position 0
  bool embed_norm = false;
  bool own_embeddings = false;  // each stack has a table of its own, if the checkpoint has it

  NormKind norm = NormKind::kLayer;
  double norm_eps = 0;
  bool norm_first = false;   // norms before attention and MLP, instead of after the residual's sum
  bool final_norms = false;  // one more behind each stack

  double attention_scale = 1;
  // Learned biases of relative positions in each stack's own attention, the same in all layers; 0
  // buckets: none.
  Dimension relative_buckets;
  int64_t max_distance = 0;
  bool bias = false;  // of all projections, the head's excepted
  ActivationConfig activation;
  bool gated_mlp = false;  // down(act(gate(x)) * up(x)), else down(act(up(x)))
  bool tied_head = false;
  bool tied_unless_stored = false;  // tied where the checkpoint has no head of its own
  double head_scale = 1;            // of what the head reads
};

}  // namespace quire

#endif  // QUIRE_MODELS_CONFIG_H_
