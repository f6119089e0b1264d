// quire verify: does this plan compute, on this machine, what its definition means.
//
// Against the reference: logits of a short prompt in one step, and of some tokens after it, one
// step each, with the definition in double precision on the same weights; and with it, the lowered
// program in double precision, which must mean the same. And each launch of two steps beside the
// lowered program, by itself: what finds a wrong weight where 8-bit activations would hide it in
// the logits. Against itself: the same
// logits bit for bit when the prompt comes in pieces, or beside other sequences; on a CPU on
// another number of threads, on a GPU with kernels launched one by one. And the same tokens from an
// engine that has to take a request's pages away and compute it again.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ir/file.h"
#include "ir/status.h"
#include "runtime/engine.h"
#include "tools/cli.h"
#include "tools/progress.h"
#include "tools/session.h"
#include "tools/step_runner.h"
#include "tools/verify_input.h"
#include "tools/verify_launches.h"
#include "tools/verify_reference.h"

namespace quire {
namespace {

struct Options {
  SessionOptions session;
  VerifyInputOptions input;
  bool no_reference = false;
};

using Logits = std::vector<float>;  // [T, V], all tokens of one sequence

// One way to compute the logits of the input's ids.
struct Way {
  std::string name;
  std::function<absl::StatusOr<Logits>(const Model& model)> compute;
};

class Verifier {
 public:
  Verifier(const Options& options, const Session& session, ChosenInput input)
      : options_(options), session_(session), input_(std::move(input)) {}

  // False when something differs; what, is on stdout.
  absl::StatusOr<bool> Run() {
    QUIRE_ASSIGN_OR_RETURN(const Logits base, InPieces(*session_.model, {prompt_tokens()}));
    bool same = true;
    if (!options_.no_reference) {
      QUIRE_ASSIGN_OR_RETURN(same, CompareWithReference(base));
      QUIRE_ASSIGN_OR_RETURN(const bool launches_same, CompareLaunches());
      same &= launches_same;
    }
    for (const Way& way : Ways()) {
      QUIRE_ASSIGN_OR_RETURN(const Logits logits, way.compute(*session_.model));
      same &= CompareBits(way.name, base, logits);
    }
    QUIRE_ASSIGN_OR_RETURN(const bool opened_same, session_.target->name == "cpu"
                                                       ? CompareThreads(base)
                                                       : CompareEager(base));
    QUIRE_ASSIGN_OR_RETURN(const bool tokens_same, ComparePreempted());
    return same && opened_same && tokens_same;
  }

 private:
  std::vector<Way> Ways() const {
    std::vector<Way> ways = {
        {"prompt in pieces of 1, 2 and 5",
         [&](const Model& model) { return InPieces(model, {1, 2, 5}); }},
        {"prompt a token at a time", [&](const Model& model) { return InPieces(model, {1}); }}};
    for (const int32_t piece : {7, 64, 512}) {
      if (piece >= prompt_tokens()) break;
      ways.push_back({absl::StrCat("prompt in pieces of ", piece),
                      [this, piece](const Model& model) { return InPieces(model, {piece}); }});
    }
    // On a GPU enough for several buckets of rows (runtime/cuda/step_block.h).
    const std::vector<int32_t> crowds = session_.target->name == "cpu"
                                            ? std::vector<int32_t>{2, 7}
                                            : std::vector<int32_t>{2, 7, 31, 127};
    for (const int32_t others : crowds) {
      ways.push_back({absl::StrCat("beside ", others, " other sequences"),
                      [this, others](const Model& model) { return BesideOthers(model, others); }});
    }
    return ways;
  }

  int32_t prompt_tokens() const { return static_cast<int32_t>(ids_.size()) - options_.input.steps; }
  size_t V() const { return static_cast<size_t>(session_.vocabulary()); }

  absl::StatusOr<StepRunner> NewRunner(const Model& model, int32_t sequences,
                                       StepWatcher* watcher = nullptr) const {
    return StepRunner::Create(&model.program(),
                              {session_.vocabulary(), session_.target->page_tokens, sequences,
                               static_cast<int32_t>(ids_.size()), model.encoder(), input_.source,
                               *input_.states, watcher},
                              options_.input.seed + static_cast<uint32_t>(sequences));
  }

