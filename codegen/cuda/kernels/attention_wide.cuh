// The attention entry for tiles of many rows on sm_90a where a row has too many sums for one
// warpgroup: heads of 192 and 256. Keys, values, q and shared memory are attention_ring.cuh's, the
// arithmetic attention.cuh's.
//
// Block:  warpgroup 0 brings, 1 and 2 have all 64 rows of a tile, and half of the columns of its
//         values each. They score and weigh steps in turn, and share the weights: while one weighs
//         a step, products of the other run.
#ifndef QUIRE_ATTENTION_WIDE_CUH_
#define QUIRE_ATTENTION_WIDE_CUH_

#include "attention_bring.cuh"
#include "attention_steps.cuh"

// One of warpgroups 1 and 2.
struct AttentionWide {
  using Ring = AttentionRing;
  static_assert(kWide && kDv % 64 == 0);
  static constexpr int kGroupBytes = Ring::kGroupBytes;
  static constexpr int kOwnBarrier = 1;  // of SyncThreads, one a warpgroup
  // Own columns: panels of 64, and where a panel is shared 32 of it.
  static constexpr int kColumns = kDv / 2, kPanels = kColumns / 64;
  static constexpr bool kHalfPanel = kColumns % 64 != 0;

  const Ring& ring;
  const int consumer;  // 0 or 1

  // Of a tile's rows.
  struct Sums {
    RowSums<kColumns / 8> chunk, total;
    StepScores s;
  };
  // Steps that the block has had before, and of them those that this warpgroup and the other have
  // weighed.
  struct Past {
    int steps = 0, own = 0, other = 0;
  };
  // A tile at work.
  struct Work {
    const WarpRows& own;
    const int first, begin, end;  // the first token that is read; steps
    const Past& past;
    RowInfo rows[2];
    Sums& sums;

    DEVICE int number(int step) const { return past.steps + step - begin; }
    DEVICE bool Opens(int step) const { return step == begin || step % kChunkSteps == 0; }
  };

  // A place's phases: use `number` of all is in place number % kCount.
  template <int kCount>
  static DEVICE int Parity(int number) {
    return number / kCount & 1;
  }
  DEVICE void SyncOwn() const { SyncThreads(kOwnBarrier + consumer, kWarpgroupThreads); }

