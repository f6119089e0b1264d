// The stream of 16-token tiles of keys and values that a team of warps of the entry for few rows
// reads: a block's units go to its teams in turn, each with its own ring. Where a block shares one
// chunk, each warp has its own ring instead.
//
// Shared memory of the entry, in bytes:
//   0              rings [kTeams][kStages] of kSlotBytes, a tile each
//   kSumsAt        of teams: SumWords [kShare]; of a shared chunk: p as ChunkWeightRows [kFewRows],
//                  then largest scores [kChunkTiles][kFewRows]
//   kOpenAt        OpenPair [2]
#ifndef QUIRE_ATTENTION_TILES_CUH_
#define QUIRE_ATTENTION_TILES_CUH_

#include "attention.cuh"

constexpr int kTileRowBytes =
    KeyRows::kRowBytes > ValueRows::kRowBytes ? KeyRows::kRowBytes : ValueRows::kRowBytes;
constexpr int kSlotBytes = DivideUp(kTileTokens * kTileRowBytes, 128) * 128;
using ChunkWeightRows = SharedRows<kChunkTokens>;
constexpr int kSumsAt = kTeams * kStages * kSlotBytes;
constexpr int kLargestAt = kSumsAt + kFewRows * ChunkWeightRows::kRowBytes;
constexpr int kWeightsBytes = kLargestAt + kChunkTiles * kFewRows * 4 - kSumsAt;
// Sums of a warp's rows, by lane: vectors of four.
constexpr int kSumVectors = kWarpRows / 8 * (kColumnTiles + 1);
constexpr int kSumsBytes = kShare * kSumVectors * kWarpThreads * 16;
constexpr int kOpenAt =
    kSumsAt + (kMayShareChunk && kWeightsBytes > kSumsBytes ? kWeightsBytes : kSumsBytes);

// A chunk of one tile of few rows for one KV head.
struct Segment {
  int tile_at;  // byte of the plan
  int head;
  int step_begin, step_end;
  int chunk, chunks;  // of those that the tile sees
  int unit;
  int pair;  // index of (tile, head)

  DEVICE const Tile& tile(const uint8_t* plan) const {
    return *reinterpret_cast<const Tile*>(plan + tile_at);
  }
  DEVICE bool last() const { return chunk + 1 == chunks; }
};
// A pair of which a block has a part.
struct OpenPair {
  Segment segment;  // one of its chunks
  int units;        // that the block has; 0: there is no such pair
  int folded;       // of them, in the first partial
};
constexpr int kFewBytes = kOpenAt + 2 * static_cast<int>(sizeof(OpenPair));
static_assert(kFew && kStages >= 2 && kSharedBytes >= kFewBytes, "the launch rule's bytes");

// Every kTeams'th of a block's units.
struct Walk {
  int tile_at, few_tile;
  int unit, unit_end;

  DEVICE static const BlockStart& Of(const uint8_t* plan) {
    return reinterpret_cast<const BlockStart*>(plan + sizeof(PlanHeader))[blockIdx.x];
  }
  DEVICE void Start(const uint8_t* plan, int first) {
    const BlockStart& start = Of(plan);
    tile_at = static_cast<int>(sizeof(PlanHeader) + blockIdx.x * sizeof(BlockStart));
    few_tile = start.few_tile;
    unit = start.unit + first;
    unit_end = start.unit_end;
  }
  DEVICE bool Next(const uint8_t* plan, Segment& segment) {
    if (unit >= unit_end) return false;
    const Tile* tile = reinterpret_cast<const Tile*>(plan + tile_at);
    int at = unit - tile->unit * kHkv, chunks = tile->chunks();
    while (at >= chunks * kHkv) {
      ++few_tile;
      tile_at = Of(plan).header.few_at + few_tile * static_cast<int>(sizeof(Tile));
      tile = reinterpret_cast<const Tile*>(plan + tile_at);
      at = unit - tile->unit * kHkv;
      chunks = tile->chunks();
    }
    segment.tile_at = tile_at;
    segment.head = at / chunks;
    segment.chunk = at % chunks;
    segment.chunks = chunks;
    segment.unit = unit;
    segment.pair = few_tile * kHkv + segment.head;
    const int begin = (tile->chunk_begin() + segment.chunk) * kChunkSteps;
    segment.step_begin = begin > tile->step_begin ? begin : tile->step_begin;
    segment.step_end = begin + kChunkSteps < tile->step_end ? begin + kChunkSteps : tile->step_end;
    unit += kTeams;
    return true;
  }
};

