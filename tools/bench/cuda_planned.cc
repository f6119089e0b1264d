#include "tools/bench/cuda_planned.h"

#include <utility>

namespace quire::bench {

void Planned::Load(const std::string* cubins) {
  for (const CudaEntry& entry : entries()) {
    functions_.push_back(gpu_.Load(*cubins++, entry.entry, entry.shared_bytes));
  }
}

void Planned::Enqueue(const CudaLaunches& launches, const std::vector<CuDevicePtr>& operands,
                      CuDevicePtr workspace) const {
  const auto address = [&](const CudaArgument& argument) -> CuDevicePtr {
    if (argument.kind == CudaArgument::Kind::kWorkspace) {
      return workspace + static_cast<CuDevicePtr>(argument.value);
    }
    return argument.value < 0 ? 0 : operands[static_cast<size_t>(argument.value)];
  };
  for (const CudaLaunch& launch : launches.launches) {
    KernelArguments arguments;
    for (const CudaArgument& argument : launch.arguments) {
      if (argument.kind == CudaArgument::Kind::kInt32) {
        arguments.Add(static_cast<int>(argument.value));
      } else if (argument.kind == CudaArgument::Kind::kTensorMap) {
        const CudaTensorMap& map = launch.tensor_maps[static_cast<size_t>(argument.value)];
        arguments.Add(gpu_.Encode(map, address(map.base)));
      } else {
        arguments.Add(address(argument));
      }
    }
    const CudaEntry& entry = entries()[launch.entry];
    gpu_.Launch(functions_[launch.entry], launch.grid, entry.block_threads, entry.shared_bytes,
                true, arguments);
  }
}

void Compile(const Gpu& gpu, const std::vector<Planned*>& kernels) {
  std::vector<std::pair<std::string, std::string>> sources;
  for (const Planned* kernel : kernels) {
    for (const CudaEntry& entry : kernel->entries()) {
      sources.emplace_back(entry.entry, entry.source);
    }
  }
  const std::vector<std::string> cubins = CompileAll(sources, gpu.architecture());
  const std::string* at = cubins.data();
  for (Planned* kernel : kernels) {
    kernel->Load(at);
    at += kernel->entries().size();
  }
}

}  // namespace quire::bench
