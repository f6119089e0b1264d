#include "ir/shape.h"

#include <algorithm>
#include <climits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "ir/status.h"

namespace quire {
namespace {

using Declared = std::optional<Type>;

const Type& TypeOf(const Op& op, int i) { return op.operand(i)->type; }

// "operand w: bf16[8,16] ..." with the operand's name from ops.def.
absl::Status Wrong(const Op& op, int i, absl::string_view what) {
  const auto& names = op.def().operands;
  absl::string_view name = names[std::min<size_t>(static_cast<size_t>(i), names.size() - 1)];
  name = absl::StripSuffix(absl::StripSuffix(name, "?"), "...");
  return absl::InvalidArgumentError(
      absl::StrCat("operand ", name, ": ", TypeOf(op, i).ToString(), " ", what));
}

absl::Status WantFloat(const Op& op, int i) {
  if (IsFloat(TypeOf(op, i).dtype)) return absl::OkStatus();
  return Wrong(op, i, "is not f32, f16 or bf16");
}

// Rows of ids, and numbers that need a scale beside them, are no matrix of weights.
absl::Status WantMatrix(const Op& op, int i) {
  const DType dtype = TypeOf(op, i).dtype;
  if (dtype != DType::kI32 && dtype != DType::kF8E4M3) return absl::OkStatus();
  return Wrong(op, i, "is not a weight type");
}

absl::Status WantRank(const Op& op, int i, int rank) {
  if (TypeOf(op, i).rank() == rank) return absl::OkStatus();
  return Wrong(op, i, absl::StrCat("does not have rank ", rank));
}

// A constant or row parameter: float, of exactly these extents.
absl::Status WantParameter(const Op& op, int i, const Extents& extents) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, i));
  if (TypeOf(op, i).extents == extents) return absl::OkStatus();
  return Wrong(
      op, i,
      absl::StrCat("does not have extents ", Type{DType::kF32, extents}.ToString().substr(3)));
}

// A declared type, for the ops that need one.
absl::StatusOr<Type> WantDeclared(const Op& op, const Declared& declared) {
  if (declared.has_value()) return *declared;
  return absl::InvalidArgumentError(absl::StrCat(op.def().mnemonic, " needs a declared type"));
}

absl::Status CheckAxis(int64_t axis, int rank) {
  if (axis < rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("axis=", axis, " of a value of rank ", rank));
}

// A block type packs the last axis, which then holds whole blocks.
absl::Status CheckWholeBlocks(const Type& type) {
  const int block = InfoOf(type.dtype).block_elements;
  if (block == 1) return absl::OkStatus();
  if (type.rank() > 0 && !type.extents.back().is_letter() &&
      type.extents.back().value() % block == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(type.ToString(), ": the last extent is not a multiple of ", block));
}