  // The prompt in pieces of these sizes, repeated; then a token a step.
  absl::StatusOr<Logits> InPieces(const Model& model, const std::vector<int32_t>& sizes) const {
    QUIRE_ASSIGN_OR_RETURN(StepRunner runner, NewRunner(model, 1));
    Logits all;
    size_t done = 0, piece = 0;
    while (done < ids_.size()) {
      const auto prompt = static_cast<size_t>(prompt_tokens());
      const auto wanted = static_cast<size_t>(sizes[piece++ % sizes.size()]);
      const size_t count = done < prompt ? std::min(wanted, prompt - done) : 1;
      const auto begin = ids_.begin() + static_cast<ptrdiff_t>(done);
      QUIRE_ASSIGN_OR_RETURN(
          Logits logits,
          runner.Append({std::vector<int32_t>(begin, begin + static_cast<ptrdiff_t>(count))}));
      all.insert(all.end(), logits.begin(), logits.end());
      done += count;
    }
    return all;
  }

  // Behind one sequence that has started earlier, and before others that start later, one after
  // another; all end when this one does.
  absl::StatusOr<Logits> BesideOthers(const Model& model, int32_t others) const {
    QUIRE_ASSIGN_OR_RETURN(StepRunner runner, NewRunner(model, others + 1));
    const auto sequences = static_cast<size_t>(others) + 1;
    std::vector<std::vector<int32_t>> parts(sequences);
    parts[0] = {ids_.back()};
    QUIRE_RETURN_IF_ERROR(runner.Append(parts).status());
    Logits all;
    for (size_t done = 0, step = 0; done < ids_.size(); ++step) {
      const size_t count = done == 0 ? static_cast<size_t>(prompt_tokens()) : 1;
      const auto begin = ids_.begin() + static_cast<ptrdiff_t>(done);
      // The neighbours' tokens are others than this sequence's, one each; none in the last step.
      const bool is_last = done + count == ids_.size();
      parts.assign(sequences, {});
      if (!is_last) parts[0] = {ids_.back()};
      parts[1].assign(begin, begin + static_cast<ptrdiff_t>(count));
      // Twice as many of them in every step.
      const size_t started = std::min(sequences - 2, (size_t{1} << std::min<size_t>(step, 20)) - 1);
      for (size_t s = 0; s < started && !is_last; ++s) parts[2 + s] = {ids_[s % ids_.size()]};
      QUIRE_ASSIGN_OR_RETURN(const Logits logits, runner.Append(parts));
      const auto from = logits.begin() + static_cast<ptrdiff_t>(is_last ? 0 : V());
      all.insert(all.end(), from, from + static_cast<ptrdiff_t>(count * V()));
      done += count;
    }
    return all;
  }

  absl::StatusOr<bool> CompareWithReference(const Logits& base) const {
    QUIRE_ASSIGN_OR_RETURN(
        const Reference reference,
        ComputeReference(session_.model->plan(), *session_.target, options_.session.plan,
                         options_.session.model.weights_dir,
                         {ids_, input_.source, *input_.states}));
    const bool lowered = reference.lowered_error <= reference.lowered_allowed;
    std::printf(
        "passes: %s: the lowered program beside the definition, both in double precision: relative "
        "error of the logits %.2e, allowed %.2e\n",
        lowered ? "ok" : "DIFFERS", reference.lowered_error, reference.lowered_allowed);
    const auto prompt = static_cast<size_t>(prompt_tokens());
    const bool prefill = CompareRows("prefill", base, reference, 0, prompt);
    const bool decode = CompareRows("decode", base, reference, prompt, ids_.size());
    return lowered && prefill && decode;
  }

