// A linear of numbers of f8e4m3 on both sides, for sm_90a: products of warpgroups, whose bits are
// those of no other instruction, for any number of rows.
//
// Elements are pairs of numbers, so that a row of a stage, 128 bytes, is of 128 k.
// Arithmetic, the same bits in every body: of each 128 k a chain of four products from zero, in
// order of k; then in f32, in order of k,
//   kRowScales    sum = sum + chain; after the last: sum = sum (x's scale, w's scale)
//   otherwise     sum = fma(chain, (x's scale, w's scale), sum), of these 128 k
// with a product in brackets rounded, too. The rest is linear.cuh's, but for its parts of K.
//
// x_scales: [1], or [K / 128] if they are not of rows, of so many rows as x has in eights, f32.
// weight_scales: [K / 128] of the weight's rows, and behind them a u32 that is not 0 if each 128 rows
// share theirs.
//
// Constants expected, beside those of linear_act.cuh: kRowScales.
#ifndef QUIRE_LINEAR_E4M3_CUH_
#define QUIRE_LINEAR_E4M3_CUH_

#include "linear_act.cuh"
#include "linear_ring.cuh"

constexpr int kPairsOfScale = 64;
static_assert(kStageK == kPairsOfScale, "a stage has one scale a row");

// The scales of one thread's sums of 64 x kColumns: of two rows, eight apart, and of two of each
// eight columns. kWeightRows: rows are the weight's, and columns those of x; else the other way
// round.
template <int kColumns, bool kWeightRows>
struct E4m3Scales {
  static constexpr int kTiles = kColumns / 8;
  struct alignas(8) Two {
    float of[2];
  };

  const LinearOperands& operands;
  int row, column;  // this thread's first, in the tile's order of the weight's rows
  float rows[2];
  Two columns[kTiles];
  // Columns are of 128 rows of the weight that share scales, or of 64 of each half of a gated one.
  bool is_shared = false;
  Two shared;
  // Of the next stage, where they are few: they come while this one's products run.
  static constexpr bool kAreFew = !kRowScales && kWeightRows && kColumns <= 16;
  struct {
    float rows[2];
    Two columns[kAreFew ? kTiles : 1];  // or those that are shared
  } next;

  DEVICE E4m3Scales(const LinearOperands& all, int row_begin, int column_begin) : operands(all) {
    if constexpr (!kRowScales && !kWeightRows && kColumns == 128) {
      const float* end = operands.weight_scales + int64_t{operands.k / kPairsOfScale} * operands.n;
      is_shared = *reinterpret_cast<const uint32_t*>(end) != 0 &&
                  (!kGated || operands.n % (2 * 64) == 0);
    }
    const int warp = threadIdx.x % kWarpgroupThreads / kWarpThreads;
    const int lane = threadIdx.x % kWarpThreads;
    row = row_begin + warp * 16 + lane / 4;
    column = column_begin + lane % 4 * 2;
    if (kAreFew || is_shared) Fetch(0);
  }

  // The row of the weight that is `at` in the order of tiles, in which a gated linear's are pairs of
  // eight; the last one's behind it.
  DEVICE int WeightRow(int at) const {
    if (at >= operands.n) at = operands.n - 1;
    return kGated ? at / 16 * 8 + at % 8 + at / 8 % 2 * (operands.n / 2) : at;
  }
  DEVICE int XRows() const { return (operands.rows + 7) / 8 * 8; }
  DEVICE int XRow(int at) const { return at < XRows() ? at : 0; }