// Refuses the attribute values for which a scaling's formula divides by zero.
absl::Status CheckRopeScaling(const Op& op, int64_t dims) {
  const std::string& scaling = op.Text(AttrKind::kScaling);
  if (scaling == "none" || scaling == "linear") return absl::OkStatus();
  if (op.Int(AttrKind::kOriginalTokens) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("scaling=", scaling, " needs original_tokens"));
  }
  if (scaling == "dynamic" && dims <= 2) {
    return absl::InvalidArgumentError(absl::StrCat("scaling=dynamic of dims=", dims));
  }
  const double low = op.Float(AttrKind::kLowFactor), high = op.Float(AttrKind::kHighFactor);
  if (scaling == "llama3" && low >= high) {
    return absl::InvalidArgumentError(
        absl::StrCat("low_factor=", low, " is not below high_factor=", high));
  }
  if (scaling == "yarn" && op.Float(AttrKind::kTheta) <= 1) {
    return absl::InvalidArgumentError("scaling=yarn needs theta over 1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Type> InferType(const Op& op, const Declared& declared) {
  const OpDef& def = op.def();
  const int count = op.num_operands();
  if (count < def.min_operands() || count > def.max_operands()) {
    return absl::InvalidArgumentError(
        absl::StrCat(count, " operands\n  allowed: (", absl::StrJoin(def.operands, ", "), ")"));
  }
  for (AttrKind attr : def.required) {
    if (!op.Has(attr)) {
      return absl::InvalidArgumentError(
          absl::StrCat("attribute ", DefOf(attr).text, " is missing"));
    }
  }
  for (const auto& [attr, value] : op.attrs()) {
    if (!def.Allows(attr)) {
      return absl::InvalidArgumentError(
          absl::StrCat("attribute ", DefOf(attr).text, " does not belong to ", def.mnemonic));
    }
    QUIRE_RETURN_IF_ERROR(CheckAttr(DefOf(attr), value));
  }
  QUIRE_ASSIGN_OR_RETURN(Type type, def.rule(op, declared));
  // Every value's element count fits 64 bits, with the letters left out.
  QUIRE_RETURN_IF_ERROR(CountOf(type.extents).status());
  QUIRE_RETURN_IF_ERROR(CheckWholeBlocks(type));
  return type;
}

absl::StatusOr<Type> DeclaredRule(const Op& op, const Declared& declared) {
  QUIRE_ASSIGN_OR_RETURN(Type type, WantDeclared(op, declared));
  QUIRE_RETURN_IF_ERROR(CheckWholeBlocks(type));
  return type;
}

absl::StatusOr<Type> EmbedRule(const Op& op, const Declared& declared) {
  QUIRE_RETURN_IF_ERROR(WantMatrix(op, 0));
  QUIRE_RETURN_IF_ERROR(WantRank(op, 0, 2));
  QUIRE_RETURN_IF_ERROR(WantRank(op, 1, 1));
  if (TypeOf(op, 1).dtype != DType::kI32) return Wrong(op, 1, "is not i32");
  const DType dtype = declared.has_value() ? declared->dtype : DType::kF32;
  if (!IsFloat(dtype)) return absl::InvalidArgumentError("embed gives f32, f16 or bf16");
  return Type{dtype, {TypeOf(op, 1).extents[0], TypeOf(op, 0).extents[1]}};
}

absl::StatusOr<Type> LinearRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  QUIRE_RETURN_IF_ERROR(WantRank(op, 1, 2));
  const Type& x = TypeOf(op, 0);
  const Type& w = TypeOf(op, 1);
  QUIRE_RETURN_IF_ERROR(WantMatrix(op, 1));
  if (x.rank() == 0 || x.extents.back() != w.extents[1]) {
    return Wrong(op, 1, absl::StrCat("does not match the last extent of ", x.ToString()));
  }
  if (op.num_operands() > 2) QUIRE_RETURN_IF_ERROR(WantParameter(op, 2, {w.extents[0]}));
  Type type = x;
  type.extents.back() = w.extents[0];
  return type;
}

absl::StatusOr<Type> MatMulRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 1));
  const Type& a = TypeOf(op, 0);
  const Type& b = TypeOf(op, 1);
  if (a.rank() < 2 || a.rank() != b.rank())
    return Wrong(op, 1, absl::StrCat("does not match ", a.ToString()));
  const bool transposed = op.Int(AttrKind::kTransposeB) != 0;
  const size_t last = a.extents.size() - 1;
  bool matches = a.extents[last] == b.extents[transposed ? last : last - 1];
  for (size_t axis = 0; axis + 1 < last; ++axis)
    matches = matches && a.extents[axis] == b.extents[axis];
  if (!matches) return Wrong(op, 1, absl::StrCat("does not match ", a.ToString()));
  Type type = a;
  type.extents[last] = b.extents[transposed ? last - 1 : last];
  return type;
}

absl::StatusOr<Type> BinaryRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 1));
  const Extents& a = TypeOf(op, 0).extents;
  const Extents& b = TypeOf(op, 1).extents;
  if (b.size() > a.size() || !std::equal(b.rbegin(), b.rend(), a.rbegin())) {
    return Wrong(op, 1, absl::StrCat("is not a trailing part of ", TypeOf(op, 0).ToString()));
  }
  return TypeOf(op, 0);
}

absl::StatusOr<Type> SameRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  return TypeOf(op, 0);
}

absl::StatusOr<Type> CastRule(const Op& op, const Declared& declared) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  QUIRE_ASSIGN_OR_RETURN(Type type, WantDeclared(op, declared));
  if (!IsFloat(type.dtype)) return absl::InvalidArgumentError("cast gives f32, f16 or bf16");
  return Type{type.dtype, TypeOf(op, 0).extents};
}