  // A step of the whole prompt and one of a single token, launch by launch.
  absl::StatusOr<bool> CompareLaunches() const {
    const plan::PlanT& plan = session_.model->plan();
    const TensorFiles files(plan, FolderOf(options_.session.plan),
                            options_.session.model.weights_dir);
    QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<LaunchVerifier> verifier,
                           LaunchVerifier::Create(plan, *session_.target, files));
    const absl::Status run = RunWatched(*verifier);
    if (absl::IsUnimplemented(run)) {
      std::printf("launches: not compared: %s\n", std::string(run.message()).c_str());
      return true;
    }
    QUIRE_RETURN_IF_ERROR(run);
    for (const LaunchVerifier::Worst& off : verifier->different()) {
      std::printf(
          "launches: DIFFERS: %s: %zu of %zu elements; %s is %.9g, not %.9g: off by %.2e, "
          "allowed %.2e\n",
          off.launch.c_str(), off.different, off.elements, off.where.c_str(), off.got, off.expected,
          off.error, off.allowed);
    }
    const bool same = verifier->different_launches() == 0;
    const LaunchVerifier::Worst& worst = verifier->worst();
    std::printf(
        "launches: %s: %lld of %lld launches, %lld elements, beside the lowered program in double "
        "precision, each on what the launches before it left",
        same ? "ok" : "DIFFERS",
        static_cast<long long>(verifier->launches() - verifier->different_launches()),
        static_cast<long long>(verifier->launches()), static_cast<long long>(verifier->elements()));
    if (same) {
      std::printf("; worst: %s, %s is off by %.2e, allowed %.2e", worst.launch.c_str(),
                  worst.where.c_str(), worst.error, worst.allowed);
    }
    std::printf("\n");
    return same;
  }

  absl::Status RunWatched(LaunchVerifier& verifier) const {
    QUIRE_ASSIGN_OR_RETURN(StepRunner runner, NewRunner(*session_.model, 1, &verifier));
    const auto decoded = ids_.begin() + prompt_tokens();
    QUIRE_RETURN_IF_ERROR(runner.Append({std::vector<int32_t>(ids_.begin(), decoded)}).status());
    return runner.Append({std::vector<int32_t>(decoded, decoded + 1)}).status();
  }

  // Rows [begin, end) of both; the row that is printed is the worst beside what it may be.
  bool CompareRows(const char* phase, const Logits& base, const Reference& reference, size_t begin,
                   size_t end) const {
    double worst = -1, error_there = 0, allowed_there = 0;
    size_t same_choice = 0;
    for (size_t t = begin; t < end; ++t) {
      const auto row = absl::MakeConstSpan(base).subspan(t * V(), V());
      const auto expected = absl::MakeConstSpan(reference.logits.values).subspan(t * V(), V());
      const double error = RelativeError(row, expected);
      const double ratio = error / reference.allowed[t];
      if (std::isnan(ratio) || ratio > worst) {
        worst = std::isnan(ratio) ? INFINITY : ratio;
        error_there = error;
        allowed_there = reference.allowed[t];
      }
      same_choice += std::max_element(row.begin(), row.end()) - row.begin() ==
                     std::max_element(expected.begin(), expected.end()) - expected.begin();
    }
    const bool ok = error_there <= allowed_there;
    std::printf(
        "reference: %s: %s of %zu tokens: relative error of the logits %.2e, allowed %.2e; the "
        "most "
        "probable token is the same in %zu\n",
        ok ? "ok" : "DIFFERS", phase, end - begin, error_there, allowed_there, same_choice);
    return ok;
  }

  bool CompareBits(const std::string& name, const Logits& base, const Logits& other) const {
    size_t different = 0, first = base.size();
    for (size_t i = 0; i < base.size(); ++i) {
      if (std::memcmp(&base[i], &other[i], sizeof(float)) == 0) continue;
      first = std::min(first, i);
      ++different;
    }
    if (different == 0) {
      std::printf("same bits: ok: %s\n", name.c_str());
      return true;
    }
    std::printf(
        "same bits: DIFFERS: %s: %zu of %zu logits, first at position %zu, token %zu: %.9g, "
        "was %.9g\n",
        name.c_str(), different, base.size(), first / V(), first % V(), other[first], base[first]);
    return false;
  }

  absl::StatusOr<bool> CompareThreads(const Logits& base) const {
    bool same = true;
    for (const int threads : {1, 2, 3}) {
      SessionOptions options = options_.session;
      options.model.threads = threads;
      QUIRE_ASSIGN_OR_RETURN(Session session, OpenSession(options));
      QUIRE_ASSIGN_OR_RETURN(const Logits logits, InPieces(*session.model, {prompt_tokens()}));
      same &=
          CompareBits(absl::StrCat(threads, threads == 1 ? " thread" : " threads"), base, logits);
    }
    return same;
  }

