// Pieces that definitions are written from, each as papers write it.
//
// Letters: E width, F feed-forward width, Hq query heads, Hkv KV heads, D head size. Results are
// named `prefix` and a short word ("l0.scores"), so that every layer reads alike in the text.
#ifndef QUIRE_MODELS_BLOCKS_H_
#define QUIRE_MODELS_BLOCKS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "ir/builder.h"
#include "models/config.h"

namespace quire {

struct AttentionShape {
  int64_t heads = 1;     // Hq
  int64_t kv_heads = 1;  // Hkv, a divisor of Hq
  int64_t head_dim = 8;  // D
  double scale = 1;
  double softcap = 0;    // 0: none
  double alibi_max = 0;  // 0: none
  int64_t window = 0;    // 0: unlimited
};

// Causal attention over the whole sequence: q [T,Hq,D], k and v [T,Hkv,D] give [T,Hq*D].
//
// This is the one spelling that recognise-attention looks for:
//   k, v  expand_heads where Hq > Hkv
//   q, k, v  transpose to [H,T,D]
//   scores = matmul(q, k, transpose_b), scale, softcap?, alibi?, causal_mask, softmax  [H,T,T]
//   matmul(scores, v), transpose to [T,H,D], reshape
Op* CausalAttention(Builder& b, absl::string_view prefix, Op* q, Op* k, Op* v,
                    const AttentionShape& spec);

// Rope of x [T,H,D]. `factors` is nullptr or a weight [D/2]; `interleaved` rotates neighbours
// instead of halves.
Op* Rotate(Builder& b, Op* x, Op* pos, Op* factors, const RopeConfig& rope, bool interleaved);

Op* Activate(Builder& b, Op* x, const Activation& activation);

}  // namespace quire

#endif  // QUIRE_MODELS_BLOCKS_H_
