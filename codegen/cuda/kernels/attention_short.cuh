// The attention entry for sequences of few rows whose context is one step.
//
// A warp has a tile for one KV head, up to kWarpRows of its rows, in registers: there is no ring
// and nothing to merge, so that thousands of sequences that have just begun cost little more than
// the bytes of their keys and values. Products are those of the entry for few rows. Which k of a
// tensor-core step is which does not matter, so a lane brings four neighbouring elements of keys
// at once, and of values four neighbouring columns: two of either matrix.
#ifndef QUIRE_ATTENTION_SHORT_CUH_
#define QUIRE_ATTENTION_SHORT_CUH_

#include "attention.cuh"

struct ShortWarp {
  // Tiles of 16 tokens whose keys are brought at once, and with them values.
  static constexpr int kAtOnce = 2;
  static constexpr int kLooks = kStepTokens / kWarpThreads;  // a lane's tokens
  static constexpr int kPageUnits = kHkv * kPageTokens * (kD + kDv) / kUnitElements;

  // What a warp does next.
  struct Item {
    Tile tile;
    int head, first_row;
    // Of tokens lane + 32 i, in units of 16 bytes. Tokens that nothing sees have the place of one
    // that is seen: weights of 0 make nothing of its values.
    int key_place[kLooks], value_place[kLooks];
  };
  using Sums = float[kColumnTiles][4];

  const AttentionOperands& operands;
  int lane;
  const uint8_t* layer;  // this lane's first elements of a row

  DEVICE bool Find(int at, Item& item) const {
    const auto& header = *reinterpret_cast<const PlanHeader*>(operands.plan);
    const int pair = at / kShare, tile = pair / kHkv;
    if (tile >= header.short_tiles) return false;
    item.tile = reinterpret_cast<const Tile*>(operands.plan + header.short_at())[tile];
    item.head = pair % kHkv;
    item.first_row = at % kShare * kWarpRows;
    int first = 0;
    // Pages before every row's window may have gone.
    if constexpr (kWindow > 0) {
      first = item.tile.context - item.tile.tokens + item.tile.row / kGroup - kWindow + 1;
    }
    const int last = item.tile.context - 1;
    if (last < 0) return true;
#pragma unroll
    for (int i = 0; i < kLooks; ++i) {
      int token = lane + i * kWarpThreads;
      if (kWindow > 0 && token < first) token = first;
      if (token > last) token = last;
      const int page = operands.pages[item.tile.pages_begin + token / kPageTokens] * kPageUnits;
      const int row = item.head * kPageTokens + token % kPageTokens;
      item.key_place[i] = page + row * (kD / kUnitElements);
      item.value_place[i] =
          page + kHkv * kPageTokens * (kD / kUnitElements) + row * (kDv / kUnitElements);
    }
    return true;
  }

  DEVICE void LoadQuery(uint32_t (&q)[kSteps16][2], const Item& item, int first_row) const {
    const int row = first_row + lane / 4;
    const int in_sequence = item.tile.row + (row < item.tile.rows ? row : 0);
    const int64_t token = item.tile.first_row + in_sequence / kGroup;
    const Element* from =
        operands.q + (token * kHq + item.head * kGroup + in_sequence % kGroup) * kD;
#pragma unroll
    for (int k = 0; k < kSteps16; ++k) {
      const int at = 16 * k + lane % 4 * 4;
      Words2 words = {};
      if (row < item.tile.rows && at < kD) words = *reinterpret_cast<const Words2*>(from + at);
      q[k][0] = words.x;
      q[k][1] = words.y;
    }
  }

