// What the attention kernels have in common: one arithmetic, the work of a step, scores.
//
//   y[t, h] = sum over visible tokens c of softmax_c(score(t, h, c)) v[c, h / group]
//   score   = softcap(scale q . k) + alibi + bias, in units of 2's logarithm
//
// Constants expected: Element (Bf16 or F16, of q and y, and of products), kIsBf16, KvElement (of
// keys and values in pages: Element or E4m3), kKeyScales and kValueScales (whether they have
// scales), kHq, kHkv, kD, kDv,
// kPageTokens, kCausal, kWindow (0: unlimited), kScale, kCap (0: none), kAlibi with
// kAlibiSlopes[kHq] (times log2 e), kBiasDistances (0: no table), kSinks, kTreeWords (0: no tree),
// kFew (whether the entry is for tiles of few rows, or of many), kThreads (of the entry),
// kManyRows (of a tile of many), kStages, kResident (blocks a multiprocessor), kSharedBytes.
//
// Arithmetic, the same bits for a row in every body, whatever else is in the step, however its
// context is cut and paged:
//   (1) A token's score is one chain of tensor-core steps over D in order, 16 at a time, D padded
//       with zeros; then Transform() in f32, the scale of its head's keys among its factors.
//   (2) The context is cut into chunks of kChunkTokens at multiples of it, and these into steps of
//       kStepTokens. A chunk starts from m = kLowest, l = 0, o = 0. Where the largest score of a
//       step's visible tokens, rounded up to an integer, exceeds m by more than 8, the step raises
//       m to it: rescaling l and o by 2^(m - m') is exact, and seldom done. p = 2^(score - m)
//       rounded to Element, 0 for what the row does not see; l and o are chains of tensor-core
//       steps over p and ones, p and v, 16 tokens at a time in order.
//       A step with nothing visible changes nothing, so it may be left out; a chunk too.
//   (3) Chunks are folded in order (FoldScales) from (kLowest, 0, 0) in f32, the sink after them.
//   (4) y = o * (1 / l), times the scale of its head's values, rounded to Element; 0 where l is 0:
//       a row that sees nothing.
// Keys and values of E4m3 are products' operands as the Elements that they equal. Which of a step's
// 16 dimensions stands where in it, and where a column of values, follows their bytes: no bit of a
// result depends on it.
// Exact rescaling holds as long as nothing falls below the normal numbers; such terms are less than
// 2^-100 of the sum they are added to.
#ifndef QUIRE_ATTENTION_CUH_
#define QUIRE_ATTENTION_CUH_

#include "e4m3.cuh"
#include "prelude.cuh"
#include "step.cuh"

static_assert(kD % 8 == 0 && kD >= 8 && kD <= 256);
static_assert(kDv % 8 == 0 && kDv >= 8 && kDv <= 256);
static_assert(kHq % kHkv == 0);
static_assert(sizeof(Element) == 2);
// Whether keys and values are bytes.
constexpr bool kNarrow = sizeof(KvElement) == 1;
static_assert(!kNarrow || (kD % 16 == 0 && kDv % 16 == 0));

constexpr int kGroup = kHq / kHkv;
constexpr int kChunkTokens = 256;
constexpr int kStepTokens = 64;
constexpr int kWarps = kThreads / kWarpThreads;
constexpr float kLowest = -1e30f;  // below every score, above minus infinity
constexpr double kLog2E = 1.4426950408889634;
constexpr bool kPlain = kCap == 0 && !kAlibi && kBiasDistances == 0 && !kKeyScales;

// Rows of a tile are (token, head of the group), heads fastest: row r of a sequence is head r %
// kGroup of token r / kGroup.
constexpr bool kWide = kD > 128 || kDv > 128;
// That a warp of the entry for few rows has. Where a token is one row there seldom are more than 8,
// and a text that has products for 16, too, takes twice as long to compile.
constexpr int kWarpRows = kWide || kGroup == 1 ? 8 : 16;
constexpr int kShare = kGroup > kWarpRows ? 2 : 1;  // warps that share tiles, and divide rows
constexpr int kFewRows = kWarpRows * kShare;        // of a tile whose chunks may be dealt to many
constexpr int kFewRowsMost = 32;                    // of a sequence in such tiles
// Of one whose tiles have an entry of their own, which has no registers for wide heads.
constexpr int kShortTokens = kWide ? -1 : kStepTokens;
// Of wide heads two warps share rows, and have half of the columns of values each.
constexpr int kColumnSplit = kWide ? 2 : 1;

DEVICE constexpr int DivideUp(int a, int b) { return (a + b - 1) / b; }
DEVICE constexpr int CommonDivisor(int a, int b) { return b == 0 ? a : CommonDivisor(b, a % b); }

