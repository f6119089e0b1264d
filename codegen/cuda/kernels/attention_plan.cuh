// The attention kernels' work list, once a step, on the device: one block.
//
// A sequence of up to kFewRowsMost rows (tokens * kGroup) becomes tiles of kFewRows, short ones
// where its context is up to kShortTokens; any other tiles of kManyRows, the last first, as they
// see most. Nothing here decides a bit of a result.
//
// Where there are tiles of either kind, products bound one and memory the other: each has
// multiprocessors of its own, so that both end about together. Tiles of many rows come first: what
// the other entry has is dealt to the blocks that begin where these leave room.
//
// Grids behind this one start when it has ended and fenced: what it wrote may be read before
// WaitForPriorGrid.
#ifndef QUIRE_ATTENTION_PLAN_CUH_
#define QUIRE_ATTENTION_PLAN_CUH_

#include "attention.cuh"

// What the plan's memory was made for.
struct PlanLimits {
  int few_tiles, many_tiles;
  int blocks;  // of the entry for few rows
  int multiprocessors;
};

struct AttentionPlan {
  // Tiles of few rows, short ones and those of many rows; of the first also chunks, and steps (at
  // least one a tile); of the last what they take, in about a step's time.
  static constexpr int kFewTiles = 0, kShortTiles = 1, kManyTiles = 2, kUnits = 3, kSteps = 4,
                       kManySteps = 5, kCounts = 6;
  struct Counts {
    int of[kCounts];
    // In registers, where an index would put all of them in memory.
    DEVICE int Of(int what) const {
      int count = of[0];
#pragma unroll
      for (int i = 1; i < kCounts; ++i) count = what == i ? of[i] : count;
      return count;
    }
  };

  // Every thread has `each` sequences that follow each other; what stands before them.
  Counts* before;
  const StepSequence* sequences;
  int count, each;

  // Which tiles a sequence has.
  static DEVICE int KindOf(const StepSequence& sequence) {
    if (sequence.rows * kGroup > kFewRowsMost) return kManyTiles;
    return sequence.context <= kShortTokens ? kShortTiles : kFewTiles;
  }

  // Tile `index` of a sequence in tiles of `tile_rows`.
  static DEVICE Tile MakeTile(const StepSequence& sequence, int tile_rows, int index) {
    Tile tile = {};
    tile.first_row = sequence.first_row;
    tile.tokens = sequence.rows;
    tile.context = sequence.context;
    tile.pages_begin = sequence.pages_begin;
    tile.row = index * tile_rows;
    const int left = sequence.rows * kGroup - tile.row;
    tile.rows = left < tile_rows ? left : tile_rows;
    int begin = 0, end = sequence.context;
    if constexpr (kCausal) {
      const int own_begin = sequence.context - sequence.rows;
      end = own_begin + (tile.row + tile.rows - 1) / kGroup + 1;
      if (kWindow > 0) begin = own_begin + tile.row / kGroup - kWindow + 1;
    }
    if (begin < 0) begin = 0;
    if (end < begin) end = begin;
    tile.step_begin = begin / kStepTokens;
    tile.step_end = begin < end ? (end + kStepTokens - 1) / kStepTokens : tile.step_begin;
    return tile;
  }

  static DEVICE int TileSteps(const Tile& tile) {
    const int steps = tile.step_end - tile.step_begin;
    return steps > 1 ? steps : 1;
  }

  static DEVICE Counts Count(const StepSequence& sequence) {
    const int kind = KindOf(sequence);
    const int tiles = DivideUp(sequence.rows * kGroup, kind == kManyTiles ? kManyRows : kFewRows);
    Counts counts = {{kind == kFewTiles ? tiles : 0, kind == kShortTiles ? tiles : 0,
                      kind == kManyTiles ? tiles : 0, 0, 0, 0}};
    if (kind == kManyTiles) {
      int seen = kCausal ? sequence.context - sequence.rows / 2 : sequence.context;
      if (kWindow > 0 && seen > kWindow) seen = kWindow;
      counts.of[kManySteps] = tiles * (seen / kStepTokens + kTileSteps);
    }
    for (int i = 0; kind == kFewTiles && i < tiles; ++i) {
      const Tile tile = MakeTile(sequence, kFewRows, i);
      counts.of[kUnits] += tile.chunks();
      counts.of[kSteps] += TileSteps(tile);
    }
    return counts;
  }

