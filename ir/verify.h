// Checks the invariants of ir/graph.h. Messages carry "@func: %value: mnemonic: ...".
#ifndef QUIRE_IR_VERIFY_H_
#define QUIRE_IR_VERIFY_H_

#include "absl/status/status.h"
#include "ir/graph.h"

namespace quire {

absl::Status Verify(const Func& func);
absl::Status Verify(const Module& module);

}  // namespace quire

#endif  // QUIRE_IR_VERIFY_H_
