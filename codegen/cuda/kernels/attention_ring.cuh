// What a block of attention_warpgroup.cuh or attention_wide.cuh reads: tiles, their q, and rings of
// steps' keys and of their values, brought by warpgroup 0 for the others.
//
// Work:     pairs of a tile and a KV head, the longest first: a block that works begins with that of
//           its own number, and takes the next by a ticket. The last to draw leaves none drawn.
// Warps:    0 brings keys and values, by tensor copies of whole runs of tokens; 1 asks for tiles,
//           and brings their q, likewise where 64 rows are whole tokens, otherwise with 2 and 3.
//           Of E4m3 all of that is done by 1, and the others write Elements (attention_bytes.cuh).
// Barriers: of each stage full and free (a step's keys and values have the same, but of wide
//           heads); of each tile noted (which it is), full (its q), free; of
//           wide heads' weights full and free; of each stage of bytes full and free.
//
// Rows lie in panels of 64 columns, 128 bytes, swizzled, the last filled up with zeros.
//
// Shared memory, in bytes:
//   0             q of kTiles tiles: [2][kPanels][64 rows][128]
//   kRingAt       steps' keys [kKeyStages], then values [kValueStages], each
//                 [kStepTokens / 8][kPanels][8][128] where a row's panels are whole (kGrouped),
//                 else [kPanels][kStepTokens][128]
//   kBytesAt      of E4m3: StageBytes' keys and values [kBytesStages]
//   kSharedAt     of wide heads: SharedWeights [2]
//   kOnesAt       1024 of ones
//   kBarriersAt   of 8 each: stages full, stages free, tiles noted, full, free, of wide heads
//                 weights full, weights free, and of E4m3 bytes full, bytes free
//   kNotesAt      TileNote [kTiles]
#ifndef QUIRE_ATTENTION_RING_CUH_
#define QUIRE_ATTENTION_RING_CUH_

#include "attention_bytes.cuh"
#include "hopper.cuh"

struct AttentionRing {
  static constexpr int kConsumers = 2, kGroupRows = 64, kWarpgroupWarps = 4;
  // Of wide heads the warpgroups have the same rows.
  static constexpr int kRowGroups = kWide ? 1 : kConsumers;
  static constexpr int kTiles = kWide ? 1 : 2;  // q of so many
  static constexpr bool kQueryBoxes = kGroupRows % kGroup == 0;
  static constexpr int kPanels = DivideUp(kD, 64);  // of a row
  static constexpr int kRowBytes = kPanels * 128;
  static constexpr bool kGrouped = kD % 64 == 0;
  // Between keys' or values' eights of rows, and between their panels.
  static constexpr int kGroupBytes = kGrouped ? 8 * kRowBytes : 1024;
  static constexpr int kPanelBytes = kGrouped ? 1024 : kStepTokens * 128;
  static constexpr int kRunTokens = CommonDivisor(kStepTokens, kPageTokens);
  static constexpr int kRuns = kStepTokens / kRunTokens;
  static_assert(kD == kDv && kRunTokens % 8 == 0 && kRuns <= kWarpThreads);
  static_assert(!kNarrow || !kWide, "stages of bytes have rows of up to 128");
  static_assert(kManyRows == kRowGroups * kGroupRows);
  static_assert(kThreads == (1 + kConsumers) * kWarpgroupThreads);
  static constexpr int kCopiedBarrier = 5;  // of SyncThreads: copies of a tile's steps have begun

  // kStages counts pairs of keys and values, or, of wide heads, either.
  static constexpr int kKeyStages = kWide ? (kStages + 1) / 2 : kStages;
  static constexpr int kValueStages = kWide ? kStages / 2 : kStages;
  static_assert(kWide ? kValueStages >= 2 : kStages >= 3, "what is read at once");

  struct SharedWeights {
    uint8_t p[kGroupRows * 128];  // of a step, swizzled
    float m[kGroupRows];          // that they are relative to
    uint8_t padding[1024 - kGroupRows * 4];
  };
  struct alignas(16) TileNote {
    Tile tile;
    int head;  // -1: there is no more
    int padding[3];
    int rows[8];  // where the first step's keys begin in the layer, by run
  };
  static_assert(kRuns <= 8);