constexpr int kSteps16 = DivideUp(kD, 16);       // tensor-core steps of a score
constexpr int kColumnTiles = DivideUp(kDv, 16);  // of 16 columns
constexpr int kChunkSteps = kChunkTokens / kStepTokens;
constexpr int kTileTokens = 16, kStepTiles = kStepTokens / kTileTokens;
constexpr int kChunkTiles = kChunkTokens / kTileTokens;

// Of the entry for few rows: teams of a block, each with a ring of kStages tiles.
constexpr int kTeams = kWarps / kShare;
// Of a chunk that a block shares among its warps: tiles of keys, and of values, for each.
constexpr int kTilesEach = kChunkTiles / kWarps;
// Whether it may: all its values are in shared memory at once.
constexpr bool kMayShareChunk = kFew && kStages / kShare > kTilesEach;
static_assert(!kFew || kThreads == 128 || kThreads == 256);

DEVICE constexpr uint32_t Ones() {
  return sizeof(Element) == 2 && kIsBf16 ? 0x3f803f80u : 0x3c003c00u;
}

// Rows of 16-bit elements, or of bytes, in shared memory, padded to whole tensor-core steps, in
// 16-byte units, laid so that eight rows' units lie in different banks.
template <int kElements, int kBytes = 2>
struct SharedRows {
  static constexpr int kUnits = DivideUp(kElements, 16) * kBytes;
  static constexpr bool kSwizzled = kUnits % 8 == 0;
  static constexpr int kRowBytes = kSwizzled ? kUnits * 16 : (kUnits | 1) * 16;
  static DEVICE int Offset(int row, int unit) {
    return row * kRowBytes + (kSwizzled ? unit ^ (row & 7) : unit) * 16;
  }
  // The address `units` (of bytes: any, otherwise even) further in the row of an address whose unit
  // is 0 (or 1), of rows that begin at a multiple of 128.
  static DEVICE uint32_t Along(uint32_t address, int units) {
    return kSwizzled ? (address ^ units % 8 * 16) + units / 8 * 128 : address + units * 16;
  }
};
using SharedQuery = SharedRows<kD>;
using KeyRows = SharedRows<kD, sizeof(KvElement)>;
using ValueRows = SharedRows<kDv, sizeof(KvElement)>;
constexpr int kUnitElements = 16 / sizeof(KvElement);  // keys' and values' in 16 bytes

// Operands of the attention entry, in this order.
struct AttentionOperands {
  const Element* q;           // [T, kHq, kD]
  const KvElement* layer;     // pages of [kHkv, kPageTokens, kD], then [kHkv, kPageTokens, kDv]
  const float* key_scales;    // [kHkv]
  const float* value_scales;  // [kHkv]
  const float* bias;          // [kHq, kBiasDistances]
  const float* sinks;         // [kHq]
  const uint32_t* tree;       // [T, kTreeWords]
  Element* y;                 // [T, kHq, kDv]
  const int* pages;           // of the step
  uint8_t* plan;
};

// ---- the work list, written once a step by attention_plan.cuh

struct alignas(16) Tile {
  int first_row;  // the step's row of the sequence's first token
  int tokens;     // of the sequence in this step
  int context;
  int pages_begin;
  int row, rows;             // [row, row + rows) of the sequence's tokens * kGroup
  int step_begin, step_end;  // of kStepTokens tokens, that some row sees; empty where none does
  int unit;                  // few rows: chunks of tiles before this one, a KV head
  int padding[3];
  DEVICE int chunk_begin() const { return step_begin * kStepTokens / kChunkTokens; }
  // At least one: a tile that sees nothing has rows to write, too.
  DEVICE int chunks() const {
    const int count = DivideUp(step_end * kStepTokens, kChunkTokens) - chunk_begin();
    return count > 1 ? count : 1;
  }
};

// The plan's memory: this, then by byte offset BlockStart [blocks], Tile [few_tiles], Tile
// [short_tiles], Tile [many_tiles], uint32 [few_tiles][kHkv] arrivals, a uint32 of tickets, Partial
// [units].
//
// A unit is a chunk of a tile of few rows for one KV head, in order of tile, head, chunk. A block
// has units that follow each other.
struct alignas(16) PlanHeader {
  int few_tiles, short_tiles, many_tiles;
  int few_at, many_at;  // bytes
  int units;
  int arrivals_at;  // bytes
  // Of the entry for many rows, the first ones: the others leave their multiprocessors to tiles of
  // few rows.
  int many_blocks;
  int64_t partials_at;

