// What warpgroup 0 of a block of attention_warpgroup.cuh or attention_wide.cuh does: it brings what
// the others read (attention_ring.cuh).
//
// Work:     pairs of a tile and a KV head, the longest first: a block that works begins with that
//           of its own number, and takes the next by a ticket. The last to draw leaves none drawn.
// Warps:    0 brings keys and values, by tensor copies of whole runs of tokens; 1 asks for tiles,
//           and brings their q, likewise where 64 rows are whole tokens, otherwise with 2 and 3.
//           Of E4m3 all of that is done by 1, and the others write Elements (attention_bytes.cuh).
#ifndef QUIRE_ATTENTION_BRING_CUH_
#define QUIRE_ATTENTION_BRING_CUH_

#include "attention_ring.cuh"

struct AttentionBringer : AttentionRing {
  // ---- warp 0: keys and values

  DEVICE const PlanHeader& header() const {
    return *reinterpret_cast<const PlanHeader*>(operands.plan);
  }
  // Whether tiles are dealt, so that the next is known, and not drawn: beside many tiles of few
  // rows memory is slow to answer. Warps that copy q have no registers for it.
  DEVICE bool LooksAhead() const {
    return kQueryBoxes && Uniform(3 * header().many_blocks < 2 * static_cast<int>(gridDim.x)) != 0;
  }
  DEVICE void BringSteps(const TensorMap& layer) const {
    const bool ahead = LooksAhead();
    CopiedTurn key;
    ValueTurn value;
    // Of the first there is nothing to be read before.
    for (int i = 0; kTellsRead && i < kTiles; ++i) {
      ArriveAtThreads(kReadBarrier + i, 2 * kWarpThreads);
    }
    for (TileTurn turn;; turn.Next()) {
      WaitForPhase(tile_noted(turn.at), turn.parity);
      const TileNote& of = note(turn.at);
      const int head = Uniform(of.head);
      if (head < 0) return;
      const Tile tile = UniformTile(of.tile);
      const int row = of.rows[lane % 8];
      if (kTellsRead) ArriveAtThreads(kReadBarrier + turn.at, 2 * kWarpThreads);
      CopySteps(layer, tile, head, row, key, value);
      if (!ahead) ArriveAtThreads(kCopiedBarrier, 2 * kWarpThreads);
    }
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
      if (kTellsRead) SyncThreads(kReadBarrier + turn.at, 2 * kWarpThreads);
      // By one lane, whose arrival tells of it: racecheck sees no order between lanes.
      TileNote& noted = note(turn.at);
      if (lane == 0) {
        noted.tile = drawn_note.tile;
        noted.head = drawn_note.head;
      }
#pragma unroll
      for (int run = 0; run < kRuns; ++run) {
        const int of_run = static_cast<int>(Shuffle(static_cast<uint32_t>(row), run));
        if (lane == 0) noted.rows[run] = of_run;
      }
      ArriveOnce(tile_noted(turn.at));
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
    const AttentionBringer ring{{operands, Uniform(thread / kWarpThreads), thread % kWarpThreads,
                                 SharedAddress(SharedMemory())}};
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

#endif  // QUIRE_ATTENTION_BRING_CUH_