absl::StatusOr<Type> QuantizeRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  const Type& x = TypeOf(op, 0);
  if (x.rank() == 0) return Wrong(op, 0, "is a scalar");
  const int64_t columns = op.Int(AttrKind::kColumns);
  if (op.num_operands() > 1) {
    QUIRE_RETURN_IF_ERROR(WantFloat(op, 1));
    const Extents& scale = TypeOf(op, 1).extents;
    if (!scale.empty() && scale != Extents{1}) return Wrong(op, 1, "is not one number");
    if (columns != 0 || op.Float(AttrKind::kMost) != 0) {
      return absl::InvalidArgumentError("columns and most are of scales that are computed");
    }
  }
  const Extent& last = x.extents.back();
  if (columns != 0 && (last.is_letter() || last.value() % columns != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns=", columns, " do not divide the last extent of ", x.ToString()));
  }
  return x;
}

absl::StatusOr<Type> NormRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  if (TypeOf(op, 0).rank() == 0) return Wrong(op, 0, "is a scalar");
  for (int i = 1; i < op.num_operands(); ++i) {
    QUIRE_RETURN_IF_ERROR(WantParameter(op, i, {TypeOf(op, 0).extents.back()}));
  }
  return TypeOf(op, 0);
}

absl::StatusOr<Type> RopeRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  QUIRE_RETURN_IF_ERROR(WantRank(op, 0, 3));
  const Extents& x = TypeOf(op, 0).extents;
  if (TypeOf(op, 1).dtype != DType::kI32 || TypeOf(op, 1).extents != Extents{x[0]}) {
    return Wrong(op, 1, absl::StrCat("is not ", Type{DType::kI32, {x[0]}}.ToString()));
  }
  if (x[2].is_letter()) return Wrong(op, 0, "has no fixed head size");
  int64_t dims = op.Int(AttrKind::kDims);
  if (dims == 0) dims = x[2].value();
  if (dims % 2 != 0 || dims > x[2].value()) {
    return absl::InvalidArgumentError(absl::StrCat("dims=", dims, " of a head of ", x[2].value(),
                                                   "\n  allowed: even, at most the head size"));
  }
  if (op.num_operands() > 2) QUIRE_RETURN_IF_ERROR(WantParameter(op, 2, {dims / 2}));
  QUIRE_RETURN_IF_ERROR(CheckRopeScaling(op, dims));
  return TypeOf(op, 0);
}

absl::StatusOr<Type> ReshapeRule(const Op& op, const Declared& declared) {
  QUIRE_ASSIGN_OR_RETURN(Type type, WantDeclared(op, declared));
  QUIRE_ASSIGN_OR_RETURN(SymbolicCount from, CountOf(TypeOf(op, 0).extents));
  QUIRE_ASSIGN_OR_RETURN(SymbolicCount to, CountOf(type.extents));
  if (type.dtype != TypeOf(op, 0).dtype || !(from == to)) {
    return Wrong(op, 0, absl::StrCat("cannot be reshaped to ", type.ToString()));
  }
  return type;
}

absl::StatusOr<Type> TransposeRule(const Op& op, const Declared&) {
  const Type& x = TypeOf(op, 0);
  const std::vector<int64_t>& perm = op.Ints(AttrKind::kPerm);
  std::vector<bool> seen(x.extents.size(), false);
  Type type{x.dtype, {}};
  for (int64_t axis : perm) {
    if (axis >= x.rank() || seen[static_cast<size_t>(axis)]) break;
    seen[static_cast<size_t>(axis)] = true;
    type.extents.push_back(x.extents[static_cast<size_t>(axis)]);
  }
  if (perm.size() != x.extents.size() || type.extents.size() != perm.size()) {
    return Wrong(op, 0, absl::StrCat("is not permuted by perm=[", absl::StrJoin(perm, ","), "]"));
  }
  if (IsBlockType(x.dtype) && perm.back() != x.rank() - 1) {
    return Wrong(op, 0, "is stored in blocks along its last axis, which must stay last");
  }
  return type;
}

