#include "tools/run_options.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/plan_check.h"
#include "models/import/generation.h"
#include "tools/cli.h"

namespace quire {
namespace {

// What the library calls what a flag says.
struct FieldFlag {
  absl::string_view field, flag;
};
constexpr FieldFlag kFlagsOfFields[] = {
    {"beams", "--beams"},
    {"cache_bytes", "--memory"},
    {"frequency_penalty", "--frequency-penalty"},
    {"length_penalty", "--length-penalty"},
    {"max_tokens", "--max-tokens"},
    {"presence_penalty", "--presence-penalty"},
    {"repetition_penalty", "--repeat-penalty"},
    {"samples", "--samples"},
    {"source_ids", "--source-ids"},
    {"source_images", "--image-positions"},
    {"source_states", "--source-states"},
};

// "1.5GiB" as bytes. KB, K and KiB are the same, and so are the others.
std::optional<int64_t> SizeOf(absl::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double size = 0;
  if (!absl::SimpleAtod(text.substr(0, digits), &size)) return std::nullopt;
  std::string unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text.substr(digits)));
  constexpr absl::string_view kUnits = "kmgt";
  const size_t power = unit.empty() ? kUnits.npos : kUnits.find(unit[0]);
  if (power != kUnits.npos) size *= std::exp2(10.0 * static_cast<double>(power + 1));
  const absl::string_view rest = absl::string_view(unit).substr(power == kUnits.npos ? 0 : 1);
  const bool is_unit = rest.empty() || rest == "b" || (rest == "ib" && power != kUnits.npos);
  if (!is_unit || size > std::exp2(50.0)) return std::nullopt;
  return static_cast<int64_t>(size);
}

// A flag each of whose values, which may be many, goes behind those of the flags before it.
void AddGiven(CLI::App* app, const std::string& names, GivenText::Kind kind,
              std::vector<GivenText>* given, const std::string& about) {
  CLI::Option* option =
      app->add_option_function<std::string>(
             names, [kind, given](const std::string& value) { given->push_back({kind, value}); },
             about)
          ->trigger_on_parse()
          ->take_last()
          ->allow_extra_args(false);
  if (kind == GivenText::kFile) option->check(WrongName);
}

bool IsWordByte(char c) { return absl::ascii_isalnum(c) || c == '_'; }

void AddSamplingOptions(CLI::App* app, RunOptions* options) {
  SamplingParams& sampling = options->sampling;
  CLI::Option* temperature =
      app->add_option("--temperature,--temp", options->temperature, "0: the most probable token")
          ->check([](const std::string& text) { return WrongNumber(text, 0, 100); });
  CLI::Option* top_k =
      app->add_option("--top-k", options->top_k, "draw among so many most probable tokens; 0: all")
          ->check(CLI::Range(0, INT32_MAX));
  CLI::Option* top_p =
      app->add_option("--top-p", options->top_p, "draw among the most probable that sum to this")
          ->check([](const std::string& text) { return WrongNumber(text, 0, 1); });
  CLI::Option* min_p =
      app->add_option("--min-p", options->min_p,
                      "draw among those of at least this part of the highest probability")
          ->check([](const std::string& text) { return WrongNumber(text, 0, 1); });
  CLI::Option* greedy = app->add_flag("--greedy", options->greedy,
                                      "the most probable token, whatever the model asks");
  for (CLI::Option* other : {temperature, top_k, top_p, min_p}) greedy->excludes(other);
  app->add_option("--repeat-penalty", options->repeat_penalty,
                  "divides logits of tokens that are there already")
      ->check([](const std::string& text) { return WrongNumber(text, 1e-4, 1e4); });
  app->add_option("--presence-penalty", sampling.presence_penalty,
                  "is subtracted from logits of generated tokens, once")
      ->check([](const std::string& text) { return WrongNumber(text, -1e4, 1e4); });
  app->add_option("--frequency-penalty", sampling.frequency_penalty,
                  "is subtracted from logits of generated tokens, each time")
      ->check([](const std::string& text) { return WrongNumber(text, -1e4, 1e4); });
  app->add_option("--seed", sampling.seed,
                  "of the draws, if there are any; the same seed gives the same text")
      ->check([](const std::string& text) { return WrongWhole(text, UINT64_MAX); });
  app->add_option("--samples", options->samples, "continuations of each prompt")
      ->check(CLI::Range(1, kMaxBeams));  // of beams all may be wanted
}