  static constexpr int kGroupQueryBytes = kGroupRows * kRowBytes;
  static constexpr int kQueryBytes = kRowGroups * kGroupQueryBytes;
  static constexpr int kStageBytes = kStepTokens * kRowBytes;
  static constexpr int kRingAt = kTiles * kQueryBytes;
  static constexpr int kBytesAt = kRingAt + (kKeyStages + kValueStages) * kStageBytes;
  static constexpr int kBytesStages = kNarrow ? (kStages + 1) / 2 : 0;
  static constexpr int kSharedAt = kBytesAt + kBytesStages * 2 * StageBytes::kBytes;
  static constexpr int kWeights = kWide ? kConsumers : 0;
  static constexpr int kOnesAt = kSharedAt + kWeights * static_cast<int>(sizeof(SharedWeights));
  static constexpr int kBarriersAt = kOnesAt + 1024;
  static constexpr int kBarriers = 2 * (kKeyStages + kValueStages) + 3 * kTiles + 2 * kWeights +
                                   2 * kBytesStages;
  // The warps that bring q where copies of boxes do not.
  static constexpr int kQueryWarps = kNarrow ? 1 : kWarpgroupWarps - 1;
  static constexpr int kNotesAt = DivideUp(kBarriersAt + 8 * kBarriers, 16) * 16;
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
  using KeyTurn = Turn<kKeyStages>;
  using CopiedTurn = Turn<kNarrow ? kBytesStages : kKeyStages>;  // of what copies bring
  using ValueTurn = Turn<kValueStages>;
  using TileTurn = Turn<kTiles>;

  const AttentionOperands& operands;
  const int warp, lane;
  const uint32_t begin;  // shared addresses from here on

  DEVICE uint32_t query(int tile, int group) const {
    return begin + tile * kQueryBytes + group * kGroupQueryBytes;
  }
  DEVICE uint32_t keys(int stage) const { return begin + kRingAt + stage * kStageBytes; }
  DEVICE uint32_t values(int stage) const { return keys(kKeyStages + stage); }
  DEVICE uint32_t weights(int consumer) const {
    return begin + kSharedAt + consumer * static_cast<int>(sizeof(SharedWeights));
  }
  DEVICE SharedWeights& shared_weights(int consumer) const {
    return reinterpret_cast<SharedWeights*>(SharedMemory() + kSharedAt)[consumer];
  }
  DEVICE uint32_t ones() const { return begin + kOnesAt; }
  DEVICE uint32_t bytes(int stage) const {
    return begin + kBytesAt + stage * 2 * StageBytes::kBytes;
  }

  // Values of a stage but its tokens from `keep_begin` to `keep_end` become zeros: they may be NaN,
  // which times zero is no zero. By a warpgroup, which meets before it reads them; both write the
  // same.
  DEVICE void KeepValues(int stage, int keep_begin, int keep_end) const {
    uint8_t* to = SharedMemory() + values(stage) - begin;
    constexpr int kRowUnits = kRowBytes / 16;
    for (int at = threadIdx.x % kWarpgroupThreads; at < kStepTokens * kRowUnits;
         at += kWarpgroupThreads) {
      const int row = at / kRowUnits, unit = at % kRowUnits;
      if (row >= keep_begin && row < keep_end) continue;
      *reinterpret_cast<Words4*>(to + row / 8 * kGroupBytes + unit / 8 * kPanelBytes +
                                 row % 8 * 128 + unit % 8 * 16) = Words4{};
    }
    FenceShared();
  }

  DEVICE uint32_t barrier(int number) const { return begin + kBarriersAt + 8 * number; }
  DEVICE uint32_t key_full(int stage) const { return barrier(stage); }
  DEVICE uint32_t value_full(int stage) const { return barrier(kKeyStages + stage); }
  DEVICE uint32_t key_free(int stage) const { return value_full(kValueStages + stage); }
  DEVICE uint32_t value_free(int stage) const { return key_free(kKeyStages + stage); }
  DEVICE uint32_t tile_noted(int tile) const { return value_free(kValueStages + tile); }
  DEVICE uint32_t tile_full(int tile) const { return tile_noted(kTiles + tile); }
  DEVICE uint32_t tile_free(int tile) const { return tile_noted(2 * kTiles + tile); }
  DEVICE uint32_t weights_full(int consumer) const { return tile_noted(3 * kTiles + consumer); }
  DEVICE uint32_t weights_free(int consumer) const { return weights_full(kWeights + consumer); }
  DEVICE uint32_t bytes_full(int stage) const { return weights_full(2 * kWeights + stage); }
  DEVICE uint32_t bytes_free(int stage) const { return bytes_full(kBytesStages + stage); }

