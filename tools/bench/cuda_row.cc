// CUDA row kernels on this machine's GPU, of a Llama 7B's step and a few more:
//
//   bench_cuda_row check    every kernel's results beside the interpreter's, at few row counts
//   bench_cuda_row time     microseconds of one launch in a chain of dependent ones, and the share
//                           of 4.24 TB/s, a copy's rate on an H200, that needed bytes are moved at
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/substitute.h"
#include "codegen/cuda/row.h"
#include "codegen/row_func.h"
#include "ir/reference/dequantize.h"
#include "ir/reference/interpreter.h"
#include "tools/bench/cuda_gpu.h"

namespace quire::bench {
namespace {

struct Case {
  std::string name;
  RowSpec spec;
};

std::string Append(int hq, int hkv, int d, bool normed) {
  const int q = hq * d, k = hkv * d;
  std::string text = absl::Substitute(
      "func @row(%0: bf16[T,$0], %1: i32[T]$1) {\n"
      "  %v0 = cast %0 : f32[T,$0]\n",
      q + 2 * k, normed ? absl::Substitute(", %2: bf16[$0], %3: bf16[$0]", d) : "");
  absl::SubstituteAndAppend(&text,
                            "  %v1 = slice %v0 {axis=1, begin=0, end=$0} : f32[T,$0]\n"
                            "  %v2 = slice %v0 {axis=1, begin=$0, end=$1} : f32[T,$3]\n"
                            "  %v3 = slice %v0 {axis=1, begin=$1, end=$2} : f32[T,$3]\n"
                            "  %v4 = reshape %v1 : f32[T,$4,$6]\n"
                            "  %v5 = reshape %v2 : f32[T,$5,$6]\n"
                            "  %v6 = reshape %v3 : f32[T,$5,$6]\n",
                            q, q + k, q + 2 * k, k, hq, hkv, d);
  if (normed) {
    absl::SubstituteAndAppend(&text,
                              "  %v7 = rms_norm %v4, %2 {eps=0.000001} : f32[T,$0,$2]\n"
                              "  %v8 = rms_norm %v5, %3 {eps=0.000001} : f32[T,$1,$2]\n",
                              hq, hkv, d);
  }
  absl::SubstituteAndAppend(&text,
                            "  %v9 = rope $3, %1 {theta=10000} : f32[T,$0,$2]\n"
                            "  %v10 = rope $4, %1 {theta=10000} : f32[T,$1,$2]\n"
                            "  %v11 = kv_append %v10 {layer=0, slot=k} : bf16[C,$1,$2]\n"
                            "  %v12 = kv_append %v6 {layer=0, slot=v} : bf16[C,$1,$2]\n"
                            "  %v13 = cast %v9 : bf16[T,$0,$2]\n"
                            "  return %v13\n}\n",
                            hq, hkv, d, normed ? "%v7" : "%v4", normed ? "%v8" : "%v5");
  return text;
}

std::string Norm(int width, bool sum) {
  return absl::Substitute(sum ? "func @row(%0: bf16[T,$0], %1: bf16[T,$0], %2: bf16[$0]) {\n"
                                "  %v0 = cast %0 : f32[T,$0]\n"
                                "  %v1 = cast %1 : f32[T,$0]\n"
                                "  %v2 = add %v0, %v1 : f32[T,$0]\n"
                                "  %v3 = rms_norm %v2, %2 {eps=0.00001} : f32[T,$0]\n"
                                "  %v4 = cast %v2 : bf16[T,$0]\n"
                                "  %v5 = cast %v3 : bf16[T,$0]\n"
                                "  return %v4, %v5\n}\n"
                              : "func @row(%0: bf16[T,$0], %1: bf16[$0]) {\n"
                                "  %v0 = cast %0 : f32[T,$0]\n"
                                "  %v1 = rms_norm %v0, %1 {eps=0.00001} : f32[T,$0]\n"
                                "  %v2 = cast %v1 : bf16[T,$0]\n"
                                "  return %v2\n}\n",
                          width);
}

std::string Embed(const char* dtype, int64_t table_rows) {
  return absl::Substitute(
      "func @row(%0: i32[T], %1: $0[$1,4096]) {\n"
      "  %v0 = embed %1, %0 : f32[T,4096]\n"
      "  %v1 = cast %v0 : bf16[T,4096]\n"
      "  return %v1\n}\n",
      dtype, table_rows);
}

std::vector<Case> Cases(int64_t table_rows) {
  return {
      {"norm 4096", {Norm(4096, false), 0}},
      {"norm 8192", {Norm(8192, false), 0}},
      {"norm 576", {Norm(576, false), 0}},
      {"sum and norm 4096", {Norm(4096, true), 0}},
      {"rope, append 32+32x128", {Append(32, 32, 128, false), 16}},
      {"rope, append 32+8x128", {Append(32, 8, 128, false), 16}},
      {"norm, rope, append 32+8x128", {Append(32, 8, 128, true), 16}},
      {"rope, append 9+3x64", {Append(9, 3, 64, false), 16}},
      {"rope, append 8+4x256", {Append(8, 4, 256, false), 16}},
      {"silu gate 11008",
       {"func @row(%0: bf16[T,22016]) {\n"
        "  %v0 = cast %0 : f32[T,22016]\n"
        "  %v1 = slice %v0 {axis=1, begin=0, end=11008} : f32[T,11008]\n"
        "  %v2 = slice %v0 {axis=1, begin=11008, end=22016} : f32[T,11008]\n"
        "  %v3 = silu %v1 : f32[T,11008]\n"
        "  %v4 = mul %v3, %v2 : f32[T,11008]\n"
        "  %v5 = cast %v4 : bf16[T,11008]\n"
        "  return %v5\n}\n",
        0}},
      {"gelu 11008",
       {"func @row(%0: bf16[T,11008]) {\n"
        "  %v0 = cast %0 : f32[T,11008]\n"
        "  %v1 = gelu %v0 : f32[T,11008]\n"
        "  %v2 = cast %v1 : bf16[T,11008]\n"
        "  return %v2\n}\n",
        0}},
      {"embed bf16 4096", {Embed("bf16", table_rows), 0}},
      {"embed q4_k 4096", {Embed("q4_k", table_rows), 0}},
  };
}

// A kernel, its operands for up to `rows` rows on the device, and their values.
class Rig {
 public:
  Rig(const Gpu& gpu, const Case& c, const std::string& cubin,
      const std::shared_ptr<CudaKernel>& kernel, int64_t rows, bool has_values)
      : gpu_(gpu), spec_(c.spec), kernel_(kernel), rows_(rows), has_values_(has_values) {
    module_ = OrDie(ParseRowFunc(spec_, "bench"));
    const CudaEntry& entry = kernel->entries()[0];
    function_ = gpu.Load(cubin, entry.entry, entry.shared_bytes);
    for (const auto& arg : func().args()) MakeArgument(*arg);
    int64_t layer_bytes = 0;
    for (const auto& op : func().ops()) {
      if (!op->Is(OpKind::kKvAppend)) continue;
      layer_bytes += RowBytes(op->type.dtype, ElementsOf(*op->operand(0)));
    }
    row_bytes_ += layer_bytes;
    pool_bytes_ = static_cast<size_t>(layer_bytes * (rows + 32));
    pool_ = gpu.Allocate(pool_bytes_);
    for (const auto& op : func().ops()) {
      if (op->Is(OpKind::kKvAppend)) operands_.push_back(pool_);
    }
    for (const Op* value : func().returns()) {
      const int64_t bytes = RowBytes(value->type.dtype, ElementsOf(*value));
      row_bytes_ += bytes;
      operands_.push_back(gpu.Allocate(static_cast<size_t>(rows * bytes)));
    }
    std::vector<int32_t> slots(static_cast<size_t>(rows));
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(slots.size() - 1 - i);
    if (rows > 1) slots[slots.size() - 1] = -1;
    slots_ = gpu.Allocate(slots.size() * 4);
    gpu.Upload(slots_, slots.data(), slots.size() * 4);
  }