void AddBeamOptions(CLI::App* app, RunOptions* options) {
  app->add_option("--beams", options->beams, "beam search with so many beams; 1: none")
      ->check(CLI::Range(1, kMaxBeams));
  app->add_option("--length-penalty", options->length_penalty,
                  "of beams: a score is divided by length ^ this")
      ->check([](const std::string& text) { return WrongNumber(text, -100, 100); });
  app->add_option("--early-stopping", options->early_stopping,
                  "of beams: true ends with the first that are complete, never with the best")
      ->check(OneOf({"true", "false", "never"}));
  app->add_option("--no-repeat-ngram", options->no_repeat_ngram,
                  "no run of so many tokens stands twice; 0: off")
      ->check(CLI::Range(0, INT32_MAX));
}

}  // namespace

void AddRunOptions(CLI::App* app, RunOptions* options) {
  AddSessionOptions(app, &options->session);
  AddGiven(app, "-p,--prompt", GivenText::kText, &options->prompts,
           "a prompt; may be given several times");
  AddGiven(app, "--prompt-file", GivenText::kFile, &options->prompts,
           "a file whose text is a prompt, without its last line break; - for standard input; may "
           "be given several times");
  AddGiven(app, "--ids", GivenText::kIds, &options->prompts,
           "a prompt as token ids: 1,2,3; may be given several times");
  AddGiven(app, "--source", GivenText::kText, &options->sources,
           "a text for the model's encoder; may be given several times");
  AddGiven(app, "--source-file", GivenText::kFile, &options->sources,
           "a file whose text is for the encoder, without its last line break; - for standard "
           "input; may be given several times");
  AddGiven(app, "--source-ids", GivenText::kIds, &options->sources,
           "token ids for the model's encoder, as they are: 1,2,3; may be given several times");
  app->add_option(
         "--source-states", options->source_states,
         "a .safetensors file with states for the model to look at; for each prompt, if given "
         "several times")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false)
      ->check(WrongName);
  AddWholes(app, "--image-positions", &options->image_positions,
            "where in the prompt the images stand that states are of: 1,2,9; rows before one "
            "do not see it (all see all)",
            0, 1 << 30);
  app->add_option("-n,--max-tokens", options->max_tokens,
                  "tokens to generate at most (what fits of the model's max_new_tokens or "
                  "max_length, else 64)")
      ->check(CLI::Range(1, 1 << 30));
  AddBeamOptions(app, options);
  AddSamplingOptions(app, options);
  app->add_option("--stop", options->stop, "end before this text; may be given several times")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  app->add_flag("--ignore-eos", options->ignore_eos, "go on after the model's end of text");
  app->add_flag("--no-special", options->no_special,
                "put no bos or eos around texts, and no start token before a decoder's ids");
  app->add_flag(
      "--echo", options->echo,
      "print the prompt before its continuation; without one, the source in a line of its own");
  app->add_flag("--logprobs", options->sampling.logprobs,
                "log-probabilities of the tokens; with --output=ids or json");
  app->add_option("--top-logprobs", options->sampling.top_logprobs,
                  "and of so many most probable ones; with --output=json")
      ->check(CLI::Range(0, 1000));
  app->add_option_function<std::string>(
         "--memory",
         [options](const std::string& text) {
           options->engine.cache_bytes = SizeOf(text).value_or(0);
         },
         "bytes for keys and values, such as 512MiB (0: 1GiB on a CPU, what is left on a GPU)")
      ->check([](const std::string& text) {
        return SizeOf(text).has_value()
                   ? std::string()
                   : absl::StrCat(text,
                                  " is not a size: a number, with KiB, MiB, GiB or TiB "
                                  "behind it or bytes, up to 1024TiB");
      });
  app->add_option("--chunk", options->engine.chunk_tokens,
                  "tokens of a prompt in one step at most; 0: as the step allows")
      ->check(CLI::Range(int64_t{0}, kMaxStepRows));
  app->add_option("--output", options->output, "text, ids or json")
      ->check(OneOf({"text", "ids", "json"}));
  app->add_flag("-q,--quiet", options->quiet, "no timing on stderr");
  app->add_flag("-v,--verbose", options->verbose, "the device and its memory on stderr");
}

