// quire bench: how fast a plan reads prompts and decodes on a device.
//
// Batches of requests of random ids: each round reads --prompt tokens and generates --gen. The
// time of steps is that of those without prompts. Bandwidth is measured by the same run: of the
// CPU's reads, of the GPU's copies; the share of it is that of the bytes that a decode step needs.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "runtime/device.h"
#include "tools/bench_measure.h"
#include "tools/cli.h"
#include "tools/copy_bandwidth.h"
#include "tools/progress.h"
#include "tools/read_bandwidth.h"
#include "tools/session.h"
#include "tools/summary.h"
#include "tools/table.h"

namespace quire {
namespace {

struct Options {
  SessionOptions session;
  BenchShape shape;
  int32_t repeat = 5;
  std::vector<int32_t> batches = {1};
  std::string format = "text";
  bool has_prompt = false, has_source = false, has_gen = false;  // given
};

struct Report {
  Table table{{"batch", "prefill_tokens_per_s", "decode_tokens_per_s", "decode_bandwidth_share",
               "latency_ms_p50", "first_token_ms_p50", "first_token_ms_p90", "first_token_ms_p99",
               "step_ms_p50", "step_ms_p90", "step_ms_p99", "needed_bytes"}};
  std::string bandwidth_of;
  double bandwidth = 0;
};

absl::Status TooLong(absl::string_view what, int64_t positions, absl::string_view fix) {
  return WithLine(absl::InvalidArgumentError(
                      absl::StrCat(what, " too long, ", positions, " positions are defined")),
                  "fix", fix);
}

// Of a length that is given and does not fit beside the other; a context's tokens are followed by
// one more than is measured.
absl::Status PromptTooLong(const Options& given, const BenchShape& shape, int64_t positions) {
  const bool by_context = shape.context >= shape.prompt;
  const int64_t read = by_context ? shape.context : shape.prompt, gen = shape.gen;
  const int64_t both = by_context ? positions : positions + 1;
  const std::string name = by_context ? "--context=" : "--prompt=";
  const bool has_read = by_context || given.has_prompt;
  std::vector<std::string> what, fixes;
  if (has_read) what.push_back(absl::StrCat(name, read));
  if (given.has_gen) what.push_back(absl::StrCat("--gen=", gen));
  if (has_read && gen < both) fixes.push_back(absl::StrCat(name, both - gen));
  if (given.has_gen && read < both) fixes.push_back(absl::StrCat("--gen=", both - read));
  if (fixes.empty()) fixes.push_back(absl::StrCat(name, both - 1, " --gen=1"));
  if (fixes.size() == 1) fixes.push_back("less");
  return TooLong(absl::StrCat(absl::StrJoin(what, " and "), what.size() > 1 ? " are" : " is"),
                 positions, absl::StrJoin(fixes, ", or "));
}

// Shortens the lengths that were not given to what the model has positions for.
absl::Status FitLengths(const ModelInfo& model, const Options& given, BenchShape* shape) {
  const auto positions_of = [](int64_t most) {
    return most > 0 ? most : int64_t{std::numeric_limits<int32_t>::max()};
  };
  const auto shorten = [](int64_t most, int32_t* length) {
    *length = static_cast<int32_t>(std::clamp<int64_t>(most, 1, *length));
  };
  const int64_t source_positions = positions_of(model.max_source);
  if (!model.has_encoder) shape->sources = {0};
  for (int32_t& source : shape->sources) {
    if (source > source_positions && given.has_source) {
      return TooLong(absl::StrCat("--source=", source, " is"), source_positions,
                     absl::StrCat("--source=", source_positions, ", or less"));
    }
    if (model.has_encoder) shorten(source_positions, &source);
  }

  // The last token that is generated takes no position.
  const int64_t positions = positions_of(model.max_positions);
  const int64_t context = shape->context > 0 ? shape->context + int64_t{1} : 0;
  const int64_t read = std::max<int64_t>(given.has_prompt ? shape->prompt : 0, context);
  if (!given.has_gen) shorten(read > 0 ? positions + 1 - read : positions / 4, &shape->gen);
  if (!given.has_prompt) shorten(positions + 1 - shape->gen, &shape->prompt);
  const int64_t most = std::max<int64_t>(shape->prompt, context) + shape->gen - 1;
  return most <= positions ? absl::OkStatus() : PromptTooLong(given, *shape, positions);
}

void AddResult(const BenchShape& shape, const Session& session, const BenchSamples& samples,
               Report* report) {
  const double decode = Percentile(samples.decode_tokens_per_s, 0.5);
  const double needed = NeededBytes(*session.target, shape);
  const double share = needed * decode / shape.batch / report->bandwidth;
  std::vector<Table::Cell> row = {int64_t{shape.batch},
                                  Percentile(samples.prefill_tokens_per_s, 0.5), decode, share,
                                  Percentile(samples.latency_ms, 0.5)};
  for (const auto* values : {&samples.first_token_ms, &samples.step_ms}) {
    for (const double part : {0.5, 0.9, 0.99}) row.push_back(Percentile(*values, part));
  }
  row.push_back(static_cast<int64_t>(needed));
  report->table.AddRow(std::move(row));
}

void Print(const Options& options, const BenchShape& shape, const Session& session,
           const Report& report) {
  if (options.format == "json") {
    const KernelUse kernels = session.model->program().Kernels();
    const nlohmann::ordered_json json = {
        {"plan", options.session.plan},
        {"device", session.model->info().device},
        {"prompt", shape.prompt},
        {"source", shape.sources.size() == 1 ? nlohmann::ordered_json(shape.sources[0])
                                             : nlohmann::ordered_json(shape.sources)},
        {"gen", shape.gen},
        {"context", shape.context},
        {"step_tokens", shape.step_tokens},
        {"repeat", options.repeat},
        {"load_ms", session.load_ms},
        {"kernels",
         {{"in_plan", kernels.in_plan},
          {"in_cache", kernels.in_cache},
          {"compiled", kernels.compiled},
          {"ms", kernels.ms}}},
        {absl::StrCat(report.bandwidth_of, "_bandwidth_bytes_per_s"), report.bandwidth},
        {"results", report.table.Json()}};
    std::printf("%s\n", json.dump(2).c_str());
    return;
  }
  const std::string context =
      shape.context > 0 ? absl::StrCat(", decoding after ", shape.context) : "";
  std::printf("%s; prompt %d, generated %d%s, %d rounds; %s bandwidth %s/s\n",
              session.model->info().device.c_str(), shape.prompt, shape.gen, context.c_str(),
              options.repeat, report.bandwidth_of.c_str(), BytesText(report.bandwidth).c_str());
  std::fputs(report.table.Text().c_str(), stdout);
}

absl::Status Bench(const Options& options) {
  Progress progress;
  Report report;
  progress.Show(absl::StrCat("loading ", options.session.plan, " ..."));
  QUIRE_ASSIGN_OR_RETURN(Session session, OpenSession(options.session));
  if (options.has_source && !session.model->info().has_encoder) {
    return NoEffect("bench", "--source", "a model that has an encoder");
  }
  BenchShape shape = options.shape;
  QUIRE_RETURN_IF_ERROR(FitLengths(session.model->info(), options, &shape));
  progress.Show("measuring the bandwidth ...");
  if (session.target->name == "cpu") {
    report.bandwidth_of = "read";
    report.bandwidth = MeasureReadBandwidth(options.session.model.threads);
  } else {
    report.bandwidth_of = "copy";
    QUIRE_ASSIGN_OR_RETURN(report.bandwidth, MeasureCopyBandwidth());
  }
  for (const int32_t batch : options.batches) {
    shape.batch = batch;
    BenchSamples samples;
    std::mt19937 random(1);
    QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, CreateBenchEngine(session, shape));
    // One round that does not count: first touches of memory, page cache, graphs.
    for (int32_t round = 0; round <= options.repeat; ++round) {
      progress.Show(absl::StrCat("batch ", batch, ", round ", round, " of ", options.repeat));
      if (round == 1) samples = BenchSamples();
      QUIRE_RETURN_IF_ERROR(MeasureRound(session, shape, *engine, &random, &samples));
    }
    AddResult(shape, session, samples, &report);
  }
  progress.Clear();
  Print(options, shape, session, report);
  return absl::OkStatus();
}

}  // namespace