  const Func& func() const { return *module_.funcs[0]; }
  int64_t row_bytes() const { return row_bytes_; }

  void Enqueue(int64_t rows) const {
    const CudaLaunches launches = kernel_->Launches(rows);
    const CudaLaunch& launch = launches.launches[0];
    KernelArguments arguments;
    for (const CudaArgument& argument : launch.arguments) {
      if (argument.kind == CudaArgument::Kind::kOperand) {
        arguments.Add(operands_[static_cast<size_t>(argument.value)]);
      } else if (argument.kind == CudaArgument::Kind::kTokenSlots) {
        arguments.Add(slots_);
      } else {
        arguments.Add(static_cast<int32_t>(argument.value));
      }
    }
    const CudaEntry& entry = kernel_->entries()[0];
    gpu_.Launch(function_, launch.grid, entry.block_threads, entry.shared_bytes, true, arguments);
  }

  // The largest error in units of what rounding explains.
  double Check() const {
    const size_t first = operands_.size() - func().returns().size();
    reference::Inputs inputs;
    for (size_t i = 0; i < tensors_.size(); ++i) inputs.args[func().args()[i]->name] = tensors_[i];
    reference::KvState kv;
    inputs.kv = &kv;
    const auto want = OrDie(reference::Interpret(func(), inputs));
    Enqueue(rows_);
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      std::vector<uint16_t> got(want[i].values.size());
      gpu_.Download(got.data(), operands_[first + i], got.size() * 2);
      for (size_t j = 0; j < got.size(); ++j)
        worst = std::max(worst, Error(got[j], want[i].values[j]));
    }
    if (pool_bytes_ == 0) return worst;
    std::vector<uint16_t> pool(pool_bytes_ / 2);
    gpu_.Download(pool.data(), pool_, pool_bytes_);
    for (const char* slot : {"k", "v"}) {
      const reference::Tensor& rows = kv.rows.at({0, slot});
      const int64_t heads = rows.extents[1], width = rows.extents[2], page = spec_.page_tokens;
      for (int64_t row = 0; row + 1 < rows_; ++row) {
        const int64_t token = rows_ - 1 - row;
        for (int64_t at = 0; at < heads * width; ++at) {
          const int64_t place = token / page * 2 * page * heads * width +
                                (*slot == 'v' ? page * heads * width : 0) +
                                (at / width * page + token % page) * width + at % width;
          worst =
              std::max(worst, Error(pool[static_cast<size_t>(place)],
                                    rows.values[static_cast<size_t>(row * heads * width + at)]));
        }
      }
    }
    return worst;
  }

