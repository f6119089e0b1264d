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
#include "models/weights_map.h"

namespace quire {

struct AttentionShape {
  int64_t heads = 1;     // Hq
  int64_t kv_heads = 1;  // Hkv, a divisor of Hq
  int64_t head_dim = 8;  // D
  double scale = 1;
  double softcap = 0;    // 0: none
  double alibi_max = 0;  // 0: none
  bool causal = true;    // else every row sees every key
  // Of relative positions: [buckets,Hq], or nullptr; and the distance at which the last one begins.
  Op* relative = nullptr;
  int64_t max_distance = 0;
  int64_t window = 0;  // of causal attention; 0: unlimited
  // By which a narrow cache keeps k and v; nullptr: as they are.
  Op *k_scale = nullptr, *v_scale = nullptr;
};

// The extent of `x`'s rows. What a builder gives after an error has no extents: any does, since
// nothing is built on it.
inline Extent RowsOf(const Op* x) {
  return x->type.extents.empty() ? Extent::Letter('T') : x->type.extents[0];
}

// Attention over whole sequences: q [T,Hq,D], k and v [C,Hkv,D] give [T,Hq*D], whatever letters the
// rows are: C is T where a sequence looks at itself, S where it looks at an encoder's output.
//
// This is the one spelling that recognise-attention looks for:
//   k, v  kv_scale where there is one, expand_heads where Hq > Hkv
//   q, k, v  transpose to [H,rows,D]
//   scores = matmul(q, k, transpose_b), scale, softcap?, alibi?, relative_bias?,
//     causal_mask?, softmax  [H,T,C]
//   matmul(scores, v), transpose to [T,H,D], reshape
Op* Attend(Builder& b, absl::string_view prefix, Op* q, Op* k, Op* v, const AttentionShape& spec);

// Rope of x [T,H,D]. `factors` is nullptr or a weight [D/2]; `interleaved` rotates neighbours
// instead of halves.
Op* Rotate(Builder& b, Op* x, Op* pos, Op* factors, const RopeConfig& rope, bool interleaved);

Op* Activate(Builder& b, Op* x, const ActivationConfig& activation);

struct ProjectionForm {
  bool bias = false;
  bool transposed = false;  // the matrix is stored [columns,rows]
};

// x [T,columns] times the matrix of `request`, whose extents are {rows,columns}. Results are `name`
// and, after it, .w, .b and .wt.
Op* Project(Builder& b, WeightsMap& weights, absl::string_view name, Op* x, WeightRequest request,
            const ProjectionForm& form);

struct NormForm {
  NormKind kind = NormKind::kRms;
  double eps = 0;
  double weight_offset = 0;  // kRms
};

// x normed over its last extent, with the weight of `request` and where its kind has one the bias
// beside it.
Op* Normed(Builder& b, WeightsMap& weights, absl::string_view name, Op* x, WeightRequest request,
           const NormForm& form);

}  // namespace quire

#endif  // QUIRE_MODELS_BLOCKS_H_
