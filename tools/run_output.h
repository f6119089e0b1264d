// What `quire run` prints on stdout: text as it comes, ids, or JSON at the end.
#ifndef QUIRE_TOOLS_RUN_OUTPUT_H_
#define QUIRE_TOOLS_RUN_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "nlohmann/json.hpp"
#include "runtime/request.h"

namespace quire {

enum class RunFormat { kText, kIds, kJson };

class RunOutput {
 public:
  // `stream`: print text and ids as they come. Continuations are printed one after the other, in
  // the order of Add(); with more than one, each under a line that names it.
  RunOutput(RunFormat format, bool logprobs) : format_(format), logprobs_(logprobs) {}

  // `label` is of the prompt; `lead` is printed before the continuation's text.
  void Add(RequestId request, int32_t samples, const std::string& label, const std::string& lead);
  void Take(const TokenEvent& event);
  // Of its prompt and, of several, its sample.
  const std::string& LabelOf(const TokenEvent& event) const {
    return continuations_[index_.at({event.request, event.sample})].label;
  }
  // Prints what is left; `timing` becomes a part of the JSON.
  void Finish(const nlohmann::ordered_json& timing);

 private:
  struct Continuation {
    std::string label, text;
    std::vector<TokenLogprob> tokens;
    std::vector<std::vector<TokenLogprob>> top;
    FinishReason finish = FinishReason::kNone;
    float score = 0;      // of a beam
    std::string pending;  // not yet printed
  };

  void Flush();
  nlohmann::ordered_json Json(const Continuation& continuation) const;

  const RunFormat format_;
  const bool logprobs_;
  std::vector<Continuation> continuations_;
  absl::flat_hash_map<std::pair<RequestId, int32_t>, size_t> index_;
  size_t printing_ = 0;  // the first continuation that is not finished and printed
  bool labelled_ = false;
};

const char* FinishText(FinishReason reason);

}  // namespace quire

#endif  // QUIRE_TOOLS_RUN_OUTPUT_H_
