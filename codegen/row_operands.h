// What a caller of a row kernel must know of its operands.
#ifndef QUIRE_CODEGEN_ROW_OPERANDS_H_
#define QUIRE_CODEGEN_ROW_OPERANDS_H_

#include <cstdint>
#include <vector>

#include "codegen/spec.h"
#include "ir/graph.h"

namespace quire {

struct RowOperands {
  struct Look {
    int argument;   // that holds row numbers
    int64_t limit;  // each must be in [0, limit)
  };
  std::vector<Look> looks;        // into embedding tables
  std::vector<int> takes;         // arguments that hold numbers of the step's rows
  std::vector<bool> append_is_v;  // slot of each kv_append
  struct Scale {
    int argument;
    int64_t heads;
  };
  std::vector<Scale> scales;  // by which appends keep, f32 [heads], and quantize divides, f32 [1]
};

// Arguments that are looked up by are -1 where they are values of the function itself.
RowOperands RowOperandsOf(const Func& func);

// Heads of which input `i` of a kernel has scales of keys or values, one f32 for each; 1 of the
// scale of a quantize, too; 0: it is something else. `rows`: of a row kernel.
int64_t KvScaleHeads(const KernelSpec& spec, const RowOperands& rows, size_t i);

}  // namespace quire

#endif  // QUIRE_CODEGEN_ROW_OPERANDS_H_
