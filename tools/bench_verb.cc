// quire bench: how fast a plan reads prompts and decodes on this machine.
//
// Prefill is a batch of prompts of random ids, up to the first token of each. Decode is a batch of
// sequences that generate a token a step, after prompts of --context tokens. Both through the
// engine, as `quire run` does it; medians over the repeats. Needed bytes of a decode step are the
// weights of its linear kernels once, and the keys and values of the mean context for each
// sequence.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/status.h"
#include "tools/cli.h"
#include "tools/progress.h"
#include "tools/read_bandwidth.h"
#include "tools/session.h"
#include "tools/summary.h"
#include "tools/table.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  SessionOptions session;
  int32_t prompt = 512, gen = 128, context = 1, repeat = 5, step_tokens = 512;
  std::vector<int32_t> batches = {1};
  std::string format = "text";
};

struct Result {
  int32_t batch = 0;
  std::vector<double> prefill_tokens_per_s, decode_tokens_per_s, step_ms, first_token_ms;
};

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto index = static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5);
  return values[index];
}

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// `batch` requests for `tokens` tokens each. The ids avoid the start of the vocabulary, where
// special tokens are.
absl::Status Submit(Engine& engine, const Session& session, int32_t batch, int32_t prompt,
                    int32_t tokens, std::mt19937* random) {
  const int32_t vocabulary = session.vocabulary();
  std::uniform_int_distribution<int32_t> any(vocabulary / 8, vocabulary - 1);
  for (int32_t i = 0; i < batch; ++i) {
    Request request;
    for (int32_t j = 0; j < prompt; ++j) request.ids.push_back(any(*random));
    request.max_tokens = tokens;
    request.ignore_eos = true;
    QUIRE_RETURN_IF_ERROR(engine.Submit(std::move(request)).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Engine>> NewEngine(const Options& options, const Session& session,
                                                  int32_t batch, int32_t tokens) {
  EngineOptions engine;
  engine.max_sequences = batch;
  engine.step_tokens = std::max(options.step_tokens, batch);
  const int32_t page = session.target->page_tokens;
  engine.cache_pages = batch * ((tokens + page - 1) / page + 1);
  engine.reuse_prefixes = false;
  return session.model->CreateEngine(engine);
}

absl::Status MeasurePrefill(const Options& options, const Session& session, std::mt19937* random,
                            Result* result) {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                         NewEngine(options, session, result->batch, options.prompt + 1));
  QUIRE_RETURN_IF_ERROR(Submit(*engine, session, result->batch, options.prompt, 1, random));
  const auto begin = Clock::now();
  std::vector<TokenEvent> events;  // one of each request
  while (!engine->idle()) {
    const size_t before = events.size();
    QUIRE_RETURN_IF_ERROR(engine->Step(&events));
    const double ms = SecondsSince(begin) * 1e3;
    result->first_token_ms.insert(result->first_token_ms.end(), events.size() - before, ms);
  }
  const double seconds = SecondsSince(begin);
  result->prefill_tokens_per_s.push_back(result->batch * static_cast<double>(options.prompt) /
                                         seconds);
  return absl::OkStatus();
}

absl::Status MeasureDecode(const Options& options, const Session& session, std::mt19937* random,
                           Result* result) {
  QUIRE_ASSIGN_OR_RETURN(
      std::unique_ptr<Engine> engine,
      NewEngine(options, session, result->batch, options.context + options.gen + 1));
  QUIRE_RETURN_IF_ERROR(
      Submit(*engine, session, result->batch, options.context, options.gen + 1, random));
  std::vector<TokenEvent> events;
  while (engine->counters().chosen_tokens < result->batch) {
    QUIRE_RETURN_IF_ERROR(engine->Step(&events));
  }
  const int64_t before = engine->counters().chosen_tokens;
  const auto begin = Clock::now();
  while (!engine->idle()) {
    const auto step = Clock::now();
    QUIRE_RETURN_IF_ERROR(engine->Step(&events));
    result->step_ms.push_back(SecondsSince(step) * 1e3);
  }
  const auto tokens = static_cast<double>(engine->counters().chosen_tokens - before);
  result->decode_tokens_per_s.push_back(tokens / SecondsSince(begin));
  return absl::OkStatus();
}

// Bytes of weights that one decode step cannot do without.
double LinearWeightBytes(const plan::TargetT& target) {
  absl::flat_hash_set<uint32_t> seen;
  double bytes = 0;
  for (const auto& program : target.programs) {
    for (const auto& launch : program->launches) {
      if (!absl::StartsWith(target.kernels[launch->kernel]->spec, "linear ")) continue;
      for (const plan::Operand& input : launch->inputs) {
        if (input.kind() != plan::OperandKind::Weight || !seen.insert(input.index()).second)
          continue;
        const plan::WeightSlotT& slot = *target.weights[input.index()];
        int64_t rows = 1;
        for (size_t i = 0; i + 1 < slot.extents.size(); ++i) rows *= slot.extents[i];
        const int64_t row_bytes = RowBytes(*ParseDType(slot.dtype), slot.extents.back());
        bytes += static_cast<double>(rows) * static_cast<double>(row_bytes);
      }
    }
  }
  return bytes;
}

struct Report {
  Table table{{"batch", "prefill_tokens_per_s", "decode_tokens_per_s", "decode_bandwidth_share",
               "first_token_ms_p50", "step_ms_p50", "step_ms_p90", "step_ms_p99"}};
  double bandwidth = 0;
};

void AddResult(const Options& options, const Session& session, const Result& result,
               Report* report) {
  const double decode = Percentile(result.decode_tokens_per_s, 0.5);
  const double context = options.context + options.gen / 2.0;
  const double kv_bytes = static_cast<double>(KvBytesPerToken(*session.target)) * context;
  const double step_bytes = LinearWeightBytes(*session.target) + kv_bytes * result.batch;
  const double share = step_bytes * decode / result.batch / report->bandwidth;
  report->table.AddRow({int64_t{result.batch}, Percentile(result.prefill_tokens_per_s, 0.5), decode,
                        share, Percentile(result.first_token_ms, 0.5),
                        Percentile(result.step_ms, 0.5), Percentile(result.step_ms, 0.9),
                        Percentile(result.step_ms, 0.99)});
}

void Print(const Options& options, const Session& session, int threads, const Report& report) {
  if (options.format == "json") {
    const nlohmann::ordered_json json = {{"plan", options.session.plan},
                                         {"device", session.model->info().device},
                                         {"threads", threads},
                                         {"prompt", options.prompt},
                                         {"gen", options.gen},
                                         {"context", options.context},
                                         {"repeat", options.repeat},
                                         {"read_bandwidth_bytes_per_s", report.bandwidth},
                                         {"results", report.table.Json()}};
    std::printf("%s\n", json.dump(2).c_str());
    return;
  }
  std::printf("%s; prompt %d, generated %d after %d, medians of %d; read bandwidth %s/s\n",
              session.model->info().device.c_str(), options.prompt, options.gen, options.context,
              options.repeat, BytesText(report.bandwidth).c_str());
  std::fputs(report.table.Text().c_str(), stdout);
}

absl::Status Bench(const Options& options) {
  Progress progress;
  progress.Show(absl::StrCat("loading ", options.session.plan, " ..."));
  QUIRE_ASSIGN_OR_RETURN(Session session, OpenSession(options.session));
  const int threads = options.session.model.threads > 0
                          ? options.session.model.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Report report;
  report.bandwidth = MeasureReadBandwidth(threads);
  for (const int32_t batch : options.batches) {
    Result result;
    result.batch = batch;
    std::mt19937 random(1);
    // One round that does not count: first touches of memory, page cache.
    Result warm_up = result;
    QUIRE_RETURN_IF_ERROR(MeasurePrefill(options, session, &random, &warm_up));
    for (int32_t round = 0; round < options.repeat; ++round) {
      progress.Show(absl::StrCat("batch ", batch, ", round ", round + 1, " of ", options.repeat));
      QUIRE_RETURN_IF_ERROR(MeasurePrefill(options, session, &random, &result));
      QUIRE_RETURN_IF_ERROR(MeasureDecode(options, session, &random, &result));
    }
    AddResult(options, session, result, &report);
  }
  progress.Clear();
  Print(options, session, threads, report);
  return absl::OkStatus();
}

}  // namespace

VerbMain AddBenchVerb(CLI::App* app) {
  auto options = std::make_shared<Options>();
  AddSessionOptions(app, &options->session);
  app->add_option("--prompt", options->prompt, "tokens of each prompt (512)")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--gen", options->gen, "tokens to decode (128)")->check(CLI::Range(1, 1 << 20));
  app->add_option("--context", options->context, "tokens before the decoded ones (1)")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--batch", options->batches, "sequences at a time: 1,8 (1)")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  app->add_option("--step-tokens", options->step_tokens, "tokens computed in one step (512)")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--repeat", options->repeat, "rounds; medians are printed (5)")
      ->check(CLI::Range(1, 1000));
  app->add_option("--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  return [options] {
    const absl::Status status = Bench(*options);
    return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
  };
}

}  // namespace quire
