// Heads of queries and keys that a linear turns by rope before they leave: the first columns, all
// but those of V, in heads of kKeyDim. A linear that does appends one layer.
//
// kPairDistance: 0 where nothing is turned; 1 where pairs are neighbours; 8 where the elements of a
//                pair lie half a head apart. Then the weight's rows of such a head are in eights,
//                of its first half and of its second in turn, so that every sixteen rows have
//                whole pairs, eight apart (CudaLinearRowOrder). Bodies multiply rows as they stand;
//                which columns these are is said here.
//
// Arithmetic: what a row kernel computes of the product as Output has it, to the bit: turned in f32
// by the step's cosines and sines (linear_turns.cuh), rounded once more.
#ifndef QUIRE_LINEAR_ROPE_CUH_
#define QUIRE_LINEAR_ROPE_CUH_

constexpr bool kTurns = kPairDistance > 0;
constexpr int kHeadPairs = kKeyDim / 2;
static_assert(!kTurns || (sizeof(Output) == 2 && kAppendLayers == 1));
static_assert(kPairDistance < 8 || kKeyDim % 16 == 0);

DEVICE int TurnedColumns(const LinearOperands& operands) {
  return kTurns && Appends(operands) ? operands.n - kKvHeads * kValueDim : 0;
}
// The column that row `at` of the weight is of.
DEVICE int ColumnAt(const LinearOperands& operands, int at) {
  if constexpr (kPairDistance == 8) {
    const int in_head = at % kKeyDim;
    const int column = at - in_head + in_head / 16 * 8 + in_head % 8 + in_head / 8 % 2 * kHeadPairs;
    return at < TurnedColumns(operands) ? column : at;
  }
  return at;
}
// How row `row`'s pair of that column turns; behind it are those of the pairs that follow.
DEVICE const Rotation* TurnAt(const LinearOperands& operands, int row, int at) {
  const int in_head = at % kKeyDim;
  const int pair = kPairDistance == 8 ? in_head / 16 * 8 + in_head % 8 : in_head / 2;
  return operands.turns + int64_t{row} * kHeadPairs + pair;
}

// The first or the second of a pair, from it and the other: a cos - b sin, or b cos + a sin.
template <typename T = Output>
DEVICE T Turned(T own, T other, Rotation turn, bool is_second) {
  const float sine = is_second ? turn.sine : -turn.sine;
  return FromFloat<T>(Fma(ToFloat(own), turn.cosine, Mul(ToFloat(other), sine)));
}

// Tiles of eight columns that have whole pairs.
constexpr int kTurnedTiles = kPairDistance == 8 ? 2 : 1;
struct alignas(8 * kTurnedTiles) Rotations {
  Rotation of[kTurnedTiles];
};
// How TurnPairs turns two columns of each of these, the first at `at`, of a row that there need not
// be; anything where it turns none.
DEVICE Rotations RotationsAt(const LinearOperands& operands, int row, int at) {
  if (at >= TurnedColumns(operands)) return {};
  if (row >= operands.rows) row = operands.rows - 1;
  return *reinterpret_cast<const Rotations*>(TurnAt(operands, row, at));
}
template <typename Pair>
DEVICE void TurnPairs(const LinearOperands& operands, int at, const Rotations& turns,
                      Pair (&y)[kTurnedTiles]) {
  if (at >= TurnedColumns(operands)) return;
#pragma unroll
  for (int e = 0; e < kTurnedTiles; ++e) {
    auto& a = y[0].values[e];
    auto& b = kTurnedTiles == 2 ? y[kTurnedTiles - 1].values[e] : y[0].values[1];
    const auto first = Turned(a, b, turns.of[e], false);
    b = Turned(b, a, turns.of[e], true);
    a = first;
  }
}

template <typename T>
struct alignas(16) EightOf {
  T values[8];
};

// `y`: eight of the product, whose first column stands at `at`. Lanes whose numbers differ in the
// lowest bit alone have the eights of one sixteen; all lanes of a warp come here.
template <typename T = Output>
DEVICE void TurnEight(const LinearOperands& operands, int row, int at, bool is_there,
                      EightOf<T>& y) {
  const bool turns = is_there && at < TurnedColumns(operands);
  constexpr int kTurnsOfEight = kPairDistance == 8 ? 8 : 4;
  struct alignas(16) Two {
    Rotation of[2];
  };
  EightOf<T> other;
  if constexpr (kPairDistance == 8) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const uint32_t own = y.values[i].bits | static_cast<uint32_t>(y.values[i + 1].bits) << 16;
      const uint32_t word = Bits(ShuffleXor(FromBits(own), 1));
      other.values[i] = {static_cast<uint16_t>(word)};
      other.values[i + 1] = {static_cast<uint16_t>(word >> 16)};
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) other.values[i] = y.values[i ^ 1];
  }
  if (!turns) return;
  const auto* from = reinterpret_cast<const Two*>(TurnAt(operands, row, at));
  Two two[kTurnsOfEight / 2];
#pragma unroll
  for (int i = 0; i < kTurnsOfEight / 2; ++i) two[i] = from[i];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int pair = kPairDistance == 8 ? i : i / 2;
    const bool is_second = kPairDistance == 8 ? at / 8 % 2 != 0 : i % 2 != 0;
    y.values[i] = Turned(y.values[i], other.values[i], two[pair / 2].of[pair % 2], is_second);
  }
}

#endif  // QUIRE_LINEAR_ROPE_CUH_