  absl::StatusOr<bool> CompareEager(const Logits& base) const {
    SessionOptions options = options_.session;
    options.model.eager = !options.model.eager;
    QUIRE_ASSIGN_OR_RETURN(Session session, OpenSession(options));
    QUIRE_ASSIGN_OR_RETURN(const Logits logits, InPieces(*session.model, {prompt_tokens()}));
    return CompareBits(options.model.eager ? "kernels launched one by one" : "steps as graphs",
                       base, logits);
  }

  // Greedy tokens of two requests, by an engine with pages for both or for little more than one.
  absl::StatusOr<bool> ComparePreempted() const {
    std::vector<int32_t> tokens[2];
    int64_t preemptions = 0;
    const int32_t page = session_.target->page_tokens;
    // Of each request: three pages or more, so that two requests grow into each other.
    auto total = std::max(static_cast<int32_t>(ids_.size()), 3 * page);
    const int64_t most = session_.model->info().max_positions;
    if (most > 0) total = static_cast<int32_t>(std::min<int64_t>(total, most));
    const int32_t pages_of_one = (total + page - 1) / page;
    for (const int few : {0, 1}) {
      EngineOptions engine_options;
      engine_options.max_sequences = 2;
      engine_options.cache_pages = few == 1 ? pages_of_one + 1 : 2 * pages_of_one + 2;
      engine_options.reuse_prefixes = false;
      QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                             session_.model->CreateEngine(engine_options));
      for (const int32_t skip : {0, 1}) {
        Request request;
        request.ids.assign(ids_.begin() + skip,
                           ids_.begin() + std::max(skip + 1, prompt_tokens() / 2));
        request.max_tokens = total - static_cast<int32_t>(request.ids.size());
        request.add_special = false;
        request.ignore_eos = true;
        request.source_ids = input_.source;
        if (!input_.states->empty()) request.source_states = input_.states;
        QUIRE_RETURN_IF_ERROR(engine->Submit(std::move(request)).status());
      }
      std::vector<int32_t> first, second;
      QUIRE_RETURN_IF_ERROR(engine->Run([&](const TokenEvent& event) {
        (event.request == 1 ? first : second).push_back(event.token.id);
      }));
      tokens[few] = std::move(first);
      tokens[few].insert(tokens[few].end(), second.begin(), second.end());
      preemptions = engine->counters().preemptions;
    }
    const bool same = tokens[0] == tokens[1];
    std::printf("same tokens: %s: %zu of an engine that preempted %lld times\n",
                same ? "ok" : "DIFFERS", tokens[1].size(), static_cast<long long>(preemptions));
    return same;
  }

  const Options& options_;
  const Session& session_;
  const ChosenInput input_;
  const std::vector<int32_t>& ids_ = input_.ids;
};

absl::StatusOr<bool> Verify(const Options& options) {
  QUIRE_RETURN_IF_ERROR(CheckVerifyInput(options.input));
  Progress progress;
  progress.Show(absl::StrCat("loading ", options.session.plan, " ..."));
  QUIRE_ASSIGN_OR_RETURN(Session session, OpenSession(options.session));
  progress.Show("computing ...");
  QUIRE_ASSIGN_OR_RETURN(ChosenInput input, ChooseVerifyInput(options.input, session));
  return Verifier(options, session, std::move(input)).Run();
}

}  // namespace

VerbMain AddVerifyVerb(CLI::App* app) {
  auto options = std::make_shared<Options>();
  AddSessionOptions(app, &options->session);
  AddVerifyInputOptions(app, &options->input);
  app->add_flag("--no-reference", options->no_reference,
                "only the comparisons of the plan with itself: the reference is slow");
  return [options] {
    const std::string wrong = WrongSessionUsage(options->session);
    if (!wrong.empty()) return FailUsage(absl::StrCat("quire verify: ", wrong));
    const absl::StatusOr<bool> same = Verify(*options);
    if (!same.ok()) return Fail(same.status());
    if (*same) return static_cast<int>(kExitOk);
    std::fprintf(stderr, "error: %s: the plan does not compute what it should (above)\n",
                 options->session.plan.c_str());
    return static_cast<int>(kExitVerification);
  };
}

}  // namespace quire
