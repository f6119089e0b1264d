#include "ir/op.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ir/shape.h"
#include "ir/status.h"

namespace quire {
namespace {

std::vector<AttrDef> MakeAttrs() {
  return {
#define ATTR(name, text, form, default_text, low, high, allowed) \
  AttrDef{AttrKind::k##name, text, AttrDef::k##form, default_text, low, high, allowed},
#include "ir/attrs.def"
  };
}

// Unpacks the parenthesised lists of ops.def.
struct Names {
  std::vector<absl::string_view> list;
  template <typename... Args>
  explicit Names(Args... args) : list{absl::string_view(args)...} {}
};
struct Attrs {
  std::vector<AttrKind> list;
  template <typename... Args>
  explicit Attrs(Args... args) : list{args...} {}
};

std::vector<OpDef> MakeOps() {
  using enum AttrKind;
  return {
#define OP(name, mnemonic, operands, required, optional, rule, meaning) \
  OpDef{OpKind::k##name,                                                \
        mnemonic,                                                       \
        (Names operands).list,                                          \
        (Attrs required).list,                                          \
        (Attrs optional).list,                                          \
        rule,                                                           \
        meaning},
#include "ir/ops.def"
  };
}

const std::vector<AttrDef>& AttrTable() {
  static const std::vector<AttrDef>& table = *new std::vector<AttrDef>(MakeAttrs());
  return table;
}

const std::vector<OpDef>& OpTable() {
  static const std::vector<OpDef>& table = *new std::vector<OpDef>(MakeOps());
  return table;
}

// The shortest text that reads back equal; plain decimals for everyday magnitudes.
std::string FloatText(double value) {
  const double magnitude = std::abs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-5 && magnitude < 1e15);
  std::array<char, 64> buffer;
  auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    plain ? std::chars_format::fixed : std::chars_format::general);
  return std::string(buffer.data(), end);
}

absl::Status Malformed(const AttrDef& def, absl::string_view text, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(def.text, "=", text, " is not ", wanted));
}

absl::Status OutOfRange(const AttrDef& def, absl::string_view value) {
  const bool is_float = def.form == AttrDef::kFloat;
  auto bound = [is_float](double limit) {
    return is_float ? FloatText(limit) : absl::StrCat(static_cast<int64_t>(limit));
  };
  return absl::InvalidArgumentError(absl::StrCat(def.text, "=", value,
                                                 " is out of range\n  allowed: ", bound(def.low),
                                                 " .. ", bound(def.high)));
}

}  // namespace

int OpDef::min_operands() const {
  return static_cast<int>(
      std::count_if(operands.begin(), operands.end(),
                    [](absl::string_view text) { return !absl::EndsWith(text, "?"); }));
}

int OpDef::max_operands() const {
  if (!operands.empty() && absl::EndsWith(operands.back(), "...")) return INT_MAX;
  return static_cast<int>(operands.size());
}

bool OpDef::Requires(AttrKind attr) const {
  return std::find(required.begin(), required.end(), attr) != required.end();
}

bool OpDef::Allows(AttrKind attr) const {
  return Requires(attr) || std::find(optional.begin(), optional.end(), attr) != optional.end();
}

const OpDef& DefOf(OpKind kind) { return OpTable()[static_cast<size_t>(kind)]; }
const AttrDef& DefOf(AttrKind kind) { return AttrTable()[static_cast<size_t>(kind)]; }
absl::Span<const OpDef> AllOps() { return OpTable(); }
absl::Span<const AttrDef> AllAttrs() { return AttrTable(); }

std::optional<OpKind> FindOp(absl::string_view mnemonic) {
  for (const OpDef& def : OpTable()) {
    if (def.mnemonic == mnemonic) return def.kind;
  }
  return std::nullopt;
}

std::optional<AttrKind> FindAttr(absl::string_view text) {
  for (const AttrDef& def : AttrTable()) {
    if (def.text == text) return def.kind;
  }
  return std::nullopt;
}

uint64_t OpTableHash() {
  std::string text;
  auto names = [](const std::vector<AttrKind>& kinds) {
    return absl::StrJoin(kinds, ",",
                         [](std::string* out, AttrKind kind) { out->append(DefOf(kind).text); });
  };
  for (const OpDef& op : OpTable()) {
    absl::StrAppend(&text, op.mnemonic, "(", absl::StrJoin(op.operands, ","), "){",
                    names(op.required), ";", names(op.optional), "} ", op.meaning, "\n");
  }
  for (const AttrDef& attr : AttrTable()) {
    absl::StrAppend(&text, attr.text, " ", static_cast<int>(attr.form), " ", attr.default_text, " ",
                    FloatText(attr.low), " ", FloatText(attr.high), " ", attr.allowed, "\n");
  }
  return XXH3_64bits(text.data(), text.size());
}

