// From a plan's program to a CudaProgram that can run.
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/greatest.h"
#include "ir/status.h"
#include "ir/text.h"
#include "runtime/cuda/cuda_program.h"

namespace quire {
absl::StatusOr<std::unique_ptr<CudaProgram>> CudaProgram::Load(CudaDevice& device,
                                                               const plan::TargetT& target,
                                                               absl::string_view name,
                                                               const WeightSource& weights) {
  QUIRE_ASSIGN_OR_RETURN(const plan::ProgramT* program, FindProgram(target, name));
  std::unique_ptr<CudaProgram> loaded(new CudaProgram(device));
  const CudaContext& context = device.context();
  QUIRE_RETURN_IF_ERROR(context.MakeCurrent());
  QUIRE_RETURN_IF_ERROR(
      context.Check(context.driver().EventCreate(&loaded->sent_, 0), "making an event"));
  loaded->forms_ = FormsOf(target, *program);
  QUIRE_ASSIGN_OR_RETURN(loaded->limits_, LimitsOf(target, *program));
  for (const auto& argument : program->arguments) {
    if (argument->name == "states") loaded->states_type_ = *ParseDType(argument->dtype);
  }
  QUIRE_RETURN_IF_ERROR(loaded->LoadCaches(target));
  QUIRE_RETURN_IF_ERROR(loaded->LoadKernels(target, *program, weights.plan()));
  QUIRE_RETURN_IF_ERROR(loaded->LoadWeights(target, *program, weights));
  for (const auto& launch : program->launches) {
    QUIRE_RETURN_IF_ERROR(loaded->BindLaunch(*program, *launch, target));
  }
  loaded->plan_launches_ = loaded->launches_.size();
  if (loaded->finds_greatest_) {
    CudaProgram::Launch last;
    last.use = loaded->UseOf(static_cast<uint32_t>(loaded->kernels_.size() - 1), loaded->own_);
    last.rows_are_t = false;
    last.operands.resize(2);
    last.operands[0].place = Operand::Place::kBuffer;
    last.operands[0].index = *loaded->forms_.result;
    last.operands[1].place = Operand::Place::kGreatest;
    loaded->launches_.push_back(std::move(last));
  }
  return loaded;
}

absl::Status CudaProgram::LoadCaches(const plan::TargetT& target) {
  if (limits_.is_encode) own_ = plan::KvCache::Cross;
  QUIRE_ASSIGN_OR_RETURN(own_pages_, CudaPageLayout::Create(target, own_));
  QUIRE_ASSIGN_OR_RETURN(encoder_pages_, CudaPageLayout::Create(target, plan::KvCache::Cross));
  QUIRE_ASSIGN_OR_RETURN(run_layout_, CudaPageLayout::Create(target, plan::KvCache::Encoder));
  if (limits_.reads_pages) caches_ = StepCaches::kOwn;
  if (limits_.reads_encoder) caches_ = StepCaches::kOwnAndEncoder;
  if (limits_.is_encode && run_layout_.page_bytes > 0) caches_ = StepCaches::kOwnAndRun;
  if (caches_ > StepCaches::kOwn && !limits_.reads_pages) {
    return absl::UnimplementedError(
        "cuda: an encoder, and a program without keys and values of its own");
  }
  return absl::OkStatus();
}

absl::Status CudaProgram::LoadKernels(const plan::TargetT& target, const plan::ProgramT& program,
                                      const PlanFile& file) {
  QUIRE_ASSIGN_OR_RETURN(sources_, MakeCudaKernels(target, device_.limits()));
  kernels_.resize(sources_.size());
  for (size_t i = 0; i < kernels_.size(); ++i) {
    Kernel& kernel = kernels_[i];
    QUIRE_ASSIGN_OR_RETURN(kernel.spec, ParseSpec(target.kernels[i]->spec));
    const auto* row = std::get_if<RowSpec>(&kernel.spec);
    if (row == nullptr) continue;
    QUIRE_ASSIGN_OR_RETURN(const Module module, Parse(row->func));
    kernel.rows = RowOperandsOf(*module.funcs[0]);
  }
  for (const auto& launch : program.launches) kernels_[launch->kernel].is_used = true;
  std::vector<const CudaEntry*> entries;
  for (size_t i = 0; i < kernels_.size(); ++i) {
    if (!kernels_[i].is_used) continue;
    for (const CudaEntry& entry : sources_[i]->entries()) entries.push_back(&entry);
  }
  CudaKernelBuilder builder({device_.architecture(), device_.options().jit, device_.threads()},
                            KernelCache(device_.options().kernel_cache_dir));
  QUIRE_RETURN_IF_ERROR(AddPlanBinaries(target, device_.architecture(), file, &builder));
  std::unique_ptr<CudaKernel> greatest;
  if (forms_.result.has_value()) greatest = MakeCudaGreatest(limits_.vocabulary);
  // Where nothing can be compiled, choices are made on the host: slower, and the same.
  finds_greatest_ = greatest != nullptr && builder.CanBuild(greatest->entries()[0]);
  if (finds_greatest_) entries.push_back(&greatest->entries()[0]);
  QUIRE_ASSIGN_OR_RETURN(const std::vector<BuiltEntry> built, builder.Build(entries));
  absl::Span<const BuiltEntry> left(built);
  for (size_t i = 0; i < kernels_.size(); ++i) {
    if (!kernels_[i].is_used) continue;
    const size_t count = sources_[i]->entries().size();
    QUIRE_RETURN_IF_ERROR(LoadFunctions(*sources_[i], left.first(count), &kernels_[i]));
    left.remove_prefix(count);
  }
  if (finds_greatest_) {
    sources_.push_back(std::move(greatest));
    kernels_.emplace_back().is_used = true;
    QUIRE_RETURN_IF_ERROR(LoadFunctions(*sources_.back(), left, &kernels_.back()));
  }
  const CudaKernelBuilder::Counters& counters = builder.counters();
  kernel_use_ = {counters.in_plan, counters.in_cache, counters.compiled, counters.ms};
  return absl::OkStatus();
}

absl::Status CudaProgram::LoadFunctions(const CudaKernel& source,
                                        absl::Span<const BuiltEntry> built, Kernel* kernel) {
  const CudaDriver& driver = context_.driver();
  for (size_t e = 0; e < built.size(); ++e) {
    const CudaEntry& entry = source.entries()[e];
    const auto check = [&](CuResult result) {
      return context_.Check(result, absl::StrCat("loading kernel ", entry.entry));
    };
    CuLibrary library = nullptr;
    QUIRE_RETURN_IF_ERROR(check(driver.LibraryLoadData(&library, built[e].cubin.data(), nullptr,
                                                       nullptr, 0, nullptr, nullptr, 0)));
    libraries_.push_back(library);
    CuKernel handle = nullptr;
    CuFunction function = nullptr;
    QUIRE_RETURN_IF_ERROR(check(driver.LibraryGetKernel(&handle, library, entry.entry.c_str())));
    QUIRE_RETURN_IF_ERROR(check(driver.KernelGetFunction(&function, handle)));
    // Brings the code to the device now: a graph's capture must not.
    int registers = 0;
    QUIRE_RETURN_IF_ERROR(check(driver.FuncGetAttribute(&registers, kCuFuncRegisters, function)));
    QUIRE_RETURN_IF_ERROR(
        check(driver.FuncSetAttribute(function, kCuFuncMaxDynamicShared, entry.shared_bytes)));
    kernel->functions.push_back(function);
  }
  return absl::OkStatus();
}

absl::Status CudaProgram::LoadWeights(const plan::TargetT& target, const plan::ProgramT& program,
                                      const WeightSource& source) {
  for (const auto& launch : program.launches) {
    for (size_t i = 0; i < launch->inputs.size(); ++i) {
      const plan::Operand& input = launch->inputs[i];
      if (input.kind() != plan::OperandKind::Weight) continue;
      const Kernel& kernel = kernels_[launch->kernel];
      const plan::WeightSlotT& slot = *target.weights[input.index()];
      const CudaTables::Key key = {input.index(), launch->kernel};
      if (const int64_t heads = KvScaleHeads(kernel.spec, kernel.rows, i)) {
        QUIRE_RETURN_IF_ERROR(tables_.AddKvScales(slot, key, heads, source));
        continue;
      }
      if (const auto* spec = std::get_if<AttentionSpec>(&kernel.spec)) {
        QUIRE_RETURN_IF_ERROR(tables_.AddBiases(slot, key, *spec, source));
        continue;
      }
      const DType stored = *ParseDType(target.weights[input.index()]->dtype);
      QUIRE_RETURN_IF_ERROR(weights_.Want(
          target, input.index(),
          FormRead(kernel.spec, sources_[launch->kernel]->splits_scales(), i, stored)));
    }
  }
  QUIRE_RETURN_IF_ERROR(tables_.Upload(context_));
  return weights_.Upload(context_, target, source, device_.threads(), &device_.uploaded());
}

absl::StatusOr<CudaProgram::Operand> CudaProgram::Bind(const plan::Operand& operand, size_t index,
                                                       const plan::LaunchT& launch,
                                                       const plan::ProgramT& program,
                                                       const plan::TargetT& target) const {
  Operand bound;
  bound.index = operand.index();
  switch (operand.kind()) {
    case plan::OperandKind::Argument: {
      bound.place = Operand::Place::kArgument;
      QUIRE_ASSIGN_OR_RETURN(bound.argument,
                             StepArgumentNamed(program.arguments[operand.index()]->name));
      return bound;
    }
    case plan::OperandKind::Buffer:
      bound.place = Operand::Place::kBuffer;
      return bound;
    case plan::OperandKind::Weight: {
      const KernelSpec& spec = kernels_[launch.kernel].spec;
      if (std::holds_alternative<AttentionSpec>(spec) ||
          KvScaleHeads(spec, kernels_[launch.kernel].rows, index) > 0) {
        bound.weight = tables_.Find({operand.index(), launch.kernel});
        return bound;
      }
      const DType stored = *ParseDType(target.weights[operand.index()]->dtype);
      bound.weight = weights_.Find(
          operand.index(), FormRead(spec, sources_[launch.kernel]->splits_scales(), index, stored));
      return bound;
    }
    case plan::OperandKind::KvLayer:
      bound.place = Operand::Place::kLayer;
      bound.cache = target.kv_layers[operand.index()]->cache;
      return bound;
    case plan::OperandKind::None:
      break;
  }
  return BadLaunch(launch, "an operand is missing");
}

size_t CudaProgram::UseOf(uint32_t kernel, plan::KvCache cache) {
  for (size_t i = 0; i < uses_.size(); ++i) {
    if (uses_[i].kernel == kernel && uses_[i].cache == cache) return i;
  }
  uses_.push_back({kernel, cache});
  return uses_.size() - 1;
}

absl::Status CudaProgram::BindLaunch(const plan::ProgramT& program, const plan::LaunchT& launch,
                                     const plan::TargetT& target) {
  Launch bound;
  bound.rows_are_t = launch.rows == "T";
  std::optional<plan::KvCache> cache;
  for (const auto* operands : {&launch.inputs, &launch.outputs}) {
    for (size_t i = 0; i < operands->size(); ++i) {
      QUIRE_ASSIGN_OR_RETURN(const Operand operand,
                             Bind((*operands)[i], i, launch, program, target));
      bound.operands.push_back(operand);
      if (operand.place != Operand::Place::kLayer) continue;
      if (cache.value_or(operand.cache) != operand.cache) {
        return BadLaunch(launch, "works on pages of two caches");
      }
      cache = operand.cache;
    }
  }
  bound.use = UseOf(launch.kernel, cache.value_or(own_));
  QUIRE_RETURN_IF_ERROR(LimitLookups(kernels_[launch.kernel].rows, program, launch, limits_));
  launches_.push_back(std::move(bound));
  return absl::OkStatus();
}

}  // namespace quire
