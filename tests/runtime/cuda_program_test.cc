// The CUDA device from a plan to logits, on a GPU of host memory whose kernels are computed by the
// reference interpreter: what is bound, padded, copied, captured and freed.
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/step_block.h"
#include "runtime/weights.h"
#include "tests/parity/fixture.h"
#include "tests/runtime/cuda_plan.h"
#include "tests/runtime/fake_blas.h"
#include "tests/runtime/fake_gpu.h"
#include "tests/runtime/fake_kernels.h"

namespace quire {
namespace {

using testing::CudaPlan;
using testing::FakeBlas;
using testing::FakeGpu;
using testing::FakeKernels;
using testing::Fixture;
using ::testing::HasSubstr;

const CudaPlan& LlamaPlan() {
  static const auto& plan = *new CudaPlan("llama_gqa_tied");
  return plan;
}

struct Rig {
  explicit Rig(const CudaPlan& cuda_plan = LlamaPlan(), bool eager = false) : plan(cuda_plan) {
    gpu.arguments_of = testing::ArgumentsOf;
    gpu.on_launch = FakeKernels::Run;
    options.eager = eager;
    options.kernel_cache_dir = "none";
    options.jit = JitPolicy::kNever;
  }

  absl::Status Load() {
    QUIRE_ASSIGN_OR_RETURN(device, CudaDevice::Create(gpu.driver(), options, &FakeBlas::Open));
    QUIRE_ASSIGN_OR_RETURN(program, device->Load(plan.target(), "step", *OpenWeights(plan.file())));
    return absl::OkStatus();
  }

  const CudaPlan& plan;
  DeviceOptions options;
  FakeGpu gpu;
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<Program> program;
};

// Sequences of one pool, whose pages are dealt from its end in turns.
class Sequences {
 public:
  Sequences(Program* program, const Fixture& fixture, int page_tokens, size_t count,
            int32_t max_tokens)
      : program_(program), vocabulary_(static_cast<size_t>(fixture.vocab_size)), tables_(count) {
    const int32_t pages = (max_tokens + page_tokens - 1) / page_tokens;
    auto pool = program->CreatePool(pages * static_cast<int32_t>(count));
    EXPECT_TRUE(pool.ok()) << pool.status();
    pool_ = std::move(pool).value();
    int32_t next = pool_->page_count();
    for (int32_t i = 0; i < pages; ++i) {
      for (auto& table : tables_) table.push_back(--next);
    }
    done_.resize(count);
  }

  // Appends parts[s] to sequence s. Logits of all rows.
  absl::StatusOr<std::vector<float>> Append(const std::vector<std::vector<int32_t>>& parts) {
    Prepare(parts);
    std::vector<float> logits(ids_.size() * vocabulary_);
    QUIRE_RETURN_IF_ERROR(program_->Run(step(), *pool_, absl::MakeSpan(logits)));
    return logits;
  }
  absl::StatusOr<std::vector<GreatestLogit>> AppendGreedily(
      const std::vector<std::vector<int32_t>>& parts) {
    Prepare(parts);
    std::vector<GreatestLogit> greatest(ids_.size());
    QUIRE_RETURN_IF_ERROR(program_->RunGreedy(step(), *pool_, absl::MakeSpan(greatest)));
    return greatest;
  }
  // Appends to the only sequence, launch by launch.
  absl::Status Watch(const std::vector<int32_t>& part, absl::Span<float> logits,
                     LaunchWatcher watcher) {
    Prepare({part});
    return program_->RunWatched(step(), *pool_, logits, watcher);
  }
  Step step() const { return {ids_, positions_, rows_, rows_of_}; }

 private:
  void Prepare(const std::vector<std::vector<int32_t>>& parts) {
    ids_.clear();
    positions_.clear();
    rows_of_.clear();
    for (size_t s = 0; s < parts.size(); ++s) {
      if (parts[s].empty()) continue;
      const auto first = static_cast<int32_t>(ids_.size());
      const auto rows = static_cast<int32_t>(parts[s].size());
      for (const int32_t id : parts[s]) {
        ids_.push_back(id);
        positions_.push_back(done_[s]++);
      }
      rows_of_.push_back({first, rows, done_[s], tables_[s]});
    }
    rows_.resize(ids_.size());
    std::iota(rows_.begin(), rows_.end(), 0);
  }