// Copies of a warp's tiles, one group a tile, in phases: the kTiles tiles of keys of a step, then
// those of values. Of a step tile j begins at token base + kStride j: the step's tiles in order.
// Where a block shares a chunk, that is its step, of which a warp has every kWarps'th tile.
template <bool kTogether>
struct TileFeed {
  static constexpr int kCopyWarps = kTogether ? 1 : kShare;  // that share the ring
  static constexpr int kTiles = kTogether ? kTilesEach : kStepTiles;
  static constexpr int kPhases = 2 * kTiles;
  static constexpr int kStride = kTogether ? kWarps * kTileTokens : kTileTokens;
  static constexpr bool kWholeTiles = kPageTokens % kTileTokens == 0;  // in one page each
  static constexpr int kLooks = kWholeTiles ? 1 : 2;                   // a lane's entries of a step
  static constexpr int kPageUnits = kHkv * kPageTokens * (kD + kDv) / kUnitElements;

  const AttentionOperands& operands;
  int lane;
  int part;  // the warp's number in its team, or in a block that shares a chunk
  Walk walk;
  // The step after the one that is being copied.
  Segment segment;
  int step, context, own_begin, first, pages_begin;
  bool known;
  int page[kLooks], row[kLooks];  // entries whose tokens are copied
  // The step that is being copied.
  bool copies;                             // whether there was one
  int place[kLooks], value_place[kLooks];  // in units of 16 bytes
  int row_begin, row_end;                  // tokens that are copied, others are zeros
  int own_from;                            // the first that the prior grid may have written

  DEVICE int StepBase() const {
    return kTogether ? step / kChunkSteps * kChunkTokens + part * kTileTokens : step * kStepTokens;
  }
  // To the next step there is.
  DEVICE void Advance() {
    step = kTogether ? segment.step_end : step + 1;
    while (step >= segment.step_end) {
      if (!walk.Next(operands.plan, segment)) {
        known = false;
        return;
      }
      step = segment.step_begin;
      const Tile& tile = segment.tile(operands.plan);
      context = tile.context;
      own_begin = tile.context - tile.tokens;
      pages_begin = tile.pages_begin;
      first = 0;
      // Pages before every row's window may have gone.
      if constexpr (kWindow > 0) first = own_begin + tile.row / kGroup - kWindow + 1;
    }
  }
  DEVICE void Look() {
    if (!known) return;
    const int base = StepBase();
#pragma unroll
    for (int i = 0; i < kLooks; ++i) {
      const int tile = kWholeTiles ? lane % kTiles : lane / kTileTokens + 2 * i;
      const int token = base + tile * kStride + (kWholeTiles ? 0 : lane % kTileTokens);
      page[i] = 0;
      if (token < context && token + (kWholeTiles ? kTileTokens : 1) > first) {
        page[i] = operands.pages[pages_begin + token / kPageTokens];
      }
      row[i] = segment.head * kPageTokens + token % kPageTokens;
    }
  }
  // The step that was looked up becomes the one to copy.
  DEVICE void Take() {
    copies = known;
    if (!known) return;
    const int base = StepBase();
    row_begin = first - base;
    row_end = context - base;
    own_from = own_begin - base;
#pragma unroll
    for (int i = 0; i < kLooks; ++i) {
      place[i] = page[i] * kPageUnits + row[i] * (kD / kUnitElements);
      if constexpr (kD != kDv) {
        value_place[i] = page[i] * kPageUnits + kHkv * kPageTokens * (kD / kUnitElements) +
                         row[i] * (kDv / kUnitElements);
      }
    }
    Advance();
    Look();
  }