  // Whether the entry for few rows runs behind that for many, and beside it: it begins when all
  // that comes before both has ended, as the other waits for that before it allows the next grid,
  // and waits itself for no more than the other's end, last of all.
  DEVICE bool IsBehindMany() const { return few_tiles > 0 && many_tiles > 0; }
  DEVICE int short_at() const { return few_at + few_tiles * static_cast<int>(sizeof(Tile)); }
  // How many pairs of a tile of many rows and a KV head have been drawn; 0 between launches.
  DEVICE uint32_t* Drawn(uint8_t* plan) const {
    return reinterpret_cast<uint32_t*>(plan + partials_at) - 1;
  }
};

// All that a block of the entry for few rows begins with, so that it need not look for it.
struct alignas(16) BlockStart {
  Tile tile;  // of its first unit
  int few_tile;
  int unit, unit_end;
  int together;  // there is a unit at most for each block, whose warps share it
  PlanHeader header;
};
static_assert(sizeof(Tile) == 48 && sizeof(PlanHeader) == 48 && sizeof(BlockStart) == 112);

// A chunk's sums, or those of a pair's first chunks folded.
struct Partial {
  static constexpr int kColumns = kColumnTiles * 16;
  float o[kFewRows][kColumns];
  float statistics[kFewRows][4];  // m, l
};
// What a block adds to a pair's arrivals: its units, and, with the first partial, the units folded
// there above them.
constexpr int kFoldedShift = 16;

// ---- rows of q

// The tile's rows of q, zeros behind them and behind kD, to `to`.
struct QueryRows {
  const AttentionOperands& operands;
  const Tile& tile;
  int head;

  // 16 bytes; null for zeros.
  DEVICE const Words4* From(int row, int unit) const {
    if (row >= tile.rows || unit >= kD / 8) return nullptr;
    const int in_sequence = tile.row + row;
    const int64_t token = tile.first_row + in_sequence / kGroup;
    const int64_t q_row = token * kHq + head * kGroup + in_sequence % kGroup;
    return reinterpret_cast<const Words4*>(operands.q) + q_row * (kD / 8) + unit;
  }
  template <int kRows>
  DEVICE void Load(uint8_t* to) const {
    for (int at = threadIdx.x; at < kRows * SharedQuery::kUnits; at += kThreads) {
      const int row = at / SharedQuery::kUnits, unit = at % SharedQuery::kUnits;
      const Words4* from = From(row, unit);
      *reinterpret_cast<Words4*>(to + SharedQuery::Offset(row, unit)) =
          from == nullptr ? Words4{} : *from;
    }
  }
  template <int kRows>
  DEVICE void Copy(uint32_t to) const {
    for (int at = threadIdx.x; at < kRows * SharedQuery::kUnits; at += kThreads) {
      const int row = at / SharedQuery::kUnits, unit = at % SharedQuery::kUnits;
      const Words4* from = From(row, unit);
      CopyAsync(to + SharedQuery::Offset(row, unit),
                from == nullptr ? operands.q : (const void*)from, from == nullptr ? 0 : 16);
    }
  }
};

// ---- scores

// What products are multiplied with, but for the scale of a head's keys: to be scores in base 2, or
// the argument of a softcap's exponential.
constexpr double kProductFactor = kCap > 0 ? 2 * double{kLog2E} * kScale / (kCap > 0 ? kCap : 1)
                                           : double{kLog2E} * kScale;

// One row of a tile, as scores need it.
struct RowInfo {
  int position;   // of the row's token in its sequence
  int last;       // position of the last token that it may see
  int own_begin;  // position of the sequence's first row of this step
  int q_head;
  int tree_at;   // of its words
  float factor;  // of products, by the scale of the head's keys

  DEVICE void Load(const AttentionOperands& operands, const Tile& tile, int head, int row) {
    const int in_sequence = tile.row + (row < tile.rows ? row : tile.rows - 1);
    const int token = in_sequence / kGroup;
    q_head = head * kGroup + in_sequence % kGroup;
    own_begin = tile.context - tile.tokens;
    position = own_begin + token;
    last = kCausal ? position : tile.context - 1;
    if constexpr (kTreeWords > 0) tree_at = (tile.first_row + token) * kTreeWords;
    if constexpr (kKeyScales) {
      factor = Mul(operands.key_scales[head], static_cast<float>(kProductFactor));
    }
  }

  DEVICE bool Sees(const AttentionOperands& operands, int token) const {
    if (token > last) return false;
    if (kWindow > 0 && position - token >= kWindow) return false;
    if constexpr (kTreeWords > 0) {
      const int own = token - own_begin;
      if (own >= 0 && own < 32 * kTreeWords) {
        return operands.tree[tree_at + own / 32] >> (own % 32) & 1;
      }
    }
    return true;
  }

