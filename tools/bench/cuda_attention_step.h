// Attention kernels on a GPU for benchmarks and checks: their operands, and steps of any batch.
#ifndef QUIRE_TOOLS_BENCH_CUDA_ATTENTION_STEP_H_
#define QUIRE_TOOLS_BENCH_CUDA_ATTENTION_STEP_H_

#include <memory>
#include <string>
#include <vector>

#include "codegen/cuda/kernels/step.cuh"
#include "tools/bench/cuda_gpu.h"

namespace quire::bench {

// Attention from hq heads to hkv of size d, pages of `page` tokens.
AttentionSpec MakeSpec(int64_t hq, int64_t hkv, int64_t d, int64_t page = 16,
                       DType dtype = DType::kBF16);

// Every feature, or few for a sanitizer.
std::vector<AttentionSpec> CheckedSpecs(bool quick);

// A kernel's loaded entries.
struct LoadedAttention {
  AttentionSpec spec;
  std::unique_ptr<CudaKernel> kernel;
  std::vector<CuFunction> functions;
};
std::vector<LoadedAttention> LoadAttentions(const Gpu& gpu,
                                            const std::vector<AttentionSpec>& specs);

// Rows of one sequence in a step.
struct Part {
  int rows, context;
};

// Device memory of one kernel's steps of up to so many rows, sequences and pages.
class AttentionStep {
 public:
  AttentionStep(const Gpu& gpu, const LoadedAttention& attention, int64_t max_rows,
                int64_t max_sequences, int64_t max_pages);
  ~AttentionStep();

  CuDevicePtr q = 0, y = 0, key_scales = 0, value_scales = 0, bias = 0, sinks = 0, tree = 0;

  // What the next replay reads: sequences in order, and their block tables one after another.
  void SetBatch(const std::vector<Part>& parts, const std::vector<int>& pages);
  // More block tables for the same batch, as Attend() takes; freed with this.
  CuDevicePtr AddPages(const std::vector<int>& pages);

  void Prepare() const;  // once a step
  // What the batch of SetBatch has work for. `pages` 0: those of SetBatch.
  void Attend(CuDevicePtr layer, CuDevicePtr pages = 0, bool dependent = true) const;

 private:
  void Launch(const CudaLaunch& launch, CuDevicePtr layer, CuDevicePtr pages, bool dependent) const;

  const Gpu& gpu_;
  const LoadedAttention& attention_;
  CudaKernel::Preparation preparation_;
  CudaLaunches launches_;
  CuDevicePtr header_ = 0, sequences_ = 0, pages_ = 0, plan_ = 0;
  std::vector<CuDevicePtr> more_pages_;
  std::vector<Part> parts_;
};

// Few of the specs ("quick"), or those whose text holds `how`.
int CheckAttention(const Gpu& gpu, const std::string& how);
// Cases whose names hold `which`.
int TimeAttention(const Gpu& gpu, const std::string& which);

}  // namespace quire::bench

#endif  // QUIRE_TOOLS_BENCH_CUDA_ATTENTION_STEP_H_