  // This warp's share of the rows of tile `tile` into the slot at `to`; `from_begin` bytes behind
  // their places.
  template <typename Rows, int kElements>
  DEVICE void CopyRows(uint32_t to, int tile, const int (&places)[kLooks], int from_begin) const {
    constexpr int kUnits = Rows::kUnits, kAll = kTileTokens * kUnits;
    constexpr int kCopies = DivideUp(kAll, kWarpThreads * kCopyWarps);
    constexpr bool kEven = kAll % (kWarpThreads * kCopyWarps) == 0;
    const int begin = row_begin - tile * kStride, end = row_end - tile * kStride;
    const int at = (kCopyWarps > 1 ? part * kCopies * kWarpThreads : 0) + lane;
    const auto* layer = reinterpret_cast<const uint8_t*>(operands.layer) + from_begin;
    // Rows' places that follow each other, and so do the lanes' in shared memory.
    constexpr bool kStraight = kWholeTiles && kElements % 16 == 0 && kWarpThreads % kUnits == 0 &&
                               Rows::kSwizzled && kEven;
    const int of_tile =
        kWholeTiles ? static_cast<int>(Shuffle(static_cast<uint32_t>(places[0]), tile)) : 0;
    if (kStraight && begin <= 0 && end >= kTileTokens) {
      constexpr int kPassRows = DivideUp(kWarpThreads, kUnits);
      const uint8_t* from = layer + int64_t{of_tile} * 16 + at * 16;
      uint32_t first_to = to + Rows::Offset(at / kUnits, at % kUnits);
      if (!kNarrow) first_to = Shuffle(first_to, lane);  // a lane's own, for CopyAsyncOnce
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        // The row's low bits change in no other place than the pass's.
        const uint32_t to_row =
            (first_to ^ (i * kPassRows % 8 * 16)) + i * kPassRows * Rows::kRowBytes;
        if constexpr (kNarrow) {  // bytes gain nothing
          CopyAsync(to_row, from + i * kWarpThreads * 16);
        } else {
          CopyAsyncOnce(to_row, from + i * kWarpThreads * 16);
        }
      }
      return;
    }
#pragma unroll(kStraight ? 1 : kCopies)
    for (int i = 0; i < kCopies; ++i) {
      const int index = at + i * kWarpThreads;
      const int in_tile = index / kUnits, unit = index % kUnits;
      int base = of_tile;
      if constexpr (!kWholeTiles) {
        const int entry = tile < 2 ? places[0] : places[kLooks - 1];
        base = static_cast<int>(
            Shuffle(static_cast<uint32_t>(entry), tile % 2 * kTileTokens + in_tile % kTileTokens));
      }
      if (!kEven && index >= kAll) continue;
      const bool copied = unit < kElements / kUnitElements && in_tile >= begin && in_tile < end;
      const uint8_t* from = layer + (int64_t{base} + unit) * 16;
      if (kWholeTiles) from += in_tile * (kElements * static_cast<int>(sizeof(KvElement)));
      CopyAsync(to + Rows::Offset(in_tile, unit), copied ? from : layer, copied ? 16 : 0);
    }
  }
  // Starts the copies of the next phase, `phase` of kPhases, into `slot`.
  DEVICE void Issue(int phase, uint32_t slot) {
    if (phase == 0) Take();
    const int tile = phase % kTiles;
    if (copies) {
      if constexpr (kD == kDv) {
        constexpr int kValuesFrom = kHkv * kPageTokens * kD * static_cast<int>(sizeof(KvElement));
        CopyRows<KeyRows, kD>(slot, tile, place, phase < kTiles ? 0 : kValuesFrom);
      } else if (phase < kTiles) {
        CopyRows<KeyRows, kD>(slot, tile, place, 0);
      } else {
        CopyRows<ValueRows, kDv>(slot, tile, value_place, 0);
      }
    }
    CommitCopies();
  }
  // Whether phase `phase`, the next, has what the prior grid may have written.
  DEVICE bool IsOwn(int phase) const {
    return copies && own_from < phase % kTiles * kStride + kTileTokens;
  }

  // Fills the first `count` slots, as far as it can before the prior grid has ended.
  DEVICE void Start(int first_unit, int count, uint32_t ring) {
    walk.Start(operands.plan, first_unit);
    segment.step_end = step = 0;
    known = true;
    Advance();
    Look();
    bool waited = Walk::Of(operands.plan).header.IsBehindMany();
    if (waited) FenceDevice();  // what others wrote is read after this
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      // What the step has is known when its first phase has begun.
      const bool own =
          i % kPhases == 0 ? known && own_begin < StepBase() + kTileTokens : IsOwn(i % kPhases);
      if (!waited && own) {
        WaitForPriorGrid();
        waited = true;
      }
      Issue(i % kPhases, ring + i * kSlotBytes);
    }
    if (!waited) WaitForPriorGrid();
  }
};

#endif  // QUIRE_ATTENTION_TILES_CUH_