  // The rows of 16 tokens, `kUnits` times 16 elements each.
  template <int kElements, int kUnits>
  DEVICE void LoadTile(Words2 (&to)[2][kUnits], const int (&places)[kLooks], int tile) const {
    constexpr int kLookTiles = kWarpThreads / kTileTokens;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int owner = tile % kLookTiles * kTileTokens + half * 8 + lane / 4;
      const int place =
          static_cast<int>(Shuffle(static_cast<uint32_t>(places[tile / kLookTiles]), owner));
      const uint8_t* from = layer + int64_t{place} * 16;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        if constexpr (kNarrow) {
          const auto word = *reinterpret_cast<const uint32_t*>(from + 16 * i);
          WidenHalves<Element>(word, to[half][i].x, to[half][i].y);
        } else {
          const bool there = 16 * (i + 1) <= kElements || lane % 4 < 2;
          to[half][i] = there ? *reinterpret_cast<const Words2*>(from + 32 * i) : Words2{};
        }
      }
    }
  }

  DEVICE void Score(float (&s)[4], const uint32_t (&q)[kSteps16][2],
                    const Words2 (&keys)[2][kSteps16], const RowInfo (&rows)[2], int token) const {
#pragma unroll
    for (int k = 0; k < kSteps16; ++k) {
      const uint32_t words[4] = {keys[0][k].x, keys[1][k].x, keys[0][k].y, keys[1][k].y};
      Mma<Element>(s, words, q[k][0], q[k][1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      FinishScore(operands, s[i], rows[i % 2], token + lane / 4 + i / 2 * 8, true);
    }
  }

  DEVICE void Sum(Sums& o, float (&l)[4], const uint32_t (&p)[2],
                  const Words2 (&values)[2][kColumnTiles]) const {
    const uint32_t ones[4] = {Ones(), Ones(), Ones(), Ones()};
    Mma<Element>(l, ones, p[0], p[1]);
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      const uint32_t words[4] = {TransposeMatrix(values[0][c].x), TransposeMatrix(values[0][c].y),
                                 TransposeMatrix(values[1][c].x), TransposeMatrix(values[1][c].y)};
      Mma<Element>(o[c], words, p[0], p[1]);
    }
  }

  DEVICE void Write(const Sums& o, const float (&l)[4], const float (&m)[2], const Item& item,
                    int first_row) const {
    float scale[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + lane % 4 * 2 + i;
      scale[i] = FinalScale(operands, QueryHead(item.tile, item.head, row), m[i], l[i]);
    }
    const int row = first_row + lane / 4;
    Element* y = OutputRow(operands, item.tile, item.head, row < item.tile.rows ? row : 0);
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      uint32_t words[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        words[i] = TransposeMatrix(
            Pack<Element>(Mul(o[c][2 * i], scale[0]), Mul(o[c][2 * i + 1], scale[1])));
      }
      const int column = c * 16 + lane % 4 * 4;
      if (row < item.tile.rows && column < kDv) {
        *reinterpret_cast<Words2*>(y + column) = {words[0], words[1]};
      }
    }
  }

  // Eight rows of an item over kTiles tiles of tokens, of which the last may not be seen: whole
  // tiles, too. (One tile alone would be another body, which takes long to compile.)
  template <int kTiles>
  DEVICE void Attend(const Item& item, int first_row) const {
    constexpr int kEarly = kTiles < kAtOnce ? kTiles : kAtOnce;
    constexpr int kEarlyValues = kTiles > 2 ? 0 : kEarly;
    uint32_t q[kSteps16][2];
    Words2 keys[kEarly][2][kSteps16], values[kEarly][2][kColumnTiles];
    LoadQuery(q, item, first_row);
#pragma unroll
    for (int i = 0; i < kEarly; ++i) LoadTile<kD>(keys[i], item.key_place, i);
#pragma unroll
    for (int i = 0; i < kEarlyValues; ++i) LoadTile<kDv>(values[i], item.value_place, i);
    RowInfo rows[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows[i].Load(operands, item.tile, item.head, first_row + lane % 4 * 2 + i);
    }
    float s[kTiles][4] = {};
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if (j >= kEarly) LoadTile<kD>(keys[j % kEarly], item.key_place, j);
      Score(s[j], q, keys[j % kEarly], rows, j * kTileTokens);
    }
    float m[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = Max(s[0][i], s[0][i + 2]);
#pragma unroll
      for (int j = 1; j < kTiles; ++j) largest = Max(largest, Max(s[j][i], s[j][i + 2]));
#pragma unroll
      for (int mask = 4; mask < kWarpThreads; mask *= 2) {
        largest = Max(largest, ShuffleXor(largest, mask));
      }
      m[i] = RaiseMaximum(kLowest, largest);
    }
    float l[4] = {};
    Sums o = {};
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if (j >= kEarlyValues) LoadTile<kDv>(values[j % kEarly], item.value_place, j);
      uint32_t p[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        p[half] = TransposeMatrix(
            Pack<Element>(Weight(s[j][2 * half], m[0]), Weight(s[j][2 * half + 1], m[1])));
      }
      Sum(o, l, p, values[j % kEarly]);
    }
    Write(o, l, m, item, first_row);
  }

  DEVICE void Attend(const Item& item) const {
    const int context = Uniform(item.tile.context), rows = Uniform(item.tile.rows);
    const int end = item.first_row + kWarpRows;
    for (int row = item.first_row; row < end && row < rows; row += 8) {
      if (context > 2 * kTileTokens) {
        Attend<kStepTiles>(item, row);
      } else if (context > 0) {
        Attend<2>(item, row);
      } else {
        Write(Sums{}, {}, {kLowest, kLowest}, item, row);
      }
    }
  }
};

struct AttentionShort {
  static DEVICE void Run(const AttentionOperands& operands) {
    AllowNextGrid();
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const ShortWarp self{operands, lane,
                         reinterpret_cast<const uint8_t*>(operands.layer) +
                             lane % 4 * 4 * static_cast<int>(sizeof(KvElement))};
    int at = static_cast<int>(blockIdx.x) * kWarps +
             Uniform(static_cast<int>(threadIdx.x) / kWarpThreads);
    const int stride = static_cast<int>(gridDim.x) * kWarps;
    ShortWarp::Item item;
    // One is looked up before the grid that wrote q has ended.
    bool has_item = self.Find(at, item);
    WaitForPriorGrid();
    while (has_item) {
      self.Attend(item);
      at += stride;
      has_item = self.Find(at, item);
    }
  }
};

#endif  // QUIRE_ATTENTION_SHORT_CUH_