 private:
  // One step of bf16 between two numbers beside a boundary, and 64 roundings of numbers up to 8.
  static double Error(uint16_t got, double want) {
    const double error = std::fabs(static_cast<double>(BF16ToF32(got)) - want);
    return error / (0x1p-7 * std::fabs(want) + 64 * 8 * 0x1p-24);
  }

  // Of ids, or else of positions.
  uint64_t LimitOf(const Op& arg) const {
    for (const auto& op : func().ops()) {
      if (!op->Is(OpKind::kEmbed) || op->operand(1) != &arg) continue;
      return static_cast<uint64_t>(op->operand(0)->type.extents[0].value());
    }
    return 1000000;
  }

  void MakeArgument(const Op& arg) {
    const Type& type = arg.type;
    reference::Tensor tensor;
    for (const Extent& extent : type.extents) {
      tensor.extents.push_back(extent.is_letter() ? rows_ : extent.value());
    }
    int64_t count = 1;
    for (int64_t extent : tensor.extents) count *= extent;
    const int64_t bytes = RowBytes(type.dtype, count);
    std::vector<uint8_t> data(static_cast<size_t>(bytes));
    std::mt19937_64 random(arguments_++);
    std::normal_distribution<float> normal;
    if (HasRowExtent(type)) row_bytes_ += bytes / rows_;
    if (type.dtype == DType::kI32) {
      for (int64_t i = 0; i < count; ++i) {
        const auto value = static_cast<int32_t>(random() % LimitOf(arg));
        std::memcpy(&data[static_cast<size_t>(4 * i)], &value, 4);
        tensor.values.push_back(value);
      }
    } else if (IsBlockType(type.dtype)) {
      row_bytes_ += bytes / tensor.extents[0];
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(random() >> 60);
    } else {
      if (!HasRowExtent(type) && type.rank() == 2) row_bytes_ += bytes / tensor.extents[0];
      for (int64_t i = 0; i < count; ++i) {
        const uint16_t bits = F32ToBF16(i < 1 << 20 ? normal(random) : 0.5f);
        std::memcpy(&data[static_cast<size_t>(2 * i)], &bits, 2);
      }
    }
    if (type.dtype != DType::kI32 && has_values_) {
      tensor.values.resize(static_cast<size_t>(count));
      const absl::Status status = Dequantize(type.dtype, data, absl::MakeSpan(tensor.values));
      if (!status.ok()) Die(status);
    }
    operands_.push_back(gpu_.Allocate(data.size()));
    gpu_.Upload(operands_.back(), data.data(), data.size());
    tensors_.push_back(std::move(tensor));
  }

