#include "tools/bench/cuda_attention_step.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "codegen/cuda/attention.h"

namespace quire::bench {

AttentionSpec MakeSpec(int64_t hq, int64_t hkv, int64_t d, int64_t page, DType dtype) {
  AttentionSpec spec;
  spec.hq = hq, spec.hkv = hkv, spec.d = spec.dv = d;
  spec.kv = spec.x = dtype;
  spec.page_tokens = page;
  spec.scale = 1 / std::sqrt(static_cast<double>(d));
  return spec;
}

std::vector<AttentionSpec> CheckedSpecs(bool quick) {
  std::vector<AttentionSpec> specs = {MakeSpec(8, 2, 128)};
  if (quick) {
    // Warps that share tiles, of wide heads, too; the other bodies of many rows.
    for (const AttentionSpec& spec :
         {MakeSpec(20, 1, 64), MakeSpec(4, 2, 256), MakeSpec(12, 1, 256, 5), MakeSpec(8, 2, 64)}) {
      specs.push_back(spec);
    }
  } else {
    for (int64_t page : {1, 3, 64, 256}) specs.push_back(MakeSpec(8, 2, 128, page));
    for (int64_t group : {1, 2, 3, 5, 6, 7, 8, 12, 16, 32, 71}) {
      specs.push_back(MakeSpec(group, 1, 64, 16, group % 2 == 0 ? DType::kF16 : DType::kBF16));
    }
    for (int64_t d : {8, 24, 64, 72, 80, 96, 112, 192, 256}) specs.push_back(MakeSpec(4, 2, d));
    specs.push_back(MakeSpec(4, 2, 256, 16, DType::kF16));
  }
  AttentionSpec spec = MakeSpec(4, 4, 192);
  spec.dv = 128;
  specs.push_back(spec);
  spec = MakeSpec(6, 2, 64, 5);
  spec.dv = 200;
  specs.push_back(spec);
  spec = MakeSpec(6, 2, 80, 7, DType::kF16);
  spec.window = 100, spec.sinks = true;
  specs.push_back(spec);
  spec = MakeSpec(6, 2, 128);
  spec.window = 600, spec.cap = 3;
  specs.push_back(spec);
  spec = MakeSpec(6, 2, 64);
  spec.alibi_max = 8, spec.cap = 2;
  specs.push_back(spec);
  spec = MakeSpec(4, 4, 64);
  spec.causal = false, spec.bias_distances = 255;
  specs.push_back(spec);
  spec = MakeSpec(4, 4, 64);
  spec.bias_distances = 128, spec.scale = 1;
  specs.push_back(spec);
  spec = MakeSpec(8, 2, 128);
  spec.tree_words = 2;
  specs.push_back(spec);
  spec.kv = DType::kF8E4M3, spec.k_scale = true;
  specs.push_back(spec);
  for (AttentionSpec bytes :
       {MakeSpec(8, 2, 128), MakeSpec(8, 2, 128, 3), MakeSpec(8, 2, 64, 1, DType::kF16),
        MakeSpec(20, 1, 80), MakeSpec(4, 2, 256), MakeSpec(3, 3, 96, 64)}) {
    bytes.kv = DType::kF8E4M3, bytes.k_scale = bytes.v_scale = bytes.hq != 3;
    specs.push_back(bytes);
  }
  return specs;
}

std::vector<LoadedAttention> LoadAttentions(const Gpu& gpu,
                                            const std::vector<AttentionSpec>& specs) {
  std::vector<LoadedAttention> loaded;
  std::vector<std::pair<std::string, std::string>> sources;
  for (const AttentionSpec& spec : specs) {
    loaded.push_back({spec, OrDie(MakeCudaAttention(spec, gpu.limits())), {}});
    for (const CudaEntry& entry : loaded.back().kernel->entries()) {
      sources.emplace_back(entry.entry, entry.source);
    }
  }
  const std::vector<std::string> cubins = CompileAll(sources, gpu.architecture());
  size_t next = 0;
  for (LoadedAttention& attention : loaded) {
    for (const CudaEntry& entry : attention.kernel->entries()) {
      attention.functions.push_back(gpu.Load(cubins[next++], entry.entry, entry.shared_bytes));
    }
  }
  return loaded;
}

AttentionStep::AttentionStep(const Gpu& gpu, const LoadedAttention& attention, int64_t max_rows,
                             int64_t max_sequences, int64_t max_pages)
    : gpu_(gpu),
      attention_(attention),
      preparation_(attention.kernel->Prepare(max_rows, max_sequences, max_pages)),
      launches_(attention.kernel->Launches(max_rows)) {
  const AttentionSpec& spec = attention.spec;
  const auto allocate = [&](int64_t bytes) { return gpu.Allocate(static_cast<size_t>(bytes)); };
  q = allocate(max_rows * spec.hq * spec.d * 2);
  y = allocate(max_rows * spec.hq * spec.dv * 2);
  key_scales = allocate(spec.hkv * 4);
  value_scales = allocate(spec.hkv * 4);
  bias = allocate(spec.hq * spec.bias_distances * 4);
  sinks = allocate(spec.hq * 4);
  tree = allocate(max_rows * spec.tree_words * 4);
  header_ = allocate(sizeof(StepHeader));
  sequences_ = allocate(max_sequences * static_cast<int64_t>(sizeof(StepSequence)));
  pages_ = allocate(max_pages * 4);
  plan_ = gpu.AllocateScratch(static_cast<size_t>(preparation_.plan_bytes), 0);
}

AttentionStep::~AttentionStep() {
  for (CuDevicePtr memory :
       {q, y, key_scales, value_scales, bias, sinks, tree, header_, sequences_, pages_, plan_}) {
    gpu_.Free(memory);
  }
  for (CuDevicePtr memory : more_pages_) gpu_.Free(memory);
}

void AttentionStep::SetBatch(const std::vector<Part>& parts, const std::vector<int>& pages) {
  StepHeader header = {};
  std::vector<StepSequence> sequences;
  const int64_t page_tokens = attention_.spec.page_tokens;
  for (const Part& part : parts) {
    sequences.push_back({header.rows, part.rows, part.context, header.pages});
    header.rows += part.rows;
    header.pages += static_cast<int>((part.context + page_tokens - 1) / page_tokens);
  }
  header.sequences = static_cast<int>(parts.size());
  parts_ = parts;
  gpu_.Upload(header_, &header, sizeof header);
  gpu_.Upload(sequences_, sequences.data(), sequences.size() * sizeof sequences[0]);
  if (!pages.empty()) gpu_.Upload(pages_, pages.data(), pages.size() * 4);
}

CuDevicePtr AttentionStep::AddPages(const std::vector<int>& pages) {
  more_pages_.push_back(gpu_.Allocate(pages.size() * 4));
  gpu_.Upload(more_pages_.back(), pages.data(), pages.size() * 4);
  return more_pages_.back();
}

void AttentionStep::Launch(const CudaLaunch& launch, CuDevicePtr layer, CuDevicePtr pages,
                           bool dependent) const {
  const AttentionSpec& spec = attention_.spec;
  std::vector<CuDevicePtr> operands = {q, layer};
  if (spec.k_scale) operands.push_back(key_scales);
  if (spec.v_scale) operands.push_back(value_scales);
  if (spec.bias_distances > 0) operands.push_back(bias);
  if (spec.sinks) operands.push_back(sinks);
  if (spec.tree_words > 0) operands.push_back(tree);
  operands.push_back(y);
  KernelArguments arguments;
  for (const CudaArgument& argument : launch.arguments) {
    switch (argument.kind) {
      case CudaArgument::Kind::kOperand:
        arguments.Add(operands.at(static_cast<size_t>(argument.value)));
        break;
      case CudaArgument::Kind::kPlan:
        arguments.Add(plan_ + static_cast<uint64_t>(argument.value));
        break;
      case CudaArgument::Kind::kHeader:
        arguments.Add(header_);
        break;
      case CudaArgument::Kind::kSequences:
        arguments.Add(sequences_);
        break;
      case CudaArgument::Kind::kPages:
        arguments.Add(pages);
        break;
      case CudaArgument::Kind::kInt32:
        arguments.Add(static_cast<int32_t>(argument.value));
        break;
      case CudaArgument::Kind::kTensorMap: {
        const CudaTensorMap& map = launch.tensor_maps.at(static_cast<size_t>(argument.value));
        arguments.Add(gpu_.Encode(map, operands.at(static_cast<size_t>(map.base.value))));
        break;
      }
      default:
        Die(absl::InternalError("attention takes an argument that it should not"));
    }
  }
  const CudaEntry& entry = attention_.kernel->entries()[launch.entry];
  gpu_.Launch(attention_.functions[launch.entry], launch.grid, entry.block_threads,
              entry.shared_bytes, dependent, arguments);
}

void AttentionStep::Prepare() const {
  for (const CudaLaunch& launch : preparation_.launches) Launch(launch, 0, pages_, false);
}

void AttentionStep::Attend(CuDevicePtr layer, CuDevicePtr pages, bool dependent) const {
  for (const CudaLaunch& launch : launches_.launches) {
    const auto has_work = [&](const Part& part) {
      return launch.work.HasWork(part.rows, part.context);
    };
    if (!std::any_of(parts_.begin(), parts_.end(), has_work)) continue;
    Launch(launch, layer, pages == 0 ? pages_ : pages, dependent);
  }
}

}  // namespace quire::bench

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "", how = argc > 2 ? argv[2] : "";
  if (mode == "check") {
    return quire::bench::CheckAttention(quire::bench::Gpu(how != "quick"), how);
  }
  if (mode == "time") return quire::bench::TimeAttention(quire::bench::Gpu(), how);
  std::fprintf(stderr, "usage: bench_cuda_attention check [HOW] | time [WHICH]\n");
  return 2;
}
