// The attention kernels' work list, once a step, on the device: one block.
//
// A sequence of up to kFewRowsMost rows (tokens * kGroup) becomes tiles of kFewRows rows, any other
// tiles of kManyRows, its last ones first as they see most. Nothing here decides a bit of a result.
#ifndef QUIRE_ATTENTION_PLAN_CUH_
#define QUIRE_ATTENTION_PLAN_CUH_

#include "attention.cuh"

// What the plan's memory was made for.
struct PlanLimits {
  int few_tiles, many_tiles, blocks;
};

struct AttentionPlan {
  // Tiles of a sequence, by kind, and chunks of those of few rows.
  struct Counts {
    int few = 0, many = 0, units = 0;
  };

  static DEVICE int TileRows(const StepSequence& sequence) {
    return sequence.rows * kGroup <= kFewRowsMost ? kFewRows : kManyRows;
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

  static DEVICE Counts Count(const StepSequence& sequence) {
    Counts counts;
    const int tile_rows = TileRows(sequence), tiles = DivideUp(sequence.rows * kGroup, tile_rows);
    if (tile_rows != kFewRows) {
      counts.many = tiles;
      return counts;
    }
    counts.few = tiles;
    for (int i = 0; i < tiles; ++i) counts.units += MakeTile(sequence, kFewRows, i).chunks();
    return counts;
  }

  // Sums of `value` over the threads before this one; `total` of all.
  static DEVICE int Before(int value, int* shared, int* total) {
    const int thread = threadIdx.x;
    SyncBlock();
    shared[thread] = value;
    for (int distance = 1; distance < kThreads; distance *= 2) {
      SyncBlock();
      const int more = thread >= distance ? shared[thread - distance] : 0;
      SyncBlock();
      shared[thread] += more;
    }
    SyncBlock();
    *total = shared[kThreads - 1];
    return shared[thread] - value;
  }

  static DEVICE void Run(const StepHeader* header, const StepSequence* sequences, uint8_t* memory,
                         PlanLimits limits) {
    WaitForPriorGrid();
    int* shared = reinterpret_cast<int*>(SharedMemory());
    int* many_begin = shared + kThreads;  // of the batch's sequences
    const int thread = threadIdx.x;
    PlanHeader plan;
    plan.many_at =
        (static_cast<int>(sizeof(PlanHeader)) + limits.few_tiles * static_cast<int>(sizeof(Tile))) /
        16;
    plan.blocks_at = plan.many_at + limits.many_tiles * static_cast<int>(sizeof(Tile)) / 16;
    plan.arrivals_at = plan.blocks_at + DivideUp(limits.blocks, 4);
    plan.partials_at = int64_t{plan.arrivals_at + DivideUp(limits.few_tiles * kHkv, 4)} * 16;
    auto* few_tiles = reinterpret_cast<Tile*>(memory + sizeof(PlanHeader));
    auto* many_tiles = reinterpret_cast<Tile*>(memory + int64_t{plan.many_at} * 16);

    Counts before;
    const int count = header->sequences;
    for (int batch = 0; batch < count; batch += kThreads) {
      const int index = batch + thread;
      StepSequence sequence = {};
      if (index < count) sequence = sequences[index];
      const Counts own = Count(sequence);
      Counts total;
      int few = before.few + Before(own.few, shared, &total.few);
      int unit = before.units + Before(own.units, shared, &total.units);
      many_begin[thread] = before.many + Before(own.many, shared, &total.many);
      for (int i = 0; i < own.few; ++i, ++few) {
        Tile tile = MakeTile(sequence, kFewRows, i);
        tile.unit = unit;
        unit += tile.chunks();
        few_tiles[few] = tile;
      }
      SyncBlock();
      // Tiles of many rows by all threads, a sequence at a time.
      for (int s = batch; s < count && s < batch + kThreads; ++s) {
        const StepSequence other = sequences[s];
        const int tiles = Count(other).many, begin = many_begin[s - batch];
        for (int i = thread; i < tiles; i += kThreads) {
          many_tiles[begin + i] = MakeTile(other, kManyRows, tiles - 1 - i);
        }
      }
      before.few += total.few;
      before.many += total.many;
      before.units += total.units;
    }
    plan.few_tiles = before.few;
    plan.many_tiles = before.many;
    plan.units = before.units * kHkv;
    if (thread == 0) *reinterpret_cast<PlanHeader*>(memory) = plan;
    SyncBlock();

    auto* arrivals = reinterpret_cast<uint32_t*>(memory + int64_t{plan.arrivals_at} * 16);
    for (int i = thread; i < plan.few_tiles * kHkv; i += kThreads) arrivals[i] = 0;
    int* first_tiles = reinterpret_cast<int*>(memory + int64_t{plan.blocks_at} * 16);
    for (int block = thread; block < limits.blocks; block += kThreads) {
      const int unit = BlockBegin(block, limits.blocks, plan.units);
      int low = 0, high = plan.few_tiles;  // the last tile whose first unit is <= unit
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (few_tiles[middle].unit * kHkv <= unit) {
          low = middle;
        } else {
          high = middle;
        }
      }
      first_tiles[block] = low;
    }
  }
};

#endif  // QUIRE_ATTENTION_PLAN_CUH_