  Program* program_;
  const size_t vocabulary_;
  std::vector<std::vector<int32_t>> tables_;
  std::unique_ptr<PagePool> pool_;
  std::vector<int32_t> done_, ids_, positions_, rows_;
  std::vector<SequenceRows> rows_of_;
};

Fixture LlamaFixture() {
  auto fixture = testing::ReadFixture("llama_gqa_tied");
  EXPECT_TRUE(fixture.ok()) << fixture.status();
  return *std::move(fixture);
}

// The fixture's ids as the last of `copies` sequences, cut into chunks of `chunk`.
std::vector<float> RunIds(Rig& rig, const Fixture& fixture, size_t chunk, size_t copies = 1) {
  Sequences sequences(rig.program.get(), fixture, rig.plan.target().page_tokens, copies,
                      static_cast<int32_t>(fixture.ids.size()));
  std::vector<float> all;
  for (size_t done = 0; done < fixture.ids.size(); done += chunk) {
    const size_t count = std::min(chunk, fixture.ids.size() - done);
    const auto begin = fixture.ids.begin() + static_cast<ptrdiff_t>(done);
    const std::vector<int32_t> part(begin, begin + static_cast<ptrdiff_t>(count));
    const auto logits = sequences.Append(std::vector<std::vector<int32_t>>(copies, part));
    EXPECT_TRUE(logits.ok()) << logits.status();
    if (!logits.ok()) return all;
    const size_t floats = count * static_cast<size_t>(fixture.vocab_size);
    all.insert(all.end(), logits->end() - static_cast<ptrdiff_t>(floats), logits->end());
  }
  return all;
}

// Values between kernels are rounded to bf16, 2^-9 of each on average and less in the logits, which
// are sums of many: two in a hundred of the greatest logit are several deviations.
void ExpectClose(const Fixture& fixture, const std::vector<float>& logits) {
  ASSERT_EQ(logits.size(), fixture.logits.size());
  float largest = 0, worst = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    largest = std::max(largest, std::abs(fixture.logits[i]));
    worst = std::max(worst, std::abs(fixture.logits[i] - logits[i]));
    ASSERT_TRUE(std::isfinite(logits[i])) << i;
  }
  EXPECT_LE(worst, 0.02f * largest);
}

TEST(CudaProgramTest, AWatchedStepShowsWhatEachLaunchLeaves) {
  const Fixture fixture = LlamaFixture();
  Rig rig;
  ASSERT_TRUE(rig.Load().ok());
  const std::vector<float> expected = RunIds(rig, fixture, fixture.ids.size());
  const plan::TargetT& target = rig.plan.target();
  const plan::ProgramT& step = *target.programs[0];
  Sequences sequences(rig.program.get(), fixture, target.page_tokens, 1,
                      static_cast<int32_t>(fixture.ids.size()));
  std::vector<float> logits(expected.size());
  std::vector<size_t> seen;
  std::vector<uint8_t> result;
  const absl::Status run =
      sequences.Watch(fixture.ids, absl::MakeSpan(logits),
                      [&](size_t launch, const LaunchMemory& memory) -> absl::Status {
                        seen.push_back(launch);
                        QUIRE_ASSIGN_OR_RETURN(result, memory.ReadBuffer(step.results[0].index()));
                        const plan::KvLayerT& layer = *target.kv_layers[0];
                        QUIRE_ASSIGN_OR_RETURN(const auto keys, memory.ReadLayer(0, false, 0));
                        EXPECT_EQ(keys.size(), fixture.ids.size() * 2 *
                                                   static_cast<size_t>(layer.heads * layer.k_dim));
                        return absl::OkStatus();
                      });
  ASSERT_TRUE(run.ok()) << run;
  EXPECT_EQ(logits, expected);
  ASSERT_EQ(seen.size(), step.launches.size());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i);
  ASSERT_EQ(result.size(), logits.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(result.data(), logits.data(), result.size()), 0);
}

TEST(CudaProgramTest, EqualsTransformersAndLeavesNothing) {
  Rig rig;
  ASSERT_TRUE(rig.Load().ok());
  const Fixture fixture = LlamaFixture();
  ExpectClose(fixture, RunIds(rig, fixture, 5));
  for (const testing::FakeLaunch& launch : rig.gpu.launches) EXPECT_TRUE(launch.dependent);
  rig.program.reset();
  rig.device.reset();
  EXPECT_EQ(rig.gpu.Living(), "");
  EXPECT_EQ(rig.gpu.used_bytes(), 0u);
}

