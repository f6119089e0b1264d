#include <cstdio>

#include "tools/bench/cuda_linear_kernels.h"

namespace quire::bench {

// One line a sum: type, bits of x, of the weight, of y. Three steps a part.
int RecordSteps(const Gpu& gpu) {
  constexpr int64_t kN = 24, kK = 192;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const LinearSpec spec = Spec(kN, kK, dtype, DType::kF32, false, false);
    Linears linears(gpu);
    linears.Add(spec, OrDie(CudaLinearConfigs(spec, gpu.limits())));
    linears.Compile();
    // Any sign and fraction; exponents over a range in which alignment drops much.
    Random random{dtype == DType::kBF16 ? 16u : 17u};
    std::vector<uint16_t> values(static_cast<size_t>((kN + 1) * kK));
    for (uint16_t& value : values) {
      const uint64_t word = random.Next();
      const uint64_t exponent = dtype == DType::kBF16 ? 118 + word % 19 : word % 31;
      const int fraction_bits = dtype == DType::kBF16 ? 7 : 10;
      const uint64_t sign_and_fraction = (word >> 16) & (0x8000u | ((1u << fraction_bits) - 1));
      value = static_cast<uint16_t>(sign_and_fraction | exponent << fraction_bits);
    }
    const CuDevicePtr memory = gpu.Allocate(values.size() * 2), y = gpu.Allocate(kN * 4);
    gpu.Upload(memory, values.data(), values.size() * 2);
    const Compiled& compiled = linears.kernels(0)[0];
    Enqueue(gpu, spec, compiled, {memory, memory + kK * 2, 0, 0, y, 0}, 1,
            PlanCudaLinear(spec, compiled.kernel, 1, gpu.multiprocessors()), false);
    uint32_t sums[kN];
    gpu.Download(sums, y, sizeof sums);
    for (int64_t n = 0; n < kN; ++n) {
      std::printf("%s", dtype == DType::kBF16 ? "bf16" : "f16");
      for (int64_t row : {int64_t{0}, n + 1}) {
        std::printf(" ");
        for (int64_t i = 0; i < kK; ++i)
          std::printf("%04x", values[static_cast<size_t>(row * kK + i)]);
      }
      std::printf(" %08x\n", sums[n]);
    }
  }
  return 0;
}

}  // namespace quire::bench
