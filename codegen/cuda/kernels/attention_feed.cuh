// A block's share of the attention kernels' work, and the stream of keys and values that it reads.
//
// Shared memory of the attention entry, in bytes:
//   0              q and what the bodies exchange (kQueryBytes)
//   kQueryBytes    kStages stages: keys [kStepTokens], then values [kStepTokens], as SharedRows
//   kTableAt       where keys of a step's tokens lie: int [2][kStepTokens], and of values where
//                  kDv differs
#ifndef QUIRE_ATTENTION_FEED_CUH_
#define QUIRE_ATTENTION_FEED_CUH_

#include "attention.cuh"

DEVICE constexpr int Larger(int a, int b) { return a > b ? a : b; }

// What bodies of few rows keep beside q: p, largest scores a warp and row, and one word.
constexpr int kFewWeightsAt = kFewRows * KeyRows::kRowBytes;
constexpr int kFewLargestAt = kFewWeightsAt + kFewRows * WeightRows::kRowBytes;
constexpr int kFewWordAt = kFewLargestAt + kWarps * kFewRows * 4;
constexpr int kQueryBytes =
    DivideUp(Larger(kManyRows * KeyRows::kRowBytes, kFewWordAt + 16), 128) * 128;
constexpr int kKeyBytes = kStepTokens * KeyRows::kRowBytes;
constexpr int kStageBytes = kKeyBytes + kStepTokens * ValueRows::kRowBytes;
constexpr int kTables = kD == kDv ? 1 : 2;
constexpr int kTableAt = kQueryBytes + kStages * kStageBytes;
static_assert(kSharedBytes >= kTableAt + 2 * kTables * kStepTokens * 4, "the launch rule's bytes");

// Consecutive steps of one tile for one KV head.
struct Segment {
  int tile_at;  // byte of the plan
  int head;
  int step_begin, step_end;
  // Of tiles of few rows:
  bool first, last;  // whether it has the first and the last chunk that the tile sees
  int unit, units;   // the first of its units, and their number
  int pair;          // index of (tile, head)

  DEVICE const Tile& tile(const uint8_t* plan) const {
    return *reinterpret_cast<const Tile*>(plan + tile_at);
  }
};

// A block's segments in order: those of tiles of few rows in its range of units, then every
// gridDim'th pair of a tile of many rows and a KV head.
struct Walk {
  int few_tile;
  int unit, unit_end, pair;

  DEVICE void Start(const uint8_t* plan) {
    const auto& header = *reinterpret_cast<const PlanHeader*>(plan);
    unit = BlockBegin(blockIdx.x, gridDim.x, header.units);
    unit_end = BlockBegin(blockIdx.x + 1, gridDim.x, header.units);
    pair = blockIdx.x;
    few_tile = reinterpret_cast<const int*>(plan + int64_t{header.blocks_at} * 16)[blockIdx.x];
  }
  DEVICE bool NextFew(const uint8_t* plan, Segment& segment) {
    if (unit == unit_end) return false;
    const Tile* tile = reinterpret_cast<const Tile*>(plan + sizeof(PlanHeader)) + few_tile;
    int at = unit - tile->unit * kHkv, chunks = tile->chunks();
    while (at >= chunks * kHkv) {
      ++tile, ++few_tile;
      at = unit - tile->unit * kHkv;
      chunks = tile->chunks();
    }
    constexpr int kChunkSteps = kChunkTokens / kStepTokens;
    segment.tile_at = static_cast<int>(sizeof(PlanHeader) + few_tile * sizeof(Tile));
    segment.head = at / chunks;
    const int chunk = at % chunks, left = unit_end - unit;
    segment.units = chunks - chunk < left ? chunks - chunk : left;
    segment.first = chunk == 0;
    segment.last = chunk + segment.units == chunks;
    segment.unit = unit;
    segment.pair = few_tile * kHkv + segment.head;
    const int begin = (tile->chunk_begin() + chunk) * kChunkSteps;
    const int end = begin + segment.units * kChunkSteps;
    segment.step_begin = begin > tile->step_begin ? begin : tile->step_begin;
    segment.step_end = end < tile->step_end ? end : tile->step_end;
    unit += segment.units;
    return true;
  }
  DEVICE bool NextMany(const uint8_t* plan, Segment& segment) {
    const auto& header = *reinterpret_cast<const PlanHeader*>(plan);
    if (pair >= header.many_tiles * kHkv) return false;
    segment.tile_at = header.many_at * 16 + pair / kHkv * static_cast<int>(sizeof(Tile));
    segment.head = pair % kHkv;
    segment.step_begin = segment.tile(plan).step_begin;
    segment.step_end = segment.tile(plan).step_end;
    pair += gridDim.x;
    return true;
  }
};

// Copies of the steps of a block's segments, one group a step, kStages - 1 steps ahead of their
// use. A step's places in the pool come from its pages' table entries, which are read another step
// ahead.
struct Feed {
  const AttentionOperands& operands;
  uint8_t* shared;
  Walk walk;
  Segment segment;
  int step;            // of `segment`, whose table entries are `page`
  int page;            // of this thread's token, -1: not there
  bool known, tabled;  // whether there is such a step; whether there is one in the table
  int turn;            // of the table
  int stage;           // the next to read