TEST(CudaProgramTest, SameBitsHoweverTheWorkIsCut) {
  const Fixture fixture = LlamaFixture();
  std::vector<float> expected;
  {
    Rig eager(LlamaPlan(), /*eager=*/true);
    ASSERT_TRUE(eager.Load().ok());
    expected = RunIds(eager, fixture, fixture.ids.size());
    EXPECT_EQ(eager.gpu.graph_launches, 0);
  }
  Rig rig;
  ASSERT_TRUE(rig.Load().ok());
  for (const size_t chunk : {size_t{1}, size_t{3}, size_t{7}}) {
    EXPECT_TRUE(RunIds(rig, fixture, chunk, chunk) == expected) << chunk;
  }
  EXPECT_GT(rig.gpu.graph_launches, 0);
}

// What a graph was captured with may not stay in it: the published failure is of padded lengths.
TEST(CudaProgramTest, AGraphServesEveryBatchOfItsBucket) {
  const Fixture fixture = LlamaFixture();
  const auto part = [&](size_t begin, size_t count) {
    const auto from = fixture.ids.begin() + static_cast<ptrdiff_t>(begin);
    return std::vector<int32_t>(from, from + static_cast<ptrdiff_t>(count));
  };
  // Seven rows of seven sequences, then of one, then of three with different contexts.
  const std::vector<std::vector<std::vector<int32_t>>> steps = {
      {part(0, 1), part(1, 1), part(2, 1), part(3, 1), part(4, 1), part(5, 1), part(6, 1)},
      {part(1, 7)},
      {{}, part(2, 4), part(3, 1), {}, {}, {}, part(0, 2)},
      {part(3, 1), {}, {}, part(1, 5)},
  };
  std::vector<std::vector<float>> results[2];
  for (const bool eager : {false, true}) {
    Rig rig(LlamaPlan(), eager);
    ASSERT_TRUE(rig.Load().ok());
    Sequences sequences(rig.program.get(), fixture, 3, 7, 16);
    for (const auto& step : steps) {
      const auto logits = sequences.Append(step);
      ASSERT_TRUE(logits.ok()) << logits.status();
      results[eager].push_back(*logits);
    }
    EXPECT_EQ(rig.gpu.graphs_made, eager ? 0 : 1);
    EXPECT_EQ(rig.gpu.graph_launches, eager ? 0 : 4);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(CudaProgramTest, OneCopyAStep) {
  const Fixture fixture = LlamaFixture();
  Rig rig;
  ASSERT_TRUE(rig.Load().ok());
  Sequences sequences(rig.program.get(), fixture, 3, 1, 16);
  rig.gpu.copies_to_device = 0;
  ASSERT_TRUE(sequences.Append({{1, 2, 3}}).ok());
  ASSERT_TRUE(sequences.Append({{4}}).ok());
  EXPECT_EQ(rig.gpu.copies_to_device, 2);
}

// Which kernels write where the host reads; and who waits for a step needs no event of it.
TEST(CudaProgramTest, NoCopyOfGreedyChoices) {
  const Fixture fixture = LlamaFixture();
  Rig rig;
  ASSERT_TRUE(rig.Load().ok());
  Sequences sequences(rig.program.get(), fixture, 3, 1, 16);
  rig.gpu.copies_to_host = rig.gpu.events_recorded = 0;
  ASSERT_TRUE(sequences.AppendGreedily({{1, 2, 3}}).ok());
  ASSERT_TRUE(sequences.AppendGreedily({{4}}).ok());
  EXPECT_EQ(rig.gpu.copies_to_host, 0);
  EXPECT_EQ(rig.gpu.events_recorded, 0);
  ASSERT_TRUE(sequences.Append({{5}}).ok());
  EXPECT_EQ(rig.gpu.copies_to_host, 1);
}

TEST(CudaProgramTest, GreedyChoicesAreThoseOfTheLogits) {
  const Fixture fixture = LlamaFixture();
  Rig rig;
  ASSERT_TRUE(rig.Load().ok());
  ASSERT_TRUE(rig.program->finds_greatest());
  const std::vector<std::vector<int32_t>> parts = {{5, 6, 7}, {8, 9}};
  Sequences first(rig.program.get(), fixture, 3, 2, 16);
  const auto logits = first.Append(parts);
  ASSERT_TRUE(logits.ok()) << logits.status();
  Sequences second(rig.program.get(), fixture, 3, 2, 16);
  const auto greatest = second.AppendGreedily(parts);
  ASSERT_TRUE(greatest.ok()) << greatest.status();
  const auto vocabulary = static_cast<size_t>(fixture.vocab_size);
  for (size_t row = 0; row < greatest->size(); ++row) {
    const GreatestLogit expected =
        GreatestOf(absl::MakeConstSpan(*logits).subspan(row * vocabulary, vocabulary));
    EXPECT_EQ((*greatest)[row].id, expected.id);
    EXPECT_EQ((*greatest)[row].logit, expected.logit);
    EXPECT_EQ((*greatest)[row].is_sound, 1);
    std::vector<float> left(vocabulary);
    ASSERT_TRUE(rig.program->ReadLogits(row, absl::MakeSpan(left)).ok());
    EXPECT_TRUE(std::equal(left.begin(), left.end(), logits->begin() + row * vocabulary));
  }
  std::vector<float> left(vocabulary);
  const absl::Status beyond = rig.program->ReadLogits(greatest->size(), absl::MakeSpan(left));
  EXPECT_EQ(beyond.code(), absl::StatusCode::kInvalidArgument) << beyond;
  EXPECT_FALSE(rig.program->ReadLogits(0, absl::MakeSpan(left).first(3)).ok());
  // Those of another step are gone.
  ASSERT_TRUE(second.Append({{1}, {2}}).ok());
  EXPECT_FALSE(rig.program->ReadLogits(0, absl::MakeSpan(left)).ok());
}

TEST(CudaProgramTest, GivesPinnedMemoryForLogits) {
  const Fixture fixture = LlamaFixture();
  Rig rig;
  ASSERT_TRUE(rig.Load().ok());
  for (const size_t floats : {96, 300, 96, 1000}) {
    const absl::Span<float> memory = rig.program->LogitsMemory(floats);
    ASSERT_EQ(memory.size(), floats);
    EXPECT_TRUE(rig.gpu.IsPinned(memory.data()));
    std::fill(memory.begin(), memory.end(), 1.0f);
  }
  rig.gpu.failures["MemHostAlloc"] = {0, 999};
  EXPECT_TRUE(rig.program->LogitsMemory(9000).empty());
  EXPECT_EQ(rig.program->LogitsMemory(9000).size(), 9000u);
}

// Whatever function of the driver fails, at whichever call: an error, and nothing is left.
TEST(CudaProgramTest, EveryFailureIsReportedAndLeavesNothing) {
  const Fixture fixture = LlamaFixture();
  for (const char* function :
       {"MemAlloc", "MemHostAlloc", "MemcpyHtoDAsync", "MemcpyDtoHAsync", "MemsetD8Async",
        "StreamSynchronize", "StreamBeginCapture", "StreamEndCapture", "EventCreate", "EventRecord",
        "LibraryLoadData", "LibraryGetKernel", "KernelGetFunction", "FuncSetAttribute",
        "FuncGetAttribute", "LaunchKernelEx", "GraphInstantiate", "GraphLaunch"}) {
    for (const int call : {0, 1, 3}) {
      // Outlives what is enqueued.
      std::vector<float> logits(static_cast<size_t>(fixture.vocab_size));
      Rig rig;
      rig.gpu.on_launch = [](const testing::FakeLaunch&) {};
      rig.gpu.failures[function] = {call, 999};
      absl::Status status = rig.Load();
      if (status.ok()) {
        auto pool = rig.program->CreatePool(8);
        status = pool.status();
        const std::vector<int32_t> ids = {1, 2}, positions = {0, 1}, rows = {1}, pages = {5};
        const std::vector<SequenceRows> sequences = {{0, 2, 2, pages}};
        for (int i = 0; i < 4 && status.ok(); ++i) {
          status =
              rig.program->Run({ids, positions, rows, sequences}, **pool, absl::MakeSpan(logits));
        }
      }
      rig.program.reset();
      rig.device.reset();
      EXPECT_EQ(rig.gpu.Living(), "") << function << " " << call;
      // Some functions are called less often than that.
      if (rig.gpu.failures.empty()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << function << " " << call;
        EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_ERROR_FAKE")) << function;
      }
    }
  }
}

TEST(CudaProgramTest, GraphsAreBounded) {
  const Fixture fixture = LlamaFixture();
  Rig rig;
  rig.gpu.on_launch = [](const testing::FakeLaunch&) {};
  ASSERT_TRUE(rig.Load().ok());
  ASSERT_TRUE(rig.program->Reserve({128, 128, 128, 128}).ok());
  auto pool = rig.program->CreatePool(1);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const std::vector<int32_t> pages = {0};
  int steps = 0;
  const auto run = [&](int64_t T, int64_t R) {
    const std::vector<int32_t> ids(static_cast<size_t>(T), 1), positions(ids.size(), 0);
    std::vector<int32_t> rows(static_cast<size_t>(R), 0);
    std::vector<SequenceRows> sequences;
    for (int32_t row = 0; row < T; ++row) sequences.push_back({row, 1, 1, pages});
    std::vector<float> logits(rows.size() * static_cast<size_t>(fixture.vocab_size));
    ++steps;
    return rig.program->Run({ids, positions, rows, sequences}, **pool, absl::MakeSpan(logits));
  };
  for (const int64_t T : BucketsUpTo(128)) {
    for (const int64_t R : BucketsUpTo(T)) ASSERT_TRUE(run(T, R).ok());
  }
  ASSERT_EQ(steps, 66);
  EXPECT_EQ(rig.gpu.graphs_made, 66);
  EXPECT_THAT(rig.gpu.Living(), HasSubstr("graph exec 64"));
  // The oldest are gone, the newest are there.
  ASSERT_TRUE(run(128, 128).ok());
  EXPECT_EQ(rig.gpu.graphs_made, 66);
  ASSERT_TRUE(run(1, 1).ok());
  EXPECT_EQ(rig.gpu.graphs_made, 67);
}

TEST(CudaProgramTest, ItsTableOfMemoryIsWhatItTook) {
  Rig rig;
  ASSERT_TRUE(rig.Load().ok());
  ASSERT_TRUE(rig.program->Reserve({100, 10, 10, 50}).ok());
  int64_t bytes = 0;
  for (const MemoryUse& use : rig.program->Memory()) bytes += use.bytes;
  EXPECT_EQ(static_cast<size_t>(bytes), rig.gpu.used_bytes());
  const auto spare = rig.program->SpareBytes();
  ASSERT_TRUE(spare.ok()) << spare.status();
  EXPECT_LE(static_cast<size_t>(*spare), rig.gpu.total_bytes - rig.gpu.used_bytes());
}

TEST(CudaProgramTest, TooLargeStepsSayWhatFits) {
  Rig rig;
  ASSERT_TRUE(rig.Load().ok());
  rig.gpu.total_bytes = rig.gpu.used_bytes() + (4 << 20);
  const absl::Status status = rig.program->Reserve({1 << 16, 64, 64, 100});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("no memory for steps of 65536 rows"));
  int rows = 0;
  ASSERT_EQ(
      std::sscanf(message.c_str() + message.find("steps of up to"), "steps of up to %d", &rows), 1);
  EXPECT_GT(rows, 0);
  EXPECT_TRUE(rig.program->Reserve({rows, 64, 64, 100}).ok());
  EXPECT_FALSE(rig.program->Reserve({rows + 64, 64, 64, 100}).ok());
}

TEST(CudaProgramTest, PagesOfAnotherProgramAreRefused) {
  Rig rig;
  ASSERT_TRUE(rig.Load().ok());
  const CudaPlan other_plan("gpt_bigcode_mqa");
  const auto other = rig.device->Load(other_plan.target(), "step", *OpenWeights(other_plan.file()));
  ASSERT_TRUE(other.ok()) << other.status();
  auto pool = (*other)->CreatePool(4);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const std::vector<int32_t> ids = {1}, rows = {}, pages = {0};
  const std::vector<SequenceRows> sequences = {{0, 1, 1, pages}};
  EXPECT_EQ(rig.program->Run({ids, ids, rows, sequences}, **pool, {}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quire