  DEVICE void WaitForKeys(int number) const {
    WaitForPhase(ring.key_full(number % Ring::kKeyStages), Parity<Ring::kKeyStages>(number));
  }
  DEVICE void AskForScores(Sums& sums, int number) const {
    const Operand query = OperandAt(ring.query(0, 0));
    const Operand keys = OperandAt(ring.keys(number % Ring::kKeyStages), kGroupBytes);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kSteps16; ++k) {
      WarpgroupProduct<Element, kStepTokens>::Run(
          &sums.s[0][0], query + k / 4 * (Ring::kGroupRows * 128 / 16) + k % 4 * 2,
          keys + k / 4 * (Ring::kPanelBytes / 16) + k % 4 * 2, k > 0);
    }
    CommitProducts();
  }
  // Of step `number` of the block, by warpgroup `weigher`'s weights.
  DEVICE void AskForSums(Sums& sums, int number, int weigher, bool opens) const {
    const Operand values =
        OperandAt(ring.values(number % Ring::kValueStages), kGroupBytes, Ring::kPanelBytes);
    const Operand weights = OperandAt(ring.weights(weigher)), ones = OperandAt(ring.ones(), 0);
    const Operand panels = values + consumer * ((kPanels + kHalfPanel) * (Ring::kPanelBytes / 16));
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kStepTokens / 16; ++k) {
      const int at = k * (2 * kGroupBytes / 16);
      const bool accumulate = k > 0 || !opens;
      WarpgroupProduct<Element, kPanels * 64, 1>::Run(sums.chunk.o[0], weights + 2 * k, panels + at,
                                                      accumulate);
      if constexpr (kHalfPanel) {
        WarpgroupProduct<Element, 32, 1>::Run(
            sums.chunk.o[kPanels * 8], weights + 2 * k,
            values + (at + kPanels * (Ring::kPanelBytes / 16)) + 4 * consumer, accumulate);
      }
      WarpgroupProduct<Element, 8, 1>::Run(sums.chunk.l, weights + 2 * k, ones, accumulate);
    }
    CommitProducts();
  }
  // The column of y where tile `i` of 8 own ones begins.
  DEVICE int Column(int i) const {
    return i < kPanels * 8 ? consumer * (kPanels + kHalfPanel) * 64 + i * 8
                           : kPanels * 64 + consumer * 32 + (i - kPanels * 8) * 8;
  }

  // Waits for a step's values. Tokens that are not read become zeros.
  DEVICE void WaitForValues(const Work& work, int step) const {
    const int number = work.number(step), stage = number % Ring::kValueStages;
    WaitForPhase(ring.value_full(stage), Parity<Ring::kValueStages>(number));
    const int begin = work.first - step * kStepTokens;
    const int end = work.own.tile.context - step * kStepTokens;
    if (begin > 0 || end < kStepTokens) {
      ring.KeepValues(stage, begin, end);
      SyncOwn();
    }
  }
  // A step's sums are there: its values and weights are no longer read.
  DEVICE void Free(const Work& work, int step, int weigher) const {
    ring.ArriveOnce(ring.value_free(work.number(step) % Ring::kValueStages));
    ring.ArriveOnce(ring.weights_free(weigher));
  }
  DEVICE void HoldSums(Sums& sums) const {
    HoldProducts(sums.s);
    HoldProducts(sums.chunk.o);
    HoldProducts(sums.chunk.l);
  }
  // Before the sums of a step: m has become that of its weights.
  DEVICE void TakeMaxima(Work& work, int step, const float (&before)[2]) const {
    RowSums<kColumns / 8>& chunk = work.sums.chunk;
    if (step == work.begin) return;
    if (work.Opens(step)) {
      FoldChunk(work.sums.total, chunk, before);
    } else {
      if (AnyLane(before[0] != chunk.m[0] || before[1] != chunk.m[1])) ScaleSums(chunk, before);
    }
  }

  // Weights and maxima of an own step, for both warpgroups.
  DEVICE void Share(const Work& work, const StepWeights& p) const {
    const int lane = ring.lane;
    Ring::SharedWeights& to = ring.shared_weights(consumer);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = work.own.first_row + lane / 4 + 8 * half;
#pragma unroll
      for (int unit = 0; unit < kStepTokens / 8; ++unit) {
        *reinterpret_cast<uint32_t*>(to.p + row * 128 + (unit ^ row % 8) * 16 + lane % 4 * 4) =
            p[unit / 2][unit % 2 * 2 + half];
      }
      if (lane % 4 == 0) to.m[row] = work.sums.chunk.m[half];
    }
    FenceShared();
    SyncWarp();
    // Every lane for itself: a sanitizer does not see that one arrives for all that meet before.
    Arrive(ring.weights_full(consumer));
  }
  // Of the other warpgroup's step; false where the tile has no such step.
  DEVICE bool WaitForOther(Work& work, int step, int other_number) const {
    if (step < work.begin) return false;
    WaitForPhase(ring.weights_full(1 - consumer), other_number & 1);
    const Ring::SharedWeights& from = ring.shared_weights(1 - consumer);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      work.sums.chunk.m[half] = from.m[work.own.first_row + ring.lane / 4 + 8 * half];
    }
    SyncWarp();  // before the warp frees them
    return true;
  }

  DEVICE void Attend(Work& work, int own_number, int other_number) const {
    Sums& sums = work.sums;
    const WholeSteps whole(work.own.tile);
    work.own.Load(work.rows);
    sums.total.Clear();
    sums.chunk.m[0] = sums.chunk.m[1] = kLowest;
    int step = work.begin + consumer;
    if (step < work.end) WaitForKeys(work.number(step));
    AskForScores(sums, work.number(step));  // of anything, if it has no step
#pragma unroll 1
    for (; step < work.end; step += 2) {
      const float last_m[2] = {sums.chunk.m[0], sums.chunk.m[1]};
      const bool other = WaitForOther(work, step - 1, other_number);
      WaitForProducts<0>();
      HoldSums(sums);
      ring.ArriveOnce(ring.key_free(work.number(step) % Ring::kKeyStages));
      if (step + 2 >= work.end) ring.ArriveOnce(ring.tile_free(0));
      if (step - 2 >= work.begin) Free(work, step - 2, consumer);
      if (other) {
        TakeMaxima(work, step - 1, last_m);
        WaitForValues(work, step - 1);
        ++other_number;
      }
      // Where there is no other step, of anything: an own step that opens a chunk is next.
      AskForSums(sums, work.number(step - 1), 1 - consumer, !other || work.Opens(step - 1));

      float m[2];
      StepWeights p;
      work.own.Finish(sums.s, work.rows, whole, step, step * kStepTokens);
      Weigh(sums.s, work.Opens(step), sums.chunk.m, m, p);
      WaitForPhase(ring.weights_free(consumer), own_number & 1 ^ 1);
      Share(work, p);
      WaitForProducts<0>();
      HoldSums(sums);
      if (other) Free(work, step - 1, 1 - consumer);
      TakeMaxima(work, step, m);
      WaitForPhase(ring.weights_full(consumer), own_number & 1);
      ++own_number;
      WaitForValues(work, step);
      if (step + 2 < work.end) WaitForKeys(work.number(step + 2));
      AskForScores(sums, work.number(step + 2));
      AskForSums(sums, work.number(step), consumer, work.Opens(step));
    }
    // The last step may be the other's.
    const bool has_own = work.begin + consumer < work.end;
    const float last_m[2] = {sums.chunk.m[0], sums.chunk.m[1]};
    const bool other = step == work.end && WaitForOther(work, step - 1, other_number);
    WaitForProducts<0>();
    HoldSums(sums);
    if (has_own) {
      Free(work, step - 2, consumer);
    } else {
      ring.ArriveOnce(ring.tile_free(0));
    }
    if (other) {
      TakeMaxima(work, step - 1, last_m);
      WaitForValues(work, step - 1);
      AskForSums(sums, work.number(step - 1), 1 - consumer, work.Opens(step - 1));
      WaitForProducts<0>();
      HoldSums(sums);
      Free(work, step - 1, 1 - consumer);
    }
    FoldChunk(sums.total, sums.chunk, sums.chunk.m);
    // y passes through the place of the own weights.
    WaitForPhase(ring.weights_free(consumer), own_number & 1 ^ 1);
    Write(work.own, sums.total);
  }

  // y of the warp's rows, 64 columns at a time: a row's units of 16 bytes together.
  DEVICE void Write(const WarpRows& own, const RowSums<kColumns / 8>& sums) const {
    const int lane = own.lane;
    uint8_t* rows = ring.shared_weights(consumer).p + own.first_row * 128;
    float scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale[half] = FinalScale(ring.operands,
                               QueryHead(own.tile, own.head, own.first_row + lane / 4 + 8 * half),
                               sums.m[half], sums.l[2 * half]);
    }
