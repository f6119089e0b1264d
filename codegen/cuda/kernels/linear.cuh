// What every linear kernel has in common: y = x . w^T (+ bias) (+ residual), in one arithmetic.
//
// Constants expected: Element (Bf16 or F16, of x and the weight), Output (Bf16, F16 or F32, of y
// and the residual), kN, kK, kGrain, kHasBias, kHasResidual, kWeightIsWritten (by the grid before,
// that is), kSharedBytes.
//
// Arithmetic, the same bits in every kernel, for every number of rows: K is cut into kParts parts
// at multiples of kGrain, 16 or the block of a block-quantised weight; each part is one chain of
// tensor-core steps of 16 k from zero, in order of k (a step that K ends within is filled with
// zeros); the parts are added from left to right in f32; then the bias and the residual are added
// in f32; then one rounding to Output. Whether rows or weights stand on the tensor core's 16-row
// side does not change a bit.
#ifndef QUIRE_LINEAR_CUH_
#define QUIRE_LINEAR_CUH_

#include "prelude.cuh"

static_assert(kK > 0 && kK % 8 == 0, "16 bytes are copied at once");
static_assert(kN > 0);
static_assert(sizeof(Element) == 2);

constexpr int kParts = 4;
constexpr int kStepK = 16;   // k of one tensor-core step
constexpr int kStageK = 64;  // k of one stage of a ring: 128 bytes of a row
constexpr int kChunk = 8;    // elements of one 16-byte copy
constexpr int kElementBytes = 2;
constexpr int kStageRowBytes = kStageK * kElementBytes;

// K up to whole steps; from kK on, operands are zeros.
constexpr int kPaddedK = (kK + kStepK - 1) / kStepK * kStepK;

// Where part `part` begins, in k.
DEVICE constexpr int PartBegin(int part) {
  return (kK + kGrain - 1) / kGrain * part / kParts * kGrain;
}
DEVICE constexpr int PartStages(int part) {
  return (PartBegin(part + 1) - PartBegin(part) + kStageK - 1) / kStageK;
}
// No part ends within a stage.
constexpr bool kWholeStages = kGrain % kStageK == 0 || kK % (kParts * kStageK) == 0;

struct LinearOperands {
  const Element* x;        // [rows, kK]
  const Element* weight;   // [kN, kK]
  const float* bias;       // [kN], or null
  const Output* residual;  // [rows, kN], or null
  Output* y;               // [rows, kN]
  uint8_t* workspace;      // read and written where a tile is cut
  int rows;
  int whole_tiles;  // of bodies with tiles (linear_units.cuh)
  int first_row;    // of bodies for few rows
};

// Before the weight is read.
DEVICE void WaitForWeight() {
  if constexpr (kWeightIsWritten) WaitForPriorGrid();
}

// Bytes from the begin of a stage's row of 128 bytes to chunk `chunk`: the chunks of eight rows
// that follow each other lie in different banks.
DEVICE int SwizzledChunk(int row, int chunk) { return ((chunk ^ row) & 7) << 4; }

// The value of y whose parts sum to `sum`.
DEVICE Output Finish(float sum, float bias, float residual) {
  if constexpr (kHasBias) sum = Add(sum, bias);
  if constexpr (kHasResidual) sum = Add(sum, residual);
  return FromFloat<Output>(sum);
}

#endif  // QUIRE_LINEAR_CUH_
