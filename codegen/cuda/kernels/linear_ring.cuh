// The ring of bodies that multiply by warpgroups (sm_90a): stages of kTokens rows of x and
// kTileRows rows of the weight by 64 k, one box of each operand, filled by one thread. Of fewer
// rows x's boxes have no more than those, in eights: what lies outside a matrix takes a copy as
// long as what is there. Rows of a stage behind them are of anything, and make rows that are not
// stored.
//
// Barriers: full: the bytes of a stage are there. free: all have read it. half: some have, where a
//           body uses it.
// Dependent launch: the first stages of weights are asked for before the prior grid ends, x after.
// Shared memory, in bytes from `begin`, a multiple of 1024:
//   0              [kStages][kTokens + kTileRows rows x 128], rows swizzled, those of x first
//   kRingBytes     barriers: [3][kStages] of 8
#ifndef QUIRE_LINEAR_RING_CUH_
#define QUIRE_LINEAR_RING_CUH_

#include "hopper.cuh"
#include "linear_units.cuh"

// `kPairs`: the weight's map is `paired`.
template <int kTokens, int kTileRows, int kStages, bool kPairs = false, int kPieces = kParts>
struct LinearRing {
  static_assert(kWholeStages, "boxes do not end with a part");
  using Units = LinearUnits<kTokens, kTileRows, kPieces>;
  using Cursor = typename Units::Cursor;
  static constexpr int kXBytes = kTokens * kStageRowBytes;
  static constexpr int kStageBytes = kXBytes + kTileRows * kStageRowBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kBarrierBytes = 3 * 8 * kStages;

  uint32_t begin;  // shared address

  DEVICE uint32_t x(int stage) const { return begin + stage * kStageBytes; }
  DEVICE uint32_t weight(int stage) const { return x(stage) + kXBytes; }
  DEVICE uint32_t full(int stage) const { return begin + kRingBytes + 8 * stage; }
  DEVICE uint32_t half(int stage) const { return full(stage) + 8 * kStages; }
  DEVICE uint32_t free(int stage) const { return full(stage) + 16 * kStages; }

  DEVICE void Init(int half_arrivals, int free_arrivals) const {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(full(i), 1);
      InitBarrier(half(i), half_arrivals);
      InitBarrier(free(i), free_arrivals);
    }
    FenceBarriers();
  }

  // A stage and the parity of its phase.
  struct Turn {
    int stage = 0, parity = 0;

    DEVICE void Next() {
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
  };

  // What has landed when a stage is full.
  static DEVICE int FullBytes(const LinearOperands& operands) {
    return kTileRows * kStageRowBytes + Units::BoxBytes(operands);
  }

  template <bool kOnce>
  DEVICE void CopyWeight(int stage, const TensorMap& map, const Cursor& at) const {
    if constexpr (kPairs) {
      CopyRowPairs<kOnce>(weight(stage), map, at.k, at.row_begin, full(stage));
    } else {
      CopyBox<kOnce>(weight(stage), map, at.k, at.row_begin, full(stage));
    }
  }
  // One tile of rows of x reads a weight once, and a step's weights do not fit L2: what fits is what
  // the step's small launches read.
  DEVICE void CopyWeight(const LinearOperands& operands, int stage, const TensorMap& map,
                         const Cursor& at) const {
    if (operands.rows <= kTokens) {
      CopyWeight<true>(stage, map, at);
    } else {
      CopyWeight<false>(stage, map, at);
    }
  }

  // One warpgroup's products of a part of `stages` stages, from zero: of the 64 rows that begin at
  // byte `a` of a stage and the kColumns rows from byte `b` on. A stage is waited for at
  // wait(stage)'s barrier, and given up at release(stage)'s.
  template <int kColumns, typename Wait, typename Release>
  DEVICE void Multiply(int stages, Turn& turn, int a, int b, const Wait& wait,
                       const Release& release, float (&sum)[kColumns / 2]) const {
    // Zeros, though no product reads them: else registers would be kept for `sum` from where it was
    // last to here.
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0;
    if (stages == 0) return;
    const auto give_up = [&](int stage) {
      if (threadIdx.x % kWarpThreads == 0) Arrive(release(stage));
    };
    int before = 0;
    for (int i = 0; i < stages; ++i) {
      WaitForPhase(wait(turn.stage), turn.parity);
      const Operand a_operand = OperandAt(x(turn.stage) + a),
                    b_operand = OperandAt(x(turn.stage) + b);
      BeginProducts();
#pragma unroll
      for (int step = 0; step < kStageK / kStepK; ++step) {
        WarpgroupProduct<Element, kColumns>::Run(sum, a_operand + 2 * step, b_operand + 2 * step,
                                                 step > 0 || i > 0);
      }
      CommitProducts();
      WaitForProducts<1>();
      if (i > 0) give_up(before);
      before = turn.stage;
      turn.Next();
    }
    WaitForProducts<0>();
    HoldProducts(sum);
    give_up(before);
  }

  // Where rows of x come from: of the first stages it is where they come to, until they do.
  struct alignas(8) XNote {
    int k, token_begin;
  };
  static DEVICE XNote& NoteOf(int stage) {
    return *reinterpret_cast<XNote*>(SharedMemory() + stage * kStageBytes);
  }

  // One thread: keeps the ring full.
  DEVICE void Produce(const LinearOperands& operands, const TensorMap& x_map,
                      const TensorMap& weight_map) const {
    WaitForWeight();
    const int full_bytes = FullBytes(operands);
    Cursor at;
    at.Rewind(operands);
    int first = 0;
#pragma unroll 1
    for (; first < kStages && at.Next(operands); ++first) {
      ArriveExpecting(full(first), full_bytes);
      CopyWeight(operands, first, weight_map, at);
      NoteOf(first) = {at.k, at.token_begin};
    }
    AllowNextGrid();
    FenceShared();
    WaitForPriorGrid();
#pragma unroll 1
    for (int i = 0; i < first; ++i) {
      const XNote note = NoteOf(i);
      CopyBox(x(i), x_map, note.k, note.token_begin, full(i));
    }
#pragma unroll 1
    for (Turn turn; at.Next(operands); turn.Next()) {
      WaitForPhase(free(turn.stage), turn.parity);
      ArriveExpecting(full(turn.stage), full_bytes);
      CopyWeight(operands, turn.stage, weight_map, at);
      CopyBox(x(turn.stage), x_map, at.k, at.token_begin, full(turn.stage));
    }
  }
};

#endif  // QUIRE_LINEAR_RING_CUH_
