// The quire command: one binary, one verb for each thing a user does.
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "tools/cli.h"

namespace quire {
namespace {

struct Verb {
  const char* name;
  const char* summary;
  VerbMain (*add)(CLI::App*);
};

constexpr Verb kVerbs[] = {
    {"compile", "compile a model directory, a .gguf or a .qir file to a plan", AddCompileVerb},
};

// --kv_dtype and --kv-dtype are the same flag: '_' in a long flag's name becomes '-'.
std::string Canonical(std::string arg) {
  if (arg.rfind("--", 0) != 0) return arg;
  for (char& c : arg) {
    if (c == '=') break;
    if (c == '_') c = '-';
  }
  return arg;
}

int Main(int argc, char** argv) {
  CLI::App app("Quire: a compiler and runtime for transformer models", "quire");
  app.require_subcommand(1);
  app.set_version_flag("--version", QUIRE_VERSION);
  std::vector<std::pair<CLI::App*, VerbMain>> verbs;
  for (const Verb& verb : kVerbs) {
    CLI::App* sub = app.add_subcommand(verb.name, verb.summary);
    verbs.emplace_back(sub, verb.add(sub));
  }
  std::vector<std::string> args;
  for (int i = argc - 1; i > 0; --i)
    args.push_back(Canonical(argv[i]));  // CLI11 wants them reversed
  try {
    app.parse(args);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  for (auto& [sub, run] : verbs) {
    if (sub->parsed()) return run();
  }
  return kExitUsage;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc, argv); }
