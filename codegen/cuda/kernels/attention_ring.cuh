// What a block of attention_warpgroup.cuh reads: tiles, their q, and a ring of steps' keys and
// values, brought by warpgroup 0 for the others.
//
// Work:     pairs of a tile and a KV head, the longest first: a block begins with that of its own
//           number, and takes the next by a ticket. The last to draw leaves none drawn.
// Warps:    0 asks for tiles, and for keys and values by tensor copies of whole runs of tokens; the
//           others bring q.
// Barriers: of each stage full and free; of each tile noted (which it is),
//           full (its q), free.
//
// Shared memory, in bytes:
//   0             q of kTiles tiles: [2][kPanels][64 rows][128], swizzled
//   kRingAt       kStages stages: keys, then values, each [kStepTokens / 8][kPanels][8][128]
//   kOnesAt       1024 of ones
//   kBarriersAt   [2][kStages] of 8, then [3][kTiles]
//   kNotesAt      TileNote [kTiles]
#ifndef QUIRE_ATTENTION_RING_CUH_
#define QUIRE_ATTENTION_RING_CUH_

#include "attention.cuh"
#include "hopper.cuh"

struct AttentionRing {
  static constexpr int kConsumers = 2, kGroupRows = 64, kWarpgroupWarps = 4;
  static constexpr int kTiles = 2;                                       // q of so many
  static constexpr int kPanels = kD / 64;                                // of a row
  static constexpr int kRowBytes = kD * 2, kGroupBytes = 8 * kRowBytes;  // of eight rows
  static constexpr int kRunTokens = CommonDivisor(kStepTokens, kPageTokens);
  static constexpr int kRuns = kStepTokens / kRunTokens;
  static_assert(kD == kDv && kD % 64 == 0 && kRunTokens % 8 == 0 && kRuns <= kWarpThreads);
  static_assert(kManyRows == kConsumers * kGroupRows);
  static_assert(kThreads == (1 + kConsumers) * kWarpgroupThreads);

  static constexpr int kGroupQueryBytes = kGroupRows * kRowBytes;
  static constexpr int kQueryBytes = kConsumers * kGroupQueryBytes;
  static constexpr int kKeyBytes = kStepTokens * kRowBytes, kStageBytes = 2 * kKeyBytes;
  static constexpr int kRingAt = kTiles * kQueryBytes;
  static constexpr int kOnesAt = kRingAt + kStages * kStageBytes;
  static constexpr int kBarriersAt = kOnesAt + 1024;
  static constexpr int kNotesAt = kBarriersAt + 8 * (2 * kStages + 3 * kTiles);
  struct TileNote {
    int tile_at, head;  // tile_at -1: no more
  };
  static_assert(kSharedBytes >= kNotesAt + kTiles * static_cast<int>(sizeof(TileNote)),
                "the launch rule's bytes");

  // One of `kCount` places that are used in turn, and the parity of its phase.
  template <int kCount>
  struct Turn {
    int at = 0, parity = 0;

    DEVICE void Next() {
      if (++at == kCount) {
        at = 0;
        parity ^= 1;
      }
    }
  };
  using StageTurn = Turn<kStages>;
  using TileTurn = Turn<kTiles>;

  const AttentionOperands& operands;
  const int warp, lane;
  const uint32_t begin;  // shared addresses from here on

  DEVICE uint32_t query(int tile, int consumer) const {
    return begin + tile * kQueryBytes + consumer * kGroupQueryBytes;
  }
  DEVICE uint32_t keys(int stage) const { return begin + kRingAt + stage * kStageBytes; }
  DEVICE uint32_t values(int stage) const { return keys(stage) + kKeyBytes; }
  DEVICE uint32_t ones() const { return begin + kOnesAt; }
  DEVICE uint32_t stage_full(int stage) const { return begin + kBarriersAt + 8 * stage; }
  DEVICE uint32_t stage_free(int stage) const { return stage_full(kStages + stage); }
  DEVICE uint32_t tile_noted(int tile) const { return stage_full(2 * kStages + tile); }
  DEVICE uint32_t tile_full(int tile) const { return tile_noted(kTiles + tile); }
  DEVICE uint32_t tile_free(int tile) const { return tile_noted(2 * kTiles + tile); }

