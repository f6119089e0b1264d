// The attention entries: for tiles of few rows, whose warps share a step's tokens and then the
// columns of its values, and for tiles of many rows, whose warps have 16 rows each.
//
// Block:   kWarps warps walk their share of the work (attention_feed.cuh) through one ring.
// Few:     warp w scores tokens 16 w .. 16 w + 15 of a step for all rows; largest scores, then p,
//          pass through shared memory; it sums columns 16 (w + 4 i) of the values.
// Many:    warp w scores all tokens of a step for its 16 rows, and sums them for its columns: all,
//          or half of them where two warps share rows (kColumnSplit).
// Merge:   a block that has a pair's first chunks folds them; what has other chunks of the pair in
//          other blocks goes to memory (Partial), a chunk each, and the block that arrives last
//          folds them in order. Nobody waits.
#ifndef QUIRE_ATTENTION_BODY_CUH_
#define QUIRE_ATTENTION_BODY_CUH_

#include "attention_feed.cuh"
#include "attention_rows.cuh"

struct Attention {
  const AttentionOperands& operands;
  uint8_t* const shared;
  Feed feed;
  int warp, lane;

  // Where this lane's matrices begin, so that four words are the four of a first operand, or two
  // pairs of a second, each in registers that follow each other.
  template <typename Rows>
  DEVICE uint32_t First(uint32_t base, int row, int unit) const {
    return base + Rows::Offset(row + lane % 16, unit + lane / 16);
  }
  DEVICE uint32_t Keys(uint32_t keys, int token, int unit) const {
    return keys + KeyRows::Offset(token + lane % 8 + lane / 16 * 8, unit + lane / 8 % 2);
  }
  DEVICE uint32_t Values(uint32_t values, int token, int unit) const {
    return First<ValueRows>(values, token, unit);  // transposed
  }
  // Scores of 16 tokens from `token` of the stage.
  DEVICE void Score(float (&low)[4], float (&high)[4], const uint32_t (&q)[4], uint32_t keys,
                    int token, int k) const {
    uint32_t words[4];
    LoadMatrices(words, Keys(keys, token, 2 * k));
    Mma<Element>(low, q, words[0], words[1]);
    Mma<Element>(high, q, words[2], words[3]);
  }
  DEVICE WarpRows RowsOf(const Segment& segment, int first_row) const {
    return {operands, segment.tile(operands.plan), segment.head, first_row, lane};
  }

  DEVICE void Many(const Segment& segment) {
    static_assert(kFew || kManyRows == kWarps / kColumnSplit * 16);
    constexpr int kOwnTiles = DivideUp(kColumnTiles, kColumnSplit);
    const int first_row = warp / kColumnSplit * 16, first_tile = warp % kColumnSplit * kOwnTiles;
    SyncBlock();
    QueryRows{operands, segment.tile(operands.plan), segment.head}.Load<kManyRows>(shared);
    const WarpRows own = RowsOf(segment, first_row);
    const WholeSteps whole(own.tile);
    RowInfo rows[2];
    own.Load(rows);
    RowSums<2 * kOwnTiles> total, chunk;
    total.Clear();
    chunk.Clear();
#pragma unroll 1
    for (int step = segment.step_begin; step < segment.step_end; ++step) {
      const uint32_t keys = feed.Next(), values = keys + kKeyBytes;
      float s[kStepTokens / 8][4] = {};
#pragma unroll(kSteps16 > 8 ? 4 : kSteps16)
      for (int k = 0; k < kSteps16; ++k) {
        uint32_t q[4];
        LoadMatrices(q, First<KeyRows>(SharedAddress(shared), first_row, 2 * k));
#pragma unroll
        for (int i = 0; i < kStepTokens / 16; ++i)
          Score(s[2 * i], s[2 * i + 1], q, keys, 16 * i, k);
      }
      own.Finish(s, rows, whole, step, step * kStepTokens);
      float largest[2];
      Largest(s, largest);
      chunk.Raise(largest);
#pragma unroll
      for (int i = 0; i < kStepTokens / 16; ++i) {
        uint32_t p[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* pair = &s[2 * i + j / 2][j % 2 * 2];
          p[j] = Pack<Element>(Weight(pair[0], chunk.m[j % 2]), Weight(pair[1], chunk.m[j % 2]));
        }
        Mma<Element>(chunk.l, p, Ones(), Ones());
#pragma unroll
        for (int c = 0; c < kOwnTiles; ++c) {
          if (kColumnTiles % kColumnSplit != 0 && first_tile + c >= kColumnTiles) continue;
          uint32_t v[4];
          LoadMatricesTransposed(v, Values(values, 16 * i, 2 * (first_tile + c)));
          Mma<Element>(chunk.o[2 * c], p, v[0], v[1]);
          Mma<Element>(chunk.o[2 * c + 1], p, v[2], v[3]);
        }
      }
      if ((step + 1) % kChunkSteps == 0 || step + 1 == segment.step_end) {
        total.Fold(chunk);
        chunk.Clear();
      }
    }
    own.Write(total, first_tile, 1);
  }

