// From a plan's program to launches that can run.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "codegen/cpu/relative_bias.h"
#include "ir/status.h"
#include "runtime/cpu/cpu_program.h"
#include "runtime/float_weights.h"

namespace quire {
namespace {

// Calls work(i) for i in [0, count) on up to `threads` threads; the first error.
absl::Status ForEach(size_t count, int threads, absl::FunctionRef<absl::Status(size_t)> work) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status status;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) {
      absl::Status one = work(i);
      if (one.ok()) continue;
      const std::lock_guard<std::mutex> lock(mutex);
      status.Update(one);
      next = count;
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads && static_cast<size_t>(thread) < count; ++thread) {
    others.emplace_back(run);
  }
  run();
  for (std::thread& other : others) other.join();
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuProgram>> CpuProgram::Load(CpuDevice& device,
                                                             const plan::TargetT& target,
                                                             absl::string_view name,
                                                             const WeightSource& weights) {
  QUIRE_ASSIGN_OR_RETURN(const plan::ProgramT* program, FindProgram(target, name));
  std::unique_ptr<CpuProgram> loaded(new CpuProgram(device));
  for (size_t i = 0; i < kCaches; ++i) {
    QUIRE_ASSIGN_OR_RETURN(loaded->layouts_[i],
                           KvLayout::Create(target, static_cast<plan::KvCache>(i)));
  }
  if (program->name == "encode") loaded->own_ = plan::KvCache::Cross;
  loaded->forms_ = FormsOf(target, *program);
  QUIRE_ASSIGN_OR_RETURN(loaded->limits_, LimitsOf(target, *program));
  QUIRE_RETURN_IF_ERROR(loaded->LoadKernels(target, *program));
  QUIRE_RETURN_IF_ERROR(loaded->LoadWeights(target, *program, weights));
  for (const auto& launch : program->launches) {
    QUIRE_RETURN_IF_ERROR(loaded->BindLaunch(*program, *launch));
  }
  QUIRE_RETURN_IF_ERROR(loaded->Finish());
  return loaded;
}

absl::Status CpuProgram::LoadKernels(const plan::TargetT& target, const plan::ProgramT& program) {
  // Each with the first launch that it is for.
  std::map<uint32_t, const plan::LaunchT*> used;
  for (const auto& launch : program.launches) used.emplace(launch->kernel, launch.get());
  const std::vector<std::pair<uint32_t, const plan::LaunchT*>> kernels(used.begin(), used.end());
  std::vector<const CpuKernel*> built(kernels.size());
  QUIRE_RETURN_IF_ERROR(
      ForEach(kernels.size(), device_.threads().threads(), [&](size_t i) -> absl::Status {
        const auto& [kernel, launch] = kernels[i];
        const auto one = device_.kernels().Build(target.kernels[kernel]->spec);
        if (!one.ok()) {
          return WithPrefix(one.status(),
                            absl::StrCat("launch ", launch->name, ", kernel ", kernel));
        }
        built[i] = *one;
        return absl::OkStatus();
      }));
  for (size_t i = 0; i < kernels.size(); ++i) kernels_[kernels[i].first] = built[i];
  return absl::OkStatus();
}

absl::Status CpuProgram::LoadWeights(const plan::TargetT& target, const plan::ProgramT& program,
                                     const WeightSource& source) {
  // In order of use, side by side in one memory: what is fetched ahead of a weight's end is the
  // next weight's beginning.
  std::vector<uint32_t> order;
  std::vector<int64_t> places;
  int64_t end = 0;
  for (const auto& launch : program.launches) {
    const auto* linear = std::get_if<LinearSpec>(&kernels_.at(launch->kernel)->spec);
    for (size_t i = 0; i < launch->inputs.size(); ++i) {
      if (launch->inputs[i].kind() != plan::OperandKind::Weight) continue;
      const uint32_t index = launch->inputs[i].index();
      const plan::WeightSlotT& slot = *target.weights[index];
      const CpuKernel* kernel = kernels_.at(launch->kernel);
      const int64_t heads = KvScaleHeads(kernel->spec, kernel->rows, i);
      if (heads > 0) {
        std::vector<float>& scales = kv_scales_[{index, heads}];
        if (scales.empty()) {
          QUIRE_ASSIGN_OR_RETURN(scales, LoadKvScales(slot, source, heads));
        }
      } else if (const auto* attention = std::get_if<AttentionSpec>(&kernel->spec)) {
        QUIRE_ASSIGN_OR_RETURN(const std::vector<float> table, LoadBias(slot, source));
        if (static_cast<int64_t>(table.size()) < attention->buckets * attention->hq) {
          return BadLaunch(*launch, "its table of biases is too small");
        }
        relative_[{index, kernel}] = UnrollBiases(*attention, table);
      } else if (linear != nullptr && i == 2) {
        QUIRE_ASSIGN_OR_RETURN(biases_[index], LoadBias(slot, source));
      } else if (weights_.try_emplace(index).second) {
        QUIRE_ASSIGN_OR_RETURN(const int64_t room, PackedRoom(slot));
        order.push_back(index);
        places.push_back(end);
        end += (room + 63) / 64 * 64;
      }
    }
  }
  QUIRE_ASSIGN_OR_RETURN(packed_, HostMemory::Allocate(end));
  QUIRE_RETURN_IF_ERROR(
      ForEach(order.size(), device_.threads().threads(), [&](size_t i) -> absl::Status {
        const plan::WeightSlotT& slot = *target.weights[order[i]];
        QUIRE_ASSIGN_OR_RETURN(const int64_t room, PackedRoom(slot));
        QUIRE_ASSIGN_OR_RETURN(
            weights_.at(order[i]),
            LoadCpuWeight(slot, source, {packed_.data() + places[i], static_cast<size_t>(room)}));
        return absl::OkStatus();
      }));
  CopyWeights(target, program);
  return absl::OkStatus();
}

// Packed weights that linears read: whole, in every step.
void CpuProgram::CopyWeights(const plan::TargetT& target, const plan::ProgramT& program) {
  copies_ = std::make_unique<BackgroundCopy>();
  std::set<uint32_t> added;
  for (const auto& launch : program.launches) {
    if (!std::holds_alternative<LinearSpec>(kernels_.at(launch->kernel)->spec)) continue;
    const uint32_t index = launch->inputs[1].index();
    const plan::WeightSlotT& slot = *target.weights[index];
    if (!slot.packed || !added.insert(index).second) continue;
    copies_->Add(weights_.at(index).data, static_cast<int64_t>(slot.bytes));
  }
}

absl::StatusOr<CpuProgram::Operand> CpuProgram::Bind(const plan::Operand& operand,
                                                     const plan::ProgramT& program) const {
  Operand bound;
  switch (operand.kind()) {
    case plan::OperandKind::Argument: {
      bound.place = Operand::Place::kArgument;
      QUIRE_ASSIGN_OR_RETURN(bound.argument,
                             StepArgumentNamed(program.arguments[operand.index()]->name));
      return bound;
    }
    case plan::OperandKind::Buffer:
      bound.place = Operand::Place::kBuffer;
      bound.buffer = operand.index();
      return bound;
    case plan::OperandKind::Weight:
      bound.fixed = weights_.at(operand.index()).data;
      return bound;
    case plan::OperandKind::KvLayer:
      bound.place = Operand::Place::kLayer;
      bound.cache = forms_.layers[operand.index()].cache;
      bound.layer_offset = LayoutOf(bound.cache).layers[operand.index()].offset;
      return bound;
    case plan::OperandKind::None:
      break;
  }
  return absl::InvalidArgumentError("an operand is missing");
}

absl::Status CpuProgram::BindLaunch(const plan::ProgramT& program, const plan::LaunchT& launch) {
  Launch bound;
  bound.kernel = kernels_.at(launch.kernel);
  bound.rows_are_t = launch.rows == "T";
  for (size_t i = 0; i < launch.inputs.size(); ++i) {
    const bool is_bias = i == 2 && launch.inputs[i].kind() == plan::OperandKind::Weight &&
                         std::holds_alternative<LinearSpec>(bound.kernel->spec);
    if (is_bias) {
      bound.operands.push_back(
          {Operand::Place::kFixed, biases_.at(launch.inputs[i].index()).data()});
      continue;
    }
    const uint32_t index = launch.inputs[i].index();
    const auto* attention = std::get_if<AttentionSpec>(&bound.kernel->spec);
    if (const int64_t heads = KvScaleHeads(bound.kernel->spec, bound.kernel->rows, i)) {
      if (launch.inputs[i].kind() != plan::OperandKind::Weight) {
        return BadLaunch(launch, "wrong operands");
      }
      const float* scales = kv_scales_.at({index, heads}).data();
      if (attention == nullptr) {
        bound.operands.push_back({Operand::Place::kFixed, scales});
      } else {
        const bool is_k = i == 2 && attention->k_scale;
        (is_k ? bound.tables.k_scales : bound.tables.v_scales) = scales;
      }
      continue;
    }
    if (attention != nullptr && launch.inputs[i].kind() == plan::OperandKind::Weight) {
      bound.tables.biases = relative_.at({index, bound.kernel}).data();
      continue;
    }
    QUIRE_ASSIGN_OR_RETURN(Operand operand, Bind(launch.inputs[i], program));
    bound.operands.push_back(operand);
  }
  const size_t inputs = bound.operands.size();
  for (const plan::Operand& output : launch.outputs) {
    QUIRE_ASSIGN_OR_RETURN(Operand operand, Bind(output, program));
    bound.operands.push_back(operand);
  }
  const size_t index = launches_.size();
  const KernelSpec& spec = bound.kernel->spec;
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    const size_t expected = 2u + (linear->bias ? 1 : 0) + (linear->residual ? 1 : 0);
    if (inputs != expected || launch.outputs.size() != 1)
      return BadLaunch(launch, "wrong operands");
    if (bound.kernel->quantize != nullptr) tasks_.push_back({index, Part::kQuantize});
    tasks_.push_back({index, Part::kMain});
  } else if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
    const AttentionTables& tables = bound.tables;
    const bool has_all = (tables.biases != nullptr) == (attention->buckets > 0) &&
                         (tables.k_scales != nullptr) == attention->k_scale &&
                         (tables.v_scales != nullptr) == attention->v_scale;
    if (inputs != 2 || launch.outputs.size() != 1 || !has_all) {
      return BadLaunch(launch, "wrong operands");
    }
    if (attention->page_tokens != LayoutOf(own_).page_tokens) {
      return BadLaunch(launch, "another page size");
    }
    std::unique_ptr<AttentionWork>& work = attention_[{bound.kernel, bound.operands[1].cache}];
    if (work == nullptr) work = std::make_unique<AttentionWork>(*attention);
    bound.work = work.get();
    tasks_.push_back({index, Part::kMain});
    tasks_.push_back({index, Part::kMerge});
  } else {
    QUIRE_RETURN_IF_ERROR(BindRows(launch, inputs, bound));
    QUIRE_RETURN_IF_ERROR(LimitLookups(bound.kernel->rows, program, launch, limits_));
    tasks_.push_back({index, Part::kMain});
  }
  bound.pointers.resize(bound.operands.size());
  launches_.push_back(std::move(bound));
  return absl::OkStatus();
}

