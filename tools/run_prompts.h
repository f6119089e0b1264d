// What quire run continues: requests made of the flags that give prompts and sources.
#ifndef QUIRE_TOOLS_RUN_PROMPTS_H_
#define QUIRE_TOOLS_RUN_PROMPTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/request.h"
#include "tools/run_options.h"

namespace quire {

struct Prompt {
  std::string label;  // "prompt 2", "source 1", or a file's name
  Request request;
};

// One for each prompt; or, with sources, one for each of these, which share the prompt.
absl::StatusOr<std::vector<Prompt>> Prompts(const RunOptions& options);

// Gives each prompt the states of its file, of rows of `width`; one file is for all.
absl::Status AddStates(const RunOptions& options, int64_t width, std::vector<Prompt>* prompts);

}  // namespace quire

#endif  // QUIRE_TOOLS_RUN_PROMPTS_H_
