// quire run: prompts in, streamed continuations out.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "ir/status.h"
#include "runtime/device.h"
#include "runtime/engine.h"
#include "tools/cli.h"
#include "tools/progress.h"
#include "tools/run_options.h"
#include "tools/run_output.h"
#include "tools/run_prompts.h"
#include "tools/session.h"
#include "tools/summary.h"

namespace quire {
namespace {

// Of an output, where neither user nor model says it.
constexpr int32_t kDefaultTokens = 64;

BeamParams ChooseBeams(const RunOptions& options, const BeamParams& recommended,
                       const SamplingParams& sampling) {
  BeamParams beam = recommended;
  // Beams are not drawn.
  if (sampling.temperature != 0) beam.beams = 1;
  beam.beams = options.beams.value_or(beam.beams);
  beam.length_penalty = options.length_penalty.value_or(beam.length_penalty);
  if (options.early_stopping.has_value()) {
    beam.stop = *options.early_stopping == "true"    ? BeamParams::Stop::kEarly
                : *options.early_stopping == "never" ? BeamParams::Stop::kNever
                                                     : BeamParams::Stop::kUnlikely;
  }
  return beam;
}

// What the model's author recommends, with what the user asks for on top.
SamplingParams ChooseSampling(const RunOptions& options, const SamplingParams& recommended) {
  SamplingParams sampling = options.sampling;
  sampling.temperature = recommended.temperature;
  sampling.top_k = recommended.top_k;
  sampling.top_p = recommended.top_p;
  sampling.repetition_penalty = recommended.repetition_penalty;
  sampling.min_p = options.min_p.value_or(recommended.min_p);
  sampling.min_length = recommended.min_length;
  sampling.min_new_tokens = recommended.min_new_tokens;
  sampling.forced_bos = recommended.forced_bos;
  sampling.forced_eos = recommended.forced_eos;
  sampling.logit_bias = recommended.logit_bias;
  sampling.begin_suppressed = recommended.begin_suppressed;
  sampling.no_repeat_ngram = options.no_repeat_ngram.value_or(recommended.no_repeat_ngram);
  const bool filters = options.top_k || options.top_p || options.min_p.value_or(0) > 0;
  if (filters && sampling.temperature == 0) sampling.temperature = 1;
  sampling.temperature = options.temperature.value_or(sampling.temperature);
  sampling.top_k = options.top_k.value_or(sampling.top_k);
  sampling.top_p = options.top_p.value_or(sampling.top_p);
  sampling.repetition_penalty = options.repeat_penalty.value_or(sampling.repetition_penalty);
  const bool is_search = options.beams.value_or(1) > 1 && !options.temperature && !filters;
  if (options.greedy || is_search) sampling.temperature = 0;
  return sampling;
}

// As the user says; else as the model's author does, as far as it fits.
void SetLength(const RunOptions& options, const ModelInfo& info, Request* request) {
  request->max_tokens = options.max_tokens.value_or(0);
  request->max_length = info.max_length;
  const bool is_stated = info.default_tokens > 0 || info.max_length > 0;
  request->default_tokens = is_stated ? info.default_tokens : kDefaultTokens;
}

// A step with a row of a prompt works on prompts; any other decodes, of a search each beam.
struct Timing {
  int64_t prompt_tokens = 0, decoded_tokens = 0;
  double prefill_s = 0, decode_s = 0;