// Appends of slot v point at V of their layer.
absl::Status CpuProgram::BindRows(const plan::LaunchT& launch, size_t inputs, Launch& bound) {
  const RowOperands& rows = bound.kernel->rows;
  const size_t appends = rows.append_is_v.size();
  if (appends > inputs) return BadLaunch(launch, "wrong operands");
  plan::KvCache cache = own_;
  for (size_t i = 0; i < appends; ++i) {
    const plan::Operand& layer = launch.inputs[inputs - appends + i];
    if (layer.kind() != plan::OperandKind::KvLayer) return BadLaunch(launch, "wrong operands");
    Operand& operand = bound.operands[inputs - appends + i];
    if (i > 0 && operand.cache != cache)
      return BadLaunch(launch, "appends to pages of two classes");
    cache = operand.cache;
    if (rows.append_is_v[i]) {
      operand.layer_offset = LayoutOf(cache).layers[layer.index()].v_offset;
    }
  }
  bound.row_step = &PagesOf(cache).row_step;
  return absl::OkStatus();
}

absl::Status CpuProgram::Finish() {
  int64_t scratch_bytes = 0;
  for (const auto& [index, kernel] : kernels_) {
    scratch_bytes = std::max(scratch_bytes, kernel->scratch_bytes);
  }
  scratch_bytes = (scratch_bytes + 63) / 64 * 64;
  threads_ = std::vector<Thread>(static_cast<size_t>(device_.threads().threads()));
  for (Thread& thread : threads_) {
    constexpr int64_t kQuantizedBytes = kAloneElements / 32 * int64_t{sizeof(ActivationBlock)};
    QUIRE_ASSIGN_OR_RETURN(thread.scratch, HostMemory::Allocate(scratch_bytes + kQuantizedBytes));
    thread.quantized = reinterpret_cast<ActivationBlock*>(thread.scratch.data() + scratch_bytes);
  }
  line_ = std::make_unique<TaskLine>(static_cast<int>(tasks_.size()),
                                     [this](int task, int chunk, int chunks, int thread) {
                                       RunChunk(task, chunk, chunks, thread);
                                     });
  return absl::OkStatus();
}

}  // namespace quire
