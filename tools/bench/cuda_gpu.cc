#include "tools/bench/cuda_gpu.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/source.h"

namespace quire::bench {

void Die(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}

Gpu::Gpu(bool fills_scratch) : fills_scratch_(fills_scratch), driver_(OrDie(CudaDriver::Get())) {
  Check(driver_->DeviceGet(&device_, 0), "device");
  CuContext context = nullptr;
  Check(driver_->DevicePrimaryCtxRetain(&context, device_), "context");
  Check(driver_->CtxSetCurrent(context), "context");
  Check(driver_->StreamCreate(&stream_, 1), "stream");
  Check(driver_->EventCreate(&begin_, 0), "event");
  Check(driver_->EventCreate(&end_, 0), "event");
  char name[128] = {};
  Check(driver_->DeviceGetName(name, sizeof name - 1, device_), "name");
  name_ = name;
  const int major = Attribute(kCuComputeMajor), minor = Attribute(kCuComputeMinor);
  architecture_ = absl::StrCat("sm_", major, minor, major == 9 ? "a" : "");
}

int Gpu::Attribute(CuDeviceAttribute attribute) const {
  int value = 0;
  Check(driver_->DeviceGetAttribute(&value, attribute, device_), "attribute");
  return value;
}

void Gpu::Check(CuResult result, const char* what) const {
  if (result != 0) Die(driver_->Check(result, what));
}

CuDevicePtr Gpu::Allocate(size_t bytes) const { return AllocateScratch(bytes, bytes); }

CuDevicePtr Gpu::AllocateScratch(size_t bytes, size_t zero_bytes) const {
  CuDevicePtr memory = 0;
  Check(driver_->MemAlloc(&memory, std::max<size_t>(bytes, 16)), "allocation");
  Fill(memory, 0, zero_bytes);
  if (fills_scratch_) Fill(memory + zero_bytes, 0xa5, bytes - zero_bytes);
  return memory;
}

void Gpu::Free(CuDevicePtr memory) const { Check(driver_->MemFree(memory), "free"); }

void Gpu::Upload(CuDevicePtr to, const void* from, size_t bytes) const {
  Check(driver_->MemcpyHtoDAsync(to, from, bytes, stream_), "upload");
  Synchronize();
}

void Gpu::Download(void* to, CuDevicePtr from, size_t bytes) const {
  Check(driver_->MemcpyDtoHAsync(to, from, bytes, stream_), "download");
  Synchronize();
}

void Gpu::Copy(CuDevicePtr to, CuDevicePtr from, size_t bytes) const {
  Check(driver_->MemcpyDtoDAsync(to, from, bytes, stream_), "copy");
}

void Gpu::Fill(CuDevicePtr to, uint8_t value, size_t bytes) const {
  if (bytes > 0) Check(driver_->MemsetD8Async(to, value, bytes, stream_), "fill");
}

CuFunction Gpu::Load(const std::string& cubin, const std::string& entry, int shared_bytes) const {
  CuLibrary library = nullptr;
  CuKernel kernel = nullptr;
  CuFunction function = nullptr;
  Check(driver_->LibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "library");
  Check(driver_->LibraryGetKernel(&kernel, library, entry.c_str()), "kernel");
  Check(driver_->KernelGetFunction(&function, kernel), "function");
  Check(driver_->FuncSetAttribute(function, kCuFuncMaxDynamicShared, shared_bytes),
        "shared memory");
  return function;
}

void Gpu::Launch(CuFunction function, int grid, int threads, int shared_bytes, bool dependent,
                 const KernelArguments& arguments) const {
  std::vector<EncodedTensorMap> values = arguments.values;
  std::vector<void*> pointers;
  for (EncodedTensorMap& value : values) pointers.push_back(&value);
  CuLaunchAttribute attribute = {};
  attribute.id = CuLaunchAttribute::kProgrammaticSerialization;
  attribute.value = 1;
  CuLaunchConfig config = {};
  config.grid_x = static_cast<unsigned>(grid);
  config.grid_y = config.grid_z = config.block_y = config.block_z = 1;
  config.block_x = static_cast<unsigned>(threads);
  config.shared_bytes = static_cast<unsigned>(shared_bytes);
  config.stream = stream_;
  config.attributes = &attribute;
  config.attribute_count = dependent ? 1 : 0;
  Check(driver_->LaunchKernelEx(&config, function, pointers.data(), nullptr), "launch");
}

void Gpu::Synchronize() const { Check(driver_->StreamSynchronize(stream_), "synchronize"); }

CuGraphExec Gpu::Capture(const std::function<void()>& enqueue) const {
  CuGraph graph = nullptr;
  CuGraphExec exec = nullptr;
  Check(driver_->StreamBeginCapture(stream_, 1), "capture");
  enqueue();
  Check(driver_->StreamEndCapture(stream_, &graph), "capture");
  Check(driver_->GraphInstantiate(&exec, graph, 0), "graph");
  Check(driver_->GraphDestroy(graph), "graph");
  return exec;
}

void Gpu::Replay(CuGraphExec graph) const { Check(driver_->GraphLaunch(graph, stream_), "graph"); }

double Gpu::TimeGraph(int replays, bool sustained, const std::function<void()>& enqueue) const {
  using Clock = std::chrono::steady_clock;
  CuGraphExec exec = Capture(enqueue);
  Replay(exec);
  Synchronize();
  const auto until = Clock::now() + std::chrono::milliseconds(150);
  while (sustained && Clock::now() < until) {
    for (int i = 0; i < 4; ++i) Replay(exec);
    Synchronize();
  }
  std::vector<double> times;
  for (int i = 0; i < replays; ++i) {
    // A graph that draws much power runs after a rest, like others that it is compared with.
    if (!sustained && !times.empty() && times.back() > 1000) {
      std::this_thread::sleep_for(std::chrono::milliseconds(15));
    }
    Check(driver_->EventRecord(begin_, stream_), "event");
    Replay(exec);
    Check(driver_->EventRecord(end_, stream_), "event");
    Check(driver_->EventSynchronize(end_), "graph");
    float milliseconds = 0;
    Check(driver_->EventElapsedTime(&milliseconds, begin_, end_), "time");
    times.push_back(milliseconds * 1000.0);
  }
  Check(driver_->GraphExecDestroy(exec), "graph");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::vector<std::string> CompileAll(const std::vector<std::pair<std::string, std::string>>& sources,
                                    const std::string& architecture) {
  const Nvrtc* nvrtc = OrDie(Nvrtc::Get());
  // Some texts serve several kernels.
  std::map<std::string, std::string> cubin_of;
  for (const auto& [entry, text] : sources) cubin_of[text];
  std::vector<std::pair<const std::string, std::string>*> jobs;
  for (auto& job : cubin_of) jobs.push_back(&job);
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (size_t at; (at = next++) < jobs.size();) {
        jobs[at]->second =
            OrDie(nvrtc->Compile("kernel.cu", jobs[at]->first, architecture, CudaKernelHeaders()))
                .cubin;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> cubins;
  for (const auto& [entry, text] : sources) cubins.push_back(cubin_of[text]);
  return cubins;
}

}  // namespace quire::bench
