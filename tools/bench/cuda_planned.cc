#include "tools/bench/cuda_planned.h"

#include <algorithm>
#include <cstdio>
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
      return workspace + static_cast<CuDevicePtr>(argument.value + argument.offset);
    }
    return argument.value < 0 ? 0
                              : operands[static_cast<size_t>(argument.value)] +
                                    static_cast<CuDevicePtr>(argument.offset);
  };
  for (const CudaLaunch& launch : launches.launches) {
    KernelArguments arguments;
    for (const CudaArgument& argument : launch.arguments) {
      if (argument.kind == CudaArgument::Kind::kInt32) {
        arguments.Add(static_cast<int>(argument.value));
      } else if (argument.kind == CudaArgument::Kind::kTensorMap) {
        const CudaTensorMap& map = launch.tensor_maps[static_cast<size_t>(argument.value)];
        arguments.Add(gpu_.Encode(map, address(map.base)));
      } else if (argument.kind == CudaArgument::Kind::kTokenSlots) {
        arguments.Add(slots_ + static_cast<CuDevicePtr>(argument.offset));
      } else {
        arguments.Add(address(argument));
      }
    }
    const CudaEntry& entry = entries()[launch.entry];
    gpu_.Launch(functions_[launch.entry], launch.grid, entry.block_threads, entry.shared_bytes,
                true, arguments);
  }
}

int64_t Planned::CountOtherBits(const std::string& what, const std::vector<int64_t>& rows,
                                const std::vector<CuDevicePtr>& operands, CuDevicePtr workspace,
                                int64_t row_bytes, std::vector<uint8_t>* y) const {
  constexpr uint8_t kUntouched = 0xee;
  const auto all_bytes = static_cast<size_t>(row_bytes * rows[0]);
  int64_t others = 0;
  for (const int64_t count : rows) {
    gpu_.Fill(operands.back(), kUntouched, all_bytes);
    const CudaLaunches launches = Launches(count);
    Enqueue(launches, operands, workspace);
    Enqueue(launches, operands, workspace);
    std::vector<uint8_t> found(all_bytes);
    gpu_.Download(found.data(), operands.back(), found.size());
    if (count == rows[0]) *y = found;
    const auto end = found.begin() + static_cast<ptrdiff_t>(row_bytes * count);
    const bool equal = std::equal(found.begin(), end, y->begin());
    const bool beyond =
        std::all_of(end, found.end(), [](uint8_t byte) { return byte == kUntouched; });
    if (equal && beyond) continue;
    ++others;
    std::printf("DIFFERS: %s rows %ld equal %d beyond %d\n", what.c_str(), static_cast<long>(count),
                equal, beyond);
  }
  return others;
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