absl::Status NameRunFlags(const absl::Status& status) {
  if (status.ok()) return status;
  absl::string_view rest = status.message();
  std::string message;
  while (!rest.empty()) {
    const auto end = std::find_if_not(rest.begin(), rest.end(), IsWordByte);
    absl::string_view word = rest.substr(0, std::max<size_t>(1, end - rest.begin()));
    rest.remove_prefix(word.size());
    // Some of them are words of a sentence, too.
    const bool is_field = absl::StrContains(word, "_") || absl::StartsWith(rest, "=");
    for (const FieldFlag& each : kFlagsOfFields) {
      if (is_field && word == each.field) word = each.flag;
    }
    absl::StrAppend(&message, word);
  }
  return absl::Status(status.code(), message);
}

std::string WrongRunUsage(const CLI::App& app, const RunOptions& options) {
  const size_t prompts = options.prompts.size();
  if (prompts == 0 && options.sources.empty()) {
    return "no prompt\n  allowed: -p TEXT, --prompt-file FILE (- for standard input), --ids 1,2,3; "
           "with an encoder --source TEXT, --source-file FILE, --source-ids 1,2,3";
  }
  if (prompts > 1 && !options.sources.empty()) {
    return "several prompts beside a source\n  allowed: one prompt, which every source's output "
           "begins with, or none";
  }
  const auto reads = [](const std::vector<GivenText>& texts) {
    return std::count_if(texts.begin(), texts.end(), [](const GivenText& text) {
      return text.kind == GivenText::kFile && text.value == kStandardInput;
    });
  };
  if (reads(options.prompts) + reads(options.sources) > 1) {
    return "- more than once\n  allowed: standard input as one prompt or source\n  fix: files for "
           "the others";
  }
  for (const std::string& text : options.stop) {
    if (text.empty()) return "--stop is empty\n  allowed: a text";
  }
  const size_t states = options.source_states.size();
  if (states > 1 && states != prompts) {
    return absl::StrCat("--source-states: ", states, " files for ", prompts,
                        prompts == 1 ? " prompt" : " prompts",
                        "\n  allowed: one for all, or one for each");
  }
  const bool has_text = options.output == "text", has_json = options.output == "json";
  const bool draws = options.temperature.value_or(1) > 0;
  const bool has_beams = options.beams.value_or(1) > 1;
  const char* const kNoBeams = "--beams=1: beams are not drawn";
  const std::string idle =
      IdleFlag(app, {{"--logprobs", !has_text, "--output=ids or json"},
                     {"--top-logprobs", has_json, "--output=json"},
                     {"--echo", has_text, "--output=text"},
                     {"--image-positions", !options.source_states.empty(), "--source-states"},
                     {"--temperature", !draws || !has_beams, kNoBeams},
                     {"--top-k", !has_beams, kNoBeams},
                     {"--top-p", !has_beams, kNoBeams},
                     {"--min-p", !has_beams, kNoBeams},
                     {"--stop", !has_beams, "--beams=1"},
                     {"--top-k", draws, "a --temperature above 0"},
                     {"--top-p", draws, "a --temperature above 0"},
                     {"--min-p", draws, "a --temperature above 0"}});
  return idle.empty() ? WrongSessionUsage(options.session) : idle;
}

}  // namespace quire
