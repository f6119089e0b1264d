// What every linear kernel has in common: y = x . w^T (+ bias) (+ residual), in one arithmetic.
//
// Constants expected: Element (Bf16 or F16, of x and the weight), Output (Bf16, F16 or F32, of y
// and the residual), kHasBias, kHasResidual, kGrain, kWholeStages (no part of K ends within a
// stage), kWeightIsWritten (by the grid before, that is), kSharedBytes; kAppendLayers, kKvHeads,
// kKeyDim, kValueDim and kPageTokens, of what goes to pages; kPairDistance, of rope
// (linear_rope.cuh); kMayAppend, whether a text with these serves linears, too, that have none of
// it: their slots are null. Bodies for many rows serve every n and k, add a residual where its
// pointer is not null, and store f32 where they are told to; those for few are made for one linear
// (linear_columns.cuh).
//
// Columns: of a linear that appends to the KV cache the last go to pages and not to y, which has
// the others: of kAppendLayers layers one after another K [kKvHeads, kKeyDim], then V [kKvHeads,
// kValueDim]. A page of a layer has K [kKvHeads, kPageTokens, kKeyDim], then V likewise. There is
// no residual then. A row whose slot is negative, which is of padding, appends nothing. Eight
// columns from a multiple of 8 on go to one place.
//
// Arithmetic, the same bits in every kernel, for every number of rows: K is cut into kParts parts
// at multiples of kGrain, 16 or the block of a block-quantised weight; each part is one chain of
// tensor-core steps of 16 k from zero, in order of k (a step that K ends within is filled with
// zeros); the parts are added from left to right in f32; then the bias and the residual are added
// in f32; then one rounding to Output. No sum is -0, so that a residual of zeros changes none.
// Whether rows or weights stand on the tensor core's 16-row side does not change a bit.
#ifndef QUIRE_LINEAR_CUH_
#define QUIRE_LINEAR_CUH_

#include "prelude.cuh"

static_assert(sizeof(Element) == 2);

constexpr int kParts = 4;
constexpr int kStepK = 16;   // k of one tensor-core step
constexpr int kStageK = 64;  // k of one stage of a ring: 128 bytes of a row
constexpr int kChunk = 8;    // elements of one 16-byte copy
constexpr int kElementBytes = 2;
constexpr int kStageRowBytes = kStageK * kElementBytes;

// Where part `part` of k begins.
DEVICE constexpr int PartBegin(int k, int part) {
  return (k + kGrain - 1) / kGrain * part / kParts * kGrain;
}
DEVICE constexpr int PartStages(int k, int part) {
  return (PartBegin(k, part + 1) - PartBegin(k, part) + kStageK - 1) / kStageK;
}

// How a pair of elements is turned by rope.
struct alignas(8) Rotation {
  float cosine, sine;
};

struct LinearOperands {
  const Element* x;        // [rows, k]; k is a multiple of 8
  const Element* weight;   // [n, k]; of a gated linear [2 n, k]
  const float* bias;       // [n], or [2 n]; or null
  const Output* residual;  // [rows, n], or null
  Output* y;               // [rows, n], or those of n that are not appended
  uint8_t* workspace;      // read and written where a tile is cut
  int rows;
  int whole_tiles;    // of bodies with tiles (linear_units.cuh)
  int n, k;           // of the weight
  int first_row = 0;  // of bodies for few rows
  int y_is_f32 = 0;   // and not of Output, nor is there a residual: of bodies with tiles
  const void *norm_weight = nullptr, *norm_bias = nullptr;    // of those that norm x
  const float *x_scales = nullptr, *weight_scales = nullptr;  // of 8-bit numbers (linear_e4m3.cuh)
  // Of what appends: each row's page * kPageTokens + place in it; page 0 of the first layer, and of
  // the second if there is one: others follow at the same distance.
  const int* slots = nullptr;
  Output *pages = nullptr, *next_pages = nullptr;
  const Rotation* turns = nullptr;  // [rows, kKeyDim / 2], of what is turned
};

constexpr bool kAppends = kAppendLayers > 0;
static_assert(kAppends || !kMayAppend);
constexpr int kLayerColumns = kKvHeads * (kKeyDim + kValueDim);
constexpr int kAppendColumns = kAppendLayers * kLayerColumns;

DEVICE bool Appends(const LinearOperands& operands) {
  return kAppends && (!kMayAppend || operands.slots != nullptr);
}

DEVICE LinearOperands Appending(LinearOperands operands, const int* slots, Output* pages,
                                Output* next_pages, const Rotation* turns = nullptr) {
  operands.slots = slots;
  operands.pages = pages;
  operands.next_pages = next_pages;
  operands.turns = turns;
  return operands;
}

// Where column `column` of those that are appended lies for a slot that is not negative.
DEVICE Output* PageElement(const LinearOperands& operands, int slot, int column) {
  constexpr int kKeys = kKvHeads * kKeyDim;
  const int layer = column / kLayerColumns, in_layer = column % kLayerColumns;
  const int page = slot / kPageTokens, token = slot % kPageTokens;
  const bool is_value = in_layer >= kKeys;
  const int in_row = is_value ? in_layer - kKeys : in_layer;
  const int dim = is_value ? kValueDim : kKeyDim;
  const int head = is_value ? in_row / kValueDim : in_row / kKeyDim;
  return operands.pages + layer * (operands.next_pages - operands.pages) +
         int64_t{page} * (kPageTokens * kLayerColumns) + (is_value ? kPageTokens * kKeys : 0) +
         (head * (kPageTokens - 1) + token) * dim + in_row;
}

// Where column `n` of row `row` goes, or null.
DEVICE Output* OutputAt(const LinearOperands& operands, int row, int n) {
  const int columns = operands.n - kAppendColumns;  // of y
  if constexpr (kAppends) {
    if (n >= columns) {
      const int slot = operands.slots[row];
      return slot < 0 ? nullptr : PageElement(operands, slot, n - columns);
    }
  }
  return operands.y + int64_t{row} * columns + n;
}

// Before the weight is read.
DEVICE void WaitForWeight() {
  if constexpr (kWeightIsWritten) WaitForPriorGrid();
}

// Bytes from the begin of a stage's row of 128 bytes to chunk `chunk`: the chunks of eight rows
// that follow each other lie in different banks.
DEVICE int SwizzledChunk(int row, int chunk) { return ((chunk ^ row) & 7) << 4; }

// The value of y whose parts sum to `sum`.
template <typename T = Output>
DEVICE T Finish(float sum, float bias, float residual) {
  if constexpr (kHasBias) sum = Add(sum, bias);
  if constexpr (kHasResidual) sum = Add(sum, residual);
  return FromFloat<T>(sum);
}

#include "linear_rope.cuh"

#endif  // QUIRE_LINEAR_CUH_