VerbMain AddBenchVerb(CLI::App* app) {
  auto options = std::make_shared<Options>();
  AddSessionOptions(app, &options->session);
  BenchShape& shape = options->shape;
  CLI::Option* prompt = app->add_option("--prompt", shape.prompt,
                                        "tokens of each prompt (512, or as many as fit the model)")
                            ->check(CLI::Range(1, 1 << 20));
  CLI::Option* source =
      AddWholes(app, "--source", &shape.sources,
                "tokens of each encoder input, if there is one; several: of inputs in turn "
                "(128, or as many as fit)",
                1, 1 << 20);
  CLI::Option* gen =
      app->add_option("--gen", shape.gen, "tokens to generate after each (128, or as many as fit)")
          ->check(CLI::Range(1, 1 << 20));
  app->add_option("--context", shape.context,
                  "measure decoding after so many tokens instead; 0: after the prompt (0)")
      ->check(CLI::Range(0, 1 << 20));
  AddWholes(app, "--batch", &options->batches, "sequences at a time: 1,8 (1)", 1, 4096);
  app->add_option("--step-tokens", shape.step_tokens, "tokens computed in one step (512)")
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--repeat", options->repeat, "rounds; medians are printed (5)")
      ->check(CLI::Range(1, 1000));
  app->add_option("--format", options->format, "text or json")->check(OneOf({"text", "json"}));
  return [options, prompt, source, gen] {
    options->has_prompt = prompt->count() > 0;
    options->has_gen = gen->count() > 0;
    options->has_source = source->count() > 0;
    const std::string wrong = WrongSessionUsage(options->session);
    if (!wrong.empty()) return FailUsage(absl::StrCat("quire bench: ", wrong));
    const absl::Status status = Bench(*options);
    return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
  };
}

}  // namespace quire
