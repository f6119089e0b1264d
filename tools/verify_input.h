// What quire verify computes: a prompt, tokens after it, and what an encoder reads; random where
// the user says nothing.
#ifndef QUIRE_TOOLS_VERIFY_INPUT_H_
#define QUIRE_TOOLS_VERIFY_INPUT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/session.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quire {

struct VerifyInputOptions {
  std::optional<std::string> prompt, ids, source, source_ids;
  std::optional<int32_t> tokens;
  int32_t steps = 8;
  uint32_t seed = 1;
};

struct ChosenInput {
  // Prompt and decoded tokens, the last `steps` of them, and the encoder's tokens or states.
  std::vector<int32_t> ids, source;
  std::shared_ptr<const std::vector<float>> states = std::make_shared<std::vector<float>>();
};

void AddVerifyInputOptions(CLI::App* app, VerifyInputOptions* options);

// What is wrong with the flags, without a plan.
absl::Status CheckVerifyInput(const VerifyInputOptions& options);

absl::StatusOr<ChosenInput> ChooseVerifyInput(const VerifyInputOptions& options,
                                              const Session& session);

}  // namespace quire

#endif  // QUIRE_TOOLS_VERIFY_INPUT_H_
