// What a caller of a row kernel must know of its operands.
#ifndef QUIRE_CODEGEN_ROW_OPERANDS_H_
#define QUIRE_CODEGEN_ROW_OPERANDS_H_

#include <cstdint>
#include <vector>

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
};

// Arguments that are looked up by are -1 where they are values of the function itself.
RowOperands RowOperandsOf(const Func& func);

}  // namespace quire

#endif  // QUIRE_CODEGEN_ROW_OPERANDS_H_
