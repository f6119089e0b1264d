#include "tools/summary.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "ir/dtype.h"

namespace quire {
namespace {

std::string Scaled(double value, const char* unit) {
  const char* prefix = "";
  for (const char* next : {"k", "M", "G", "T"}) {
    if (value < 1000) break;
    value /= 1000;
    prefix = next;
  }
  const int decimals = value >= 100 || *prefix == 0 ? 0 : (value >= 10 ? 1 : 2);
  return absl::StrFormat("%.*f %s%s", decimals, value, prefix, unit);
}

// "recognise-attention 2, fuse 1": what fired, how often, in the order of the passes.
std::string FiredText(const std::vector<PassReport>& reports) {
  std::vector<std::pair<std::string, int>> fired;
  for (const PassReport& report : reports) {
    const auto count = std::count_if(report.notes.begin(), report.notes.end(),
                                     [](const PassNote& note) { return note.fired; });
    if (count > 0) fired.emplace_back(report.pass, static_cast<int>(count));
  }
  return absl::StrJoin(fired, ", ", absl::PairFormatter(" "));
}

}  // namespace

std::string CountText(double count) {
  return std::string(absl::StripTrailingAsciiWhitespace(Scaled(count, "")));
}
std::string BytesText(double bytes) { return Scaled(bytes, "B"); }

int64_t KvBytesPerToken(const plan::TargetT& target, plan::KvCache cache) {
  int64_t bytes = 0;
  for (const auto& layer : target.kv_layers) {
    if (layer->cache != cache) continue;
    const DType dtype = *ParseDType(layer->dtype);
    bytes += RowBytes(dtype, int64_t{layer->heads} * (layer->k_dim + layer->v_dim));
  }
  return bytes;
}

namespace {

std::string CacheText(const plan::TargetT& target, plan::KvCache cache, const char* title,
                      const char* unit) {
  int layers = 0;
  std::string dtype = "none";
  for (const auto& layer : target.kv_layers) {
    if (layer->cache != cache) continue;
    ++layers;
    dtype = layer->dtype;
  }
  return absl::StrFormat("%s%s %s (%d layers, %s), pages of %d tokens\n", title,
                         BytesText(static_cast<double>(KvBytesPerToken(target, cache))), unit,
                         layers, dtype, target.page_tokens);
}

}  // namespace

std::string PlanSummary(const plan::PlanT& plan) {
  std::string text;
  const plan::ModelT& model = *plan.model;
  absl::StrAppendFormat(&text, "model      %s (%s), %s parameters, vocabulary %d", model.name,
                        model.architecture, CountText(static_cast<double>(model.parameters)),
                        model.vocabulary);
  if (model.max_positions > 0) absl::StrAppend(&text, ", up to ", model.max_positions, " tokens");
  absl::StrAppend(&text, "\n");
  std::map<std::string, uint64_t> by_dtype;
  uint64_t weight_bytes = 0;
  for (const auto& tensor : plan.tensors) {
    by_dtype[tensor->dtype] += tensor->bytes;
    weight_bytes += tensor->bytes;
  }
  absl::StrAppendFormat(
      &text, "weights    %d tensors, %s (%s) in %s\n", plan.tensors.size(),
      BytesText(static_cast<double>(weight_bytes)),
      absl::StrJoin(by_dtype, ", ",
                    [](std::string* out, const auto& entry) {
                      absl::StrAppend(out, entry.first, " ",
                                      BytesText(static_cast<double>(entry.second)));
                    }),
      absl::StrJoin(plan.files, ", ",
                    [](std::string* out, const auto& file) { out->append(file->path); }));
  for (const auto& target : plan.targets) {
    absl::StrAppendFormat(&text, "target     %s: %d kernels", target->name, target->kernels.size());
    for (const auto& program : target->programs) {
      absl::StrAppendFormat(&text, ", %d launches %s%s", program->launches.size(),
                            program->name == "step" ? "a step" : "to " + program->name,
                            program->every_step ? " in every step" : "");
    }
    absl::StrAppend(&text, ", values in ", target->activation.empty() ? "f32" : target->activation,
                    "\n");
    text += CacheText(*target, plan::KvCache::Self, "KV cache   ", "a token");
    if (KvBytesPerToken(*target, plan::KvCache::Cross) > 0) {
      text += CacheText(*target, plan::KvCache::Cross, "cross KV   ", "an encoder token");
    }
  }
  return text;
}

namespace {

// Whether an encoder reads ids; of states alone, a prompt is like any other.
bool ReadsSource(const plan::PlanT& plan) {
  for (const auto& target : plan.targets) {
    for (const auto& program : target->programs) {
      if (program->name != "encode") continue;
      for (const auto& argument : program->arguments) {
        if (argument->name == "ids") return true;
      }
    }
  }
  return false;
}

// "note       9 tensors of the checkpoint are not used: a, b, c, ..."
std::string UnusedText(const std::vector<std::string>& unused) {
  if (unused.empty()) return "";
  constexpr size_t kShown = 3;
  const auto end = unused.begin() + static_cast<ptrdiff_t>(std::min(unused.size(), kShown));
  return absl::StrCat("note       ", unused.size(),
                      unused.size() == 1 ? " tensor of the checkpoint is not used: "
                                         : " tensors of the checkpoint are not used: ",
                      absl::StrJoin(unused.begin(), end, ", "),
                      unused.size() > kShown ? ", ..." : "", "\n");
}

}  // namespace

std::string CompileSummary(const AssembledPlan& assembled, const std::string& path) {
  std::string text = PlanSummary(*assembled.plan);
  double total_ms = 0;
  std::string phases;
  for (const auto& [phase, ms] : assembled.phases) {
    absl::StrAppendFormat(&phases, "%s%s %.0f ms", phases.empty() ? "" : ", ", phase, ms);
    total_ms += ms;
  }
  absl::StrAppendFormat(&text, "time       %.0f ms (%s)\n", total_ms, phases);
  for (const auto& [target, reports] : assembled.reports) {
    absl::StrAppend(&text, "passes     ", assembled.reports.size() > 1 ? target + ": " : "",
                    FiredText(reports), "\n");
  }
  for (const std::string& note : assembled.left_out) {
    absl::StrAppend(&text, "left out   ", absl::StrReplaceAll(note, {{"\n", "\n           "}}),
                    "\n");
  }
  text += UnusedText(assembled.unused);
  for (const std::string& note : assembled.notes) absl::StrAppend(&text, "note       ", note, "\n");
  const bool reads_source = ReadsSource(*assembled.plan);
  const plan::GenerationT* generation = assembled.plan->generation.get();
  const bool begins_with_nothing =
      reads_source &&
      (generation == nullptr || (generation->decoder_start_id < 0 && generation->bos_id < 0));
  if (begins_with_nothing) {
    absl::StrAppend(&text, "note       the model has neither decoder_start_token_id nor ",
                    "bos_token_id: every run has to begin its output, by -p or --ids; or write ",
                    "the key into generation_config.json and compile again\n");
  }
  struct stat info = {};
  stat(path.c_str(), &info);
  absl::StrAppendFormat(&text, "wrote      %s (%s)\n", path,
                        BytesText(static_cast<double>(info.st_size)));
  const char* const input =
      assembled.plan->tokenizer != nullptr
          ? (reads_source ? "--source \"...\"" : "-p \"...\"")
          : (reads_source ? "--source-ids 1,2,3 --output=ids" : "--ids 1,2,3 --output=ids");
  absl::StrAppend(&text, "next       quire run ", path, " ", input,
                  begins_with_nothing ? " --ids 0" : "", "\n");
  return text;
}

}  // namespace quire
