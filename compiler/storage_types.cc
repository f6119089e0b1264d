#include "compiler/storage_types.h"

#include <algorithm>

namespace quire {
namespace {

bool ReadsRowByRow(const Op& op) {
  return !op.Is(OpKind::kLinear) && !op.Is(OpKind::kAttention) && !op.Is(OpKind::kKvAppend);
}

}  // namespace

StorageTypes::StorageTypes(const Func& func, const Target& target)
    : activation_(target.activation) {
  if (activation_ == DType::kF32) return;
  const auto users = func.Users();
  for (auto it = func.ops().rbegin(); it != func.ops().rend(); ++it) {
    const Op* op = it->get();
    if (op->Is(OpKind::kAttention)) continue;  // of its query's type
    const auto readers = users.find(op);
    const bool only_rows =
        readers == users.end() ||
        std::all_of(readers->second.begin(), readers->second.end(), [this](const Op* reader) {
          return ReadsRowByRow(*reader) && results_.contains(reader);
        });
    if (only_rows) results_.insert(op);
  }
}

DType StorageTypes::Of(const Op* value) const {
  // A tensor as argument is brought to what kernels read, as values between them are.
  if (value->Is(OpKind::kArg)) return value->type.dtype == DType::kI32 ? DType::kI32 : activation_;
  return results_.contains(value) ? DType::kF32 : activation_;
}

}  // namespace quire
