#include "runtime/cuda/cuda_program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/plan_check.h"
#include "ir/status.h"

namespace quire {
namespace {

// Steps of more rows take the device longer than the host needs to launch them.
constexpr int64_t kGraphRows = 128;
constexpr int kCaptureThreadLocal = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

}  // namespace

CudaProgram::~CudaProgram() {
  if (!context_.MakeCurrent().ok()) return;
  context_.Synchronize().IgnoreError();
  ForgetAll();
  if (sent_ != nullptr) context_.driver().EventDestroy(sent_);
  for (CuLibrary library : libraries_) context_.driver().LibraryUnload(library);
}

absl::StatusOr<std::unique_ptr<PagePool>> CudaProgram::CreatePool(int32_t pages) {
  return CudaPagePool::Create(context_, own_pages_, pages);
}

absl::Status CudaProgram::Run(const Step& step, PagePool& pool, absl::Span<float> logits) {
  QUIRE_ASSIGN_OR_RETURN(const Key key, Start(step, pool, logits.size()));
  return BringLogits(key, 0, logits);
}

absl::Status CudaProgram::BringLogits(const Key& key, size_t first_row, absl::Span<float> logits) {
  // Who reads what encode leaves comes after it in the stream.
  if (!forms_.result.has_value()) return absl::OkStatus();
  const size_t row_bytes = static_cast<size_t>(limits_.vocabulary) * sizeof(float);
  const int64_t begin = Evaluate(forms_.buffers[*forms_.result], key.first, key.second);
  return Bring(logits.data(), arena_.at() + static_cast<uint64_t>(begin) + first_row * row_bytes,
               logits.size() * sizeof(float));
}

absl::Status CudaProgram::ReadLogits(size_t row, absl::Span<float> logits) {
  if (row >= left_rows_ || static_cast<int64_t>(logits.size()) != limits_.vocabulary) {
    return absl::InvalidArgumentError(
        absl::StrCat("logits of row ", row, "\n  allowed: rows up to ", left_rows_,
                     " of the last greedy step, all ", limits_.vocabulary, " of one"));
  }
  QUIRE_RETURN_IF_ERROR(context_.MakeCurrent());
  return BringLogits(left_, row, logits);
}

absl::Span<float> CudaProgram::LogitsMemory(size_t floats) {
  const auto bytes = static_cast<int64_t>(floats * sizeof(float));
  if (bytes > logits_.bytes()) {
    logits_ = PinnedMemory();
    // More than is asked for: steps of slowly rising size do not allocate each time.
    absl::StatusOr<PinnedMemory> memory = PinnedMemory::Allocate(context_, bytes + bytes / 4);
    if (!memory.ok()) return {};
    logits_ = *std::move(memory);
  }
  return absl::MakeSpan(reinterpret_cast<float*>(logits_.data()), floats);
}

absl::Status CudaProgram::RunGreedy(const Step& step, PagePool& pool,
                                    absl::Span<GreatestLogit> greatest) {
  if (!finds_greatest_) return Program::RunGreedy(step, pool, greatest);
  const size_t logit_floats = greatest.size() * static_cast<size_t>(limits_.vocabulary);
  QUIRE_ASSIGN_OR_RETURN(left_, Start(step, pool, logit_floats));
  QUIRE_RETURN_IF_ERROR(Wait());
  left_rows_ = greatest.size();
  std::copy_n(reinterpret_cast<const GreatestLogit*>(greatest_.data()), greatest.size(),
              greatest.data());
  return absl::OkStatus();
}

absl::Status CudaProgram::Bring(void* to, CuDevicePtr from, size_t bytes) {
  if (bytes > 0) {
    QUIRE_RETURN_IF_ERROR(context_.Check(
        context_.driver().MemcpyDtoHAsync(to, from, bytes, context_.stream()), "copying logits"));
  }
  return Wait();
}

absl::Status CudaProgram::Wait() {
  QUIRE_RETURN_IF_ERROR(context_.Synchronize());
  is_under_way_ = false;
  return absl::OkStatus();
}

absl::Status CudaProgram::WaitForStaged() {
  if (!is_under_way_) return absl::OkStatus();
  // Of a step with logits that failed before it was waited for, nothing says how far it came.
  if (forms_.result.has_value()) return Wait();
  return context_.Check(context_.driver().EventSynchronize(sent_), "copying a step");
}

absl::Status CudaProgram::SendStates(const Step& step) {
  uint8_t* to = staged_states_.data();
  for (const absl::Span<const float> states : step.states) {
    const auto count = static_cast<int64_t>(states.size());
    ConvertFloats(DType::kF32, reinterpret_cast<const uint8_t*>(states.data()), states_type_, to,
                  count);
    to += RowBytes(states_type_, count);
  }
  const auto bytes = static_cast<size_t>(to - staged_states_.data());
  if (bytes == 0) return absl::OkStatus();
  return context_.Check(context_.driver().MemcpyHtoDAsync(states_.at(), staged_states_.data(),
                                                          bytes, context_.stream()),
                        "copying states");
}

absl::StatusOr<CudaPagePool*> CudaProgram::PoolOf(PagePool* pool,
                                                  const CudaPageLayout& layout) const {
  auto* pages = dynamic_cast<CudaPagePool*>(pool);
  if (pages == nullptr || !pages->Has(layout)) {
    return absl::InvalidArgumentError("step: pages are not of this program");
  }
  return pages;
}

absl::StatusOr<CudaProgram::Prepared> CudaProgram::Prepare(const Step& step, PagePool& pool,
                                                           size_t logit_floats) {
  QUIRE_ASSIGN_OR_RETURN(CudaPagePool * pages, PoolOf(&pool, own_pages_));
  QUIRE_RETURN_IF_ERROR(CheckStep(step, limits_, pages->page_count(), logit_floats));
  CudaPagePool* encoder_pages = nullptr;
  if (caches_ == StepCaches::kOwnAndEncoder) {
    QUIRE_ASSIGN_OR_RETURN(encoder_pages, PoolOf(step.encoder_pool, encoder_pages_));
  }
  QUIRE_RETURN_IF_ERROR(context_.MakeCurrent());
  ++steps_;
  left_rows_ = 0;
  const int64_t page_tokens = limits_.page_tokens;
  const int64_t T = BucketOf(static_cast<int64_t>(step.ids.size()));
  const int64_t R = BucketOf(std::max<int64_t>(1, static_cast<int64_t>(step.logit_rows.size())));
  QUIRE_RETURN_IF_ERROR(MakeRoom({T, R, static_cast<int64_t>(step.sequences.size()),
                                  PagesOfStep(step, page_tokens, caches_)}));
  QUIRE_ASSIGN_OR_RETURN(Bucket * bucket, FindBucket(T, R, *pages, encoder_pages));
  QUIRE_RETURN_IF_ERROR(WaitForStaged());
  const int64_t bytes = WriteStepBlock(step, T, R, page_tokens, caches_, staged_block_.data());
  uint64_t work = 0;
  for (size_t i = 0; i < bucket->works.size(); ++i) {
    const auto& [of, is_own] = bucket->works[i];
    const bool of_encoder = !is_own && caches_ == StepCaches::kOwnAndEncoder;
    for (const SequenceRows& sequence : step.sequences) {
      const int32_t tokens = of_encoder ? sequence.encoder_tokens : sequence.context_tokens;
      if (!of.HasWork(sequence.rows, tokens)) continue;
      work |= uint64_t{1} << i;
      break;
    }
  }
  return Prepared{{T, R}, bucket, work, bytes};
}

absl::Status CudaProgram::Send(const Step& step, const Prepared& prepared) {
  const CudaDriver& driver = context_.driver();
  is_under_way_ = true;
  QUIRE_RETURN_IF_ERROR(context_.Check(
      driver.MemcpyHtoDAsync(block_.at(), staged_block_.data(),
                             static_cast<size_t>(prepared.block_bytes), context_.stream()),
      "copying a step"));
  QUIRE_RETURN_IF_ERROR(SendStates(step));
  if (forms_.result.has_value()) return absl::OkStatus();
  return context_.Check(driver.EventRecord(sent_, context_.stream()), "copying a step");
}

absl::StatusOr<CudaProgram::Key> CudaProgram::Start(const Step& step, PagePool& pool,
                                                    size_t logit_floats) {
  QUIRE_ASSIGN_OR_RETURN(const Prepared prepared, Prepare(step, pool, logit_floats));
  const bool is_graph = prepared.key.first <= kGraphRows && !device_.options().eager;
  CuGraphExec* graph = is_graph ? &prepared.bucket->graphs[prepared.work] : nullptr;
  if (is_graph && *graph == nullptr) {
    QUIRE_ASSIGN_OR_RETURN(*graph, Capture(prepared));
  }
  QUIRE_RETURN_IF_ERROR(Send(step, prepared));
  QUIRE_RETURN_IF_ERROR(
      is_graph ? context_.Check(context_.driver().GraphLaunch(*graph, context_.stream()),
                                "launching a step")
               : Enqueue(prepared));
  return prepared.key;
}

bool CudaProgram::HasWork(const Prepared& prepared, const Call& call) {
  const std::vector<Work>& works = prepared.bucket->works;
  return prepared.work >> (std::find(works.begin(), works.end(), call.work) - works.begin()) & 1;
}

absl::Status CudaProgram::Enqueue(const Prepared& prepared) {
  for (const Call& call : prepared.bucket->calls) {
    if (HasWork(prepared, call)) QUIRE_RETURN_IF_ERROR(Enqueue(call));
  }
  return absl::OkStatus();
}

absl::Status CudaProgram::Enqueue(const Call& call) {
  if (call.product.has_value()) {
    return device_.products().Enqueue(*call.product, call.words[0], call.words[1], call.words[2]);
  }
  CuLaunchAttribute attribute = {};
  attribute.id = CuLaunchAttribute::kProgrammaticSerialization;
  attribute.value = 1;
  CuLaunchConfig config = {};
  config.grid_x = call.grid;
  config.block_x = call.threads;
  config.grid_y = config.grid_z = config.block_y = config.block_z = 1;
  config.shared_bytes = call.shared_bytes;
  config.stream = context_.stream();
  config.attributes = &attribute;
  config.attribute_count = 1;
  return context_.Check(
      context_.driver().LaunchKernelEx(&config, call.function,
                                       const_cast<void**>(call.arguments.data()), nullptr),
      "launching a kernel");
}

absl::StatusOr<CuGraphExec> CudaProgram::Capture(const Prepared& prepared) {
  const CudaDriver& driver = context_.driver();
  QUIRE_RETURN_IF_ERROR(context_.Check(
      driver.StreamBeginCapture(context_.stream(), kCaptureThreadLocal), "capturing a step"));
  const absl::Status enqueued = Enqueue(prepared);
  CuGraph graph = nullptr;
  CuGraphExec exec = nullptr;
  absl::Status status =
      context_.Check(driver.StreamEndCapture(context_.stream(), &graph), "capturing a step");
  if (!enqueued.ok()) status = enqueued;
  if (status.ok()) {
    status = context_.Check(driver.GraphInstantiate(&exec, graph, 0), "making a graph");
  }
  if (graph != nullptr) driver.GraphDestroy(graph);
  if (!status.ok()) return status;
  return exec;
}

}  // namespace quire