  DEVICE int* Table() const { return reinterpret_cast<int*>(shared + kTableAt); }

  // To the next step there is.
  DEVICE void Look() {
    ++step;
    while (step >= segment.step_end) {
      if (!walk.NextFew(operands.plan, segment) && !walk.NextMany(operands.plan, segment)) {
        known = false;
        return;
      }
      step = segment.step_begin;
    }
    known = true;
    const int token = step * kStepTokens + static_cast<int>(threadIdx.x);
    const Tile& tile = segment.tile(operands.plan);
    bool there = threadIdx.x < kStepTokens && token < tile.context;
    // Pages before every row's window may have gone.
    if constexpr (kWindow > 0) {
      there &= token > tile.context - tile.tokens + tile.row / kGroup - kWindow;
    }
    page = there ? operands.pages[tile.pages_begin + token / kPageTokens] : -1;
  }

  // The known step's places into the table, in units of 16 bytes.
  DEVICE void Tabulate() {
    if (known && threadIdx.x < kStepTokens) {
      constexpr int kPageUnits = kHkv * kPageTokens * (kD + kDv) / 8;
      const int token = step * kStepTokens + static_cast<int>(threadIdx.x);
      const int row = segment.head * kPageTokens + token % kPageTokens;
      int* entry = Table() + turn * kTables * kStepTokens + threadIdx.x;
      entry[0] = page < 0 ? -1 : page * kPageUnits + row * (kD / 8);
      if constexpr (kD != kDv) {
        entry[kStepTokens] = page * kPageUnits + kHkv * kPageTokens * (kD / 8) + row * (kDv / 8);
      }
    }
    tabled = known;
  }

  template <typename Rows, int kElements>
  DEVICE void CopyRows(uint32_t to, const int* places, const int* there, int64_t begin) const {
    const auto* layer = reinterpret_cast<const uint8_t*>(operands.layer);
#pragma unroll 4
    for (int i = 0; i < kStepTokens * Rows::kUnits / kThreads; ++i) {
      const int at = threadIdx.x + i * kThreads, row = at / Rows::kUnits, unit = at % Rows::kUnits;
      const bool copies = there[row] >= 0 && (kElements % 16 == 0 || unit < kElements / 8);
      const uint8_t* from = layer;
      if (copies) from += (int64_t{places[row]} + begin + unit) * 16;
      CopyAsync(to + Rows::Offset(row, unit), from, copies ? 16 : 0);
    }
  }

  // Starts the copies of the step in the table into stage `to`.
  DEVICE void Issue(int to) {
    if (tabled) {
      const int* keys = Table() + turn * kTables * kStepTokens;
      const uint32_t at = SharedAddress(shared) + kQueryBytes + to * kStageBytes;
      CopyRows<KeyRows, kD>(at, keys, keys, 0);
      constexpr bool kSame = kD == kDv;
      CopyRows<ValueRows, kDv>(at + kKeyBytes, kSame ? keys : keys + kStepTokens, keys,
                               kSame ? kHkv * kPageTokens * (kD / 8) : 0);
    }
    CommitCopies();
    turn ^= 1;
    Tabulate();
    if (known) Look();
  }

  DEVICE void Start() {
    walk.Start(operands.plan);
    segment.step_end = step = 0;
    turn = stage = 0;
    Look();
    Tabulate();
    if (known) Look();
    for (int i = 0; i < kStages - 1; ++i) {
      SyncBlock();
      Issue(i);
    }
  }

  // The shared address of the next step's keys; its values follow. The stage before it is free.
  DEVICE uint32_t Next() {
    const int at = stage;
    if constexpr (kStages == 1) {
      SyncBlock();
      Issue(0);
      WaitForCopies<0>();
      SyncBlock();
    } else {
      WaitForCopies<kStages - 2>();
      SyncBlock();
      Issue(at == 0 ? kStages - 1 : at - 1);
      stage = at + 1 == kStages ? 0 : at + 1;
    }
    return SharedAddress(shared) + kQueryBytes + at * kStageBytes;
  }
};

// The tile's rows of q, zeros behind them and behind kD.
template <int kRows>
DEVICE void LoadQuery(const AttentionOperands& operands, const Segment& segment, uint8_t* shared) {
  const Tile& tile = segment.tile(operands.plan);
  for (int at = threadIdx.x; at < kRows * KeyRows::kUnits; at += kThreads) {
    const int row = at / KeyRows::kUnits, unit = at % KeyRows::kUnits;
    Words4 words = {};
    if (row < tile.rows && unit < kD / 8) {
      const int in_sequence = tile.row + row;
      const int64_t token = tile.first_row + in_sequence / kGroup;
      const int64_t q_row = token * kHq + segment.head * kGroup + in_sequence % kGroup;
      words = reinterpret_cast<const Words4*>(operands.q)[q_row * (kD / 8) + unit];
    }
    *reinterpret_cast<Words4*>(shared + KeyRows::Offset(row, unit)) = words;
  }
}

#endif  // QUIRE_ATTENTION_FEED_CUH_
