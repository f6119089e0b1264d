// The attention entry for tiles of many rows on sm_90a, by products of warpgroups; keys, values, q
// and shared memory are attention_ring.cuh's, the arithmetic attention.cuh's.
//
// Block:    warpgroup 0 brings, 1 and 2 have 64 rows of the tile each.
// Overlap:  a step's scores are asked for before the sums of the step before, whose products then
//           run beside its exponentials, and those of a tile's first step before the tile before is
//           written. The warpgroups take turns in asking: the products of one run while the other
//           has exponentials. Steps that are all visible go two at a time, so that weights stay in
//           the registers where they are computed.
// Measured: on an H200 a warpgroup's own instructions between its products are what a step takes,
//           not the products: of a step's 1500 cycles the tensor cores were busy in 1142.
#ifndef QUIRE_ATTENTION_WARPGROUP_CUH_
#define QUIRE_ATTENTION_WARPGROUP_CUH_

#include "attention_bring.cuh"
#include "attention_steps.cuh"

// One of warpgroups 1 and 2.
struct AttentionWarpgroup {
  using Ring = AttentionRing;
  static constexpr int kRowBytes = Ring::kRowBytes, kGroupBytes = Ring::kGroupBytes;
  static constexpr int kOwnBarrier = 1, kTurnBarrier = 3;  // of SyncThreads, one a warpgroup

  const Ring& ring;
  const int consumer;  // 0 or 1

  // Of a tile's rows.
  struct Sums {
    RowSums<kDv / 8> chunk, total;
    StepScores s;
    StepWeights p, next_p;  // that products read; of s
    float before[2];        // the chunk's maxima before those that next_p is relative to
    bool raises;            // whether they differ for some lane
    bool opens;             // whether next_p, then p, is of a chunk's first step
    bool folds;             // whether a chunk before that one is not in the totals yet
    uint32_t zero;          // which the compiler does not know
  };

  DEVICE void SyncOwn() const { SyncThreads(kOwnBarrier + consumer, kWarpgroupThreads); }
  // One turn for each step of the block's tiles.
  DEVICE void WaitForTurn() const {
    SyncThreads(kTurnBarrier + consumer, Ring::kConsumers * kWarpgroupThreads);
  }
  DEVICE void EndTurn() const {
    ArriveAtThreads(kTurnBarrier + 1 - consumer, Ring::kConsumers * kWarpgroupThreads);
  }

