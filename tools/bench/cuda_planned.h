// Kernels as a plan launches them, for the tools that check and time them.
#ifndef QUIRE_TOOLS_BENCH_CUDA_PLANNED_H_
#define QUIRE_TOOLS_BENCH_CUDA_PLANNED_H_

#include <memory>
#include <string>
#include <vector>

#include "codegen/cuda/kernel.h"
#include "tools/bench/cuda_gpu.h"

namespace quire::bench {

class Planned {
 public:
  Planned(const Gpu& gpu, const KernelSpec& spec)
      : gpu_(gpu), kernel_(OrDie(MakeCudaKernel(spec, gpu.limits()))) {}

  const std::vector<CudaEntry>& entries() const { return kernel_->entries(); }
  CudaLaunches Launches(int64_t rows) const { return kernel_->Launches(rows); }
  // `cubins`: of its entries, in order.
  void Load(const std::string* cubins);
  // Where rows are appended: of launches from here on.
  void SetSlots(CuDevicePtr slots) { slots_ = slots; }

  // `operands`: of the plan's launch, inputs then outputs.
  void Enqueue(const CudaLaunches& launches, const std::vector<CuDevicePtr>& operands,
               CuDevicePtr workspace) const;

  // Launches twice on each number of rows, the most first; y is the last operand, `row_bytes` a
  // row, and `*y` its bytes after the first. Prints the numbers of rows for which those differ from
  // the first's, or for which something is written beyond them, and returns how many they are.
  int64_t CountOtherBits(const std::string& what, const std::vector<int64_t>& rows,
                         const std::vector<CuDevicePtr>& operands, CuDevicePtr workspace,
                         int64_t row_bytes, std::vector<uint8_t>* y) const;

 private:
  const Gpu& gpu_;
  const std::unique_ptr<CudaKernel> kernel_;
  std::vector<CuFunction> functions_;
  CuDevicePtr slots_ = 0;
};

// Compiles and loads all, on all cores.
void Compile(const Gpu& gpu, const std::vector<Planned*>& kernels);

}  // namespace quire::bench

#endif  // QUIRE_TOOLS_BENCH_CUDA_PLANNED_H_