  // The score in base 2, of a product q . k. Not called where kPlain: there the scale is part of
  // the exponential's argument.
  DEVICE float Transform(const AttentionOperands& operands, float product, int token) const {
    float score = Mul(product, kKeyScales ? factor : static_cast<float>(kProductFactor));
    if constexpr (kCap > 0) {
      // cap * tanh(x): 1 - 2 / (e^2x + 1)
      const float power = Exp2(score);
      const float tanh = Fma(-2.0f, Reciprocal(Add(power, 1.0f)), 1.0f);
      score = Mul(tanh, static_cast<float>(kCap * kLog2E));
    }
    if constexpr (kAlibi)
      score = Fma(kAlibiSlopes[q_head], static_cast<float>(token - position), score);
    if constexpr (kBiasDistances > 0) {
      constexpr int kZero = kCausal ? 0 : kBiasDistances / 2;
      const int distance = position - token + kZero;
      const int at = distance < 0 ? 0 : distance < kBiasDistances ? distance : kBiasDistances - 1;
      score = Fma(operands.bias[q_head * kBiasDistances + at], static_cast<float>(kLog2E), score);
    }
    return score;
  }
};
constexpr float kSoftmaxScale = kPlain ? static_cast<float>(kScale * kLog2E) : 1.0f;

// A token's score for one row, masked where the step is not all visible.
DEVICE void FinishScore(const AttentionOperands& operands, float& score, const RowInfo& row,
                        int token, bool masked) {
  if constexpr (!kPlain) score = row.Transform(operands, score, token);
  if (masked && !row.Sees(operands, token)) score = FromBits(0xff800000u);
}

// Scores of two neighbouring tokens of one row, masked where the step is not all visible.
DEVICE void FinishScores(const AttentionOperands& operands, float& first, float& second,
                         const RowInfo& row, int token, bool masked) {
  FinishScore(operands, first, row, token, masked);
  FinishScore(operands, second, row, token + 1, masked);
}

// The steps that all rows of a tile see whole, so that nothing needs masking.
struct WholeSteps {
  int begin = 0, end;

  DEVICE explicit WholeSteps(const Tile& tile) {
    const int own_begin = tile.context - tile.tokens;
    int seen = tile.context;
    if constexpr (kCausal) seen = own_begin + tile.row / kGroup + 1;
    if constexpr (kTreeWords > 0) seen = own_begin;
    end = seen > 0 ? seen / kStepTokens : 0;
    if constexpr (kWindow > 0) {
      const int first = own_begin + (tile.row + tile.rows - 1) / kGroup - kWindow + 1;
      begin = first > 0 ? DivideUp(first, kStepTokens) : 0;
    }
  }
};

// ---- sums of a row

// The maximum that `top`, an integer, raises m to: m is left alone as long as nothing exceeds 2^8,
// so that sums are seldom scaled.
DEVICE float Raised(float m, float top) { return top > Add(m, 8.0f) ? top : m; }
// For the largest of a step's scores.
DEVICE float RaiseMaximum(float m, float largest) {
  return Raised(m, Ceiling(Mul(largest, kSoftmaxScale)));
}
DEVICE float Weight(float score, float m) { return Exp2(Fma(score, kSoftmaxScale, -m)); }

// What folding sums with maximum `more_m` into those with `m` multiplies each with.
struct FoldScales {
  float own, more;
  // Raises m.
  DEVICE FoldScales(float& m, float more_m) {
    const float top = Raised(m, more_m);
    own = PowerOfTwo(Add(m, -top));
    more = PowerOfTwo(Add(more_m, -top));
    m = top;
  }
  DEVICE float Fold(float x, float more_x) const { return Fma(x, own, Mul(more_x, more)); }
};

// What o is multiplied with last, and with the sink of q head `head` folded.
DEVICE float FinalScale(const AttentionOperands& operands, int head, float m, float l) {
  float scale = 1;
  if constexpr (kSinks) {
    const float sink = Mul(operands.sinks[head], static_cast<float>(kLog2E));
    const float sink_m = Ceiling(sink);
    const FoldScales scales(m, sink_m);
    l = scales.Fold(l, Exp2(Add(sink, -sink_m)));
    scale = scales.own;
  }
  scale = l > 0 ? Mul(scale, Reciprocal(l)) : 0.0f;
  if constexpr (kValueScales) scale = Mul(scale, operands.value_scales[head / kGroup]);
  return scale;
}

// y of row `row` of a tile.
DEVICE Element* OutputRow(const AttentionOperands& operands, const Tile& tile, int head, int row) {
  const int in_sequence = tile.row + row;
  const int64_t token = tile.first_row + in_sequence / kGroup;
  return operands.y + (token * kHq + head * kGroup + in_sequence % kGroup) * kDv;
}
DEVICE int QueryHead(const Tile& tile, int head, int row) {
  return head * kGroup + (tile.row + row) % kGroup;
}

#endif  // QUIRE_ATTENTION_CUH_
