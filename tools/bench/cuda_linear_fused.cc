// Linears with a norm of their rows and an activation, beside the launches that compute the same in
// parts.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/linear_rows.h"
#include "tools/bench/cuda_linear_kernels.h"
#include "tools/bench/cuda_planned.h"

namespace quire::bench {
namespace {

// One linear with all that its kernel computes, and its parts.
struct Pair {
  Pair(const Gpu& gpu, const LinearSpec& of) : spec(of), whole(gpu, of), product(gpu, Product(of)) {
    if (of.norm.has_value()) norm = std::make_unique<Planned>(gpu, CudaLinearHeadRows(of));
    if (of.act != LinearAct::kNone) act = std::make_unique<Planned>(gpu, CudaLinearActRows(of));
  }
  static LinearSpec Product(LinearSpec spec) {
    spec.n = spec.weight_rows();
    spec.norm.reset();
    spec.act = LinearAct::kNone;
    spec.gated = false;
    return spec;
  }
  bool HasNormWeight() const { return spec.norm.has_value() && spec.norm->weight.has_value(); }
  bool HasNormBias() const { return spec.norm.has_value() && spec.norm->bias.has_value(); }

  std::vector<Planned*> Kernels() {
    std::vector<Planned*> all = {&whole, &product};
    if (norm != nullptr) all.push_back(norm.get());
    if (act != nullptr) all.push_back(act.get());
    return all;
  }

  struct Memory {
    CuDevicePtr x, weight, bias, residual, norm_weight, norm_bias, y, normed, summed, workspace;
  };
  void EnqueueWhole(const Memory& m, int64_t rows) const {
    std::vector<CuDevicePtr> operands = {m.x, m.weight};
    if (spec.bias) operands.push_back(m.bias);
    if (spec.residual) operands.push_back(m.residual);
    if (HasNormWeight()) operands.push_back(m.norm_weight);
    if (HasNormBias()) operands.push_back(m.norm_bias);
    operands.push_back(m.y);
    whole.Enqueue(whole.Launches(rows), operands, m.workspace);
  }
  void EnqueueParts(const Memory& m, int64_t rows) const {
    if (norm != nullptr) {
      std::vector<CuDevicePtr> operands = {m.x};
      if (HasNormWeight()) operands.push_back(m.norm_weight);
      if (HasNormBias()) operands.push_back(m.norm_bias);
      operands.push_back(m.normed);
      norm->Enqueue(norm->Launches(rows), operands, m.workspace);
    }
    std::vector<CuDevicePtr> operands = {norm != nullptr ? m.normed : m.x, m.weight};
    if (spec.bias) operands.push_back(m.bias);
    if (spec.residual) operands.push_back(m.residual);
    operands.push_back(act != nullptr ? m.summed : m.y);
    product.Enqueue(product.Launches(rows), operands, m.workspace);
    if (act != nullptr) act->Enqueue(act->Launches(rows), {m.summed, m.y}, m.workspace);
  }

