// Reading the blocks of packed_format.h: 16 rows at once (lanes = 16) or one row (lanes = 1, with
// pointers moved to the row by BlockLane).
#ifndef QUIRE_CODEGEN_CPU_EMIT_BLOCKS_H_
#define QUIRE_CODEGEN_CPU_EMIT_BLOCKS_H_

#include <vector>

#include "codegen/cpu/llvm_text.h"
#include "codegen/cpu/packed_format.h"

namespace quire {

// Which row of a group is read when lanes = 1; null values when all are.
struct BlockLane {
  LlvmValue lane;  // i64
};

struct BlockHeader {
  LlvmValue d, dmin;  // f32 vectors, for K types; -dmin is what minimums are multiplied by
};

BlockHeader EmitHeader(LlvmWriter& w, const PackedFormat& format, const LlvmValue& super, int lanes,
                       const BlockLane& lane = {});
// f32 scale of each unit of the block.
std::vector<LlvmValue> EmitScales(LlvmWriter& w, const PackedFormat& format, const LlvmValue& block,
                                  const BlockHeader& header, int lanes, const BlockLane& lane = {});
// REQUIRES: format.minimum.
LlvmValue EmitMinimum(LlvmWriter& w, const PackedFormat& format, const LlvmValue& block,
                      const BlockHeader& header, int lanes, const BlockLane& lane = {});
// The bytes u of columns 4g .. 4g+3 for g in 0 .. 7, as i32 vectors.
std::vector<LlvmValue> EmitUnpack(LlvmWriter& w, const PackedFormat& format, const LlvmValue& block,
                                  int lanes, const BlockLane& lane = {});

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_EMIT_BLOCKS_H_
