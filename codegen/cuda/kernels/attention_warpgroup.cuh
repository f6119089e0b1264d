// The attention entry for tiles of many rows on sm_90a, by products of warpgroups; keys, values, q
// and shared memory are attention_ring.cuh's, the arithmetic attention.cuh's.
//
// Block:    warpgroup 0 brings, 1 and 2 have 64 rows of the tile each.
// Overlap:  a step's scores are asked for before the sums of the step before, whose products then
//           run beside its exponentials; the warpgroups go their own ways.
#ifndef QUIRE_ATTENTION_WARPGROUP_CUH_
#define QUIRE_ATTENTION_WARPGROUP_CUH_

#include "attention_ring.cuh"
#include "attention_rows.cuh"

// One of warpgroups 1 and 2.
struct AttentionWarpgroup {
  using Ring = AttentionRing;
  static constexpr int kRowBytes = Ring::kRowBytes, kGroupBytes = Ring::kGroupBytes;
  static constexpr int kOwnBarrier = 1;  // of SyncThreads, one a warpgroup

  const Ring& ring;
  const int consumer;  // 0 or 1

  // Of a tile's rows.
  struct Sums {
    RowSums<kDv / 8> chunk, total;
    float s[kStepTokens / 8][4];      // scores, then p
    uint32_t p[kStepTokens / 16][4];  // for the products
    float falls[2];                   // s has the chunk's sums scaled by two to this
    bool raises;                      // whether that is not 1 for this lane
    bool opens;                       // whether s is of the chunk's first step
  };

  DEVICE void SyncOwn() const { SyncThreads(kOwnBarrier + consumer, kWarpgroupThreads); }

  DEVICE void AskForScores(Sums& sums, int tile, int stage) const {
    const Operand query = OperandAt(ring.query(tile, consumer));
    const Operand keys = OperandAt(ring.keys(stage), kGroupBytes);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kD / 16; ++k) {
      WarpgroupProduct<Element, kStepTokens>::Run(
          &sums.s[0][0], query + k / 4 * (Ring::kGroupRows * 128 / 16) + k % 4 * 2,
          keys + k / 4 * (1024 / 16) + k % 4 * 2, k > 0);
    }
    CommitProducts();
  }
  DEVICE void AskForSums(Sums& sums, int stage, bool opens) const {
    const Operand values = OperandAt(ring.values(stage), kGroupBytes, 1024);
    const Operand ones = OperandAt(ring.ones(), 0);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kStepTokens / 16; ++k) {
      WarpgroupRowProduct<Element, kDv, 1>::Run(
          &sums.chunk.o[0][0], sums.p[k], values + k * (2 * kGroupBytes / 16), k > 0 || !opens);
      WarpgroupRowProduct<Element, 8, 1>::Run(sums.chunk.l, sums.p[k], ones, k > 0 || !opens);
    }
    CommitProducts();
  }

  // Finished scores to p, in place. No branch: products are running.
  static DEVICE void Weigh(Sums& sums) {
    float largest[2];
    Largest(sums.s, largest);
    sums.raises = false;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float m = sums.opens ? kLowest : sums.chunk.m[row];
      const float raised = RaiseMaximum(m, largest[row]);
      sums.raises |= raised != m;
      sums.falls[row] = Add(m, -raised);
      sums.chunk.m[row] = raised;
    }