  const LinearSpec spec;
  Planned whole, product;
  std::unique_ptr<Planned> norm, act;
};

void CompilePairs(const Gpu& gpu, const std::vector<std::unique_ptr<Pair>>& pairs) {
  std::vector<Planned*> kernels;
  for (const auto& pair : pairs) {
    for (Planned* kernel : pair->Kernels()) kernels.push_back(kernel);
  }
  Compile(gpu, kernels);
}

NormSpec Rms(DType weight, double offset = 0) {
  NormSpec norm;
  norm.eps = 1e-5;
  norm.weight = weight;
  norm.weight_offset = offset;
  return norm;
}
NormSpec Layer(DType weight, DType bias) {
  NormSpec norm;
  norm.kind = NormSpec::Kind::kLayer;
  norm.eps = 1e-6;
  norm.weight = weight;
  norm.bias = bias;
  return norm;
}

LinearSpec Fused(LinearSpec spec, const std::optional<NormSpec>& norm, LinearAct act, bool gated) {
  spec.norm = norm;
  spec.act = act;
  spec.gated = gated;
  return spec;
}

std::vector<LinearSpec> CheckedSpecs(bool quick) {
  constexpr auto kB = DType::kBF16, kH = DType::kF16, kF = DType::kF32;
  NormSpec bare;
  bare.eps = 1e-6;
  if (quick) {
    // For a sanitizer: every body with what it computes beside the product.
    return {Fused(Spec(43, 208, kB, kB, true, false), Rms(kF, 1), LinearAct::kGeluTanh, true),
            Fused(Spec(21, 264, kH, kF, true, false), Layer(kH, kF), LinearAct::kGelu, false),
            Fused(Spec(48, 512, kB, kB, false, false), Rms(kB), LinearAct::kSilu, true),
            Fused(Spec(48, 512, kH, kH, true, false), Layer(kH, kF), LinearAct::kGelu, false)};
  }
  std::vector<LinearSpec> specs = {
      Fused(Spec(43, 208, kB, kB, true, false), Rms(kF, 1), LinearAct::kGeluTanh, true),
      Fused(Spec(21, 2120, kH, kF, true, false), Layer(kH, kF), LinearAct::kGelu, false),
      Fused(Spec(1536, 576, kB, kB, false, false), Rms(kB), LinearAct::kSilu, true),
  };
  for (LinearAct act :
       {LinearAct::kGeluQuick, LinearAct::kRelu, LinearAct::kTanh, LinearAct::kSigmoid}) {
    specs.push_back(Fused(Spec(100, 768, kB, kB, true, false), bare, act, act == LinearAct::kTanh));
  }
  specs.push_back(Fused(Spec(11008, 4096, kB, kB, false, false), Rms(kF), LinearAct::kSilu, true));
  specs.push_back(Fused(Spec(12288, 4096, kB, kB, false, false), Rms(kB), LinearAct::kNone, false));
  specs.push_back(
      Fused(Spec(1024, 8192, kB, kB, false, true), Layer(kB, kB), LinearAct::kNone, false));
  specs.push_back(Fused(Spec(4096, 11008, kH, kH, false, false), Rms(kH), LinearAct::kGelu, true));
  specs.push_back(Fused(Spec(512, 14336, kB, kB, false, false), Rms(kF), LinearAct::kSilu, false));
  LinearSpec blocks = Spec(11008, 4096, kB, kB, false, false);
  blocks.weight = DType::kQ4_K;
  specs.push_back(Fused(blocks, Rms(kF), LinearAct::kSilu, true));
  blocks = Spec(43, 2080, kB, kF, true, false);
  blocks.weight = DType::kQ8_0;
  specs.push_back(Fused(blocks, Rms(kF), LinearAct::kSilu, true));
  return specs;
}

// Any values for floats; of blocks whose scales are ones of a size near 2^-6.
std::vector<uint8_t> DrawWeight(DType dtype, int64_t elements, Random& random) {
  std::vector<uint8_t> bytes(static_cast<size_t>(RowBytes(dtype, elements)));
  if (!IsBlockType(dtype)) {
    for (size_t i = 0; i < bytes.size() / 2; ++i) {
      const float value = random.Value();
      const uint16_t bits = dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
      __builtin_memcpy(&bytes[2 * i], &bits, 2);
    }
    return bytes;
  }
  const auto block = static_cast<size_t>(InfoOf(dtype).block_bytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(random.Next() >> 32);
    if (i % block == 1 || (block % 4 == 0 && i % block == 3)) bytes[i] = 0x24;
  }
  return bytes;
}

}  // namespace

int CheckFused(const Gpu& gpu, bool quick) {
  constexpr int64_t kRows = 300;
  std::vector<std::unique_ptr<Pair>> pairs;
  for (const LinearSpec& spec : CheckedSpecs(quick)) {
    pairs.push_back(std::make_unique<Pair>(gpu, spec));
  }
  CompilePairs(gpu, pairs);
  const CuDevicePtr workspace = gpu.AllocateScratch(kWorkspaceBytes, kCudaZeroBytes);
  int64_t wrong = 0;
  for (const auto& pair : pairs) {
    const LinearSpec& spec = pair->spec;
    Random random{static_cast<uint64_t>(spec.n)};
    std::vector<CuDevicePtr> owned;
    const auto place = [&](const std::vector<uint8_t>& bytes) {
      owned.push_back(gpu.Allocate(bytes.size()));
      gpu.Upload(owned.back(), bytes.data(), bytes.size());
      return owned.back();
    };
    const auto floats = [&](int64_t count) {
      std::vector<uint8_t> bytes(static_cast<size_t>(count) * 4);
      for (int64_t i = 0; i < count; ++i) {
        const float value = random.Value();
        __builtin_memcpy(&bytes[static_cast<size_t>(i) * 4], &value, 4);
      }
      return place(bytes);
    };
    const auto parameter = [&](std::optional<DType> dtype) -> CuDevicePtr {
      if (!dtype.has_value()) return 0;
      return *dtype == DType::kF32 ? floats(spec.k) : place(DrawWeight(*dtype, spec.k, random));
    };
    const auto y_bytes = static_cast<size_t>(RowBytes(spec.y, spec.n) * kRows);
    Pair::Memory m = {};
    m.x = place(DrawWeight(spec.x, kRows * spec.k, random));
    m.weight = place(DrawWeight(spec.weight, spec.weight_rows() * spec.k, random));
    m.bias = floats(spec.weight_rows());
    m.residual = place(DrawWeight(DType::kBF16, kRows * spec.n * 2, random));
    if (spec.norm.has_value()) {
      m.norm_weight = parameter(spec.norm->weight);
      m.norm_bias = parameter(spec.norm->bias);
    }
    for (CuDevicePtr* memory : {&m.y, &m.normed, &m.summed}) {
      *memory =
          gpu.Allocate(memory == &m.normed ? static_cast<size_t>(kRows * spec.k * 2) : 2 * y_bytes);
      owned.push_back(*memory);
    }
    m.workspace = workspace;
    std::vector<uint8_t> all(y_bytes), y(y_bytes);
    pair->EnqueueParts(m, kRows);
    gpu.Download(all.data(), m.y, y_bytes);
    int64_t own = 0;
    for (int64_t rows : {300, 128, 64, 33, 17, 16, 9, 8, 5, 2, 1}) {
      if (quick && (rows == 300 || rows == 17 || rows == 9 || rows == 5 || rows == 1)) continue;
      gpu.Fill(m.y, 0xee, y_bytes);
      pair->EnqueueWhole(m, rows);
      pair->EnqueueWhole(m, rows);
      gpu.Download(y.data(), m.y, y_bytes);
      const auto bytes = static_cast<ptrdiff_t>(RowBytes(spec.y, spec.n) * rows);
      const bool equal = std::equal(y.begin(), y.begin() + bytes, all.begin());
      const bool beyond =
          std::all_of(y.begin() + bytes, y.end(), [](uint8_t byte) { return byte == 0xee; });
      if (!equal || !beyond) {
        ++own;
        std::printf("DIFFERS: %s rows %ld equal %d beyond %d\n", SpecText(spec).c_str(),
                    static_cast<long>(rows), equal, beyond);
      }
    }
    // What is compared is not all of one value.
    const auto same = std::count(all.begin() + 1, all.end(), all[0]);
    std::printf("%s: %ld wrong, %.1f%% of one byte\n", SpecText(spec).c_str(),
                static_cast<long>(own),
                100.0 * static_cast<double>(same) / static_cast<double>(all.size()));
    std::fflush(stdout);
    wrong += own;
    for (CuDevicePtr memory : owned) gpu.Free(memory);
  }
  std::printf("fused: %zu linears, %ld wrong\n", pairs.size(), static_cast<long>(wrong));
  return wrong == 0 ? 0 : 1;
}

int TimeFused(const Gpu& gpu) {
  constexpr size_t kPoolBytes = size_t{2} << 30, kMostRows = 4096;
  constexpr auto kB = DType::kBF16;
  const std::vector<LinearSpec> specs = {
      Fused(Spec(12288, 4096, kB, kB, false, false), Rms(kB), LinearAct::kNone, false),
      Fused(Spec(11008, 4096, kB, kB, false, false), Rms(kB), LinearAct::kSilu, true),
      Fused(Spec(11008, 4096, kB, kB, false, false), std::nullopt, LinearAct::kSilu, true),
      Fused(Spec(6144, 4096, kB, kB, false, false), Rms(kB), LinearAct::kNone, false),
      Fused(Spec(14336, 4096, kB, kB, false, false), Rms(kB), LinearAct::kSilu, true)};
  std::vector<std::unique_ptr<Pair>> pairs;
  for (const LinearSpec& spec : specs) pairs.push_back(std::make_unique<Pair>(gpu, spec));
  CompilePairs(gpu, pairs);
  const CuDevicePtr pool = gpu.Allocate(kPoolBytes);
  std::vector<uint16_t> values(size_t{16} << 20);
  Random random{5};
  for (uint16_t& value : values) value = F32ToBF16(random.Value());
  for (size_t at = 0; at < kPoolBytes; at += values.size() * 2) {
    gpu.Upload(pool + at, values.data(), values.size() * 2);
  }
  Pair::Memory m = {};
  m.workspace = gpu.AllocateScratch(kWorkspaceBytes, kCudaZeroBytes);
  m.x = gpu.Allocate(kMostRows * 4096 * 2);
  gpu.Copy(m.x, pool, kMostRows * 4096 * 2);
  m.normed = gpu.Allocate(kMostRows * 4096 * 2);
  m.y = gpu.Allocate(kMostRows * 32768 * 2);
  m.summed = gpu.Allocate(kMostRows * 32768 * 2);
  for (const auto& pair : pairs) {
    const LinearSpec& spec = pair->spec;
    const auto bytes = static_cast<size_t>(spec.weight_rows() * spec.k * 2);
    const size_t weights = kPoolBytes / bytes - 1;
    for (int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 512, 4096}) {
      double us[2];
      for (bool whole : {true, false}) {
        us[whole ? 0 : 1] = gpu.TimeGraph(9, [&] {
          for (size_t i = 0; i < weights; ++i) {
            m.weight = pool + i * bytes;
            m.norm_weight = pool + kPoolBytes - bytes + i * 65536;  // its own, as of a layer
            if (whole) {
              pair->EnqueueWhole(m, rows);
            } else {
              pair->EnqueueParts(m, rows);
            }
          }
        }) / static_cast<double>(weights);
      }
      std::printf("%ld %ld%s%s rows %ld: %.2f us, in parts %.2f (%.2f TB/s)\n",
                  static_cast<long>(spec.n), static_cast<long>(spec.k),
                  spec.norm.has_value() ? " norm" : "", spec.gated ? " gated" : "",
                  static_cast<long>(rows), us[0], us[1], static_cast<double>(bytes) / us[0] / 1e6);
    }
    std::fflush(stdout);
  }
  return 0;
}