  DEVICE void Fetch(int stage) {
    const int last = operands.k / kPairsOfScale - 1;
    if (stage > last) stage = last;
    const float* x = operands.x_scales + stage * XRows();
    const float* weight = operands.weight_scales + int64_t{stage} * operands.n;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      next.rows[i] = kWeightRows ? weight[WeightRow(row + 8 * i)] : x[XRow(row + 8 * i)];
    }
    if constexpr (kAreFew) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        next.columns[i] = *reinterpret_cast<const Two*>(x + XRow(column + 8 * i));
      }
    } else {
      next.columns[0] = {weight[WeightRow(column)], kGated ? weight[WeightRow(column + 8)] : 0};
    }
  }

  // Of stage `stage`, in order; of scales of rows there is one.
  DEVICE void Load(int stage) {
    if (kAreFew || is_shared) {
#pragma unroll
      for (int i = 0; i < 2; ++i) rows[i] = next.rows[i];
      shared = next.columns[0];
      if constexpr (kAreFew) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) columns[i] = next.columns[i];
      }
      Fetch(stage + 1);
      return;
    }
    const float* x = operands.x_scales + stage * XRows();
    const float* weight = operands.weight_scales + int64_t{stage} * operands.n;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows[i] = kWeightRows ? weight[WeightRow(row + 8 * i)] : x[XRow(row + 8 * i)];
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int at = column + 8 * i;
      if constexpr (kWeightRows) {
        columns[i] = *reinterpret_cast<const Two*>(x + XRow(at));
      } else if constexpr (kStoresEights) {
        columns[i] = *reinterpret_cast<const Two*>(weight + WeightRow(at) / 2 * 2);
      } else {
        columns[i] = {weight[WeightRow(at)], weight[WeightRow(at + 1)]};
      }
    }
  }
  DEVICE float Of(int i) const { return Mul(rows[i / 2 % 2], columns[i / 4].of[i % 2]); }

  DEVICE void TakeIn(float (&total)[kColumns / 2], const float (&sum)[kColumns / 2]) const {
    if (is_shared) {
      float scales[2][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) scales[i / 2][i % 2] = Mul(rows[i / 2], shared.of[i % 2]);
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        total[i] = Fma(sum[i], scales[i / 2 % 2][kGated ? i / 4 % 2 : 0], total[i]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      total[i] = kRowScales ? Add(total[i], sum[i]) : Fma(sum[i], Of(i), total[i]);
    }
  }
  DEVICE void Finish(float (&total)[kColumns / 2]) {
    if constexpr (!kRowScales) return;
    Load(0);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) total[i] = Mul(total[i], Of(i));
  }
};

// One warpgroup's totals over `stages` stages: of the 64 rows that begin at byte `a` of a stage and
// the kColumns rows from byte `b` on. The products of kAtOnce stages, each with sums of its own, run
// before the first is waited for. (None runs from one turn of a loop into the next: its registers
// would be moved, and ptxas then lets no product run beside another.)
template <int kColumns, int kAtOnce, typename Ring, typename Scales>
struct E4m3Sums {
  using Turn = typename Ring::Turn;
  using Sums = float[kColumns / 2];

  const Ring& ring;
  int stages, a, b;

  // Begins the products of a stage.
  DEVICE void Begin(const Turn& turn, Sums& sum) const {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0;
    WaitForPhase(ring.full(turn.stage), turn.parity);
    const Operand a_operand = OperandAt(ring.x(turn.stage) + a),
                  b_operand = OperandAt(ring.x(turn.stage) + b);
    BeginProducts();
#pragma unroll
    for (int step = 0; step < kStageK / kStepK; ++step) {
      WarpgroupProduct<Element, kColumns>::Run(sum, a_operand + 2 * step, b_operand + 2 * step,
                                               step > 0);
    }
    CommitProducts();
  }
  // Adds those of stage number `i`, which are waited for, but for kPending newer ones.
  template <int kPending>
  DEVICE void End(int i, Turn& turn, Scales& scales, Sums& sum, Sums& total) const {
    if constexpr (!kRowScales) scales.Load(i);
    WaitForProducts<kPending>();
    HoldProducts(sum);
    if (threadIdx.x % kWarpThreads == 0) Arrive(ring.free(turn.stage));
    turn.Next();
    scales.TakeIn(total, sum);
  }
  template <int kCount, int kAt = 0>
  DEVICE void EndAll(int i, Turn& turn, Scales& scales, Sums (&sums)[kCount], Sums& total) const {
    End<kCount - 1 - kAt>(i + kAt, turn, scales, sums[kAt], total);
    if constexpr (kAt + 1 < kCount) EndAll<kCount, kAt + 1>(i, turn, scales, sums, total);
  }
  // The products of kCount stages from number `i` on.
  template <int kCount>
  DEVICE void Add(int i, Turn& turn, Scales& scales, Sums& total) const {
    Sums sums[kCount];
    Turn begun = turn;
#pragma unroll
    for (int at = 0; at < kCount; ++at) {
      Begin(begun, sums[at]);
      begun.Next();
    }
    EndAll<kCount>(i, turn, scales, sums, total);
  }

  // `turn` is the first stage's, and afterwards that of the one behind the last.
  DEVICE void Run(Turn& turn, Scales& scales, Sums& total) const {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) total[i] = 0;
    int i = 0;
    if constexpr (kAtOnce > 1) {
      for (; i + kAtOnce <= stages; i += kAtOnce) Add<kAtOnce>(i, turn, scales, total);
    }
    for (; i < stages; ++i) Add<1>(i, turn, scales, total);
    scales.Finish(total);
  }
};

#endif  // QUIRE_LINEAR_E4M3_CUH_