  DEVICE void Init() const {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(stage_full(i), 1);
      InitBarrier(stage_free(i), kConsumers * kWarpgroupWarps);
    }
    for (int i = 0; i < kTiles; ++i) {
      InitBarrier(tile_noted(i), 1);
      InitBarrier(tile_full(i), kWarpgroupWarps - 1);
      InitBarrier(tile_free(i), kConsumers * kWarpgroupWarps);
    }
    FenceBarriers();
  }
  DEVICE TileNote& note(int tile) const {
    return reinterpret_cast<TileNote*>(SharedMemory() + kNotesAt)[tile];
  }

  // For the warp.
  DEVICE void ArriveOnce(uint32_t barrier) const {
    if (lane == 0) Arrive(barrier);
  }
  DEVICE const Tile& TileAt(int at) const {
    return *reinterpret_cast<const Tile*>(operands.plan + at);
  }

  DEVICE Tile UniformTile(int at) const {
    Tile tile = TileAt(at);
    tile.first_row = Uniform(tile.first_row);
    tile.tokens = Uniform(tile.tokens);
    tile.context = Uniform(tile.context);
    tile.pages_begin = Uniform(tile.pages_begin);
    tile.row = Uniform(tile.row);
    tile.rows = Uniform(tile.rows);
    tile.step_begin = Uniform(tile.step_begin);
    tile.step_end = Uniform(tile.step_end);
    return tile;
  }

  // ---- warp 0: tiles, keys and values

  DEVICE void Produce(const TensorMap& layer) const {
    const PlanHeader& header = *reinterpret_cast<const PlanHeader*>(operands.plan);
    const int pairs = Uniform(header.many_tiles) * kHkv, many_at = Uniform(header.many_at);
    uint32_t* drawn = header.Drawn(operands.plan);
    StageTurn stage;
    TileTurn tile;
    int pair = blockIdx.x;
    for (;; tile.Next()) {
      WaitForPhase(tile_free(tile.at), tile.parity ^ 1);
      const bool there = pair < pairs;
      const int tile_at = many_at + pair / kHkv * static_cast<int>(sizeof(Tile));
      if (lane == 0) {
        note(tile.at) = {there ? tile_at : -1, pair % kHkv};
        Arrive(tile_noted(tile.at));
      }
      if (!there) break;
      CopySteps(layer, UniformTile(tile_at), pair % kHkv, stage);
      uint32_t ticket = 0;
      if (lane == 0) {
        ticket = CountArrival(drawn, 1);
        // A pair each, and each drew once.
        if (ticket + 1 == static_cast<uint32_t>(pairs)) *drawn = 0;
      }
      pair = gridDim.x + static_cast<int>(Shuffle(ticket, 0));
    }
    WaitForPriorGrid();  // so that this grid does not end before it
  }

  // The first token that some row of a tile sees: pages before it may have gone.
  static DEVICE int FirstRead(const Tile& tile) {
    return kWindow > 0 ? tile.context - tile.tokens + tile.row / kGroup - kWindow + 1 : 0;
  }
  // The row of the layer, in rows of kD elements, where this lane's run of keys of a step begins;
  // before all where none of its tokens are read.
  DEVICE int RunRow(const Tile& tile, int head, int step) const {
    const int token = step * kStepTokens + lane * kRunTokens;
    if (lane >= kRuns || step >= tile.step_end || token >= tile.context ||
        token + kRunTokens <= FirstRead(tile)) {
      return -2 * kHkv * kPageTokens - kStepTokens;
    }
    const int page = operands.pages[tile.pages_begin + token / kPageTokens];
    return (page * 2 * kHkv + head) * kPageTokens + token % kPageTokens;
  }

  DEVICE void CopySteps(const TensorMap& layer, const Tile& tile, int head,
                        StageTurn& stage) const {
    int next = RunRow(tile, head, tile.step_begin);
    WaitForPriorGrid();  // which writes keys and values, and drew tickets
    for (int step = tile.step_begin; step < tile.step_end; ++step, stage.Next()) {
      const int row = next;
      next = RunRow(tile, head, step + 1);
      WaitForPhase(stage_free(stage.at), stage.parity ^ 1);
      if (lane == 0) ArriveExpecting(stage_full(stage.at), kStageBytes);
      if (lane < kRuns) {
        const uint32_t to = keys(stage.at) + lane * kRunTokens * kRowBytes;
        CopyRowGroups(to, layer, row, stage_full(stage.at));
        CopyRowGroups(to + kKeyBytes, layer, row + kHkv * kPageTokens, stage_full(stage.at));
      }
    }
  }

  // ---- the other warps of warpgroup 0: q

  DEVICE void BringQueries() const {
    constexpr int kUnits = kD / 8, kBringers = (kWarpgroupWarps - 1) * kWarpThreads;
    for (TileTurn tile;; tile.Next()) {
      WaitForPhase(tile_noted(tile.at), tile.parity);
      const TileNote tile_note = note(tile.at);
      if (tile_note.tile_at >= 0) {
        WaitForPriorGrid();  // which writes q, and reads what y is written to
        const QueryRows rows{operands, TileAt(tile_note.tile_at), tile_note.head};
#pragma unroll 2  // all of them would not fit its registers
        for (int at = (warp - 1) * kWarpThreads + lane; at < kManyRows * kUnits; at += kBringers) {
          const int row = at / kUnits, unit = at % kUnits;
          const Words4* from = rows.From(row, unit);
          CopyAsync(query(tile.at, row / kGroupRows) + unit / 8 * (kGroupRows * 128) +
                        row % kGroupRows * 128 + (unit ^ row) % 8 * 16,
                    from == nullptr ? operands.q : static_cast<const void*>(from),
                    from == nullptr ? 0 : 16);
        }
        CommitCopies();
        WaitForCopies<0>();
        FenceShared();
        SyncWarp();
      }
      ArriveOnce(tile_full(tile.at));
      if (tile_note.tile_at < 0) return;
    }
  }
};

#endif  // QUIRE_ATTENTION_RING_CUH_