  static constexpr int kFewTiles = DivideUp(kColumnTiles, kWarps);
  using FewSums = RowSums<2 * kFewTiles>;

  DEVICE Partial* PartialOf(int unit) const {
    return reinterpret_cast<Partial*>(operands.plan + feed.Block().partials_at) + unit;
  }
  DEVICE void Publish(const FewSums& sums, int unit) const {
    Partial* partial = PartialOf(unit);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
#pragma unroll
      for (int i = 0; i < 2 * kFewTiles; ++i) {
        const int tile = warp + i / 2 * kWarps;
        if (kColumnTiles % kWarps != 0 && tile >= kColumnTiles) continue;
        float* to = &partial->o[row][tile * 16 + i % 2 * 8 + lane % 4 * 2];
        to[0] = sums.o[i][2 * half];
        to[1] = sums.o[i][2 * half + 1];
      }
      if (warp == 0 && lane % 4 == 0) {
        partial->statistics[row][0] = sums.m[half];
        partial->statistics[row][1] = sums.l[2 * half];
      }
    }
  }

  // `opens`: this is the block's first segment, whose q did not come with its first step.
  DEVICE void Few(const Segment& segment, bool opens) {
    uint8_t* weights = shared + kFewWeightsAt;
    float* all_largest = reinterpret_cast<float*>(shared + kFewLargestAt);
    if (opens && kStages > 1) {
      QueryRows{operands, segment.tile(operands.plan), segment.head}.Load<kFewRows>(shared);
    }
    const WarpRows own = RowsOf(segment, 0);
    const WholeSteps whole(own.tile);
    RowInfo rows[2];
    own.Load(rows);
    uint32_t q[kSteps16][4];
    FewSums total, chunk;
    total.Clear();
    chunk.Clear();
    int unit = segment.unit;
#pragma unroll 1
    for (int step = segment.step_begin; step < segment.step_end; ++step) {
      const uint32_t keys = feed.Next(), values = keys + kKeyBytes;
      if (step == segment.step_begin) {
        const uint32_t query = SharedAddress(shared) + feed.Stage(keys) * kFewQueryBytes;
#pragma unroll
        for (int k = 0; k < kSteps16; ++k) LoadMatrices(q[k], First<KeyRows>(query, 0, 2 * k));
      }
      float s[2][4] = {};
#pragma unroll
      for (int k = 0; k < kSteps16; ++k) Score(s[0], s[1], q[k], keys, 16 * warp, k);
      own.Finish(s, rows, whole, step, step * kStepTokens + 16 * warp);
      float largest[2];
      Largest(s, largest);
      if (lane % 4 == 0) {
        all_largest[warp * kFewRows + lane / 4] = largest[0];
        all_largest[warp * kFewRows + lane / 4 + 8] = largest[1];
      }
      SyncBlock();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* of_row = all_largest + lane / 4 + 8 * half;
        largest[half] = of_row[0];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) largest[half] = Max(largest[half], of_row[w * kFewRows]);
      }
      chunk.Raise(largest);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i % 2;
        const float* pair = &s[i / 2][2 * half];
        *reinterpret_cast<uint32_t*>(
            weights + WeightRows::Offset(lane / 4 + 8 * half, 2 * warp + i / 2) + lane % 4 * 4) =
            Pack<Element>(Weight(pair[0], chunk.m[half]), Weight(pair[1], chunk.m[half]));
      }
      SyncBlock();