  const Gpu& gpu_;
  const RowSpec spec_;
  const std::shared_ptr<CudaKernel> kernel_;
  const int64_t rows_;
  const bool has_values_;  // to compute with on the CPU
  Module module_;
  CuFunction function_ = nullptr;
  std::vector<CuDevicePtr> operands_;
  std::vector<reference::Tensor> tensors_;
  CuDevicePtr pool_ = 0, slots_ = 0;
  size_t pool_bytes_ = 0;
  int64_t row_bytes_ = 0;
  uint64_t arguments_ = 0;
};

int Main(const std::string& mode) {
  const Gpu gpu;
  const std::vector<Case> cases = Cases(mode == "check" ? 1000 : 32000);
  std::vector<std::shared_ptr<CudaKernel>> kernels;
  std::vector<std::pair<std::string, std::string>> sources;
  for (const Case& c : cases) {
    kernels.push_back(OrDie(MakeCudaRow(c.spec, gpu.limits())));
    sources.emplace_back("row", kernels.back()->entries()[0].source);
  }
  const std::vector<std::string> cubins = CompileAll(sources, gpu.architecture());
  bool is_right = true;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (mode == "check") {
      for (int64_t rows : {1, 2, 19}) {
        const double error = Rig(gpu, cases[i], cubins[i], kernels[i], rows, true).Check();
        is_right = is_right && error <= 1;
        std::printf("%-30s %4ld rows: largest error %.3f of the bound\n", cases[i].name.c_str(),
                    static_cast<long>(rows), error);
      }
      continue;
    }
    std::printf("%-30s", cases[i].name.c_str());
    for (int64_t rows : {1, 8, 32, 4096}) {
      // Operands of several launches, so that many rows come from memory and not from a cache.
      std::vector<std::unique_ptr<Rig>> rigs;
      for (int j = 0; j < (rows > 1000 ? 4 : 1); ++j) {
        rigs.push_back(std::make_unique<Rig>(gpu, cases[i], cubins[i], kernels[i], rows, false));
      }
      constexpr int kCalls = 40;
      const double us = gpu.TimeGraph(7, [&] {
        for (size_t call = 0; call < kCalls; ++call) rigs[call % rigs.size()]->Enqueue(rows);
      }) / kCalls;
      std::printf(" %8.2f us", us);
      if (rows > 1000) {
        const double rate = static_cast<double>(rigs[0]->row_bytes() * rows) / us / 1e6;
        std::printf(" (%3.0f%%)", rate / 4.24 * 100);
      }
    }
    std::printf("\n");
  }
  return is_right ? 0 : 1;
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  if (argc != 2 || (std::string(argv[1]) != "check" && std::string(argv[1]) != "time")) {
    std::fprintf(stderr, "usage: bench_cuda_row check|time\n");
    return 2;
  }
  return quire::bench::Main(argv[1]);
}