absl::StatusOr<Type> SliceRule(const Op& op, const Declared&) {
  Type type = TypeOf(op, 0);
  const int64_t axis = op.Int(AttrKind::kAxis);
  QUIRE_RETURN_IF_ERROR(CheckAxis(axis, type.rank()));
  const int64_t begin = op.Int(AttrKind::kBegin);
  const int64_t end = op.Int(AttrKind::kEnd);
  Extent& extent = type.extents[static_cast<size_t>(axis)];
  if (extent.is_letter())
    return Wrong(op, 0, absl::StrCat("has no fixed extent along axis ", axis));
  if (begin >= end || end > extent.value()) {
    return Wrong(op, 0, absl::StrCat("has no range [", begin, ", ", end, ") along axis ", axis));
  }
  const int block = InfoOf(type.dtype).block_elements;
  if (axis == type.rank() - 1 && (begin % block != 0 || end % block != 0)) {
    return Wrong(op, 0, absl::StrCat("is sliced inside a block of ", block));
  }
  extent = end - begin;
  return type;
}

absl::StatusOr<Type> ConcatRule(const Op& op, const Declared&) {
  Type type = TypeOf(op, 0);
  const int64_t axis = op.Int(AttrKind::kAxis);
  QUIRE_RETURN_IF_ERROR(CheckAxis(axis, type.rank()));
  const size_t at = static_cast<size_t>(axis);
  int64_t joined = 0;
  for (int i = 0; i < op.num_operands(); ++i) {
    Type part = TypeOf(op, i);
    if (part.rank() != type.rank() || part.extents[at].is_letter()) {
      return Wrong(op, i, absl::StrCat("cannot be joined along axis ", axis));
    }
    if (__builtin_add_overflow(joined, part.extents[at].value(), &joined)) {
      return Wrong(op, i, "overflows the joined extent");
    }
    part.extents[at] = type.extents[at];
    if (part != type) return Wrong(op, i, absl::StrCat("does not match ", type.ToString()));
  }
  type.extents[at] = joined;
  return type;
}

absl::StatusOr<Type> TakeRule(const Op& op, const Declared&) {
  if (TypeOf(op, 0).rank() == 0) return Wrong(op, 0, "is a scalar");
  QUIRE_RETURN_IF_ERROR(WantRank(op, 1, 1));
  if (TypeOf(op, 1).dtype != DType::kI32) return Wrong(op, 1, "is not i32");
  Type type = TypeOf(op, 0);
  type.extents[0] = TypeOf(op, 1).extents[0];
  return type;
}

absl::StatusOr<Type> ExpandHeadsRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantRank(op, 0, 3));
  Type type = TypeOf(op, 0);
  if (type.extents[1].is_letter()) return Wrong(op, 0, "has no fixed number of heads");
  int64_t heads;
  if (__builtin_mul_overflow(type.extents[1].value(), op.Int(AttrKind::kGroup), &heads)) {
    return Wrong(op, 0, "overflows the number of heads");
  }
  type.extents[1] = heads;
  return type;
}

absl::StatusOr<Type> ScoresRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  QUIRE_RETURN_IF_ERROR(WantRank(op, 0, 3));
  return TypeOf(op, 0);
}

