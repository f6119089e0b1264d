// Random valid functions, the same for the same seed on every platform.
//
// RandomProgram draws a small decoder from the space that models/ can express (norms, packed or
// separate projections, biases, rope, ALiBi, learned positions, grouped heads, windows, caps, gated
// and plain feed-forward) and writes it in one of three forms, which mean the same: a pass from one
// form to another has an answer to be compared with.
//
// RandomOps strings together any ops of the table with any attributes in range, as long as they
// verify: for the text form and for whatever must survive every valid function.
#ifndef QUIRE_TESTS_RANDOM_PROGRAM_H_
#define QUIRE_TESTS_RANDOM_PROGRAM_H_

#include <cstdint>
#include <memory>

#include "ir/graph.h"
#include "ir/reference/interpreter.h"
#include "ir/type.h"

namespace quire::testing {

enum class ProgramForm {
  kDefinition,  // heads expanded; matmul, scale, bias, mask, softmax, matmul
  kRaised,      // the attention op, over grouped K/V where the order of expansion allows
  kCached,      // the attention op over kv_append
};

struct ProgramOptions {
  ProgramForm form = ProgramForm::kDefinition;
  // Projection weights in block formats, too; widths are then multiples of 32 and 256.
  bool block_weights = false;
  // Values cast to f16 and bf16 and back here and there.
  bool casts = false;
  // Expansion of heads that maps head h to h % Hkv, which grouped attention cannot express.
  bool tiled_heads = false;
  // In kDefinition form: arguments source and source_pos, an encoder, and cross-attention over its
  // output in every layer, projected by one matrix for both inputs or by several.
  bool encoder = false;
  // Keys and values kept as this type in kCached form.
  DType kv_dtype = DType::kF32;
};

// func @step(%ids: i32[T], %pos: i32[T]) -> logits f32[T,V]; with an encoder also %source: i32[S]
// and %source_pos: i32[S]. Tables take positions up to 63.
std::unique_ptr<Func> RandomProgram(uint64_t seed, const ProgramOptions& options = {});

// Up to `count` ops over arguments of mixed types, symbolic extents among them.
std::unique_ptr<Func> RandomOps(uint64_t seed, int count);

// Arguments for any verified function under the given bindings of its letters: i32 arguments called
// "pos" count up from `first_position`, other i32 ones are ids inside every table that they index;
// float ones are normal. Weights are RandomWeights().
reference::Inputs RandomInputs(const Func& func, uint64_t seed, const Bindings& bindings,
                               int64_t first_position = 0);

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RANDOM_PROGRAM_H_
