#include "tools/cli.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ir/status.h"
#include "runtime/tokenizer/unicode.h"

namespace quire {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
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

absl::Status NoEffect(absl::string_view verb, absl::string_view flag, absl::string_view with) {
  return WithLine(UsageError(absl::StrCat("quire ", verb, ": ", flag, " has no effect")), "allowed",
                  absl::StrCat("with ", with));
}

std::string IdleFlag(const CLI::App& app, std::initializer_list<FlagUse> uses) {
  for (const FlagUse& use : uses) {
    if (use.has_use || app.get_option(use.flag)->count() == 0) continue;
    return absl::StrCat(use.flag, " has no effect\n  allowed: with ", use.with);
  }
  return "";
}

CLI::Validator OneOf(std::vector<std::string> words) {
  CLI::Validator one = CLI::IsMember(words);
  one.operation([words](std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return "";
    // What a GPU is called here is no near word.
    const std::string near = Nearest(text == "gpu" ? "cuda" : text, words);
    return absl::StrCat(text, " is not known\n  allowed: ", absl::StrJoin(words, ", "),
                        near.empty() ? "" : absl::StrCat("\n  fix: did you mean ", near, "?"));
  });
  return one;
}

std::string WrongWhole(const std::string& text, uint64_t most) {
  uint64_t value = 0;
  const bool is_whole = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  if (is_whole && absl::SimpleAtoi(text, &value) && value <= most) return "";
  return absl::StrCat(text, " is not a whole number from 0 to ", most);
}

std::string WrongNumber(const std::string& text, double low, double most) {
  double value = 0;
  if (absl::SimpleAtod(text, &value) && value >= low && value <= most) return "";
  return absl::StrCat(text, " is not a number from ", low, " to ", most);
}

std::string WrongName(const std::string& name) { return name.empty() ? "the name is empty" : ""; }

CLI::Option* AddWholes(CLI::App* app, const std::string& name, std::vector<int32_t>* to,
                       const std::string& description, int32_t low, int32_t most) {
  const auto parse = [low, most](const std::string& text, std::vector<int32_t>* numbers) {
    numbers->clear();
    for (const absl::string_view word : absl::StrSplit(text, ',')) {
      int32_t& number = numbers->emplace_back();
      if (absl::SimpleAtoi(word, &number) && number >= low && number <= most) continue;
      const std::string wrong =
          word.empty() ? "a number is missing" : absl::StrCat(word, " is not one");
      return absl::StrCat(text, ": ", wrong, "\n  allowed: whole numbers from ", low, " to ", most,
                          ", separated by commas: 1,2,3");
    }
    return std::string();
  };
  return app
      ->add_option_function<std::string>(
          name, [to, parse](const std::string& text) { parse(text, to); }, description)
      ->type_name(absl::StrCat("INT,... in [", low, " - ", most, "]"))
      ->check([parse](const std::string& text) {
        std::vector<int32_t> numbers;
        return parse(text, &numbers);
      });
}

absl::Status CheckUtf8(absl::string_view from, absl::string_view text, absl::string_view ids_flag) {
  const size_t valid = tokenizer::ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  const auto byte = static_cast<uint8_t>(text[valid]);
  return UsageError(absl::StrCat(from, ": byte ", valid, ", 0x", absl::Hex(byte, absl::kZeroPad2),
                                 ", is not UTF-8\n  allowed: UTF-8\n  fix: convert the text",
                                 ids_flag.empty() ? "" : ", or give tokens by ", ids_flag));
}

absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view flag, absl::string_view text) {
  const auto bad = [flag](absl::string_view what) {
    return WithLine(UsageError(absl::StrCat(flag, ": ", what)), "allowed",
                    "integers, separated by commas: 1,2,3");
  };
  const std::vector<absl::string_view> words = absl::StrSplit(text, ',');
  std::vector<int32_t> ids;
  for (size_t i = 0; i < words.size(); ++i) {
    const absl::string_view word = absl::StripAsciiWhitespace(words[i]);
    if (word.empty()) {
      return bad(words.size() == 1       ? "no id"
                 : i == 0                ? "no id before the first comma"
                 : i + 1 == words.size() ? "no id behind the last comma"
                                         : "no id between two commas");
    }
    if (!absl::SimpleAtoi(word, &ids.emplace_back())) {
      return bad(absl::StrCat(word, " is not an id"));
    }
  }
  return ids;
}

absl::Status NoTokenizer(absl::string_view flag, absl::string_view ids_flag) {
  return WithLine(absl::InvalidArgumentError(absl::StrCat(flag, kTextNeedsTokenizer)), "fix",
                  absl::StrCat("give ids by ", ids_flag));
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
