// What both linear emitters share: walking a tile of rows, and the epilogue.
#ifndef QUIRE_CODEGEN_CPU_EMIT_LINEAR_H_
#define QUIRE_CODEGEN_CPU_EMIT_LINEAR_H_

#include <functional>
#include <vector>

#include "codegen/cpu/llvm_text.h"
#include "codegen/spec.h"

namespace quire {

// Parameters of LinearEntry, declared by BeginLinear.
struct LinearParameters {
  LlvmValue x{"ptr", "%x"}, weight{"ptr", "%weight"}, bias{"ptr", "%bias"},
      residual{"ptr", "%residual"}, y{"ptr", "%y"};
  LlvmValue row_begin{"i64", "%row_begin"}, row_end{"i64", "%row_end"},
      strip_begin{"i64", "%strip_begin"}, strip_end{"i64", "%strip_end"};
};
LinearParameters BeginLinear(LlvmWriter& w);

// Covers rows [begin, end) with tiles of the given heights, largest first; heights end with 1.
void ForRowTiles(LlvmWriter& w, const LlvmValue& begin, const LlvmValue& end,
                 const std::vector<int>& heights,
                 const std::function<void(const LlvmValue& row, int height)>& tile);

// Stores 16 outputs from column `column` of row `row`: (sums + bias) + residual. Only the first
// `lanes` of them exist.
void StoreOutputs(LlvmWriter& w, const LinearSpec& spec, const LinearParameters& p,
                  const LlvmValue& sums, const LlvmValue& row, const LlvmValue& column, int lanes);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_EMIT_LINEAR_H_