#pragma unroll
    for (int i = 0; i < kStepTokens / 8 * 4; ++i) {
      float& score = sums.s[i / 4][i % 4];
      score = Weight(score, sums.chunk.m[i % 4 / 2]);
    }
  }
  // p for the products, and the chunk's sums raised.
  static DEVICE void TakeWeights(Sums& sums) {
    if (!sums.opens && AnyLane(sums.raises)) {
      const float scale[2] = {PowerOfTwo(sums.falls[0]), PowerOfTwo(sums.falls[1])};
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.chunk.l[i] = Mul(sums.chunk.l[i], scale[i / 2]);
#pragma unroll
      for (int i = 0; i < kDv / 8 * 4; ++i) {
        sums.chunk.o[i / 4][i % 4] = Mul(sums.chunk.o[i / 4][i % 4], scale[i % 4 / 2]);
      }
    }
#pragma unroll
    for (int i = 0; i < kStepTokens / 4; ++i) {
      const float* pair = &sums.s[i / 4 * 2 + i % 4 / 2][i % 2 * 2];
      sums.p[i / 4][i % 4] = Pack<Element>(pair[0], pair[1]);
    }
  }
  // The chunk's sums, with maxima `m`, into the totals, which are seldom scaled: one is a power of
  // two, and exact.
  static DEVICE void FoldChunk(Sums& sums, const float (&m)[2]) {
    RowSums<kDv / 8>&chunk = sums.chunk, &total = sums.total;
    const FoldScales scales[2] = {FoldScales(total.m[0], m[0]), FoldScales(total.m[1], m[1])};
    if (AnyLane(scales[0].own != 1 || scales[1].own != 1)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) total.l[i] = Mul(total.l[i], scales[i / 2].own);
#pragma unroll
      for (int i = 0; i < kDv / 8 * 4; ++i) {
        total.o[i / 4][i % 4] = Mul(total.o[i / 4][i % 4], scales[i % 4 / 2].own);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) total.l[i] = Fma(chunk.l[i], scales[i / 2].more, total.l[i]);
#pragma unroll
    for (int i = 0; i < kDv / 8 * 4; ++i) {
      total.o[i / 4][i % 4] =
          Fma(chunk.o[i / 4][i % 4], scales[i % 4 / 2].more, total.o[i / 4][i % 4]);
    }
  }

  // Values of a stage but its tokens from `begin` to `end` become zeros: they may be NaN, which
  // times zero is no zero. Both warpgroups write the same.
  DEVICE void KeepValues(int stage, int begin, int end) const {
    uint8_t* values = SharedMemory() + ring.values(stage) - ring.begin;
    constexpr int kRowUnits = kRowBytes / 16;
    for (int at = threadIdx.x % kWarpgroupThreads; at < kStepTokens * kRowUnits;
         at += kWarpgroupThreads) {
      const int row = at / kRowUnits, unit = at % kRowUnits;
      if (row >= begin && row < end) continue;
      *reinterpret_cast<Words4*>(values + row / 8 * kGroupBytes + unit / 8 * 1024 + row % 8 * 128 +
                                 unit % 8 * 16) = Words4{};
    }
    FenceShared();
    SyncOwn();
  }

  // Rows of a tile at work.
  struct Work {
    const WarpRows& own;
    int first;               // the first token that the tile reads
    int tile;                // where its q is
    Ring::StageTurn& stage;  // of the step whose scores were asked for last
    RowInfo rows[2];
    Sums sums;
  };

  // Waits for the values of the stage, which are step `step`'s.
  DEVICE void WaitForValues(const Work& work, int step) const {
    const int begin = work.first - step * kStepTokens;
    const int end = work.own.tile.context - step * kStepTokens;
    if (begin > 0 || end < kStepTokens) KeepValues(work.stage.at, begin, end);
  }
  DEVICE void EndSums(Work& work) const {
    WaitForProducts<0>();
    HoldProducts(work.sums.chunk.o);
    HoldProducts(work.sums.chunk.l);
    ring.ArriveOnce(ring.stage_free(work.stage.at));
  }

  // The sums of step - 1 and the scores of `step`. Where products run there is no branch: it would
  // have them waited for.
  template <bool kMasked>
  DEVICE void Advance(Work& work, int step) const {
    Sums& sums = work.sums;
    Ring::StageTurn next = work.stage;
    next.Next();
    TakeWeights(sums);
    WaitForValues(work, step - 1);
    WaitForPhase(ring.stage_full(next.at), next.parity);
    AskForScores(sums, work.tile, next.at);
    AskForSums(sums, work.stage.at, sums.opens);
    WaitForProducts<1>();
    HoldProducts(sums.s);
    const float m[2] = {sums.chunk.m[0], sums.chunk.m[1]};
    sums.opens = step % kChunkSteps == 0;
    work.own.template FinishAs<kMasked>(sums.s, work.rows, step * kStepTokens);
    Weigh(sums);
    EndSums(work);
    if (sums.opens) FoldChunk(sums, m);
    work.stage = next;
  }

  // Steps from step_begin to step_end, at least one; a step's stage is freed when it has been read.
  DEVICE void Attend(Work& work, int step_begin, int step_end) const {
    Sums& sums = work.sums;
    const WholeSteps whole(work.own.tile);
    work.own.Load(work.rows);
    sums.total.Clear();
    WaitForPhase(ring.stage_full(work.stage.at), work.stage.parity);
    AskForScores(sums, work.tile, work.stage.at);
    WaitForProducts<0>();
    HoldProducts(sums.s);
    sums.opens = true;
    work.own.Finish(sums.s, work.rows, whole, step_begin, step_begin * kStepTokens);
    Weigh(sums);
    int step = step_begin + 1;
    if constexpr (kWindow > 0) {
#pragma unroll 1
      for (; step < step_end && step < whole.begin; ++step) Advance<true>(work, step);
    }
#pragma unroll 1
    for (; step < step_end && step < whole.end; ++step) Advance<false>(work, step);
#pragma unroll 1
    for (; step < step_end; ++step) Advance<true>(work, step);

    TakeWeights(sums);
    WaitForValues(work, step_end - 1);
    AskForSums(sums, work.stage.at, sums.opens);
    EndSums(work);
    work.stage.Next();
    FoldChunk(sums, sums.chunk.m);
    Write(work.own, sums.total, work.tile);
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
    SyncWarp();
  }

  DEVICE void Consume() const {
    Ring::StageTurn stage;
    for (Ring::TileTurn turn;; turn.Next()) {
      WaitForPhase(ring.tile_full(turn.at), turn.parity);
      const Ring::TileNote note = ring.note(turn.at);
      const int tile_at = Uniform(note.tile_at), head = Uniform(note.head);
      if (tile_at < 0) return;
      Tile tile = ring.UniformTile(tile_at);
      const int tile_end = tile.step_end, first = Ring::FirstRead(tile);
      tile.row += consumer * Ring::kGroupRows;
      tile.rows -= consumer * Ring::kGroupRows;
      if (tile.rows > Ring::kGroupRows) tile.rows = Ring::kGroupRows;
      int end = tile.rows > 0 ? tile_end : tile.step_begin;
      if constexpr (kCausal) {
        const int last = tile.context - tile.tokens + (tile.row + tile.rows - 1) / kGroup;
        if (last / kStepTokens + 1 < end) end = last / kStepTokens + 1;
      }
      const WarpRows own{ring.operands, tile, head, ring.warp % Ring::kWarpgroupWarps * 16,
                         ring.lane};
      int step = tile.step_begin;
      if (step < end) {
        Work work{own, first, turn.at, stage, {}, {}};
        Attend(work, step, end);
        step = end;
      } else if (tile.rows > 0) {
        RowSums<kDv / 8> nothing;
        nothing.Clear();
        Write(own, nothing, turn.at);
      }
      for (; step < tile_end; ++step, stage.Next()) {
        WaitForPhase(ring.stage_full(stage.at), stage.parity);
        ring.ArriveOnce(ring.stage_free(stage.at));
      }
      ring.ArriveOnce(ring.tile_free(turn.at));
    }
  }

  static DEVICE void Run(const AttentionOperands& operands, const TensorMap& layer) {
    const int thread = threadIdx.x;
    const Ring ring{operands, Uniform(thread / kWarpThreads), thread % kWarpThreads,
                    SharedAddress(SharedMemory())};
    AllowNextGrid();
    if (thread == 0) {
      PrefetchMap(layer);
      ring.Init();
    }
    if (thread < 1024 / 16) {
      const uint32_t ones = Ones();
      reinterpret_cast<Words4*>(SharedMemory() + Ring::kOnesAt)[thread] = {ones, ones, ones, ones};
      FenceShared();
    }
    SyncBlock();
    // 168 registers a thread at launch.
    const int warpgroup = ring.warp / Ring::kWarpgroupWarps;
    if (warpgroup == 0) {
      GiveRegisters<40>();
      if (ring.warp == 0) {
        ring.Produce(layer);
      } else {
        ring.BringQueries();
      }
    } else {
      TakeRegisters<232>();
      AttentionWarpgroup{ring, warpgroup - 1}.Consume();
    }
  }
};

#endif  // QUIRE_ATTENTION_WARPGROUP_CUH_
