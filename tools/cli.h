// What the verbs of the command line share: exit codes, the printed form of errors, and how a verb
// is registered.
//
// stdout carries data, stderr everything else. Exit codes:
//   0 ok, 1 other failure (corrupt file, internal error), 2 usage, 3 unsupported or wrong model or
//   configuration, 4 version or target mismatch, 5 out of a resource, 6 verification mismatch.
#ifndef QUIRE_TOOLS_CLI_H_
#define QUIRE_TOOLS_CLI_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace quire {

enum ExitCode {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitUnsupported = 3,
  kExitMismatch = 4,
  kExitResource = 5,
  kExitVerification = 6,
};

ExitCode ExitCodeOf(const absl::Status& status);

// Of flags that are found to be wrong beside each other, or beside the plan, when verbs run.
// No library function returns this code.
inline absl::Status UsageError(absl::string_view message) { return absl::OutOfRangeError(message); }

// Misuse that shows when the plan is open: "quire VERB: FLAG has no effect", and with what it has.
absl::Status NoEffect(absl::string_view verb, absl::string_view flag, absl::string_view with);

// A flag, and whether anything reads it beside the other flags. `with`: what would.
struct FlagUse {
  const char* flag;
  bool has_use;
  const char* with;
};
// The first of `uses` that was given and has none: "--emit has no effect\n  allowed: with ..."; ""
// if there is none.
std::string IdleFlag(const CLI::App& app, std::initializer_list<FlagUse> uses);

// Of a flag whose value is one of these words; another is answered with them, and the nearest.
CLI::Validator OneOf(std::vector<std::string> words);

// What is wrong with a flag's value that is to be a whole number up to `most`; "" if nothing is.
// Without it a larger one would become the largest, and one below 0 wrap around.
std::string WrongWhole(const std::string& text, uint64_t most);

// Likewise of a value that is to be a number from `low` to `most`; nan, which CLI::Range lets pass,
// is none.
std::string WrongNumber(const std::string& text, double low, double most);

// Likewise of a name of a file or folder.
std::string WrongName(const std::string& name);

// A flag of whole numbers from `low` to `most`, separated by commas alone, none missing: 1,2,3.
CLI::Option* AddWholes(CLI::App* app, const std::string& name, std::vector<int32_t>* to,
                       const std::string& description, int32_t low, int32_t most);

// UsageError unless `text` is UTF-8, which is all that tokenizers read. `from` names where it
// stands: "-p", "prompts.txt"; `ids_flag` what takes tokens instead, "" for nothing.
absl::Status CheckUtf8(absl::string_view from, absl::string_view text, absl::string_view ids_flag);

// "1,2,3" as ids of tokens, spaces around each or none; UsageError, which names `flag`, if they are
// none.
absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view flag, absl::string_view text);

// Behind the flags that give texts.
inline constexpr absl::string_view kTextNeedsTokenizer =
    ": a text needs a tokenizer, and the plan has none";

// Of a text, given by `flag`, for a plan without tokenizer; `ids_flag` takes tokens.
absl::Status NoTokenizer(absl::string_view flag, absl::string_view ids_flag);

// "error: <message>" on stderr; returns the exit code.
int Fail(const absl::Status& status);
int FailUsage(const std::string& message);

// A verb adds its options to `app` and returns what runs it, once the command line is parsed.
using VerbMain = std::function<int()>;
VerbMain AddCompileVerb(CLI::App* app);
VerbMain AddRunVerb(CLI::App* app);
VerbMain AddDumpVerb(CLI::App* app);
VerbMain AddCheckVerb(CLI::App* app);
VerbMain AddVerifyVerb(CLI::App* app);
VerbMain AddBenchVerb(CLI::App* app);

}  // namespace quire

#endif  // QUIRE_TOOLS_CLI_H_