  DEVICE void AskForScores(Sums& sums, int tile, int stage) const {
    const Operand query = OperandAt(ring.query(tile, consumer));
    const Operand keys = OperandAt(ring.keys(stage), kGroupBytes);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kSteps16; ++k) {
      WarpgroupProduct<Element, kStepTokens>::Run(
          &sums.s[0][0], query + k / 4 * (Ring::kGroupRows * 128 / 16) + k % 4 * 2,
          keys + k / 4 * (Ring::kPanelBytes / 16) + k % 4 * 2, k > 0);
    }
    CommitProducts();
  }
  // Columns from kFrom on of 16 tokens, in as few products as there are sizes for.
  template <int kFrom>
  static DEVICE void AskForColumns(Sums& sums, const uint32_t (&p)[4], Operand values,
                                   bool accumulate) {
    constexpr int kLeft = kDv - kFrom;
    constexpr int kColumns = kLeft >= 128  ? 128
                             : kLeft >= 64 ? 64
                             : kLeft >= 32 ? 32
                             : kLeft >= 16 ? 16
                                           : 8;
    WarpgroupRowProduct<Element, kColumns, 1>::Run(
        sums.chunk.o[kFrom / 8], p,
        values + (kFrom / 64 * (Ring::kPanelBytes / 16) + kFrom % 64 / 8), accumulate);
    if constexpr (kLeft > kColumns) {
      AskForColumns<kFrom + kColumns>(sums, p, values, accumulate);
    }
  }
  DEVICE void AskForSums(Sums& sums, const StepWeights& p, int stage, bool opens) const {
    const Operand values = OperandAt(ring.values(stage), kGroupBytes, Ring::kPanelBytes);
    const Operand ones = OperandAt(ring.ones(), 0);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kStepTokens / 16; ++k) {
      AskForColumns<0>(sums, p[k], values + k * (2 * kGroupBytes / 16), k > 0 || !opens);
      WarpgroupRowProduct<Element, 8, 1>::Run(sums.chunk.l, p[k], ones, k > 0 || !opens);
    }
    CommitProducts();
  }

  // Rows of a tile at work.
  struct Work {
    const WarpRows& own;
    int first;             // the first token that the tile reads
    int tile;              // where its q is
    Ring::KeyTurn& stage;  // of the step whose scores were asked for last
    RowInfo rows[2];
    Sums& sums;
  };

  // The values of the stage, which are step `step`'s and came with its keys, may be some that are
  // not there.
  template <bool kMasked>
  DEVICE void CheckValues(const Work& work, int step) const {
    if constexpr (!kMasked && kWindow == 0) return;
    const int begin = work.first - step * kStepTokens;
    const int end = work.own.tile.context - step * kStepTokens;
    if (begin > 0 || end < kStepTokens) {
      ring.KeepValues(work.stage.at, begin, end);
      SyncOwn();
    }
  }
  static DEVICE void HoldSums(Sums& sums) {
    HoldProducts(sums.chunk.o);
    HoldProducts(sums.chunk.l);
  }

  // Of step `step`, whose scores have come.
  template <bool kMasked>
  DEVICE void WeighStep(Work& work, int step, bool opens, StepWeights& next_p) const {
    Sums& sums = work.sums;
    work.own.template FinishAs<kMasked>(sums.s, work.rows, step * kStepTokens);
    sums.raises = Weigh(sums.s, opens, sums.chunk.m, sums.before, next_p);
  }
  // next_p becomes p. The products that read p have ended. They have it in registers of its own,
  // which the compiler would write too early if next_p could be had in them.
  static DEVICE void TakeWeights(Sums& sums) {
#pragma unroll
    for (int i = 0; i < kStepTokens / 4; ++i) {
      sums.p[i / 4][i % 4] = sums.next_p[i / 4][i % 4] ^ sums.zero;
    }
  }
  static DEVICE void FoldEnded(Sums& sums) { FoldChunk(sums.total, sums.chunk, sums.before); }

  // What is known of a step.
  enum class StepKind {
    kMasked,  // it may not be all visible
    kOdd,     // it is, and its number is odd, so that it opens no chunk
    kEven,    // it is, and follows such a step
  };
  // The scores of `step`, and the sums of the step before, whose weights are p; next_p become those
  // of `step`. `has_keys`: whether keys are known to have come, of this step and then of the next.
  template <StepKind kKind>
  DEVICE void Advance(Work& work, int step, const StepWeights& p, StepWeights& next_p,
                      bool& has_keys) const {
    constexpr bool kMasked = kKind == StepKind::kMasked;
    Sums& sums = work.sums;
    Ring::KeyTurn next = work.stage;
    next.Next();
    CheckValues<kMasked>(work, step - 1);
    if (kMasked || !has_keys) WaitForPhase(ring.key_full(next.at), next.parity);
    WaitForTurn();
    AskForScores(sums, work.tile, next.at);
    if constexpr (kKind != StepKind::kEven) {
      if (sums.opens && sums.folds) FoldEnded(sums);
    }
    AskForSums(sums, p, work.stage.at, kKind != StepKind::kEven && sums.opens);
    EndTurn();
    Ring::KeyTurn ahead = next;
    ahead.Next();
    WaitForProducts<1>();
    HoldProducts(sums.s);
    // Asked for here, the answer has come when it is wanted.
    if (!kMasked) has_keys = PhaseHasEnded(ring.key_full(ahead.at), ahead.parity);
    sums.opens = kKind != StepKind::kOdd && step % kChunkSteps == 0;
    sums.folds |= sums.opens;
    WeighStep<kMasked>(work, step, sums.opens, next_p);
    WaitForProducts<0>();
    HoldSums(sums);
    Free(work.stage);
    if (sums.raises && !sums.opens) ScaleSums(sums.chunk, sums.before);
    work.stage = next;
  }
  // Of a step that may not be all visible.
  DEVICE void AdvanceMasked(Work& work, int step) const {
    bool has_keys = false;
    Advance<StepKind::kMasked>(work, step, work.sums.p, work.sums.next_p, has_keys);
    TakeWeights(work.sums);
  }
  // Steps that are all visible, two at a time, so that weights stay where they are, the first odd,
  // so that only the second may open a chunk.
  DEVICE void AdvanceWhole(Work& work, int step, int end) const {
    Sums& sums = work.sums;
    bool has_keys = false;
#pragma unroll 1
    while (step < end) {
      Advance<StepKind::kOdd>(work, step++, sums.p, sums.next_p, has_keys);
      if (step == end) {
        TakeWeights(sums);
        return;
      }
      Advance<StepKind::kEven>(work, step++, sums.next_p, sums.p, has_keys);
    }
  }

  // Waits for a tile's q and its first keys; false where there is no such tile.
  DEVICE bool WaitForTile(Ring::TileTurn tile, Ring::KeyTurn stage) const {
    WaitForPhase(ring.tile_full(tile.at), tile.parity);
    if (Uniform(ring.note(tile.at).head) < 0) return false;
    WaitForPhase(ring.key_full(stage.at), stage.parity);
    return true;
  }
  // Goes to a step, and frees what it has, which this warpgroup does not read.
  DEVICE void GoTo(Ring::KeyTurn stage) const {
    WaitForTurn();
    EndTurn();
    WaitForPhase(ring.key_full(stage.at), stage.parity);
  }
  DEVICE void Free(Ring::KeyTurn stage) const { ring.ArriveOnce(ring.key_free(stage.at)); }

  // Steps from step_begin to step_end, at least one, of a tile that goes on to tile_end. Its first
  // scores have been asked for; then those of the next tile are, if there is one. A step's stage
  // is freed when it has been read.
  DEVICE bool Attend(Work& work, Ring::TileTurn turn, int step_begin, int step_end,
                     int tile_end) const {
    Sums& sums = work.sums;
    const WholeSteps whole(work.own.tile);
    work.own.Load(work.rows);
    sums.total.Clear();
    WaitForProducts<0>();
    HoldProducts(sums.s);
    if (work.own.tile.rows <= 0) {  // it goes on with the tile's last step
      for (; step_begin + 1 < tile_end; ++step_begin) {
        Free(work.stage);
        work.stage.Next();
        GoTo(work.stage);
      }
    }
    sums.opens = true;
    sums.folds = false;
    work.own.Finish(sums.s, work.rows, whole, step_begin, step_begin * kStepTokens);
    Weigh(sums.s, true, sums.chunk.m, sums.before, sums.next_p);
    TakeWeights(sums);
    int step = step_begin + 1;
    const int whole_begin = step_end < whole.begin ? step_end : whole.begin;
    const int whole_end = step_end < whole.end ? step_end : whole.end;
    if constexpr (kWindow > 0) {
#pragma unroll 1
      for (; step < whole_begin || (step < whole_end && step % 2 == 0); ++step) {
        AdvanceMasked(work, step);
      }
    }
    if (step < whole_end) {
      AdvanceWhole(work, step, whole_end);
      step = whole_end;
    }
#pragma unroll 1
    for (; step < step_end; ++step) AdvanceMasked(work, step);

    CheckValues<true>(work, step_end - 1);
    if (sums.opens && sums.folds) FoldEnded(sums);
    Ring::KeyTurn stage = work.stage;
    stage.Next();
    // At most one: this warpgroup's last row sees up to 64 tokens less than the tile's.
    for (; step_end < tile_end; ++step_end) {
      GoTo(stage);
      Free(stage);
      stage.Next();
    }
    turn.Next();
    const bool more = WaitForTile(turn, stage);
    if (more) WaitForTurn();
    AskForSums(sums, sums.p, work.stage.at, sums.opens);
    AskForScores(sums, turn.at, stage.at);  // of anything, if there is no more
    if (more) EndTurn();
    WaitForProducts<1>();
    HoldSums(sums);
    Free(work.stage);
    work.stage = stage;
    FoldChunk(sums.total, sums.chunk, sums.chunk.m);
    Write(work.own, sums.total, work.tile);
    return more;
  }

  // y of the warp's rows, through the place of the tile's q: a row's units of 16 bytes together.
  DEVICE void Write(const WarpRows& own, const RowSums<kDv / 8>& sums, int tile) const {
    constexpr int kRows = Ring::kGroupRows / Ring::kWarpgroupWarps, kUnits = kDv / 8;
    const int lane = own.lane;
    uint8_t* rows =
        SharedMemory() + ring.query(tile, consumer) - ring.begin + own.first_row * kRowBytes;
    const auto unit_at = [&](int row, int unit) {
      return rows + row * kRowBytes + (unit ^ row % 8) * 16;
    };
    SyncOwn();  // all warps have read their q
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      const float scale =
          FinalScale(ring.operands, QueryHead(own.tile, own.head, own.first_row + row),
                     sums.m[half], sums.l[2 * half]);
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        *reinterpret_cast<uint32_t*>(unit_at(row, i) + lane % 4 * 4) =
            Pack<Element>(Mul(sums.o[i][2 * half], scale), Mul(sums.o[i][2 * half + 1], scale));
      }
    }
    SyncWarp();
