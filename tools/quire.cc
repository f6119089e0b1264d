// The quire command: one binary, one verb for each thing a user does.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "ir/guarded.h"
#include "ir/status.h"
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
    {"run", "generate text, or token ids, with a plan", AddRunVerb},
    {"dump", "look into a plan, or at the tables of ops and passes", AddDumpVerb},
    {"check", "say whether a plan can be loaded here, and if not, what to do", AddCheckVerb},
    {"verify", "compare a plan with its definition, and with itself in other batches",
     AddVerifyVerb},
    {"bench", "measure how fast a plan reads prompts and decodes here", AddBenchVerb},
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

// The line of a message that names what is nearest to `word`; "" if nothing is near.
std::string NearestFix(absl::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = Nearest(word, candidates);
  return near.empty() ? "" : absl::StrCat("\n  fix: did you mean ", near, "?");
}

std::vector<std::string> FlagsOf(const CLI::App& verb) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

// What of the command line `verb` does not take; its first flag, or else its first word.
std::string Unexpected(const CLI::App& verb) {
  const std::vector<std::string> words = verb.remaining();
  if (words.empty()) return "";
  const auto flag = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return word.size() > 1 && word[0] == '-';
  });
  if (flag == words.end()) return absl::StrCat(words[0], ": one argument too many");
  return absl::StrCat(*flag, " is not a flag of it",
                      NearestFix(flag->substr(0, flag->find('=')), FlagsOf(verb)));
}

int FailParse(const CLI::App& app, int argc, char** argv, const CLI::ParseError& error) {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.push_back(verb.name);
  const CLI::App* chosen = nullptr;
  for (const CLI::App* sub : app.get_subcommands()) chosen = sub;
  if (chosen != nullptr) {
    const std::string verb = absl::StrCat("quire ", chosen->get_name());
    const bool is_extra = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
    std::string what = is_extra ? Unexpected(*chosen) : "";
    if (what.empty()) what = error.what();  // of words behind "--", too
    if (!absl::StrContains(what, "\n  fix: ")) {
      absl::StrAppend(&what, "\n  fix: see ", verb, " --help");
    }
    return FailUsage(absl::StrCat(verb, ": ", what));
  }
  const std::string word = argc > 1 ? argv[1] : "";
  const std::string near = NearestFix(word, names);
  return FailUsage(absl::StrCat(
      word.empty() ? "quire: no verb" : absl::StrCat("quire: ", word, " is not a verb"),
      "\n  allowed: ", absl::StrJoin(names, ", "),
      near.empty() ? "\n  fix: see quire --help" : near));
}

// A full disk may show only when what was printed is written out.
int FlushStdout(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const std::string reason = std::generic_category().message(errno);
  const int failed =
      Fail(absl::ResourceExhaustedError(absl::StrCat("stdout: cannot write: ", reason)));
  return code == kExitOk ? failed : code;
}

int RunVerb(const VerbMain& run) {
  const absl::StatusOr<int> code = Guarded([&]() -> absl::StatusOr<int> { return run(); });
  return code.ok() ? *code : Fail(code.status());
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
  std::vector<std::string> args;  // CLI11 wants them reversed
  for (int i = argc - 1; i > 0; --i) {
    args.push_back(Canonical(argv[i]));
    // CLI11 would take the next argument for the value of "--passes=".
    if (args.back().rfind("--", 0) == 0 && args.back().back() == '=') {
      args.back().pop_back();
      args.insert(args.end() - 1, "");
    }
  }
  try {
    app.parse(args);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      std::ostringstream text;
      app.exit(error, text, text);
      std::fputs(text.str().c_str(), stdout);
      return FlushStdout(kExitOk);
    }
    return FailParse(app, argc, argv, error);
  }
  for (auto& [sub, run] : verbs) {
    if (sub->parsed()) return FlushStdout(RunVerb(run));
  }
  return kExitUsage;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  // A file that a limit does not let grow is an error of that write, as one on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  return quire::Main(argc, argv);
}