std::string AttrText(const AttrDef& def, const AttrValue& value) {
  switch (def.form) {
    case AttrDef::kInt:
      return absl::StrCat(std::get<int64_t>(value));
    case AttrDef::kFloat:
      return FloatText(std::get<double>(value));
    case AttrDef::kInts:
      return absl::StrCat("[", absl::StrJoin(std::get<std::vector<int64_t>>(value), ","), "]");
    case AttrDef::kString:
      return absl::StrCat("\"", std::get<std::string>(value), "\"");
    case AttrDef::kEnum:
      return std::get<std::string>(value);
  }
  return "";
}

absl::StatusOr<AttrValue> ParseAttr(const AttrDef& def, absl::string_view text) {
  switch (def.form) {
    case AttrDef::kInt: {
      int64_t value;
      if (!absl::SimpleAtoi(text, &value)) return Malformed(def, text, "an integer");
      return AttrValue(value);
    }
    case AttrDef::kFloat: {
      double value;
      if (!absl::SimpleAtod(text, &value)) return Malformed(def, text, "a number");
      return AttrValue(value);
    }
    case AttrDef::kInts: {
      if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
        return Malformed(def, text, "a list such as [1,0,2]");
      }
      std::vector<int64_t> values;
      const absl::string_view inside = text.substr(1, text.size() - 2);
      if (inside.empty()) return AttrValue(values);
      for (absl::string_view part : absl::StrSplit(inside, ',')) {
        int64_t value;
        if (!absl::SimpleAtoi(part, &value)) return Malformed(def, text, "a list such as [1,0,2]");
        values.push_back(value);
      }
      return AttrValue(std::move(values));
    }
    case AttrDef::kString:
      if (text.size() < 2 || text.front() != '"' || text.back() != '"') {
        return Malformed(def, text, "a quoted string");
      }
      return AttrValue(std::string(text.substr(1, text.size() - 2)));
    case AttrDef::kEnum:
      return AttrValue(std::string(text));
  }
  return absl::InternalError("unknown attribute form");
}

absl::Status CheckAttr(const AttrDef& def, const AttrValue& value) {
  constexpr size_t kFormIndex[] = {0, 1, 3, 2, 2};
  if (value.index() != kFormIndex[def.form]) {
    return absl::InvalidArgumentError(absl::StrCat(def.text, " holds a value of another form"));
  }
  switch (def.form) {
    case AttrDef::kInt: {
      const auto number = static_cast<double>(std::get<int64_t>(value));
      if (number < def.low || number > def.high) return OutOfRange(def, AttrText(def, value));
      break;
    }
    case AttrDef::kFloat: {
      const double number = std::get<double>(value);
      // Also refuses NaN, which compares false.
      if (!(number >= def.low && number <= def.high)) return OutOfRange(def, AttrText(def, value));
      break;
    }
    case AttrDef::kInts:
      for (int64_t number : std::get<std::vector<int64_t>>(value)) {
        if (static_cast<double>(number) < def.low || static_cast<double>(number) > def.high) {
          return OutOfRange(def, AttrText(def, value));
        }
      }
      break;
    case AttrDef::kString:
      for (char c : std::get<std::string>(value)) {
        if (c == '"' || !absl::ascii_isprint(static_cast<unsigned char>(c))) {
          return absl::InvalidArgumentError(
              absl::StrCat(def.text, " holds a quote or an unprintable character"));
        }
      }
      break;
    case AttrDef::kEnum: {
      const std::vector<absl::string_view> allowed = absl::StrSplit(def.allowed, '|');
      const std::string& word = std::get<std::string>(value);
      if (std::find(allowed.begin(), allowed.end(), word) == allowed.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            def.text, "=", word, " is not known\n  allowed: ", absl::StrJoin(allowed, ", ")));
      }
      break;
    }
  }
  return absl::OkStatus();
}

const AttrValue& DefaultOf(AttrKind kind) {
  static const std::vector<AttrValue>& defaults = *[] {
    auto* values = new std::vector<AttrValue>();
    for (const AttrDef& def : AttrTable()) {
      std::string text = def.default_text;
      if (def.form == AttrDef::kInts) text = absl::StrCat("[", text, "]");
      if (def.form == AttrDef::kString) text = absl::StrCat("\"", text, "\"");
      values->push_back(*ParseAttr(def, text));
    }
    return values;
  }();
  return defaults[static_cast<size_t>(kind)];
}

}  // namespace quire