  DEVICE void Init() const {
    constexpr int kAllWarps = kConsumers * kWarpgroupWarps;
    for (int i = 0; i < kKeyStages; ++i) {
      InitBarrier(key_full(i), kNarrow ? StageBytes::kWarps : 1);
      InitBarrier(key_free(i), kWide ? kWarpgroupWarps : kAllWarps);
    }
    for (int i = 0; i < kValueStages; ++i) {
      InitBarrier(value_full(i), 1);
      InitBarrier(value_free(i), kAllWarps);
    }
    for (int i = 0; i < kTiles; ++i) {
      InitBarrier(tile_noted(i), 1);
      InitBarrier(tile_full(i), kQueryBoxes ? 1 : kQueryWarps);
      InitBarrier(tile_free(i), kAllWarps);
    }
    for (int i = 0; i < kWeights; ++i) {
      InitBarrier(weights_full(i), kWarpgroupWarps * kWarpThreads);
      InitBarrier(weights_free(i), kAllWarps);
    }
    for (int i = 0; i < kBytesStages; ++i) {
      InitBarrier(bytes_full(i), 1);
      InitBarrier(bytes_free(i), StageBytes::kWarps);
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
  // A tile that all lanes have alike.
  static DEVICE Tile UniformTile(const Tile& from) {
    Tile tile = from;
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

  // ---- warp 0: keys and values

  DEVICE const PlanHeader& header() const {
    return *reinterpret_cast<const PlanHeader*>(operands.plan);
  }
  // Whether tiles are dealt, so that the next is known, and not drawn: beside many tiles of few rows
  // memory is slow to answer. Warps that copy q have no registers for it.
  DEVICE bool LooksAhead() const {
    return kQueryBoxes &&
           Uniform(3 * header().many_blocks < 2 * static_cast<int>(gridDim.x)) != 0;
  }
  DEVICE void BringSteps(const TensorMap& layer) const {
    const bool ahead = LooksAhead();
    CopiedTurn key;
    ValueTurn value;
    for (TileTurn turn;; turn.Next()) {
      WaitForPhase(tile_noted(turn.at), turn.parity);
      const TileNote& of = note(turn.at);
      const int head = Uniform(of.head);
      if (head < 0) return;
      CopySteps(layer, UniformTile(of.tile), head, of.rows[lane % 8], key, value);
      if (!ahead) ArriveAtThreads(kCopiedBarrier, 2 * kWarpThreads);
    }
  }

  // One step at least: the rows of a tile that sees nothing are written, too.
  static DEVICE int StepEnd(const Tile& tile) {
    return tile.step_end > tile.step_begin ? tile.step_end : tile.step_begin + 1;
  }
  // The first token that some row of a tile sees: pages before it may have gone.
  static DEVICE int FirstRead(const Tile& tile) {
    return kWindow > 0 ? tile.context - tile.tokens + tile.row / kGroup - kWindow + 1 : 0;
  }
  // The row of the layer, in rows of kD elements, where this lane's run of keys of a step begins;
  // before all where none of its tokens are read.
  DEVICE int RunRow(const Tile& tile, int head, int step) const {
    const int token = step * kStepTokens + lane * kRunTokens;
    if (lane >= kRuns || step >= StepEnd(tile) || token >= tile.context ||
        token + kRunTokens <= FirstRead(tile)) {
      return -2 * kHkv * kPageTokens - kStepTokens;
    }
    const int page = operands.pages[tile.pages_begin + token / kPageTokens];
    return (page * 2 * kHkv + head) * kPageTokens + token % kPageTokens;
  }

  // A step's keys, and its values; of wide heads those of the step before, as they are read.
  // `next`: RunRow() of the first.
  DEVICE void CopySteps(const TensorMap& layer, const Tile& tile, int head, int next,
                        CopiedTurn& key, ValueTurn& value) const {
    const int end = StepEnd(tile);
    int row = 0;
    WaitForPriorGrid();  // which writes keys and values
    for (int step = tile.step_begin; step < end + kWide; ++step) {
      const int before = row;
      row = next;
      if (kNarrow) {
        next = RunRow(tile, head, step + 1);
        WaitForPhase(bytes_free(key.at), key.parity ^ 1);
        if (lane == 0) ArriveExpecting(bytes_full(key.at), 2 * StageBytes::kBytes);
        if (lane < kRuns) {
          // The map's columns are pairs of bytes.
          const uint32_t to = bytes(key.at) + lane * kRunTokens * 128, full = bytes_full(key.at);
          CopyBox(to, layer, 0, row, full);
          CopyBox(to + StageBytes::kBytes, layer, 0, row + kHkv * kPageTokens, full);
        }
        key.Next();
      } else if (step < end) {
        next = RunRow(tile, head, step + 1);
        WaitForPhase(key_free(key.at), key.parity ^ 1);
        if (lane == 0) ArriveExpecting(key_full(key.at), (kWide ? 1 : 2) * kStageBytes);
        if (lane < kRuns) {
          CopyRun(layer, keys(key.at), row, key_full(key.at));
          if (!kWide) CopyRun(layer, values(key.at), row + kHkv * kPageTokens, key_full(key.at));
        }
        key.Next();
      }
      if (kWide && step > tile.step_begin) {
        WaitForPhase(value_free(value.at), value.parity ^ 1);
        if (lane == 0) ArriveExpecting(value_full(value.at), kStageBytes);
        if (lane < kRuns) {
          CopyRun(layer, values(value.at), before + kHkv * kPageTokens, value_full(value.at));
        }
        value.Next();
      }
    }
  }
  // This lane's run of a step's keys or values, from `row` of the layer on.
  DEVICE void CopyRun(const TensorMap& layer, uint32_t to, int row, uint32_t full) const {
    to += lane * kRunTokens / 8 * kGroupBytes;
    if constexpr (kGrouped) {
      CopyRowGroups(to, layer, row, full);
    } else {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        CopyBox(to + panel * kPanelBytes, layer, panel * 64, row, full);
      }
    }
  }

  // ---- warps 1 to 3: tiles and q

  DEVICE void BringTiles(const TensorMap& layer, const TensorMap& query) const {
    CopiedTurn key;
    ValueTurn value;
    const int pairs = Uniform(header().many_tiles) * kHkv;
    const auto* tiles = reinterpret_cast<const Tile*>(operands.plan + Uniform(header().many_at));
    uint32_t* drawn = header().Drawn(operands.plan);
    const int blocks = Uniform(header().many_blocks);
    int pair = static_cast<int>(blockIdx.x) < blocks ? static_cast<int>(blockIdx.x) : pairs;
    const bool ahead = LooksAhead();
    if (!header().IsBehindMany()) AllowNextGrid();
    for (TileTurn turn;; turn.Next()) {
      const bool there = pair < pairs;
      TileNote drawn_note = {{}, -1, {}, {}};
      int row = 0;
      if (there) {
        drawn_note.tile = UniformTile(tiles[pair / kHkv]);
        drawn_note.head = pair % kHkv;
        row = RunRow(drawn_note.tile, drawn_note.head, drawn_note.tile.step_begin);
      }
      WaitForPhase(tile_free(turn.at), turn.parity ^ 1);
      if (lane < kRuns) note(turn.at).rows[lane] = row;
      SyncWarp();
      if (lane == 0) {
        note(turn.at).tile = drawn_note.tile;
        note(turn.at).head = drawn_note.head;
        Arrive(tile_noted(turn.at));
      }
      SyncWarp();
      // The prior grid writes q, reads what y is written to, and drew tickets; and this one is not
      // to end before it.
      WaitForPriorGrid();
      AllowNextGrid();
      if constexpr (kQueryBoxes) {
        if (lane == 0) CopyQueryBoxes(query, drawn_note, turn.at);
      } else {
        CopyQuery(note(turn.at), turn.at);
      }
      if (!there) return;
      if (kNarrow) CopySteps(layer, drawn_note.tile, drawn_note.head, row, key, value);
      if (ahead) {
        pair += blocks;
        continue;
      }
      // A tile that is asked for early may keep the block that has most to do.
      if (!kNarrow) SyncThreads(kCopiedBarrier, 2 * kWarpThreads);
      uint32_t ticket = 0;
      if (lane == 0) {
        ticket = CountArrival(drawn, 1);
        // A pair each, and each drew once.
        if (ticket + 1 == static_cast<uint32_t>(pairs)) *drawn = 0;
      }
      pair = blocks + static_cast<int>(Shuffle(ticket, 0));
    }
  }
  // Warps 2 and 3.
  DEVICE void HelpWithQueries() const {
    for (TileTurn turn;; turn.Next()) {
      WaitForPhase(tile_noted(turn.at), turn.parity);
      const TileNote of = note(turn.at);
      WaitForPriorGrid();
      CopyQuery(of, turn.at);
      if (of.head < 0) return;
    }
  }

  // By one thread. Rows behind the sequence's are of others, or zeros.
  DEVICE void CopyQueryBoxes(const TensorMap& map, const TileNote& of, int tile) const {
    if (of.head < 0) {
      Arrive(tile_full(tile));
      return;
    }
    ArriveExpecting(tile_full(tile), kQueryBytes);
#pragma unroll 1
    for (int at = 0; at < kRowGroups * kPanels; ++at) {
      const int group = at / kPanels, panel = at % kPanels;
      CopyBlocks(query(tile, group) + panel * (kGroupRows * 128), map, panel * 64, of.head * kGroup,
                 of.tile.first_row + (of.tile.row + group * kGroupRows) / kGroup, tile_full(tile));
    }
  }
  // By kQueryWarps warps from 1 on.
  DEVICE void CopyQuery(const TileNote& of, int tile) const {
    constexpr int kUnits = SharedQuery::kUnits, kCopiers = kQueryWarps * kWarpThreads;
    if (of.head >= 0) {
      const QueryRows rows{operands, of.tile, of.head};
#pragma unroll 1  // more would not fit the registers
      for (int at = threadIdx.x - kWarpThreads; at < kManyRows * kUnits; at += kCopiers) {
        const int row = at / kUnits, unit = at % kUnits;
        const Words4* from = rows.From(row, unit);
        CopyAsync(query(tile, row / kGroupRows) + unit / 8 * (kGroupRows * 128) +
                      row % kGroupRows * 128 + (unit ^ row) % 8 * 16,
                  from == nullptr ? operands.q : static_cast<const void*>(from),
                  from == nullptr ? 0 : 16);
      }
      CommitCopies();
      WaitForCopies<0>();
      FenceShared();
      SyncWarp();
    }
    ArriveOnce(tile_full(tile));
  }

  // A block: `consume` is what warpgroups 1 and 2 do.
  template <typename Consume>
  static DEVICE void RunBlock(const AttentionOperands& operands, const TensorMap& layer,
                              const TensorMap& query, const Consume& consume) {
    const int thread = threadIdx.x;
    const AttentionRing ring{operands, Uniform(thread / kWarpThreads), thread % kWarpThreads,
                             SharedAddress(SharedMemory())};
    if (thread == 0) {
      PrefetchMap(layer);
      if (kQueryBoxes) PrefetchMap(query);
      ring.Init();
    }
    if (thread < 1024 / 16) {
      const uint32_t ones = Ones();
      reinterpret_cast<Words4*>(SharedMemory() + kOnesAt)[thread] = {ones, ones, ones, ones};
      FenceShared();
    }
    SyncBlock();
    // 168 registers a thread at launch.
    constexpr int kRegisters = kNarrow ? 40 : 24;
    const int warpgroup = ring.warp / kWarpgroupWarps;
    if (warpgroup == 0) {
      GiveRegisters<kRegisters>();
      if (ring.warp == 1) {
        ring.BringTiles(layer, query);
      } else if (kNarrow) {
        StageBytes::WidenSteps(ring);
      } else if (ring.warp == 0) {
        ring.BringSteps(layer);
      } else if (!kQueryBoxes) {
        ring.HelpWithQueries();
      }
    } else {
      TakeRegisters<(3 * 168 - kRegisters) / 2>();
      consume(ring, warpgroup - 1);
    }
  }
};

#endif  // QUIRE_ATTENTION_RING_CUH_
