// What an op and an attribute are: enumerators and tables expanded from ops.def and attrs.def. The
// parser, printer, verifier, shape inference, serializer and `quire dump --ops` are generic over
// these tables.
#ifndef QUIRE_IR_OP_H_
#define QUIRE_IR_OP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/type.h"

namespace quire {

// Largest extent, and largest value of an attribute that is one.
inline constexpr int64_t kMaxExtent = int64_t{1} << 40;

enum class OpKind : uint8_t {
#define OP(name, ...) k##name,
#include "ir/ops.def"
};

enum class AttrKind : uint8_t {
#define ATTR(name, ...) k##name,
#include "ir/attrs.def"
};

// An Enum's value is its text.
using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

struct AttrDef {
  enum Form { kInt, kFloat, kInts, kString, kEnum };
  AttrKind kind;
  const char* text;
  Form form;
  const char* default_text;
  double low, high;
  const char* allowed;  // Enum values, separated by '|'
};

class Op;

struct OpDef {
  // Computes the result type. `declared` is the type written in the text or asked for by the
  // builder.
  using Rule = absl::StatusOr<Type> (*)(const Op& op, const std::optional<Type>& declared);

  OpKind kind;
  const char* mnemonic;
  std::vector<absl::string_view> operands;  // with '?' and '...' marks, as in ops.def
  std::vector<AttrKind> required, optional;
  Rule rule;
  const char* meaning;

  int min_operands() const;
  int max_operands() const;  // INT_MAX when variadic
  bool Allows(AttrKind attr) const;
  bool Requires(AttrKind attr) const;
};

const OpDef& DefOf(OpKind kind);
const AttrDef& DefOf(AttrKind kind);
absl::Span<const OpDef> AllOps();
absl::Span<const AttrDef> AllAttrs();
std::optional<OpKind> FindOp(absl::string_view mnemonic);
std::optional<AttrKind> FindAttr(absl::string_view text);

// Hash of both tables as text: two builds with the same hash give every op the same reading.
uint64_t OpTableHash();

// The value as it stands in text: 3, 0.125, [1,0,2], causal, "name".
std::string AttrText(const AttrDef& def, const AttrValue& value);
// INVALID_ARGUMENT when the text is not of the attribute's form.
absl::StatusOr<AttrValue> ParseAttr(const AttrDef& def, absl::string_view text);
// INVALID_ARGUMENT when the value is of another form, out of range, not finite, or not among the
// allowed.
absl::Status CheckAttr(const AttrDef& def, const AttrValue& value);
// REQUIRES: the attribute has a default (every optional attribute has).
const AttrValue& DefaultOf(AttrKind kind);

}  // namespace quire

#endif  // QUIRE_IR_OP_H_
