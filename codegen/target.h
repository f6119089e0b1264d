// What a plan is lowered for, as far as the compiler needs to know it: no host instruction set, no
// device handle.
#ifndef QUIRE_CODEGEN_TARGET_H_
#define QUIRE_CODEGEN_TARGET_H_

#include <string>

#include "ir/dtype.h"

namespace quire {

struct Target {
  std::string name = "cpu";
  DType kv_dtype = DType::kF16;
  int page_tokens = 16;
};

}  // namespace quire

#endif  // QUIRE_CODEGEN_TARGET_H_
