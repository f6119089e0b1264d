// Linear kernels compiled and launched, for the tools that check and time them.
#ifndef QUIRE_TOOLS_BENCH_CUDA_LINEAR_KERNELS_H_
#define QUIRE_TOOLS_BENCH_CUDA_LINEAR_KERNELS_H_

#include <string>
#include <vector>

#include "codegen/cuda/linear.h"
#include "tools/bench/cuda_gpu.h"

namespace quire::bench {

// SplitMix64.
struct Random {
  uint64_t state;
  uint64_t Next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In (-2, 2), with magnitudes down to 2^-7 of that, so that orders of sums show.
  float Value() {
    const uint64_t word = Next();
    const float unit = static_cast<float>(static_cast<int64_t>(word >> 11)) * 0x1p-53f;
    return (unit * 2 - 1) * static_cast<float>(256 >> (word & 7)) / 128;
  }
};

struct Compiled {
  CudaLinearKernel kernel;
  CuFunction function = nullptr;
};

constexpr size_t kWorkspaceBytes = size_t{256} << 20;

std::string Name(const CudaLinearConfig& config);

LinearSpec Spec(int64_t n, int64_t k, DType element, DType y, bool bias, bool residual);

class Linears {
 public:
  explicit Linears(const Gpu& gpu) : gpu_(gpu) {}

  // Compiles at once all that is added before.
  size_t Add(const LinearSpec& spec, const std::vector<CudaLinearConfig>& configs) {
    specs_.push_back(spec);
    kernels_.emplace_back();
    for (const CudaLinearConfig& config : configs) {
      kernels_.back().push_back({MakeCudaLinearKernel(spec, config)});
    }
    return specs_.size() - 1;
  }
  void Compile() {
    std::vector<std::pair<std::string, std::string>> sources;
    for (const auto& kernels : kernels_) {
      for (const Compiled& c : kernels) sources.emplace_back(c.kernel.entry, c.kernel.source);
    }
    const std::vector<std::string> cubins = CompileAll(sources, gpu_.architecture());
    size_t at = 0;
    for (auto& kernels : kernels_) {
      for (Compiled& c : kernels) {
        c.function = gpu_.Load(cubins[at++], c.kernel.entry, c.kernel.shared_bytes);
      }
    }
  }
  const LinearSpec& spec(size_t i) const { return specs_[i]; }
  const std::vector<Compiled>& kernels(size_t i) const { return kernels_[i]; }

 private:
  const Gpu& gpu_;
  std::vector<LinearSpec> specs_;
  std::vector<std::vector<Compiled>> kernels_;
};

// Other configurations than a plan's that the GPU can run.
std::vector<CudaLinearConfig> OtherConfigs(const LinearSpec& spec, const CudaLimits& limits);

struct Operands {
  CuDevicePtr x, weight, bias, residual, y, workspace;
};

void Enqueue(const Gpu& gpu, const LinearSpec& spec, const Compiled& compiled,
             const Operands& operands, int64_t rows, const CudaLinearLaunch& launch,
             bool dependent);

// The launches of one kernel: for tiles, all whole, whole in full rounds, and none whole; without
// those whose workspace is too large to be of use.
std::vector<CudaLinearLaunch> Launches(const LinearSpec& spec, const CudaLinearKernel& kernel,
                                       int64_t rows, int multiprocessors);

// Bits of every body against the CPU model and each other; returns how many launches differ.
int CheckLinears(const Gpu& gpu, bool quick);
// The same of block-quantised weights, as a plan launches them; and their times.
int CheckBlocks(const Gpu& gpu, bool quick);
int TimeBlocks(const Gpu& gpu);
// Of cuda_linear_e4m3.cc.
int CheckE4m3(const Gpu& gpu);
int TimeE4m3(const Gpu& gpu);
// Linears with a norm and an activation, as a plan launches them, beside the launches of their
// parts: bits; and their times.
int CheckFused(const Gpu& gpu, bool quick);
int TimeFused(const Gpu& gpu);
int TimeChain(const Gpu& gpu, const std::vector<int64_t>& all_rows);
// Prints steps that this GPU computed, for tests/codegen/tensor_core_steps.txt.
int RecordSteps(const Gpu& gpu);

}  // namespace quire::bench

#endif  // QUIRE_TOOLS_BENCH_CUDA_LINEAR_KERNELS_H_
