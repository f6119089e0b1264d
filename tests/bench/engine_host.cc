// What the host does in a step of an engine, beside which a device's time stands: programs that
// return at once, and CUDA programs on a GPU of host memory whose kernels do nothing.
//
//   bench_engine_host [ROUNDS [NAME...]]    of the cases whose names contain one of these
//
// A line is one case: the steps in which every sequence got a token, microseconds of them by
// percentiles and nanoseconds a sequence; the steps before them, the one that ends them all, and
// handing the requests over, in microseconds. The fastest of each is least disturbed by others.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "ir/status.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/engine.h"
#include "runtime/sampler.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/weights.h"
#include "tests/runtime/cuda_plan.h"
#include "tests/runtime/fake_gpu.h"
#include "tests/runtime/fake_kernels.h"

namespace quire::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kPageTokens = 16;
constexpr int32_t kChosen = 79;  // tokens that greatest logits are of

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}
void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

class IdlePool : public PagePool {
 public:
  explicit IdlePool(int32_t pages) : pages_(pages) {}
  int32_t page_count() const override { return pages_; }
  int64_t page_bytes() const override { return 65536; }
  absl::Status CopyPage(int32_t, int32_t) override { return absl::OkStatus(); }

 private:
  int32_t pages_;
};

class IdleProgram : public Program {
 public:
  int64_t page_bytes() const override { return 65536; }
  absl::StatusOr<std::unique_ptr<PagePool>> CreatePool(int32_t pages) override {
    return std::make_unique<IdlePool>(pages);
  }
  bool finds_greatest() const override { return true; }
  absl::Status RunGreedy(const Step&, PagePool&, absl::Span<GreatestLogit> greatest) override {
    // Tokens that do not repeat soon.
    steps_ = (steps_ + 1) % kChosen;
    std::fill(greatest.begin(), greatest.end(), GreatestLogit{8 + steps_ * 11 % kChosen, 1, 1});
    return absl::OkStatus();
  }
  absl::Status ReadLogits(size_t, absl::Span<float> logits) override {
    std::iota(logits.begin(), logits.end(), 1.0f);
    return absl::OkStatus();
  }
  // Logits as they are of models: normal, whose greatest is far from most. Memory that has them
  // stays as it is.
  absl::Status Run(const Step&, PagePool&, absl::Span<float> logits) override {
    if (logits.size() <= 1 || (logits.front() != 0 && logits.back() != 0)) return absl::OkStatus();
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3);
    for (float& logit : logits) logit = normal(random);
    return absl::OkStatus();
  }

 private:
  int32_t steps_ = 0;
};

struct Case {
  std::string name;
  int32_t sequences = 1;
  int32_t least_prompt = 1, most_prompt = 1, source = 0, gen = 100;
  int32_t vocabulary = 32000;
  std::function<void(Request*)> change = [](Request*) {};
  bool has_text = false;
  // Sequences get a token in each step while one more, of the longest prompt, is read.
  bool reads_more = false;
};

struct Times {
  std::vector<double> submit, first, steps, last;
};

