#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/text.h"

namespace quire {
namespace {

void AppendName(std::string* out, const Op* op) { absl::StrAppend(out, "%", op->name); }

}  // namespace

std::string Print(const Op& op) {
  std::string text = absl::StrCat("%", op.name, " = ", op.def().mnemonic);
  if (!op.operands.empty())
    absl::StrAppend(&text, " ", absl::StrJoin(op.operands, ", ", AppendName));
  std::string attrs;
  for (const auto& [kind, value] : op.attrs()) {
    if (!op.def().Requires(kind) && value == DefaultOf(kind)) continue;
    const AttrDef& def = DefOf(kind);
    absl::StrAppend(&attrs, attrs.empty() ? "" : ", ", def.text, "=", AttrText(def, value));
  }
  if (!attrs.empty()) absl::StrAppend(&text, " {", attrs, "}");
  absl::StrAppend(&text, " : ", op.type.ToString());
  if (op.group >= 0) absl::StrAppend(&text, " @", op.group);
  return text;
}

std::string Print(const Func& func) {
  std::string text = absl::StrCat("func @", func.name(), "(");
  absl::StrAppend(&text,
                  absl::StrJoin(func.args(), ", ",
                                [](std::string* out, const auto& arg) {
                                  absl::StrAppend(out, "%", arg->name, ": ", arg->type.ToString());
                                }),
                  ") {\n");
  for (const auto& op : func.ops()) absl::StrAppend(&text, "  ", Print(*op), "\n");
  absl::StrAppend(&text, "  return ", absl::StrJoin(func.returns(), ", ", AppendName), "\n}\n");
  return text;
}

std::string Print(const Module& module) {
  return absl::StrJoin(module.funcs, "\n",
                       [](std::string* out, const auto& func) { out->append(Print(*func)); });
}

}  // namespace quire
