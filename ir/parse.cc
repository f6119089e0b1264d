#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/shape.h"
#include "ir/status.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace quire {
namespace {

constexpr int kMaxRank = 8;
constexpr int kMaxGroup = 1 << 24;

bool IsNameChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}

// A recursive-descent parser over one text; every Parse... method consumes its production or
// returns an error that carries the position.
class Parser {
 public:
  Parser(absl::string_view text, absl::string_view file) : text_(text), file_(file) {}

  absl::StatusOr<Module> ParseModule() {
    Module module;
    for (SkipSpace(); at_ < text_.size(); SkipSpace()) {
      QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<Func> func, ParseFunc());
      if (module.Find(func->name()) != nullptr) {
        return Error(
            absl::StrCat("function @", func->name(), " is defined twice\n  fix: another name"));
      }
      module.funcs.push_back(std::move(func));
    }
    if (module.funcs.empty()) return Error("no function");
    return module;
  }

 private:
  absl::Status Error(absl::string_view what) const { return ErrorAt(at_, what); }

  absl::Status ErrorAt(size_t offset, absl::string_view what) const {
    const absl::string_view before = text_.substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t newline = before.rfind('\n');
    const size_t column = newline == absl::string_view::npos ? offset + 1 : offset - newline;
    const absl::Status error = absl::InvalidArgumentError(
        absl::StrCat(file_, file_.empty() ? "" : ":", line, ":", column, ": ", what));
    return absl::StrContains(what, "\n  fix: ") ? error : WithLine(error, "fix", fix_);
  }

  void SkipSpace() {
    while (at_ < text_.size()) {
      if (absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return;
      }
    }
  }

  bool Peek(char c) {
    SkipSpace();
    return at_ < text_.size() && text_[at_] == c;
  }

  bool Accept(char c) {
    if (!Peek(c)) return false;
    ++at_;
    return true;
  }

  absl::Status Expect(char c) {
    if (Accept(c)) return absl::OkStatus();
    return Error(absl::StrCat("expected '", std::string(1, c), "'"));
  }

  absl::StatusOr<absl::string_view> ParseName(absl::string_view what) {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
    if (at_ == begin) return Error(absl::StrCat("expected ", what));
    return text_.substr(begin, at_ - begin);
  }

  absl::StatusOr<Extent> ParseExtent() {
    SkipSpace();
    const size_t begin = at_;
    QUIRE_ASSIGN_OR_RETURN(absl::string_view word, ParseName("an extent"));
    if (word.size() == 1 && kExtentLetters.find(word[0]) != absl::string_view::npos) {
      return Extent::Letter(word[0]);
    }
    int64_t value;
    if (!absl::SimpleAtoi(word, &value) || value < 0 || value > kMaxExtent) {
      return ErrorAt(begin, absl::StrCat("extent ", word, " is neither an integer up to ",
                                         kMaxExtent, " nor one of ", kExtentLetters));
    }
    return Extent(value);
  }

  absl::StatusOr<Type> ParseType() {
    SkipSpace();
    const size_t begin = at_;
    QUIRE_ASSIGN_OR_RETURN(absl::string_view word, ParseName("a type"));
    const std::optional<DType> dtype = ParseDType(word);
    if (!dtype.has_value()) return ErrorAt(begin, UnknownDType(word));
    Type type{*dtype, {}};
    QUIRE_RETURN_IF_ERROR(Expect('['));
    if (Accept(']')) return type;
    do {
      QUIRE_ASSIGN_OR_RETURN(Extent extent, ParseExtent());
      type.extents.push_back(extent);
      if (type.rank() > kMaxRank) return ErrorAt(begin, absl::StrCat("rank is over ", kMaxRank));
    } while (Accept(','));
    QUIRE_RETURN_IF_ERROR(Expect(']'));
    return type;
  }

  absl::StatusOr<Op*> ParseValue(const Func& func) {
    QUIRE_RETURN_IF_ERROR(Expect('%'));
    const size_t begin = at_;
    QUIRE_ASSIGN_OR_RETURN(absl::string_view name, ParseName("a value name"));
    Op* op = func.Find(name);
    if (op != nullptr) return op;
    std::vector<absl::string_view> names;
    for (const auto* values : {&func.args(), &func.ops()}) {
      for (const auto& value : *values) names.push_back(value->name);
    }
    const std::string near = Nearest(name, names);
    return ErrorAt(begin, absl::StrCat("%", name, " is not defined\n  fix: ",
                                       near.empty() ? "a value of a line above, or an argument"
                                                    : absl::StrCat("did you mean %", near, "?")));
  }

  absl::StatusOr<std::string> ParseNewValue(const Func& func) {
    QUIRE_RETURN_IF_ERROR(Expect('%'));
    const size_t begin = at_;
    QUIRE_ASSIGN_OR_RETURN(absl::string_view name, ParseName("a value name"));
    if (func.Find(name) != nullptr) {
      return ErrorAt(begin, absl::StrCat("%", name, " is defined twice\n  fix: another name"));
    }
    return std::string(name);
  }

  // The text of an attribute's value: a quoted string, a bracketed list (spaces dropped), or a
  // word.
  absl::StatusOr<std::string> ParseAttrText() {
    SkipSpace();
    const size_t begin = at_;
    if (Accept('"')) {
      const size_t end = text_.find_first_of("\"\n", at_);
      if (end == absl::string_view::npos || text_[end] == '\n')
        return ErrorAt(begin, "unterminated string");
      at_ = end + 1;
      return std::string(text_.substr(begin, at_ - begin));
    }
    if (Accept('[')) {
      std::string list = "[";
      while (at_ < text_.size() && text_[at_] != ']' && text_[at_] != '\n') {
        if (text_[at_] != ' ') list.push_back(text_[at_]);
        ++at_;
      }
      QUIRE_RETURN_IF_ERROR(Expect(']'));
      return list + "]";
    }
    while (at_ < text_.size() && (IsNameChar(text_[at_]) || text_[at_] == '-' || text_[at_] == '+'))
      ++at_;
    if (at_ == begin) return Error("expected an attribute's value");
    return std::string(text_.substr(begin, at_ - begin));
  }

  absl::Status ParseAttrs(Op* op) {
    do {
      SkipSpace();
      const size_t begin = at_;
      QUIRE_ASSIGN_OR_RETURN(absl::string_view word, ParseName("an attribute"));
      const std::optional<AttrKind> kind = FindAttr(word);
      if (!kind.has_value() || !op->def().Allows(*kind)) {
        return ErrorAt(begin, UnknownAttr(word, op->def()));
      }
      if (op->Has(*kind)) return ErrorAt(begin, absl::StrCat("attribute ", word, " stands twice"));
      QUIRE_RETURN_IF_ERROR(Expect('='));
      QUIRE_ASSIGN_OR_RETURN(std::string text, ParseAttrText());
      absl::StatusOr<AttrValue> value = ParseAttr(DefOf(*kind), text);
      if (value.ok()) value = CheckedAttr(*kind, *std::move(value));
      if (!value.ok()) return ErrorAt(begin, value.status().message());
      if (op->def().Requires(*kind) || *value != DefaultOf(*kind))
        op->Set(*kind, *std::move(value));
    } while (Accept(','));
    return Expect('}');
  }

  static absl::StatusOr<AttrValue> CheckedAttr(AttrKind kind, AttrValue value) {
    QUIRE_RETURN_IF_ERROR(CheckAttr(DefOf(kind), value));
    return value;
  }

  static std::string UnknownAttr(absl::string_view word, const OpDef& def) {
    std::vector<std::string> allowed;
    for (AttrKind kind : def.required) allowed.emplace_back(DefOf(kind).text);
    for (AttrKind kind : def.optional) allowed.emplace_back(DefOf(kind).text);
    const std::string near = Nearest(word, allowed);
    return absl::StrCat("attribute ", word, " does not belong to ", def.mnemonic,
                        "\n  allowed: ", allowed.empty() ? "none" : absl::StrJoin(allowed, ", "),
                        near.empty() ? "" : "\n  fix: did you mean ", near,
                        near.empty() ? "" : "?");
  }

  static std::string UnknownDType(absl::string_view word) {
    const auto text = [](std::string* out, const DTypeInfo& info) { out->append(info.text); };
    return absl::StrCat("unknown element type ", word,
                        "\n  allowed: ", absl::StrJoin(AllDTypes(), ", ", text));
  }

  absl::Status ParseOp(Func* func) {
    fix_ = kOpForm;
    QUIRE_ASSIGN_OR_RETURN(std::string name, ParseNewValue(*func));
    QUIRE_RETURN_IF_ERROR(Expect('='));
    SkipSpace();
    const size_t begin = at_;
    QUIRE_ASSIGN_OR_RETURN(absl::string_view mnemonic, ParseName("an op"));
    const std::optional<OpKind> kind = FindOp(mnemonic);
    if (!kind.has_value() || *kind == OpKind::kArg) return ErrorAt(begin, UnknownOp(mnemonic));
    auto op = std::make_unique<Op>();
    op->kind = *kind;
    op->name = std::move(name);
    if (Peek('%')) {
      do {
        QUIRE_ASSIGN_OR_RETURN(Op * operand, ParseValue(*func));
        op->operands.push_back(operand);
      } while (Accept(','));
    }
    if (Accept('{')) QUIRE_RETURN_IF_ERROR(ParseAttrs(op.get()));
    QUIRE_RETURN_IF_ERROR(Expect(':'));
    QUIRE_ASSIGN_OR_RETURN(op->type, ParseType());
    if (Accept('@')) {
      QUIRE_ASSIGN_OR_RETURN(absl::string_view group, ParseName("a group number"));
      if (!absl::SimpleAtoi(group, &op->group) || op->group < 0 || op->group > kMaxGroup) {
        return Error(absl::StrCat("group ", group, " is not an integer up to ", kMaxGroup));
      }
    }
    absl::StatusOr<Type> inferred = InferType(*op, op->type);
    if (!inferred.ok())
      return ErrorAt(begin, absl::StrCat(mnemonic, ": ", inferred.status().message(),
                                         "\n  fix: quire dump --ops says what it takes"));
    if (*inferred != op->type) {
      return ErrorAt(begin, absl::StrCat(mnemonic, ": type ", op->type.ToString(), " is declared, ",
                                         inferred->ToString(), " is computed\n  fix: declare ",
                                         inferred->ToString()));
    }
    func->Insert(std::move(op));
    return absl::OkStatus();
  }

  static std::string UnknownOp(absl::string_view mnemonic) {
    std::vector<std::string> known;
    for (const OpDef& def : AllOps()) known.emplace_back(def.mnemonic);
    const std::string near = Nearest(mnemonic, known);
    return absl::StrCat("unknown op ", mnemonic, "\n  fix: ",
                        near.empty() ? "quire dump --ops has those that are known"
                                     : absl::StrCat("did you mean ", near, "?"));
  }

  absl::StatusOr<std::unique_ptr<Func>> ParseFunc() {
    fix_ = kFuncForm;
    QUIRE_ASSIGN_OR_RETURN(absl::string_view keyword, ParseName("func"));
    if (keyword != "func") {
      return ErrorAt(at_ - keyword.size(), absl::StrCat("expected func, found ", keyword));
    }
    QUIRE_RETURN_IF_ERROR(Expect('@'));
    QUIRE_ASSIGN_OR_RETURN(absl::string_view name, ParseName("a function name"));
    auto func = std::make_unique<Func>(name);
    QUIRE_RETURN_IF_ERROR(Expect('('));
    if (!Accept(')')) {
      do {
        QUIRE_ASSIGN_OR_RETURN(std::string arg, ParseNewValue(*func));
        QUIRE_RETURN_IF_ERROR(Expect(':'));
        QUIRE_ASSIGN_OR_RETURN(Type type, ParseType());
        func->AddArg(arg, type);
      } while (Accept(','));
      QUIRE_RETURN_IF_ERROR(Expect(')'));
    }
    QUIRE_RETURN_IF_ERROR(Expect('{'));
    while (Peek('%')) QUIRE_RETURN_IF_ERROR(ParseOp(func.get()));
    QUIRE_ASSIGN_OR_RETURN(absl::string_view word, ParseName("an op or return"));
    if (word != "return") {
      return ErrorAt(at_ - word.size(), absl::StrCat("expected an op or return, found ", word));
    }
    std::vector<Op*> returns;
    do {
      QUIRE_ASSIGN_OR_RETURN(Op * value, ParseValue(*func));
      returns.push_back(value);
    } while (Accept(','));
    func->set_returns(std::move(returns));
    QUIRE_RETURN_IF_ERROR(Expect('}'));
    return func;
  }

  static constexpr absl::string_view kFuncForm =
      "func @name(%argument: type, ...) { ops, return %value }";
  static constexpr absl::string_view kOpForm =
      "%name = op %operand, ... {attribute=value, ...} : type";

  absl::string_view text_, file_;
  size_t at_ = 0;
  absl::string_view fix_ = kFuncForm;  // of an error at hand: the form of what is parsed
};

}  // namespace

absl::StatusOr<Module> Parse(absl::string_view text, absl::string_view file) {
  QUIRE_ASSIGN_OR_RETURN(Module module, Parser(text, file).ParseModule());
  QUIRE_RETURN_IF_ERROR(WithPrefix(Verify(module), file.empty() ? "text" : file));
  return module;
}

}  // namespace quire
