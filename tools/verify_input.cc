#include "tools/verify_input.h"

#include <random>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "tools/cli.h"

namespace quire {
namespace {

constexpr int32_t kDefaultTokens = 16;

bool HasPrompt(const VerifyInputOptions& options) {
  return options.prompt.has_value() || options.ids.has_value();
}

bool HasSource(const VerifyInputOptions& options) {
  return options.source.has_value() || options.source_ids.has_value();
}

absl::Status CheckVocabulary(absl::string_view flag, const std::vector<int32_t>& ids,
                             int32_t vocabulary) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    return WithLine(absl::InvalidArgumentError(absl::StrCat(flag, ": ", id, " is not a token")),
                    "allowed", absl::StrCat("0 .. ", vocabulary - 1));
  }
  return absl::OkStatus();
}

// The tokens of a text, or those given by the flag `ids_flag`.
absl::StatusOr<std::vector<int32_t>> GivenIds(const std::optional<std::string>& text,
                                              absl::string_view text_flag,
                                              const std::optional<std::string>& ids,
                                              absl::string_view ids_flag, const Session& session) {
  if (ids.has_value()) {
    QUIRE_ASSIGN_OR_RETURN(std::vector<int32_t> given, ParseIds(ids_flag, *ids));
    QUIRE_RETURN_IF_ERROR(CheckVocabulary(ids_flag, given, session.vocabulary()));
    return given;
  }
  if (!session.model->info().has_tokenizer) return NoTokenizer(text_flag, ids_flag);
  QUIRE_ASSIGN_OR_RETURN(std::vector<int32_t> encoded, session.model->Encode(*text));
  if (!encoded.empty()) return encoded;
  return WithLine(absl::InvalidArgumentError(absl::StrCat(text_flag, ": the text has no token")),
                  "allowed", "a token or more");
}

std::vector<int32_t> RandomIds(int32_t count, int32_t vocabulary, std::mt19937* random) {
  std::uniform_int_distribution<int32_t> any(0, vocabulary - 1);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back(any(*random));
  return ids;
}

// The prompt's ids, or random ones; and random ones for the decode steps, since any will do.
absl::StatusOr<std::vector<int32_t>> ChooseIds(const VerifyInputOptions& options,
                                               const Session& session) {
  std::mt19937 random(options.seed);
  std::vector<int32_t> ids;
  if (HasPrompt(options)) {
    QUIRE_ASSIGN_OR_RETURN(ids, GivenIds(options.prompt, "-p", options.ids, "--ids", session));
  } else {
    ids = RandomIds(options.tokens.value_or(kDefaultTokens), session.vocabulary(), &random);
  }
  const size_t prompt_tokens = ids.size();
  for (const int32_t id : RandomIds(options.steps, session.vocabulary(), &random)) {
    ids.push_back(id);
  }
  const int64_t limit = session.model->info().max_positions;
  if (limit == 0 || static_cast<int64_t>(ids.size()) <= limit) return ids;
  return WithLine(
      absl::InvalidArgumentError(absl::StrCat(prompt_tokens, " tokens and ", options.steps,
                                              " steps are too many, ", limit,
                                              " positions are defined")),
      "fix",
      HasPrompt(options) ? "a shorter prompt, or fewer --steps" : "fewer --tokens or --steps");
}

// Likewise what an encoder reads; of states as many as tokens.
absl::Status ChooseSource(const VerifyInputOptions& options, const Session& session,
                          ChosenInput* input) {
  const ModelInfo& info = session.model->info();
  if (!info.has_encoder) return absl::OkStatus();
  const int32_t tokens = options.tokens.value_or(kDefaultTokens);
  std::mt19937 random(options.seed + 1);
  if (info.states_width > 0) {
    std::normal_distribution<float> normal;
    std::vector<float> states(static_cast<size_t>(tokens * info.states_width));
    for (float& state : states) state = normal(random);
    input->states = std::make_shared<const std::vector<float>>(std::move(states));
    return absl::OkStatus();
  }
  if (HasSource(options)) {
    QUIRE_ASSIGN_OR_RETURN(input->source, GivenIds(options.source, "--source", options.source_ids,
                                                   "--source-ids", session));
  } else {
    input->source = RandomIds(tokens, session.vocabulary(), &random);
  }
  const auto count = static_cast<int64_t>(input->source.size());
  if (info.max_source == 0 || count <= info.max_source) return absl::OkStatus();
  return WithLine(
      absl::InvalidArgumentError(absl::StrCat("a source of ", count, " tokens is too long, ",
                                              info.max_source, " positions are defined")),
      "fix", HasSource(options) ? "a shorter source" : "fewer --tokens");
}

}  // namespace

void AddVerifyInputOptions(CLI::App* app, VerifyInputOptions* options) {
  CLI::Option* prompt =
      app->add_option("-p,--prompt", options->prompt, "a prompt (default: random ids)");
  app->add_option("--ids", options->ids, "a prompt as token ids: 1,2,3")->excludes(prompt);
  CLI::Option* source = app->add_option("--source", options->source,
                                        "a text for the model's encoder (default: random ids)");
  app->add_option("--source-ids", options->source_ids, "token ids for the model's encoder: 1,2,3")
      ->excludes(source);
  app->add_option("--tokens", options->tokens, "random ids of the prompt, and of the source (16)")
      ->check(CLI::Range(1, 4096));
  app->add_option("--steps", options->steps, "decode steps after the prompt (8)")
      ->check(CLI::Range(1, 4096));
  app->add_option("--seed", options->seed, "of the random ids (1)")
      ->check([](const std::string& text) { return WrongWhole(text, UINT32_MAX); });
}

absl::Status CheckVerifyInput(const VerifyInputOptions& options) {
  for (const auto& [flag, text, ids_flag] :
       {std::tuple("-p", options.prompt, "--ids"),
        std::tuple("--source", options.source, "--source-ids")}) {
    if (!text.has_value()) continue;
    if (text->empty()) {
      return WithLine(UsageError(absl::StrCat("quire verify: ", flag, " is empty")), "allowed",
                      "a text, or none for random ids");
    }
    QUIRE_RETURN_IF_ERROR(CheckUtf8(flag, *text, ids_flag));
  }
  for (const auto& [flag, ids] :
       {std::pair("--ids", options.ids), std::pair("--source-ids", options.source_ids)}) {
    if (ids.has_value()) QUIRE_RETURN_IF_ERROR(ParseIds(flag, *ids).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<ChosenInput> ChooseVerifyInput(const VerifyInputOptions& options,
                                              const Session& session) {
  const ModelInfo& info = session.model->info();
  const bool reads_tokens = info.has_encoder && info.states_width == 0;
  if (HasSource(options) && !reads_tokens) {
    return NoEffect("verify", options.source.has_value() ? "--source" : "--source-ids",
                    "a model that has an encoder of tokens");
  }
  if (options.tokens.has_value() && HasPrompt(options) &&
      (HasSource(options) || !info.has_encoder)) {
    return NoEffect("verify", "--tokens", "random ids: without a prompt or a source");
  }
  ChosenInput input;
  QUIRE_ASSIGN_OR_RETURN(input.ids, ChooseIds(options, session));
  QUIRE_RETURN_IF_ERROR(ChooseSource(options, session, &input));
  return input;
}

}  // namespace quire
