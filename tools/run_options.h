// The flags of quire run.
#ifndef QUIRE_TOOLS_RUN_OPTIONS_H_
#define QUIRE_TOOLS_RUN_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/engine.h"
#include "runtime/sampling.h"
#include "tools/session.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quire {

constexpr char kStandardInput[] = "-";  // as a file of a prompt or a source

// What one flag gives of a prompt or a source.
struct GivenText {
  enum Kind { kText, kFile, kIds };
  Kind kind;
  std::string value;
};

struct RunOptions {
  SessionOptions session;
  std::vector<GivenText> prompts, sources;  // as they stand on the command line
  std::vector<std::string> stop, source_states;
  std::string output = "text";
  int32_t samples = 1;
  std::optional<float> temperature, top_p, min_p, repeat_penalty, length_penalty;
  std::vector<int32_t> image_positions;
  std::optional<int32_t> max_tokens, top_k, beams, no_repeat_ngram;
  std::optional<std::string> early_stopping;
  SamplingParams sampling;
  bool greedy = false, echo = false, ignore_eos = false, no_special = false, quiet = false,
       verbose = false;
  EngineOptions engine;
};

void AddRunOptions(CLI::App* app, RunOptions* options);

// `status` of the library with flags for the fields of requests and options that it names.
absl::Status NameRunFlags(const absl::Status& status);

// The flag of each GivenText::Kind.
constexpr const char* kPromptFlags[] = {"-p", "--prompt-file", "--ids"};
constexpr const char* kSourceFlags[] = {"--source", "--source-file", "--source-ids"};

// What is wrong with the flags beside each other; "" if nothing.
std::string WrongRunUsage(const CLI::App& app, const RunOptions& options);

}  // namespace quire

#endif  // QUIRE_TOOLS_RUN_OPTIONS_H_