// One batch from its submission to its end.
void Measure(const Case& one, const EngineModel& model, Times* times) {
  EngineOptions options;
  options.max_sequences = 2 * one.sequences + 2;
  options.step_tokens = 8192;
  options.cache_pages = options.max_sequences * ((one.most_prompt + one.gen) / kPageTokens + 2);
  options.encoder_pages = options.max_sequences * (one.source / kPageTokens + 1);
  const std::unique_ptr<Engine> engine = OrDie(Engine::Create(model, options));
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> any(8, std::min(one.vocabulary, 96) - 1);
  const auto request = [&](int32_t prompt) {
    Request made;
    made.add_special = false;
    for (int32_t j = 0; j < prompt; ++j) made.ids.push_back(any(random));
    for (int32_t j = 0; j < one.source; ++j) made.source_ids.push_back(any(random));
    made.max_tokens = one.gen;
    made.ignore_eos = true;
    one.change(&made);
    return made;
  };
  std::vector<Request> requests;
  for (int32_t i = 0; i < one.sequences; ++i) {
    requests.push_back(
        request(one.least_prompt + (one.most_prompt - one.least_prompt) * i / one.sequences));
  }
  auto begin = Clock::now();
  for (Request& submitted : requests) OrDie(engine->Submit(std::move(submitted)).status());
  times->submit.push_back(MicrosecondsSince(begin));
  std::vector<TokenEvent> events;
  double first = 0;
  int64_t computed = 0;
  while (!engine->idle()) {
    if (one.reads_more && first > 0 && engine->counters().running_sequences >= one.sequences) {
      Request more = request(one.most_prompt);
      more.max_tokens = 1;
      OrDie(engine->Submit(std::move(more)).status());
    }
    begin = Clock::now();
    events.clear();
    OrDie(engine->Step(&events));
    const double microseconds = MicrosecondsSince(begin);
    for (const TokenEvent& event : events) {
      if (event.finish == FinishReason::kFailed) OrDie(absl::InternalError(event.error));
    }
    const EngineCounters counters = engine->counters();
    const int64_t rows =
        counters.computed_tokens - std::exchange(computed, counters.computed_tokens);
    const bool is_prompt = rows > counters.running_sequences && !engine->idle();
    if (engine->idle()) {
      times->last.push_back(microseconds);
    } else if (first == 0 || (is_prompt && !one.reads_more)) {
      first += microseconds;
    } else if (!one.reads_more || is_prompt) {
      times->steps.push_back(microseconds);
    }
  }
  times->first.push_back(first);
}

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

void Print(const Case& one, const char* program, int32_t sequences, const Times& times) {
  const double least = Percentile(times.steps, 0);
  std::printf("%-34s %-5s %8.1f %8.1f %8.1f %8.1f %8.0f %9.0f %8.0f %8.0f\n", one.name.c_str(),
              program, least, Percentile(times.steps, 0.1), Percentile(times.steps, 0.5),
              Percentile(times.steps, 0.9), 1e3 * least / sequences, Percentile(times.first, 0),
              Percentile(times.last, 0), Percentile(times.submit, 0));
  std::fflush(stdout);
}

std::vector<Case> Cases() {
  const auto sampled = [](Request* request) {
    request->sampling.temperature = 0.8f;
    request->sampling.top_p = 0.9f;
    request->sampling.top_k = 50;
  };
  const auto logprobs = [](Request* request) {
    request->sampling.logprobs = true;
    request->sampling.top_logprobs = 5;
  };
  const auto beams = [](Request* request) { request->beam.beams = 4; };
  // As BART's own summaries are made, but of less length.
  const auto rules = [](Request* request) {
    request->sampling.no_repeat_ngram = 3;
    request->sampling.min_length = 12;
    request->sampling.forced_bos = 9;
    request->sampling.forced_eos = 2;
  };
  return {{"945 encoder-decoder", 945, 1, 1, 209, 19, 50265},
          {"945 encoder-decoder, rules", 945, 1, 1, 209, 19, 50265, rules},
          {"128 of 512..1024", 128, 512, 1024},
          {"32 of 512", 32, 512, 512},
          {"8 of 512", 8, 512, 512},
          {"1 of 512", 1, 512, 512},
          {"64 of 512, one more read", 64, 512, 512, 0, 40, 32000, [](Request*) {}, false, true},
          {"945 encoder-decoder, text", 945, 1, 1, 209, 19, 400, [](Request*) {}, true},
          {"32 of 512, text", 32, 512, 512, 0, 100, 400, [](Request*) {}, true},
          {"32 of 512, sampled", 32, 512, 512, 0, 20, 32000, sampled},
          {"32 of 512, log-probabilities", 32, 512, 512, 0, 20, 32000, logprobs},
          {"8 of 512, 4 beams", 8, 512, 512, 0, 20, 32000, beams},
          {"236 encoder-decoder, 4 beams", 236, 1, 1, 209, 19, 100, beams}};
}