  // What all sequences have; `before` is filled.
  DEVICE Counts Scan() const {
    const int thread = threadIdx.x;
    Counts own = {};
    for (int s = thread * each; s < count && s < (thread + 1) * each; ++s) {
      const Counts more = Count(sequences[s]);
#pragma unroll
      for (int i = 0; i < kCounts; ++i) own.of[i] += more.of[i];
    }
    Counts sum = own;
    before[thread] = sum;
    for (int distance = 1; distance < kThreads; distance *= 2) {
      SyncBlock();
      Counts more = {};
      if (thread >= distance) more = before[thread - distance];
      SyncBlock();
#pragma unroll
      for (int i = 0; i < kCounts; ++i) sum.of[i] += more.of[i];
      before[thread] = sum;
    }
    SyncBlock();
    const Counts total = before[kThreads - 1];
    SyncBlock();
#pragma unroll
    for (int i = 0; i < kCounts; ++i) sum.of[i] -= own.of[i];
    before[thread] = sum;
    SyncBlock();
    return total;
  }

  // The sequence that has `at` (a tile of a kind, a unit, a step), counted from the sequence's own.
  DEVICE StepSequence Find(int what, int& at, Counts& counts) const {
    int low = 0, high = kThreads;  // the last thread before whose sequences there are <= at
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (before[middle].of[what] <= at) {
        low = middle;
      } else {
        high = middle;
      }
    }
    counts = before[low];
    for (int s = low * each;; ++s) {
      const StepSequence sequence = sequences[s];
      const Counts own = Count(sequence);
      if (s + 1 == count || at < counts.Of(what) + own.Of(what)) {
        at -= counts.Of(what);
        return sequence;
      }
#pragma unroll
      for (int i = 0; i < kCounts; ++i) counts.of[i] += own.of[i];
    }
  }

  // Times on an H200, where memory brings the keys and values of a step of few rows in 1: what a
  // multiprocessor takes for a step of many, and more while memory is busy, and for one of few.
  // kTileSteps: of many rows, what a tile takes beside its steps.
  static constexpr int kManyTime = kManyRows * 7 / 4 / static_cast<int>(sizeof(KvElement));
  static constexpr int kBusyTime = kManyTime * 3 / 7;
  static constexpr int kFewTime = kNarrow ? 150 : 96;
  static constexpr int kTileSteps = 3;

  // Blocks of the entry for many rows that work, of one for each multiprocessor.
  static DEVICE int ManyBlocks(const Counts& total, int multiprocessors) {
    if (!kGridsOverlap || total.of[kSteps] == 0) return multiprocessors;
    const float many_steps = static_cast<float>(total.of[kManySteps]) * kHkv;
    const float few = static_cast<float>(total.of[kSteps]) * kHkv;
    const float each = 1.0f / static_cast<float>(multiprocessors);
    float many = many_steps * kManyTime;
    float time = Max(few, (many + few * kFewTime) * each);
    many += many_steps * kBusyTime * (few / time);
    time = Max(few, (many + few * kFewTime) * each);
    const int blocks = static_cast<int>(many / time) + 1, pairs = total.of[kManyTiles] * kHkv;
    const int most = pairs < multiprocessors ? pairs : multiprocessors;
    return blocks < most ? blocks : most;
  }

  DEVICE void WriteTiles(int kind, Tile* tiles, int tile_count) const {
    const int rows = kind == kManyTiles ? kManyRows : kFewRows;
    for (int i = threadIdx.x; i < tile_count; i += kThreads) {
      Counts counts;
      int at = i;
      const StepSequence sequence = Find(kind, at, counts);
      const int last = DivideUp(sequence.rows * kGroup, rows) - 1;
      int unit = counts.of[kUnits];
      Tile tile = {};
#pragma unroll 1
      for (int j = kind == kFewTiles ? 0 : at; j <= at; ++j) {
        if (j > 0 && kind == kFewTiles) unit += tile.chunks();
        tile = MakeTile(sequence, rows, kind == kManyTiles ? last - j : j);
      }
      tile.unit = unit;
      tiles[i] = tile;
    }
  }

  // The first unit of a block, and its tile: that nearest to unit or step (`what`) `at` of all
  // tiles and heads. A pair about as long as the `share` that a block has, or shorter, is not cut,
  // and little of one is not cut off.
  DEVICE void Locate(int what, int at, int share, BlockStart& start) const {
    Counts counts;
    int in_sequence = at / kHkv, index = 0, unit = 0, length = 0;
    const StepSequence sequence = Find(what, in_sequence, counts);
    int before_tile = counts.Of(what);
    unit = counts.of[kUnits];
#pragma unroll 1
    for (;; ++index) {
      start.tile = MakeTile(sequence, kFewRows, index);
      length = what == kUnits ? start.tile.chunks() : TileSteps(start.tile);
      if (at < (before_tile + length) * kHkv) break;
      unit += start.tile.chunks();
      before_tile += length;
    }
    start.tile.unit = unit;
    start.few_tile = counts.of[kFewTiles] + index;
    const int in_tile = at - before_tile * kHkv, head = in_tile / length,
              in_pair = in_tile % length;
    const int chunks = start.tile.chunks();
    int chunk = in_pair;
    if (what == kSteps) {
      const int in_chunks =
          start.tile.step_begin - start.tile.chunk_begin() * kChunkSteps + in_pair;
      chunk = (in_chunks + kChunkSteps / 2) / kChunkSteps;
    }
    const int near = 4 * length <= 5 * share ? length : share / 8;
    if (in_pair < near && 2 * in_pair < length) {
      chunk = 0;
    } else if (length - in_pair < near || chunk > chunks) {
      chunk = chunks;
    }
    start.unit = start.tile.unit * kHkv + head * chunks + chunk;
  }

  static DEVICE int PartOf(int x, int part, int of) {
    return static_cast<int>(int64_t{x} * part / of);
  }
  // To the first `some` of the blocks. Where multiprocessors are few, which then bound them, each has
  // a block of the first half and one of the others: where pairs are not cut, the former have the
  // odd ones, so that all have alike.
  DEVICE void Deal(BlockStart* starts, int blocks, int some, const PlanHeader& header,
                   int steps) const {
    const int units = header.units, pairs = header.few_tiles * kHkv;
    const bool together = kMayShareChunk && units <= some;
    const int half = (some + 1) / 2;
    int middle = PartOf(steps, half, some);  // where the second half begins
    if (const int each = pairs / some; kResident == 2 && some < blocks && each > 0) {
      const bool most = 2 * (pairs - each * some) >= some;  // of the first half have one more
      middle = PartOf(steps, most ? (each + 1) * half : pairs - each * (some - half), pairs);
    }
    const auto begin = [&](int block) {
      const bool later = block >= half;
      return (later ? middle : 0) + PartOf(later ? steps - middle : middle,
                                           later ? block - half : block,
                                           later ? some - half : half);
    };
    for (int block = threadIdx.x; block < blocks; block += kThreads) {
      BlockStart start = {};
      const bool each_one = units <= some;  // or none
      const bool has_any = block < (each_one ? units : some);
      if (has_any) {
        const int at = each_one ? block : begin(block);
        Locate(each_one ? kUnits : kSteps, at, each_one ? 0 : steps / some, start);
      }
      if (each_one || !has_any) start.unit = has_any ? block : units;
      start.together = together;
      start.header = header;
      starts[block] = start;
    }
    SyncBlock();
    for (int block = threadIdx.x; block < blocks; block += kThreads) {
      starts[block].unit_end = block + 1 < blocks ? starts[block + 1].unit : units;
    }
  }

  static DEVICE void Run(const StepHeader* header, const StepSequence* sequences, uint8_t* memory,
                         PlanLimits limits) {
    WaitForPriorGrid();
    const int count = header->sequences, thread = threadIdx.x;
    const AttentionPlan self = {reinterpret_cast<Counts*>(SharedMemory()), sequences, count,
                                DivideUp(count, kThreads)};
    const Counts total = self.Scan();
    constexpr int kTileBytes = sizeof(Tile);
    PlanHeader plan = {};
    plan.few_tiles = total.of[kFewTiles];
    plan.short_tiles = total.of[kShortTiles];
    plan.many_tiles = total.of[kManyTiles];
    plan.units = total.of[kUnits] * kHkv;
    plan.few_at =
        static_cast<int>(sizeof(PlanHeader)) + limits.blocks * static_cast<int>(sizeof(BlockStart));
    plan.many_at = plan.few_at + limits.few_tiles * kTileBytes;
    plan.arrivals_at = plan.many_at + limits.many_tiles * kTileBytes;
    plan.many_blocks = ManyBlocks(total, limits.multiprocessors);
    plan.partials_at = plan.arrivals_at + DivideUp(limits.few_tiles * kHkv + 1, 4) * 16;
    if (thread == 0) *reinterpret_cast<PlanHeader*>(memory) = plan;
#pragma unroll 1
    for (int kind = kFewTiles; kind <= kManyTiles; ++kind) {
      const int at = kind == kFewTiles     ? plan.few_at
                     : kind == kShortTiles ? plan.short_at()
                                           : plan.many_at;
      self.WriteTiles(kind, reinterpret_cast<Tile*>(memory + at), total.Of(kind));
    }

    // Where the other entry leaves no room, this one's blocks begin as its blocks end.
    const int room = limits.multiprocessors - plan.many_blocks;
    const int some = room > 0 ? limits.blocks / limits.multiprocessors * room : limits.blocks;
    self.Deal(reinterpret_cast<BlockStart*>(memory + sizeof(PlanHeader)), limits.blocks, some, plan,
              total.of[kSteps] * kHkv);
    auto* arrivals = reinterpret_cast<uint32_t*>(memory + plan.arrivals_at);
    for (int i = thread; i < plan.few_tiles * kHkv; i += kThreads) arrivals[i] = 0;
    if (thread == 0) *plan.Drawn(memory) = 0;
    FenceDevice();
  }
};

#endif  // QUIRE_ATTENTION_PLAN_CUH_