#pragma unroll
    for (int first = 0; first < kColumns / 8; first += 8) {
      constexpr int kAll = kColumns / 8;
      const int units = kAll - first < 8 ? kAll - first : 8;
#pragma unroll
      for (int unit = 0; unit < units; ++unit) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = lane / 4 + 8 * half;
          const float* pair = &sums.o[first + unit][2 * half];
          *reinterpret_cast<uint32_t*>(rows + row * 128 + (unit ^ row % 8) * 16 + lane % 4 * 4) =
              Pack<Element>(Mul(pair[0], scale[half]), Mul(pair[1], scale[half]));
        }
      }
      SyncWarp();
#pragma unroll 2
      for (int at = lane; at < 16 * units; at += kWarpThreads) {
        const int row = at / units, unit = at % units;
        if (own.first_row + row >= own.tile.rows) break;
        Element* y = OutputRow(ring.operands, own.tile, own.head, own.first_row + row);
        *reinterpret_cast<Words4*>(y + Column(first + unit)) =
            *reinterpret_cast<const Words4*>(rows + row * 128 + (unit ^ row % 8) * 16);
      }
      SyncWarp();
    }
  }

  DEVICE void Consume() const {
    Past past;
    Sums sums;
    for (Ring::TileTurn turn;; turn.Next()) {
      WaitForPhase(ring.tile_full(0), turn.parity);
      const Ring::TileNote& note = ring.note(0);
      const int head = Uniform(note.head);
      if (head < 0) return;
      const Tile tile = Ring::UniformTile(note.tile);
      const WarpRows own{ring.operands, tile, head, ring.warp % Ring::kWarpgroupWarps * 16,
                         ring.lane};
      Work work{own, Ring::FirstRead(tile), tile.step_begin, Ring::StepEnd(tile), past, {}, sums};
      Attend(work, past.own, past.other);
      const int steps = work.end - work.begin;
      past.steps += steps;
      past.own += (steps + 1 - consumer) / 2;
      past.other += (steps + consumer) / 2;
    }
  }

  // `query` is a map of q where AttentionRing::kQueryBoxes.
  static DEVICE void Run(const AttentionOperands& operands, const TensorMap& layer,
                         const TensorMap& query) {
    AttentionBringer::RunBlock(operands, layer, query, [](const Ring& ring, int consumer) {
      AttentionWide{ring, consumer}.Consume();
    });
  }
};

#endif  // QUIRE_ATTENTION_WIDE_CUH_
