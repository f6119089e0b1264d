#include "runtime/cpu_program.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/cpu_launch.h"
#include "runtime/cpu_pages.h"
#include "runtime/cpu_weights.h"
#include "runtime/step_check.h"

namespace quire {
namespace {

using plan::OperandKind;

class CpuProgram : public Program {
 public:
  CpuProgram(const plan::TargetT& target, const plan::ProgramT& program, ThreadPool& threads)
      : target_(target), program_(program), threads_(threads), layout_(LayoutOfPage(target)) {
    scratch_.resize(static_cast<size_t>(threads.threads()));
  }

  absl::Status Load(const WeightSource& source, KernelBuilder& builder) {
    QUIRE_ASSIGN_OR_RETURN(weights_, CpuWeights::Load(target_, source, threads_));
    std::vector<absl::StatusOr<const CpuKernel*>> kernels(target_.kernels.size(), nullptr);
    threads_.ForEach(static_cast<int64_t>(kernels.size()), [&](int64_t i) {
      kernels[static_cast<size_t>(i)] =
          builder.Build(target_.kernels[static_cast<size_t>(i)]->spec);
    });
    for (const auto& launch : program_.launches) {
      QUIRE_ASSIGN_OR_RETURN(const CpuKernel* kernel, kernels[launch->kernel]);
      QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<CpuLaunch> made,
                             MakeCpuLaunch(*launch, target_, *kernel, weights_));
      launches_.push_back(std::move(made));
    }
    return absl::OkStatus();
  }

  int64_t page_bytes() const override { return layout_.page_bytes; }

  absl::StatusOr<std::unique_ptr<PagePool>> CreatePool(int32_t pages) override {
    QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<CpuPages> pool, CpuPages::Create(layout_, pages));
    return pool;
  }

  absl::Status Run(const Step& step, PagePool& pool, absl::Span<float> logits) override {
    QUIRE_RETURN_IF_ERROR(CheckStep(step, target_, program_, pool.page_count(), logits.size()));
    // The program made the pool, so it is one of its kind.
    Bind(step, static_cast<CpuPages&>(pool), logits);
    for (const auto& launch : launches_) launch->Prepare(shared_);
    threads_.Run([this](int thread) {
      ThreadScratch& scratch = scratch_[static_cast<size_t>(thread)];
      for (size_t i = 0; i < launches_.size(); ++i) {
        if (i != 0) threads_.Barrier();
        launches_[i]->Run(shared_, threads_, scratch);
      }
    });
    return absl::OkStatus();
  }

 private:
  // Binds T and R, and gives every value of the program its place.
  void Bind(const Step& step, CpuPages& pool, absl::Span<float> logits) {
    shared_.step = &step;
    shared_.t_rows = static_cast<int64_t>(step.ids.size());
    shared_.r_rows = static_cast<int64_t>(step.logit_rows.size());
    shared_.pages = pool.data();
    shared_.layout = &layout_;
    shared_.threads = threads_.threads();
    shared_.arguments.clear();
    for (const auto& argument : program_.arguments) {
      shared_.arguments.push_back(const_cast<int32_t*>(ArgumentOf(*argument, step)));
    }
    // The memory plan is made for one logit row or more.
    const int64_t r = std::max<int64_t>(1, shared_.r_rows);
    const auto value = [&](const plan::Linear* form) {
      return form->constant() + form->t() * shared_.t_rows + form->r() * r;
    };
    uint8_t* arena = static_cast<uint8_t*>(arena_.Get(value(program_.arena.get())));
    shared_.buffers.clear();
    for (const auto& buffer : program_.buffers)
      shared_.buffers.push_back(arena + value(buffer->offset.get()));
    shared_.buffers[program_.results[0].index()] = logits.data();
    int64_t blocks = 0;
    for (const auto& launch : launches_) {
      blocks = std::max(blocks, launch->activation_blocks(
                                    launch->over_logit_rows ? shared_.r_rows : shared_.t_rows));
    }
    shared_.blocks = static_cast<ActivationBlock*>(
        blocks_.Get(blocks * static_cast<int64_t>(sizeof(ActivationBlock))));
    BindRows(step);
  }

  static const int32_t* ArgumentOf(const plan::ValueT& argument, const Step& step) {
    if (argument.name == "ids") return step.ids.data();
    return argument.name == "pos" ? step.positions.data() : step.logit_rows.data();
  }

  // Where each row's token goes in the pool.
  void BindRows(const Step& step) {
    page_offset_.assign(step.ids.size(), 0);
    slot_.assign(step.ids.size(), 0);
    for (const SequenceRows& sequence : step.sequences) {
      for (int32_t i = 0; i < sequence.rows; ++i) {
        const int32_t token = sequence.context_tokens - sequence.rows + i;
        const auto row = static_cast<size_t>(sequence.first_row + i);
        const auto page = static_cast<size_t>(token / target_.page_tokens);
        page_offset_[row] = sequence.pages[page] * layout_.page_bytes;
        slot_[row] = token % target_.page_tokens;
      }
    }
    shared_.row_step = {page_offset_.data(), slot_.data(), target_.page_tokens};
  }

  const plan::TargetT& target_;
  const plan::ProgramT& program_;
  ThreadPool& threads_;
  const PageLayout layout_;
  CpuWeights weights_;
  std::vector<std::unique_ptr<CpuLaunch>> launches_;
  std::vector<ThreadScratch> scratch_;
  ThreadScratch arena_, blocks_;
  CpuStep shared_;
  std::vector<int64_t> page_offset_, slot_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> LoadCpuProgram(const plan::TargetT& target,
                                                        const plan::ProgramT& program,
                                                        const WeightSource& weights,
                                                        KernelBuilder& kernels,
                                                        ThreadPool& threads) {
  auto loaded = std::make_unique<CpuProgram>(target, program, threads);
  QUIRE_RETURN_IF_ERROR(loaded->Load(weights, kernels));
  return loaded;
}

}  // namespace quire
