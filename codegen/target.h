// What a plan is lowered for, as far as the compiler needs to know it: no host instruction set, no
// device handle.
#ifndef QUIRE_CODEGEN_TARGET_H_
#define QUIRE_CODEGEN_TARGET_H_

#include <string>

#include "absl/strings/string_view.h"
#include "codegen/spec.h"
#include "ir/dtype.h"

namespace quire {

// What a device's kernels read and compute, whatever the model.
struct TargetTraits {
  // Of the weights of linears, and of every matrix of blocks.
  WeightLayout matrix_layout = WeightLayout::kRows16;
  // The device brings float weights of linears to the type that their kernel reads (`w` of its
  // spec) and biases to f32 when it loads them; otherwise kernels read what the checkpoint has.
  bool converts_weights = false;
  // Row kernels know the size of a KV page.
  bool rows_know_pages = false;
  // Linear kernels compute a norm of their rows first, or bring them to 8 bits, an activation last
  // (codegen/spec.h).
  bool fuses_norms = false, fuses_activations = false;
  // They write K and V that nothing else reads to the pages of the KV cache, and turn queries and K
  // by rope before.
  bool fuses_appends = false;
};

// "cpu", "cuda"; of another name: those of the CPU.
inline TargetTraits TraitsOf(absl::string_view target) {
  TargetTraits traits;
  if (target == "cuda") {
    traits.matrix_layout = WeightLayout::kRows;
    traits.converts_weights = true;
    traits.rows_know_pages = true;
    traits.fuses_norms = traits.fuses_activations = traits.fuses_appends = true;
  }
  return traits;
}

struct Target {
  std::string name = "cpu";
  // Of values between kernels, but for those that lead to the program's result row by row alone:
  // these are f32. Arithmetic is f32 whatever this says.
  DType activation = DType::kF32;
  DType kv_dtype = DType::kF16;
  int page_tokens = 16;
  TargetTraits traits;  // TraitsOf(name)
};

}  // namespace quire

#endif  // QUIRE_CODEGEN_TARGET_H_