namespace {

// Operand i as the table of a relative bias: [buckets, heads].
absl::Status WantBuckets(const Op& op, int i, const Extent& heads) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, i));
  QUIRE_RETURN_IF_ERROR(WantRank(op, i, 2));
  const Extents& table = TypeOf(op, i).extents;
  if (table[0].is_letter() || table[1] != heads) {
    return Wrong(op, i, absl::StrCat("is not [buckets,", heads.ToString(), "]"));
  }
  const bool both = op.Text(AttrKind::kDirection) == "both";
  const int64_t buckets = both ? table[0].value() / 2 : table[0].value();
  if (table[0].value() % (both ? 4 : 2) != 0 || buckets < 2 ||
      op.Int(AttrKind::kMaxDistance) <= buckets / 2) {
    return Wrong(op, i,
                 absl::StrCat("has no buckets for direction=", both ? "both" : "back",
                              ", max_distance=", op.Int(AttrKind::kMaxDistance)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Type> RelativeBiasRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  QUIRE_RETURN_IF_ERROR(WantRank(op, 0, 3));
  QUIRE_RETURN_IF_ERROR(WantBuckets(op, 1, TypeOf(op, 0).extents[0]));
  return TypeOf(op, 0);
}

absl::StatusOr<Type> AttentionRule(const Op& op, const Declared&) {
  for (int i = 0; i < 3; ++i) {
    if (i == 0 || !IsKvType(TypeOf(op, i).dtype)) QUIRE_RETURN_IF_ERROR(WantFloat(op, i));
    QUIRE_RETURN_IF_ERROR(WantRank(op, i, 3));
    const Extents& extents = TypeOf(op, i).extents;
    if (extents[1].is_letter() || extents[2].is_letter())
      return Wrong(op, i, "has no fixed heads or head size");
  }
  const Extents& q = TypeOf(op, 0).extents;
  const Extents& k = TypeOf(op, 1).extents;
  const Extents& v = TypeOf(op, 2).extents;
  if (k[2] != q[2])
    return Wrong(op, 1, absl::StrCat("has another head size than q: ", TypeOf(op, 0).ToString()));
  if (v[0] != k[0] || v[1] != k[1])
    return Wrong(op, 2, absl::StrCat("does not match k: ", TypeOf(op, 1).ToString()));
  if (k[1].value() == 0 || q[1].value() % k[1].value() != 0) {
    return Wrong(
        op, 0,
        absl::StrCat("has a number of heads that ", k[1].value(), " KV heads do not divide"));
  }
  if (op.Int(AttrKind::kWindow) != 0 && op.Text(AttrKind::kMask) != "causal") {
    return absl::InvalidArgumentError("window needs mask=causal");
  }
  if (op.num_operands() > 3) QUIRE_RETURN_IF_ERROR(WantBuckets(op, 3, q[1]));
  return Type{TypeOf(op, 0).dtype, {q[0], q[1], v[2]}};
}

namespace {

// Operand i: a float, one or one for each head.
absl::Status WantKvScale(const Op& op, int i, const Extent& heads) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, i));
  const Extents& scale = TypeOf(op, i).extents;
  if (scale.empty() || scale == Extents{1} || scale == Extents{heads}) return absl::OkStatus();
  return Wrong(op, i,
               absl::StrCat("is not one number, or one for each of ", heads.ToString(), " heads"));
}

}  // namespace

absl::StatusOr<Type> KvScaleRule(const Op& op, const Declared&) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  QUIRE_RETURN_IF_ERROR(WantRank(op, 0, 3));
  QUIRE_RETURN_IF_ERROR(WantKvScale(op, 1, TypeOf(op, 0).extents[1]));
  return TypeOf(op, 0);
}

absl::StatusOr<Type> KvAppendRule(const Op& op, const Declared& declared) {
  QUIRE_RETURN_IF_ERROR(WantFloat(op, 0));
  QUIRE_RETURN_IF_ERROR(WantRank(op, 0, 3));
  QUIRE_ASSIGN_OR_RETURN(Type type, WantDeclared(op, declared));
  const Extents& x = TypeOf(op, 0).extents;
  if (op.num_operands() > 1) QUIRE_RETURN_IF_ERROR(WantKvScale(op, 1, x[1]));
  if (!IsKvType(type.dtype) || type.extents != Extents{Extent::Letter('C'), x[1], x[2]}) {
    return Wrong(op, 0, absl::StrCat("is not appended to ", type.ToString()));
  }
  return type;
}

absl::StatusOr<Type> KvReadRule(const Op& op, const Declared& declared) {
  QUIRE_ASSIGN_OR_RETURN(Type type, WantDeclared(op, declared));
  const bool is_rows = type.rank() == 3 && type.extents[0] == Extent::Letter('S') &&
                       !type.extents[1].is_letter() && !type.extents[2].is_letter();
  if (is_rows && op.num_operands() > 0) {
    QUIRE_RETURN_IF_ERROR(WantKvScale(op, 0, type.extents[1]));
  }
  if (IsKvType(type.dtype) && is_rows) return type;
  return absl::InvalidArgumentError(absl::StrCat(
      type.ToString(), " is no cache of an encoder\n  allowed: floats [S,heads,size]"));
}

}  // namespace quire
