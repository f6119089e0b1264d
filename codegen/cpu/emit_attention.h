// Paged attention, for any mix of prompt rows and single tokens with the same arithmetic.
//
//   for each tile of up to 8 queries of a KV head, for each split of 256 tokens that they see:
//     score  = chain of fma over d, one lane a token     K is [d][token] in its page
//     weight = exp(score - maximum of the split), 0 for tokens that the query does not see
//     sums   = weights added in 16 lanes, then lanes; outputs: chain of fma over tokens
//     merged into the running (outputs, maximum, sum)
//   y = outputs / sum
//
// Where what a layer keeps is multiplied by scales, queries are by that of K beside the spec's own,
// and 1 / sum is by that of V.
//
// A token that a query does not see adds exactly zero, so bits depend neither on the tile nor on
// where a page ends. Tokens that no query of the tile sees are not read from V at all, and what is
// read of them from K (lanes of the same page) is dropped.
//
// Page sizes that are no multiple of 16 are first copied, split by split, into tiles of 16 tokens.
#ifndef QUIRE_CODEGEN_CPU_EMIT_ATTENTION_H_
#define QUIRE_CODEGEN_CPU_EMIT_ATTENTION_H_

#include <functional>
#include <vector>

#include "codegen/cpu/abi.h"
#include "codegen/cpu/emit.h"
#include "codegen/cpu/llvm_text.h"

namespace quire {

class AttentionEmitter {
 public:
  explicit AttentionEmitter(const AttentionSpec& spec);
  EmittedKernel Emit();

 private:
  using V = LlvmValue;

  static constexpr int kTileTokens = 16;
  static constexpr int kBlockTokens = 32;  // scored together: two vectors
  // Memory is asked for this long before it is read: keys a block, values two tiles. Pages lie
  // anywhere, so the machine's own prefetching sees only short runs.
  static constexpr int kAheadTiles = 4;
  // Pointers of a split's tiles, and of the first ones after it.
  static constexpr int kPointers = static_cast<int>(kSplitTokens) / kTileTokens + kAheadTiles;

  // Tokens [begin, end) of the split, counted from its first.
  struct Range {
    V first_token;  // of the split, absolute
    V begin, end;
    V seen_end;  // one past the last token that the tile's queries see, in whatever split
  };

  void EmitMain();
  void LoadTables();
  void EmitMerge();
  V Field(size_t offset);  // of the item

  // One tile (emit_attention.cc): `height` queries from number `query`; those from `count` on
  // repeat the last one and are dropped.
  void Tile(const V& query, const V& count, int height);
  void PrepareQueries(const V& query, const V& count, int height);
  void Clear(const V& state);
  // Merges the split's (outputs, maximum, sum) into the running one; both dv + 2 floats.
  void MergeState(const V& running, const V& split);
  void Finish(const V& running, const V& y);
  V OutputOf(const V& query);

  // Parts of a split (emit_attention_split.cc).
  void FindTokens(const Range& range);
  void StageTokens(const Range& range);
  void Scores(const Range& range, int height);
  void Weights(const Range& range, int height);
  V LaneNumbers();
  V Adjusted(const V& scores, const V& token, const V& query_slot);
  void Outputs(const Range& range, int height);
  void OutputColumns(const Range& range, int height, const V& first,
                     const std::vector<int>& widths);
  // Memory of a column piece of V or K.
  V LoadKv(const V& pointer, int lanes);

  // Places in scratch memory, in bytes.
  int64_t Reserve(int64_t bytes);
  V At(int64_t place) { return w_.At(scratch_, place); }
  V At(int64_t place, const V& index, int64_t stride) {
    return w_.At(At(place), w_.Mul(index, I64(stride)));
  }
  // dv + 2 floats: outputs, maximum, sum.
  int64_t state_bytes() const { return 4 * (spec_.dv + 2); }

  const AttentionSpec& spec_;
  const int64_t group_, kv_bytes_;
  const bool pages_hold_tiles_;  // a tile of 16 tokens lies in one page
  LlvmWriter w_;
  V q_{"ptr", "%q"}, layer_{"ptr", "%layer"}, y_{"ptr", "%y"}, item_{"ptr", "%item"},
      scratch_{"ptr", "%scratch"}, tables_{"ptr", "%tables"};
  V biases_, k_scale_, v_scale_;  // where the spec has them
  int64_t scratch_bytes_ = 0;
  int64_t queries_;            // [d][height] f32, scaled
  int64_t first_seen_;         // [height] i64: first token that a query sees
  int64_t end_seen_;           // [height] i64: one past the last
  int64_t positions_;          // [height] i64
  int64_t slopes_;             // [height] f32
  int64_t bias_rows_;          // [height] pointers: a head's biases by distance
  int64_t scores_;             // [height][kSplitTokens] f32, then weights
  int64_t split_state_;        // [height] states
  int64_t running_state_;      // [height] states
  int64_t keys_, values_;      // [tiles] pointers
  int64_t staged_keys_ = 0;    // [tiles][d][16]
  int64_t staged_values_ = 0;  // [tokens][dv]
};

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_EMIT_ATTENTION_H_
