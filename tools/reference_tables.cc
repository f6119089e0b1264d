#include "tools/reference_tables.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/pass.h"
#include "ir/op.h"

namespace quire {
namespace {

std::string AttrsText(const OpDef& op) {
  std::vector<std::string> texts;
  for (const AttrKind attr : op.required) texts.push_back(DefOf(attr).text);
  for (const AttrKind attr : op.optional) {
    const AttrDef& def = DefOf(attr);
    texts.push_back(absl::StrCat(def.text, "=", AttrText(def, DefaultOf(attr))));
  }
  return absl::StrJoin(texts, ", ");
}

}  // namespace

Table OpTable() {
  Table table({"op", "operands", "attributes", "meaning"});
  for (const OpDef& op : AllOps()) {
    table.AddRow({op.mnemonic, absl::StrJoin(op.operands, ", "), AttrsText(op), op.meaning});
  }
  return table;
}

Table PassTable() {
  Table table({"pass", "phase", "what it does"});
  for (const PassDef& pass : AllPasses()) {
    table.AddRow({pass.name, std::string(PhaseText(pass.phase)), pass.summary});
  }
  return table;
}

Table FlagTable(const CLI::App& root) {
  Table table({"verb", "flag", "meaning"});
  for (const CLI::App* verb : root.get_subcommands([](const CLI::App*) { return true; })) {
    for (const CLI::Option* option : verb->get_options()) {
      if (option->get_name() == "--help") continue;
      table.AddRow({verb->get_name(), option->get_name(false, true), option->get_description()});
    }
  }
  return table;
}

}  // namespace quire
