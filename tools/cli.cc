#include "tools/cli.h"

#include <cstdio>

namespace quire {
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/tokenizer/unicode.h"


ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
      return kExitUsage;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return kExitUnsupported;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnavailable:
      return kExitMismatch;
    case absl::StatusCode::kResourceExhausted:
      return kExitResource;
    default:
      return kExitFailure;
  }
}

int Fail(const absl::Status& status) {
  std::string message(status.message());
  if (absl::IsDataLoss(status) && !absl::StrContains(message, "\n  fix: ")) {
    absl::StrAppend(&message, "\n  fix: get the file again; a plan, by quire compile");
  }
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return ExitCodeOf(status);
}

int FailUsage(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return kExitUsage;
}

}  // namespace quire
