// A warp's 16 rows of a tile: their scores, sums and results, as the tensor core spreads them over
// lanes: lane l has rows l / 4 and l / 4 + 8, of each 8 columns 2 (l % 4) and the next.
#ifndef QUIRE_ATTENTION_ROWS_CUH_
#define QUIRE_ATTENTION_ROWS_CUH_

#include "attention.cuh"

// Sums of rows lane / 4 and lane / 4 + 8, kTiles tiles of 8 columns, as the tensor core has them.
template <int kTiles>
struct RowSums {
  float m[2], l[4], o[kTiles][4];

  DEVICE void Clear() {
    m[0] = m[1] = kLowest;
#pragma unroll
    for (int i = 0; i < 4; ++i) l[i] = 0;
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) o[i / 4][i % 4] = 0;
  }
  DEVICE void Raise(const float (&largest)[2]) {
    float scale[2];
    bool changes = false;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float raised = RaiseMaximum(m[row], largest[row]);
      changes |= raised != m[row];
      scale[row] = PowerOfTwo(Add(m[row], -raised));
      m[row] = raised;
    }
    if (!AnyLane(changes)) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) l[i] = Mul(l[i], scale[i / 2]);
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      o[i / 4][i % 4] = Mul(o[i / 4][i % 4], scale[i % 4 / 2]);
    }
  }
  DEVICE void Fold(const RowSums& more) {
    const FoldScales scales[2] = {FoldScales(m[0], more.m[0]), FoldScales(m[1], more.m[1])};
#pragma unroll
    for (int i = 0; i < 4; ++i) l[i] = scales[i / 2].Fold(l[i], more.l[i]);
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      o[i / 4][i % 4] = scales[i % 4 / 2].Fold(o[i / 4][i % 4], more.o[i / 4][i % 4]);
    }
  }
};

// Largest of a step's scores for rows lane / 4 and lane / 4 + 8, over the tokens of this warp.
template <int kTiles>
DEVICE void Largest(const float (&s)[kTiles][4], float (&largest)[2]) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float x = Max(s[0][2 * row], s[0][2 * row + 1]);
#pragma unroll
    for (int i = 1; i < kTiles; ++i) x = Max(x, Max(s[i][2 * row], s[i][2 * row + 1]));
    x = Max(x, ShuffleXor(x, 1));
    largest[row] = Max(x, ShuffleXor(x, 2));
  }
}

// Rows of one tile for one KV head, from `first_row` of the tile on.
struct WarpRows {
  const AttentionOperands& operands;
  const Tile& tile;
  int head, first_row, lane;

  DEVICE void Load(RowInfo (&rows)[2]) const {
    rows[0].Load(operands, tile, head, first_row + lane / 4);
    rows[1].Load(operands, tile, head, first_row + lane / 4 + 8);
  }
  // Scores of the tokens of step `step` from `token` on.
  template <int kTiles>
  DEVICE void Finish(float (&s)[kTiles][4], const RowInfo (&rows)[2], WholeSteps whole, int step,
                     int token) const {
    if (step < whole.begin || step >= whole.end) {
      FinishAs<true>(s, rows, token);
    } else {
      FinishAs<false>(s, rows, token);
    }
  }
  template <bool kMasked, int kTiles>
  DEVICE void FinishAs(float (&s)[kTiles][4], const RowInfo (&rows)[2], int token) const {
    if constexpr (!kPlain || kMasked) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int at = token + 8 * i + lane % 4 * 2;
        FinishScores(operands, s[i][0], s[i][1], rows[0], at, kMasked);
        FinishScores(operands, s[i][2], s[i][3], rows[1], at, kMasked);
      }
    }
  }
  // y of tiles of 16 columns, every tile_stride'th from first_tile.
  template <int kTiles>
  DEVICE void Write(const RowSums<kTiles>& sums, int first_tile, int tile_stride) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + lane / 4 + 8 * half;
      if (row >= tile.rows) continue;
      const float scale =
          FinalScale(operands, QueryHead(tile, head, row), sums.m[half], sums.l[2 * half]);
      Element* y = OutputRow(operands, tile, head, row);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int column = (first_tile + i / 2 * tile_stride) * 16 + i % 2 * 8 + lane % 4 * 2;
        if (column < kDv) {
          *reinterpret_cast<uint32_t*>(y + column) =
              Pack<Element>(Mul(sums.o[i][2 * half], scale), Mul(sums.o[i][2 * half + 1], scale));
        }
      }
    }
  }
};

#endif  // QUIRE_ATTENTION_ROWS_CUH_
