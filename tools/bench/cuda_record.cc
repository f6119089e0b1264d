// What this machine's GPU computes, as files for tests that need no GPU:
//
//   bench_cuda_record step PLAN FILE IDS...   prompts one after another, each 1,2,3, appended to
//   one
//                                             sequence as a step of its own: what every launch
//                                             leaves (tools/step_record.h)
//   bench_cuda_record functions               checksums of the special functions' results, and all
//                                             of them beside the model
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/source.h"
#include "codegen/cuda/special_function_model.h"
#include "ir/plan_format.h"
#include "ir/status.h"
#include "runtime/weights.h"
#include "tools/bench/cuda_gpu.h"
#include "tools/step_record.h"

namespace quire::bench {
namespace {

absl::Status RecordSteps(const std::string& plan_path, const std::string& path,
                         const std::vector<std::string>& prompts) {
  QUIRE_ASSIGN_OR_RETURN(PlanFile opened, OpenPlan(plan_path));
  const auto plan = std::make_shared<const PlanFile>(std::move(opened));
  QUIRE_ASSIGN_OR_RETURN(const plan::TargetT* target, plan->Target("cuda"));
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, CreateDevice("cuda", {}));
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<Program> program,
                         device->Load(*target, "step", *OpenWeights(plan)));
  const plan::ProgramT* lowered = nullptr;
  for (const auto& candidate : target->programs) {
    if (candidate->name == "step") lowered = candidate.get();
  }
  record::StepRecordT record;
  const Gpu gpu;
  const CudaLimits limits = gpu.limits();
  record.device = gpu.name();
  record.major = limits.major, record.minor = limits.minor;
  record.shared_bytes = limits.shared_bytes, record.multiprocessors = limits.multiprocessors;
  record.plan = PlanOfRecord(plan->plan(), *target);

  std::vector<std::vector<int32_t>> steps;
  int32_t tokens = 0;
  for (const std::string& prompt : prompts) {
    std::vector<int32_t>& ids = steps.emplace_back();
    for (const absl::string_view id : absl::StrSplit(prompt, ',')) {
      if (!absl::SimpleAtoi(id, &ids.emplace_back())) {
        return absl::InvalidArgumentError(absl::StrCat(id, " is no id"));
      }
    }
    tokens += static_cast<int32_t>(ids.size());
  }
  // Pages from the last one on, so that a wrong one shows.
  std::vector<int32_t> pages(
      static_cast<size_t>((tokens + target->page_tokens - 1) / target->page_tokens));
  std::iota(pages.rbegin(), pages.rend(), 0);
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<PagePool> pool,
                         program->CreatePool(static_cast<int32_t>(pages.size())));
  int32_t done = 0;
  for (const std::vector<int32_t>& ids : steps) {
    const auto rows = static_cast<int32_t>(ids.size());
    std::vector<int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), done);
    done += rows;
    const std::vector<int32_t> logit_rows = {rows - 1};
    const std::vector<SequenceRows> sequences = {{0, rows, done, pages}};
    QUIRE_RETURN_IF_ERROR(RecordStep(*target, *lowered, *program,
                                     {ids, positions, logit_rows, sequences}, *pool,
                                     plan->plan().model->vocabulary, &record));
  }
  return WriteStepRecord(record, path);
}

// Results for arguments begin + i * step, or where step is 0 for those whose bits are begin's and
// stride * i more.
constexpr char kSource[] = R"(
#include "prelude.cuh"
extern "C" __global__ void results(uint32_t* bits, float begin, float step, uint32_t stride,
                                   int reciprocal) {
  const uint32_t i = blockIdx.x * 1024 + threadIdx.x;
  const float x = step == 0 ? FromBits(Bits(begin) + stride * i) : Fma(static_cast<float>(i), step, begin);
  bits[i] = Bits(reciprocal ? NearReciprocal(x) : Exp2(x));
}
)";

// On this GPU: lines of tests/codegen/special_functions.txt; and how many results of every
// kStride'th of all arguments the model does not have.
int RecordFunctions() {
  constexpr size_t kCount = size_t{1} << 24;
  constexpr uint32_t kStride = 13;
  const Gpu gpu;
  const std::string cubin =
      OrDie(OrDie(Nvrtc::Get())
                ->Compile("results.cu", kSource, gpu.architecture(), CudaKernelHeaders()))
          .cubin;
  const CuFunction function = gpu.Load(cubin, "results", 0);
  const CuDevicePtr bits_at = gpu.Allocate(kCount * 4);
  std::vector<uint32_t> bits(kCount);
  const auto run = [&](float begin, float step, int reciprocal) {
    KernelArguments arguments;
    arguments.Add(bits_at);
    arguments.Add(begin);
    arguments.Add(step);
    arguments.Add(kStride);
    arguments.Add(reciprocal);
    gpu.Launch(function, static_cast<int>(kCount / 1024), 1024, 0, false, arguments);
    gpu.Download(bits.data(), bits_at, kCount * 4);
  };
  int64_t all_wrong = 0;
  for (const int reciprocal : {0, 1}) {
    const char* name = reciprocal != 0 ? "rcp" : "ex2";
    for (const auto& [begin, step] : {std::pair(1.0f, 0x11p-23f), std::pair(-0.25f, -0x11p-25f),
                                      std::pair(-126.0f, 0x1p-11f)}) {
      constexpr size_t kLineCount = 493447;
      run(begin, step, reciprocal);
      std::printf("%s %a %a %zu %016lx\n", name, begin, step, kLineCount,
                  static_cast<unsigned long>(PlanChecksum(absl::MakeConstSpan(
                      reinterpret_cast<const uint8_t*>(bits.data()), kLineCount * 4))));
    }
    std::atomic<int64_t> wrong = 0;
    int64_t compared = 0;
    for (uint64_t first = 0; first < uint64_t{1} << 32; first += kCount * kStride) {
      run(std::bit_cast<float>(static_cast<uint32_t>(first)), 0, reciprocal);
      std::vector<std::thread> threads;
      const size_t thread_count = std::max(1u, std::thread::hardware_concurrency());
      for (size_t t = 0; t < thread_count; ++t) {
        threads.emplace_back([&, t] {
          for (size_t i = t; i < kCount; i += thread_count) {
            const float x = std::bit_cast<float>(static_cast<uint32_t>(first + i * kStride));
            const float y = reciprocal != 0 ? CudaNearReciprocal(x) : CudaExp2(x);
            if (std::bit_cast<uint32_t>(y) == bits[i] || wrong++ > 4) continue;
            std::printf("%s(%a): %08x, the model has %08x\n", name, x, bits[i],
                        std::bit_cast<uint32_t>(y));
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      compared += static_cast<int64_t>(kCount);
    }
    std::printf("%s: of %ld arguments %ld differ\n", name, static_cast<long>(compared),
                static_cast<long>(wrong));
    std::fflush(stdout);
    all_wrong += wrong;
  }
  return all_wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  using namespace quire::bench;
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "functions") return RecordFunctions();
  if (mode == "step" && argc > 4) {
    const absl::Status status = RecordSteps(argv[2], argv[3], {argv + 4, argv + argc});
    if (!status.ok()) Die(status);
    return 0;
  }
  std::fprintf(stderr, "usage: bench_cuda_record step PLAN FILE IDS... | functions\n");
  return 2;
}
