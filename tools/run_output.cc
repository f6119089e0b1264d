#include "tools/run_output.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {

using nlohmann::ordered_json;

const char* FinishText(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStopToken:
      return "stop-token";
    case FinishReason::kStopString:
      return "stop-string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kTimeout:
      return "timeout";
    case FinishReason::kFailed:
      return "failed";
  }
  return "";
}

void RunOutput::Add(RequestId request, int32_t samples, const std::string& label,
                    const std::string& lead) {
  for (int32_t sample = 0; sample < samples; ++sample) {
    index_[{request, sample}] = continuations_.size();
    Continuation& added = continuations_.emplace_back();
    added.label = samples == 1 ? label : absl::StrCat(label, ", sample ", sample + 1);
    if (format_ == RunFormat::kText) added.pending = lead;
  }
}

void RunOutput::Take(const TokenEvent& event) {
  Continuation& continuation = continuations_[index_.at({event.request, event.sample})];
  if (event.token.id >= 0) {
    continuation.tokens.push_back(event.token);
    continuation.top.push_back(event.top);
    if (format_ == RunFormat::kIds) {
      absl::StrAppend(&continuation.pending, continuation.tokens.size() == 1 ? "" : " ",
                      event.token.id);
      if (logprobs_) absl::StrAppend(&continuation.pending, ":", event.token.logprob);
    }
  }
  absl::StrAppend(&continuation.text, event.text);
  if (format_ == RunFormat::kText) absl::StrAppend(&continuation.pending, event.text);
  if (event.finish != FinishReason::kNone) {
    continuation.finish = event.finish;
    continuation.score = event.score;
    absl::StrAppend(&continuation.pending, "\n");
  }
  if (format_ != RunFormat::kJson) Flush();
}

void RunOutput::Flush() {
  while (printing_ < continuations_.size()) {
    Continuation& current = continuations_[printing_];
    if (!labelled_ && continuations_.size() > 1) {
      std::printf("%s=== %s\n", printing_ == 0 ? "" : "\n", current.label.c_str());
    }
    labelled_ = true;
    std::fwrite(current.pending.data(), 1, current.pending.size(), stdout);
    current.pending.clear();
    if (current.finish == FinishReason::kNone) break;
    ++printing_;
    labelled_ = false;
  }
  std::fflush(stdout);
}

ordered_json RunOutput::Json(const Continuation& continuation) const {
  ordered_json ids = ordered_json::array(), logprobs = ordered_json::array(),
               top = ordered_json::array();
  for (size_t i = 0; i < continuation.tokens.size(); ++i) {
    ids.push_back(continuation.tokens[i].id);
    logprobs.push_back(continuation.tokens[i].logprob);
    ordered_json& row = top.emplace_back(ordered_json::array());
    for (const TokenLogprob& token : continuation.top[i]) {
      row.push_back({{"id", token.id}, {"logprob", token.logprob}});
    }
  }
  ordered_json json = {{"prompt", continuation.label},
                       {"text", continuation.text},
                       {"ids", std::move(ids)},
                       {"finish", FinishText(continuation.finish)}};
  if (continuation.score != 0) json["score"] = continuation.score;
  if (logprobs_) {
    json["logprobs"] = std::move(logprobs);
    json["top_logprobs"] = std::move(top);
  }
  return json;
}

void RunOutput::Finish(const ordered_json& timing) {
  if (format_ != RunFormat::kJson) return Flush();
  ordered_json results = ordered_json::array();
  for (const Continuation& continuation : continuations_) results.push_back(Json(continuation));
  const ordered_json json = {{"results", std::move(results)}, {"timing", timing}};
  const std::string text = json.dump(2, ' ', false, ordered_json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

}  // namespace quire