  void Add(const EngineCounters& before, const EngineCounters& after, double seconds) {
    const int64_t computed = after.computed_tokens - before.computed_tokens;
    if (after.prompt_tokens > before.prompt_tokens) {
      prompt_tokens += computed;
      prefill_s += seconds;
    } else {
      decoded_tokens += computed;
      decode_s += seconds;
    }
  }
  static double Rate(int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
  nlohmann::ordered_json Json(double load_ms) const {
    return {{"load_ms", load_ms},
            {"prompt_tokens", prompt_tokens},
            {"prompt_tokens_per_s", Rate(prompt_tokens, prefill_s)},
            {"decoded_tokens", decoded_tokens},
            {"decoded_tokens_per_s", Rate(decoded_tokens, decode_s)}};
  }
  std::string Text(double load_ms) const {
    return absl::StrFormat(
        "load %.0f ms; prompt %d tokens, %.1f tokens/s; generated %d tokens, %.1f tokens/s\n",
        load_ms, prompt_tokens, Rate(prompt_tokens, prefill_s), decoded_tokens,
        Rate(decoded_tokens, decode_s));
  }
};

absl::Status Generate(const Session& session, Engine& engine, RunOutput& output, Progress& progress,
                      Timing* timing) {
  absl::Status failed;
  std::vector<TokenEvent> events;
  while (!engine.idle()) {
    const EngineCounters before = engine.counters();
    const auto begin = std::chrono::steady_clock::now();
    events.clear();
    QUIRE_RETURN_IF_ERROR(engine.Step(&events));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    timing->Add(before, engine.counters(), taken.count());
    if (!events.empty()) progress.Clear();
    for (const TokenEvent& event : events) {
      output.Take(event);
      if (event.finish != FinishReason::kFailed || !failed.ok()) continue;
      failed = WithPrefix(NameRunFlags(session.ErrorOf(event)), output.LabelOf(event));
    }
  }
  return failed;
}

// All that has to change where the plan has no tokenizer.
absl::Status CheckTokenizer(const RunOptions& options) {
  std::vector<std::string> flags, fixes;
  const auto add = [&](absl::string_view flag, absl::string_view fix) {
    if (std::find(flags.begin(), flags.end(), flag) != flags.end()) return;
    flags.emplace_back(flag);
    if (std::find(fixes.begin(), fixes.end(), fix) == fixes.end()) fixes.emplace_back(fix);
  };
  for (const auto& [texts, names] :
       {std::pair(&options.sources, kSourceFlags), std::pair(&options.prompts, kPromptFlags)}) {
    for (const GivenText& text : *texts) {
      if (text.kind == GivenText::kIds) continue;
      add(names[text.kind], absl::StrCat("give ids by ", names[GivenText::kIds]));
    }
  }
  const bool prints_text = options.output == "text";
  if (!prints_text && flags.empty()) return absl::OkStatus();
  if (options.echo) add("--echo", "leave out --echo");
  if (!options.stop.empty()) add("--stop", "leave out --stop");
  if (prints_text) fixes.emplace_back("--output=ids");
  return WithLine(
      absl::InvalidArgumentError(
          flags.empty() ? "the plan has no tokenizer, so that there is no text to print"
                        : absl::StrCat(absl::StrJoin(flags, ", "), kTextNeedsTokenizer)),
      "fix", absl::StrJoin(fixes, "; "));
}

// What only the plan can tell of flags that would have no effect.
absl::Status CheckFlags(const RunOptions& options, const ModelInfo& info,
                        const SamplingParams& sampling, const BeamParams& beam) {
  const auto idle = [](const char* flag, const char* with) { return NoEffect("run", flag, with); };
  if (!options.sources.empty() && (!info.has_encoder || info.states_width > 0)) {
    return idle(kSourceFlags[options.sources[0].kind],
                "a model that has an encoder of tokens; any other reads a prompt");
  }
  if (!info.has_tokenizer) QUIRE_RETURN_IF_ERROR(CheckTokenizer(options));
  if (!options.source_states.empty() && info.states_width == 0) {
    return idle("--source-states", "a model that looks at states, such as mllama_text_model");
  }
  if (beam.beams == 1 && options.length_penalty)
    return idle("--length-penalty", "--beams=2 or more");
  if (beam.beams == 1 && options.early_stopping)
    return idle("--early-stopping", "--beams=2 or more");
  if (!options.stop.empty() && !info.has_tokenizer) {
    return idle("--stop", "a plan that has a tokenizer");
  }
  if (beam.beams > 1) {
    if (!options.stop.empty()) return idle("--stop", "--beams=1");
    if (options.samples > beam.beams) {
      return WithLine(UsageError(absl::StrCat("quire run: --samples=", options.samples, " of ",
                                              beam.beams, " beams")),
                      "allowed", absl::StrCat("1 .. ", beam.beams, ", or more --beams"));
    }
    if (options.sampling.top_logprobs > 0) return idle("--top-logprobs", "--beams=1");
    if (options.sampling.logprobs) return idle("--logprobs", "--beams=1");
    if (options.sampling.presence_penalty != 0) return idle("--presence-penalty", "--beams=1");
    if (options.sampling.frequency_penalty != 0) return idle("--frequency-penalty", "--beams=1");
  } else if (options.samples > 1 && sampling.temperature == 0) {
    return idle("--samples", "a --temperature above 0, or --beams: greedy ones are all the same");
  }
  const auto is_text = [](const GivenText& text) { return text.kind != GivenText::kIds; };
  const bool has_text = std::any_of(options.prompts.begin(), options.prompts.end(), is_text);
  if (options.no_special && !has_text && !info.has_encoder) {
    return idle("--no-special", "a text, or an encoder");
  }
  return absl::OkStatus();
}

// All pages that the engine has.
std::vector<MemoryUse> PageUses(const Session& session, const Engine& engine) {
  const EngineCounters counters = engine.counters();
  const std::string tokens = absl::StrCat(" pages of ", session.target->page_tokens, " tokens");
  std::vector<MemoryUse> uses = {{absl::StrCat(counters.total_pages, tokens),
                                  counters.total_pages * session.model->program().page_bytes()}};
  if (const Program* encoder = session.model->encoder(); encoder != nullptr) {
    uses.push_back({absl::StrCat(counters.total_encoder_pages, tokens, " of encoders"),
                    counters.total_encoder_pages * encoder->page_bytes()});
  }
  return uses;
}

void PrintMemory(const Session& session, const Engine& engine) {
  const Program& program = session.model->program();
  std::vector<MemoryUse> uses = program.Memory();
  for (MemoryUse& use : PageUses(session, engine)) uses.push_back(std::move(use));
  std::fprintf(stderr, "%s\n", session.model->info().device.c_str());
  const KernelUse kernels = program.Kernels();
  if (kernels.in_plan + kernels.in_cache + kernels.compiled > 0) {
    std::fprintf(stderr, "  kernels: %d in the plan, %d in the cache, %d compiled; %.0f ms\n",
                 kernels.in_plan, kernels.in_cache, kernels.compiled, kernels.ms);
  }
  if (kernels.by_library > 0) {
    std::fprintf(stderr, "  kernels of linears whose many rows cuBLASLt multiplies: %d\n",
                 kernels.by_library);
  }
  for (const MemoryUse& use : uses) {
    if (use.bytes == 0) continue;
    std::fprintf(stderr, "  %-32s %s\n", use.what.c_str(),
                 BytesText(static_cast<double>(use.bytes)).c_str());
  }
}

int64_t CacheBytes(const Session& session, const Engine& engine) {
  int64_t bytes = 0;
  for (const MemoryUse& use : PageUses(session, engine)) bytes += use.bytes;
  return bytes;
}

// What --echo prints: the prompt, which the continuation follows, or else the source, on lines of
// its own.
absl::StatusOr<std::string> Lead(const Model& model, const Request& request) {
  if (!request.ids.empty()) return model.Decode(request.ids);
  if (!request.text.empty()) return request.text;
  std::string source = request.source;
  if (!request.source_ids.empty()) {
    QUIRE_ASSIGN_OR_RETURN(source, model.Decode(request.source_ids));
  }
  return source.empty() ? source : source + "\n";
}

absl::Status Run(RunOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<Prompt> prompts, Prompts(options));
  Progress progress;
  progress.Show(absl::StrCat("loading ", options.session.plan, " ..."));
  QUIRE_ASSIGN_OR_RETURN(Session session, OpenSession(options.session));
  const ModelInfo& info = session.model->info();
  const SamplingParams sampling = ChooseSampling(options, info.sampling);
  const BeamParams beam = ChooseBeams(options, info.beam, sampling);
  QUIRE_RETURN_IF_ERROR(CheckFlags(options, info, sampling, beam));
  QUIRE_RETURN_IF_ERROR(AddStates(options, info.states_width, &prompts));
  if (beam.beams > 1 && !info.stop.empty() && !options.ignore_eos) {
    progress.Clear();
    std::fputs("note: the model's stop strings do not end beams\n", stderr);
  }
  options.engine.max_sequences = std::max({options.engine.max_sequences, beam.beams,
                                           static_cast<int32_t>(prompts.size()) * options.samples});
  absl::StatusOr<std::unique_ptr<Engine>> engine = session.model->CreateEngine(options.engine);
  if (!engine.ok()) return NameRunFlags(engine.status());
  progress.Clear();
  if (options.verbose) PrintMemory(session, **engine);
  RunOutput output(options.output == "text"  ? RunFormat::kText
                   : options.output == "ids" ? RunFormat::kIds
                                             : RunFormat::kJson,
                   sampling.logprobs);
  for (Prompt& prompt : prompts) {
    Request& request = prompt.request;
    request.add_special = !options.no_special;
    SetLength(options, info, &request);
    request.beam = beam;
    request.samples = options.samples;
    request.sampling = sampling;
    request.stop = options.stop;
    request.ignore_eos = options.ignore_eos;
    std::string lead;
    if (options.echo) {
      QUIRE_ASSIGN_OR_RETURN(lead, Lead(*session.model, request));
    }
    const absl::StatusOr<RequestId> id = (*engine)->Submit(std::move(request));
    if (!id.ok()) {
      const absl::Status named = WithPrefix(NameRunFlags(id.status()), prompt.label);
      if (!absl::IsResourceExhausted(named)) return named;
      const int64_t asked = options.engine.cache_bytes;
      const int64_t bytes = asked > 0 ? asked : CacheBytes(session, **engine);
      return WithLine(named, "now", absl::StrCat("--memory=", bytes));
    }
    output.Add(*id, options.samples, prompt.label, lead);
  }
  progress.Show("reading the prompt ...");
  Timing timing;
  const absl::Status status = Generate(session, **engine, output, progress, &timing);
  output.Finish(timing.Json(session.load_ms));
  if (!options.quiet) std::fputs(timing.Text(session.load_ms).c_str(), stderr);
  return status;
}

}  // namespace

VerbMain AddRunVerb(CLI::App* app) {
  auto options = std::make_shared<RunOptions>();
  AddRunOptions(app, options.get());
  return [options, app] {
    const std::string wrong = WrongRunUsage(*app, *options);
    if (!wrong.empty()) return FailUsage(absl::StrCat("quire run: ", wrong));
    if (options->sampling.top_logprobs > 0) options->sampling.logprobs = true;
    const absl::Status status = Run(*options);
    return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
  };
}

}  // namespace quire
