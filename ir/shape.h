// Shape rules of ops.def: each computes an op's result type from its operands and attributes, or
// checks the declared type where operands do not determine it. Errors are INVALID_ARGUMENT and name
// the operand and the extents that disagree.
#ifndef QUIRE_IR_SHAPE_H_
#define QUIRE_IR_SHAPE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace quire {

// The result type of `op`, after its operand count and attributes were checked. `declared`: see
// OpDef::Rule.
absl::StatusOr<Type> InferType(const Op& op, const std::optional<Type>& declared = std::nullopt);

absl::StatusOr<Type> DeclaredRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> EmbedRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> LinearRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> MatMulRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> BinaryRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> SameRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> CastRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> NormRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> QuantizeRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> RopeRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> ReshapeRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> TransposeRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> SliceRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> ConcatRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> TakeRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> ExpandHeadsRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> ScoresRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> RelativeBiasRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> AttentionRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> KvScaleRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> KvAppendRule(const Op& op, const std::optional<Type>& declared);
absl::StatusOr<Type> KvReadRule(const Op& op, const std::optional<Type>& declared);

}  // namespace quire

#endif  // QUIRE_IR_SHAPE_H_