int TimeChain(const Gpu& gpu, const std::vector<int64_t>& all_rows) {
  constexpr auto kB = DType::kBF16;
  constexpr int kLayers = 8;
  const std::vector<LinearSpec> specs = {
      Fused(Spec(12288, 4096, kB, kB, false, false), Rms(kB), LinearAct::kNone, false),
      Spec(4096, 4096, kB, kB, false, true),
      Fused(Spec(11008, 4096, kB, kB, false, false), Rms(kB), LinearAct::kSilu, true),
      Spec(4096, 11008, kB, kB, false, true)};
  std::vector<std::unique_ptr<Planned>> linears;
  std::vector<Planned*> kernels;
  size_t layer_bytes = 0;
  for (const LinearSpec& spec : specs) {
    linears.push_back(std::make_unique<Planned>(gpu, spec));
    kernels.push_back(linears.back().get());
    layer_bytes += static_cast<size_t>(spec.weight_rows() * spec.k * 2);
  }
  Compile(gpu, kernels);
  const CuDevicePtr pool = gpu.Allocate(kLayers * layer_bytes);
  std::vector<uint16_t> values(size_t{16} << 20);
  Random random{5};
  for (uint16_t& value : values) value = F32ToBF16(random.Value() / 32);
  for (size_t at = 0; at < kLayers * layer_bytes; at += values.size() * 2) {
    gpu.Upload(pool + at, values.data(), std::min(values.size() * 2, kLayers * layer_bytes - at));
  }
  const CuDevicePtr workspace = gpu.AllocateScratch(kWorkspaceBytes, kCudaZeroBytes);
  const auto rows_of = [&](int64_t columns) {
    const CuDevicePtr memory = gpu.Allocate(static_cast<size_t>(512 * columns * 2));
    gpu.Copy(memory, pool, static_cast<size_t>(512 * columns * 2));
    return memory;
  };
  const CuDevicePtr x = rows_of(4096), qkv = rows_of(12288), attended = rows_of(4096),
                    added = rows_of(4096), gated = rows_of(11008), norm = rows_of(4096);
  for (int64_t rows : all_rows) {
    const double us = gpu.TimeGraph(9, [&] {
      for (size_t layer = 0; layer < 4 * kLayers; ++layer) {
        CuDevicePtr weight = pool + layer % kLayers * layer_bytes;
        const auto run = [&](size_t i, std::vector<CuDevicePtr> operands) {
          operands.insert(operands.begin() + 1, weight);
          linears[i]->Enqueue(linears[i]->Launches(rows), operands, workspace);
          weight += static_cast<CuDevicePtr>(specs[i].weight_rows() * specs[i].k * 2);
        };
        run(0, {x, norm, qkv});
        run(1, {attended, x, added});
        run(2, {added, norm, gated});
        run(3, {gated, added, x});
      }
    }) / (4 * kLayers);
    std::printf("chain rows %ld: %.2f us a layer (%.2f TB/s)\n", static_cast<long>(rows), us,
                static_cast<double>(layer_bytes) / us / 1e6);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace quire::bench