#pragma unroll 4
    for (int at = lane; at < kRows * kUnits; at += kWarpThreads) {
      const int row = at / kUnits, unit = at % kUnits;
      if (own.first_row + row >= own.tile.rows) break;
      Element* y = OutputRow(ring.operands, own.tile, own.head, own.first_row + row) + unit * 8;
      *reinterpret_cast<Words4*>(y) = *reinterpret_cast<const Words4*>(unit_at(row, unit));
    }
    FenceShared();  // before q comes there
    SyncWarp();
  }

  // From a tile to this warpgroup's rows of it; the end of the steps that they see, one at least.
  // Where it has none: the end of the tile's.
  DEVICE int TakeOwn(Tile& tile) const {
    tile.row += consumer * Ring::kGroupRows;
    tile.rows -= consumer * Ring::kGroupRows;
    if (tile.rows > Ring::kGroupRows) tile.rows = Ring::kGroupRows;
    int end = Ring::StepEnd(tile);
    if (kCausal && tile.rows > 0) {
      const int last = tile.context - tile.tokens + (tile.row + tile.rows - 1) / kGroup;
      if (last / kStepTokens + 1 < end) end = last / kStepTokens + 1;
    }
    return end;
  }

  DEVICE void Consume() const {
    Ring::KeyTurn stage;
    Ring::TileTurn turn;
    if (consumer == 1) EndTurn();
    WaitForPhase(ring.tile_full(turn.at), turn.parity);
    if (Uniform(ring.note(turn.at).head) < 0) return;
    WaitForPhase(ring.key_full(stage.at), stage.parity);
    Sums sums;
    sums.zero =
        *reinterpret_cast<const volatile uint32_t*>(SharedMemory() + Ring::kOnesAt) ^ Ones();
    WaitForTurn();
    AskForScores(sums, turn.at, stage.at);
    EndTurn();
    for (bool more = true; more;) {
      const Ring::TileNote& note = ring.note(turn.at);
      const int head = Uniform(note.head);
      Tile tile = Ring::UniformTile(note.tile);
      const int tile_end = Ring::StepEnd(tile), first = Ring::FirstRead(tile);
      const int end = TakeOwn(tile);
      const WarpRows own{ring.operands, tile, head, ring.warp % Ring::kWarpgroupWarps * 16,
                         ring.lane};
      Work work{own, first, turn.at, stage, {}, sums};
      more = Attend(work, turn, tile.step_begin, end, tile_end);
      ring.ArriveOnce(ring.tile_free(turn.at));
      turn.Next();
    }
    WaitForProducts<0>();
  }

  // `query` is a map of q where AttentionRing::kQueryBoxes.
  static DEVICE void Run(const AttentionOperands& operands, const TensorMap& layer,
                         const TensorMap& query) {
    AttentionBringer::RunBlock(operands, layer, query, [](const Ring& ring, int consumer) {
      AttentionWarpgroup{ring, consumer}.Consume();
    });
  }
};

#endif  // QUIRE_ATTENTION_WARPGROUP_CUH_