// Programs of a plan for CUDA. Only what finds the greatest logits runs.
struct FakeCuda {
  explicit FakeCuda(const std::string& fixture) : plan(fixture, kPageTokens) {
    gpu.total_bytes = size_t{8} << 30;
    gpu.arguments_of = testing::ArgumentsOf;
    gpu.on_launch = [](const testing::FakeLaunch& launch) {
      auto* greatest = reinterpret_cast<GreatestLogit*>(launch.arguments[1]);
      std::fill(greatest, greatest + launch.grid, GreatestLogit{8, 1, 1});
    };
    driver = gpu.driver();
    driver.LaunchKernelEx = [](const CuLaunchConfig* config, CuFunction function, void** parameters,
                               void** extra) -> CuResult {
      const auto* launched = reinterpret_cast<const testing::FakeFunction*>(function);
      if (launched->entry != "greatest") return 0;
      return current->gpu.driver().LaunchKernelEx(config, function, parameters, extra);
    };
    current = this;
    DeviceOptions options;
    options.kernel_cache_dir = "none";
    options.jit = JitPolicy::kNever;
    device = OrDie(CudaDevice::Create(driver, options, []() -> absl::StatusOr<const CudaBlas*> {
      return absl::UnavailableError("nothing is multiplied here");
    }));
    program = OrDie(device->Load(plan.target(), "step", *OpenWeights(plan.file())));
    if (plan.target().programs.size() > 1) {
      encoder = OrDie(device->Load(plan.target(), "encode", *OpenWeights(plan.file())));
    }
  }

  static inline FakeCuda* current = nullptr;
  testing::CudaPlan plan;
  testing::FakeGpu gpu;
  CudaDriver driver;
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<Program> program, encoder;
};

void Run(int rounds, const std::vector<std::string>& names) {
  AssembleOptions story;
  story.model = QUIRE_DEMO_MODEL;
  story.plan_path = "story.qplan";
  const AssembledPlan assembled = OrDie(AssemblePlan(story));
  const Tokenizer tokenizer = OrDie(Tokenizer::Create(*assembled.plan->tokenizer));
  std::printf("%-34s %-5s %8s %8s %8s %8s %8s %9s %8s %8s\n", "", "", "least", "p10", "p50", "p90",
              "ns/seq", "first", "last", "submit");
  for (const Case& one : Cases()) {
    const bool is_wanted =
        names.empty() || std::any_of(names.begin(), names.end(),
                                     [&](auto& name) { return absl::StrContains(one.name, name); });
    if (!is_wanted) continue;
    EngineModel model;
    model.page_tokens = kPageTokens;
    model.decoder_start_id = one.source > 0 ? 2 : -1;
    if (one.has_text) model.tokenizer = &tokenizer;
    Request shape;
    one.change(&shape);
    const int32_t sequences = one.sequences * shape.beam.beams;
    const auto measure = [&](const char* name) {
      Times times;
      for (int i = 0; i < rounds; ++i) Measure(one, model, &times);
      Print(one, name, sequences, times);
    };
    IdleProgram program, encoder;
    model.vocabulary = one.vocabulary;
    model.program = &program;
    if (one.source > 0) model.encoder = &encoder;
    measure("idle");
    // What is chosen on the host is chosen of nothing there.
    if (!IsGreedy(shape.sampling) || shape.beam.beams > 1) continue;
    FakeCuda cuda(one.source > 0 ? "t5" : "llama_gqa_tied");
    model.vocabulary = 96;
    model.program = cuda.program.get();
    model.encoder = cuda.encoder.get();
    measure("cuda");
  }
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  quire::bench::Run(rounds, {argv + std::min(argc, 2), argv + argc});
  return 0;
}
