// The element types in which values lie between kernels.
//
// A target's activation type, but for values that nothing reads or that lead to the program's
// result row by row alone (logits, what caps them): these are f32, since nothing narrows them on
// the way. Attention's result has its query's type. Arguments keep their own.
#ifndef QUIRE_COMPILER_STORAGE_TYPES_H_
#define QUIRE_COMPILER_STORAGE_TYPES_H_

#include "codegen/target.h"
#include "compiler/row_wise.h"
#include "ir/dtype.h"
#include "ir/graph.h"

namespace quire {

class StorageTypes {
 public:
  StorageTypes(const Func& func, const Target& target);

  DType Of(const Op* value) const;

 private:
  DType activation_;
  OpSet results_;  // lead to the result row by row
};

}  // namespace quire

#endif  // QUIRE_COMPILER_STORAGE_TYPES_H_
