// The attention entry for tiles of many rows, whose warps have 16 rows each.
//
// kWarps warps walk their share of the work (attention_feed.cuh) through one ring. Warp w scores
// all tokens of a step for its 16 rows, and sums them for its columns: all, or half of them where
// two warps share rows (kColumnSplit). Keys and values of E4m3 become Elements first, by all warps.
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
    return keys + ProductKeys::Offset(token + lane % 8 + lane / 16 * 8, unit + lane / 8 % 2);
  }
  DEVICE uint32_t Values(uint32_t values, int token, int unit) const {
    return First<ProductValues>(values, token, unit);  // transposed
  }
  // Rows of a step, numbers of E4m3 at `from`, as Elements at `to` of the shared memory.
  template <typename From, typename To>
  DEVICE void Widen(int from, int to) const {
    for (int at = threadIdx.x; at < kStepTokens * From::kUnits; at += kThreads) {
      const int row = at / From::kUnits, unit = at % From::kUnits;
      const Words4 word = *reinterpret_cast<const Words4*>(shared + from + From::Offset(row, unit));
      Words4 first, second;
      WidenHalves<Element>(word.x, first.x, first.y);
      WidenHalves<Element>(word.y, first.z, first.w);
      WidenHalves<Element>(word.z, second.x, second.y);
      WidenHalves<Element>(word.w, second.z, second.w);
      *reinterpret_cast<Words4*>(shared + to + To::Offset(row, 2 * unit)) = first;
      *reinterpret_cast<Words4*>(shared + to + To::Offset(row, 2 * unit + 1)) = second;
    }
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
    static_assert(!kFew && kManyRows == kWarps / kColumnSplit * 16);
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
      uint32_t keys = feed.Next(), values = keys + kKeyBytes;
      const int stage = static_cast<int>(keys - SharedAddress(shared));
      if constexpr (kNarrow) {
        Widen<KeyRows, ProductKeys>(stage, kWidenedAt);
        if (kBothWide) {
          Widen<ValueRows, ProductValues>(stage + kKeyBytes, kWidenedAt + kWideKeyBytes);
        }
        SyncBlock();
        keys = SharedAddress(shared) + kWidenedAt;
        values = keys + (kBothWide ? kWideKeyBytes : 0);
      }
      float s[kStepTokens / 8][4] = {};
#pragma unroll(kSteps16 > 8 ? 4 : kSteps16)
      for (int k = 0; k < kSteps16; ++k) {
        uint32_t q[4];
        LoadMatrices(q, First<SharedQuery>(SharedAddress(shared), first_row, 2 * k));
#pragma unroll
        for (int i = 0; i < kStepTokens / 16; ++i)
          Score(s[2 * i], s[2 * i + 1], q, keys, 16 * i, k);
      }
      own.Finish(s, rows, whole, step, step * kStepTokens);
      float largest[2];
      Largest(s, largest);
      chunk.Raise(largest);
      if constexpr (kNarrow && !kBothWide) {
        SyncBlock();
        Widen<ValueRows, ProductValues>(stage + kKeyBytes, kWidenedAt);
        SyncBlock();
      }
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

  static DEVICE void Run(const AttentionOperands& operands) {
    if (!reinterpret_cast<const PlanHeader*>(operands.plan)->IsBehindMany()) AllowNextGrid();
    uint8_t* shared = SharedMemory();
    Attention attention{operands, shared, Feed{operands, shared}};
    attention.warp = threadIdx.x / kWarpThreads;
    attention.lane = threadIdx.x % kWarpThreads;
    attention.feed.Start();
    AllowNextGrid();
    Walk walk;
    walk.Start();
    Segment segment;
    while (walk.Next(operands.plan, segment)) attention.Many(segment);
  }
};

#endif  // QUIRE_ATTENTION_BODY_CUH_