#pragma unroll
      for (int i = 0; i < kStepTokens / 16; ++i) {
        uint32_t p[4];
        LoadMatrices(p, First<WeightRows>(SharedAddress(weights), 0, 2 * i));
        Mma<Element>(chunk.l, p, Ones(), Ones());
#pragma unroll
        for (int c = 0; c < kFewTiles; ++c) {
          const int tile = warp + c * kWarps;
          if (kColumnTiles % kWarps != 0 && tile >= kColumnTiles) continue;
          uint32_t v[4];
          LoadMatricesTransposed(v, Values(values, 16 * i, 2 * tile));
          Mma<Element>(chunk.o[2 * c], p, v[0], v[1]);
          Mma<Element>(chunk.o[2 * c + 1], p, v[2], v[3]);
        }
      }
      if ((step + 1) % kChunkSteps == 0 || step + 1 == segment.step_end) {
        if (segment.first) {
          total.Fold(chunk);
        } else {
          Publish(chunk, unit++);
        }
        chunk.Clear();
      }
    }
    if (segment.first && segment.last) {
      own.Write(total, warp, kWarps);
      return;
    }
    if (segment.first) Publish(total, segment.unit);
    Arrive(segment);
  }

  // The block that has all of a pair's partials behind it folds them.
  DEVICE void Arrive(const Segment& segment) {
    const int chunks = segment.tile(operands.plan).chunks();
    auto* word = reinterpret_cast<uint32_t*>(shared + kFewWordAt);
    SyncBlock();
    if (threadIdx.x == 0) {
      auto* arrivals = reinterpret_cast<uint32_t*>(operands.plan + feed.Block().arrivals_at);
      const uint32_t units = static_cast<uint32_t>(segment.units);
      *word = CountArrival(arrivals + segment.pair, units) + units;
      if (*word == static_cast<uint32_t>(chunks)) arrivals[segment.pair] = 0;
    }
    SyncBlock();
    if (*word == static_cast<uint32_t>(chunks)) Merge(segment, chunks, feed.Block().units);
  }

  DEVICE void Merge(const Segment& segment, int chunks, int units) const {
    const Tile& tile = segment.tile(operands.plan);
    const int first = tile.unit * kHkv + segment.head * chunks, last = first + chunks;
    // The first partial has the chunks that its block had.
    const int folded = BlockBegin(BlockOf(first, gridDim.x, units) + 1, gridDim.x, units);
    constexpr int kRowVectors = Partial::kColumns / 4;
    for (int at = threadIdx.x; at < tile.rows * kRowVectors; at += kThreads) {
      const int row = at / kRowVectors, column = at % kRowVectors * 4;
      float m = kLowest, l = 0, o[4] = {};
      constexpr int kBatch = 4;
      for (int unit = first; unit < last;) {
        float statistics[kBatch][4], more[kBatch][4];
        int at_unit[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          at_unit[i] = unit;
          if (unit < last) {
            LoadFromL2(statistics[i], PartialOf(unit)->statistics[row]);
            LoadFromL2(more[i], PartialOf(unit)->o[row] + column);
            unit = unit == first ? folded : unit + 1;
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (at_unit[i] >= last) continue;
          const FoldScales scales(m, statistics[i][0]);
          l = scales.Fold(l, statistics[i][1]);
#pragma unroll
          for (int j = 0; j < 4; ++j) o[j] = scales.Fold(o[j], more[i][j]);
        }
      }
      const float scale = FinalScale(operands, QueryHead(tile, segment.head, row), m, l);
      if (column < kDv) {
        auto* y =
            reinterpret_cast<uint32_t*>(OutputRow(operands, tile, segment.head, row) + column);
        y[0] = Pack<Element>(Mul(o[0], scale), Mul(o[1], scale));
        y[1] = Pack<Element>(Mul(o[2], scale), Mul(o[3], scale));
      }
    }
  }

  static DEVICE void Run(const AttentionOperands& operands) {
    AllowNextGrid();
    uint8_t* shared = SharedMemory();
    Attention attention{operands, shared, Feed{operands, shared}};
    attention.warp = threadIdx.x / kWarpThreads;
    attention.lane = threadIdx.x % kWarpThreads;
    attention.feed.Start();
    Walk walk;
    walk.Start(operands.plan);
    Segment segment;
    bool opens = true;
    while (walk.Next(operands.plan, segment)) {
      if constexpr (kFew) {
        attention.Few(segment, opens);
        opens &= segment.step_begin == segment.step_end;
      } else {
        attention.Many(segment);
      }
    }
  }
};

#endif  // QUIRE_ATTENTION_BODY_CUH_
