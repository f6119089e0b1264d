// What the verbs of the command line share: exit codes, the printed form of errors, and how a verb
// is registered.
//
// stdout carries data, stderr everything else. Exit codes:
//   0 ok, 1 other failure (corrupt file, internal error), 2 usage, 3 unsupported or wrong model or
//   configuration, 4 version or target mismatch, 5 out of a resource, 6 verification mismatch.
#ifndef QUIRE_TOOLS_CLI_H_
#define QUIRE_TOOLS_CLI_H_

#include <functional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

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
