// From a program's launches to calls of the driver, for one bucket; and the memory they point to.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "ir/plan_check.h"
#include "ir/status.h"
#include "runtime/cuda/cuda_program.h"

namespace quire {
namespace {

// Buckets that are kept resolved; a server's steps are of far fewer.
constexpr size_t kMostBuckets = 64;
constexpr int64_t kPlanAlignment = 256;

int64_t Align(int64_t bytes) {
  return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

int64_t Grown(int64_t now, int64_t wanted) {
  // By doubling: steps of slowly rising size do not allocate each time.
  return wanted <= now ? now : std::max(wanted, 2 * now);
}

}  // namespace

absl::Status CudaProgram::Reserve(const StepRoom& room) {
  QUIRE_RETURN_IF_ERROR(context_.MakeCurrent());
  int64_t pages = room.pages;
  if (caches_ == StepCaches::kOwnAndRun) {
    // Of inputs as a whole, once for each cache.
    pages = 2 * std::min(pages, room.rows / limits_.page_tokens + room.sequences);
  }
  return MakeRoom({BucketOf(room.rows), BucketOf(room.logit_rows), room.sequences, pages});
}

absl::Status CudaProgram::MakeRoom(const Room& wanted) {
  Room room = room_;
  room.T = std::max(room.T, wanted.T);
  room.R = std::max(room.R, wanted.R);
  room.sequences = Grown(room.sequences, wanted.sequences);
  room.pages = Grown(room.pages, wanted.pages);
  // Every row may want its logits, and every sequence has a row.
  room.R = std::min(room.R, room.T);
  room.sequences = std::min(room.sequences, room.T);
  if (room == room_) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(context_.Synchronize());
  ForgetAll();
  // Whatever fails, there is room for nothing until all is allocated.
  room_ = {};
  for (CudaMemory* memory : {&arena_, &workspace_, &plans_, &block_, &states_, &run_pages_}) {
    *memory = CudaMemory();
  }
  staged_block_ = PinnedMemory();
  staged_states_ = PinnedMemory();
  greatest_ = PinnedMemory();
  if (room.T >= kCudaLibraryRows) QUIRE_RETURN_IF_ERROR(AskLibrary());
  QUIRE_RETURN_IF_ERROR(Allocate(room));
  room_ = room;
  return absl::OkStatus();
}

absl::Status CudaProgram::AskLibrary() {
  if (std::exchange(has_asked_library_, true)) return absl::OkStatus();
  for (size_t i = 0; i < kernels_.size(); ++i) {
    const std::optional<CudaLibraryCheck> check =
        kernels_[i].is_used ? sources_[i]->LibraryCheck() : std::nullopt;
    if (!check.has_value()) continue;
    const auto own = [&](CuDevicePtr x, CuDevicePtr weight, CuDevicePtr sums) -> absl::Status {
      Call call = CallOf(i, check->launch);
      for (const CudaArgument& argument : check->launch.arguments) {
        auto word = static_cast<uint64_t>(argument.value);
        if (argument.kind == CudaArgument::Kind::kOperand) {
          word = argument.value < 0 ? 0 : std::array{x, weight, sums}[word];
        }
        call.arguments.push_back(&call.words.emplace_back(word));
      }
      return Enqueue(call);
    };
    QUIRE_ASSIGN_OR_RETURN(const bool agrees, device_.products().Agrees(check->product, own));
    if (!agrees) continue;
    sources_[i]->UseLibrary();
    ++kernel_use_.by_library;
  }
  return absl::OkStatus();
}

CudaProgram::RoomBytes CudaProgram::BytesOf(const Room& room) const {
  RoomBytes bytes;
  bytes.arena = Evaluate(forms_.arena, room.T, room.R);
  bytes.block = StepLayout(room.T, room.R, caches_).pages + room.pages * int64_t{sizeof(int32_t)};
  if (caches_ == StepCaches::kOwnAndRun) {
    bytes.run = (room.pages + 1) / 2 * run_layout_.greatest_layer_bytes;
  }
  bytes.states = RowBytes(states_type_, room.T * limits_.states_width);
  for (size_t i = 0; i < kernels_.size(); ++i) {
    if (!kernels_[i].is_used) continue;
    for (const int64_t rows : BucketsUpTo(room.T)) {
      bytes.workspace = std::max(bytes.workspace, sources_[i]->Launches(rows).workspace_bytes);
    }
  }
  for (const Use& use : uses_) {
    bytes.plans +=
        Align(sources_[use.kernel]->Prepare(room.T, room.sequences, room.pages).plan_bytes);
  }
  return bytes;
}

absl::Status CudaProgram::TooLarge(const Room& room, int64_t free_bytes) const {
  int64_t fits = 0, too_many = room.T;
  while (fits + 1 < too_many) {
    const int64_t rows = (fits + too_many) / 2;
    const Room less = {BucketOf(rows), std::min(room.R, BucketOf(rows)),
                       std::min(room.sequences, rows), room.pages};
    (BytesOf(less).all() <= free_bytes ? fits : too_many) = rows;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("cuda: no memory for steps of ", room.T, " rows, ", BytesOf(room).all(),
                   " bytes\n  free: ", free_bytes, " of ", context_.total_bytes(),
                   " bytes\n  allowed: steps of up to ", fits, " rows"));
}

absl::Status CudaProgram::Allocate(const Room& room) {
  const RoomBytes bytes = BytesOf(room);
  QUIRE_ASSIGN_OR_RETURN(const int64_t free_bytes, context_.FreeBytes());
  if (bytes.all() > free_bytes) return TooLarge(room, free_bytes);
  QUIRE_ASSIGN_OR_RETURN(arena_, CudaMemory::Allocate(context_, bytes.arena, "activations"));
  QUIRE_ASSIGN_OR_RETURN(workspace_,
                         CudaMemory::Allocate(context_, bytes.workspace, "the workspace"));
  QUIRE_ASSIGN_OR_RETURN(plans_, CudaMemory::Allocate(context_, bytes.plans, "kernels' plans"));
  QUIRE_ASSIGN_OR_RETURN(block_, CudaMemory::Allocate(context_, bytes.block, "steps"));
  QUIRE_ASSIGN_OR_RETURN(states_, CudaMemory::Allocate(context_, bytes.states, "states"));
  QUIRE_ASSIGN_OR_RETURN(staged_states_, PinnedMemory::Allocate(context_, bytes.states));
  QUIRE_ASSIGN_OR_RETURN(run_pages_,
                         CudaMemory::Allocate(context_, bytes.run, "pages of an encoder's run"));
  QUIRE_ASSIGN_OR_RETURN(staged_block_, PinnedMemory::Allocate(context_, bytes.block));
  QUIRE_ASSIGN_OR_RETURN(greatest_,
                         PinnedMemory::Allocate(context_, room.R * int64_t{sizeof(GreatestLogit)}));
  int64_t plan_end = 0;
  for (Use& use : uses_) {
    use.preparation = sources_[use.kernel]->Prepare(room.T, room.sequences, room.pages);
    use.plan_offset = plan_end;
    plan_end += Align(use.preparation.plan_bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CudaProgram::SpareBytes() const {
  QUIRE_RETURN_IF_ERROR(context_.MakeCurrent());
  QUIRE_ASSIGN_OR_RETURN(const int64_t free_bytes, context_.FreeBytes());
  // The rest is for graphs, for steps larger than foreseen, and for others on the device.
  return free_bytes / 10 * 9;
}

std::vector<MemoryUse> CudaProgram::Memory() const {
  return {{"weights", weights_.bytes() + tables_.bytes()},
          {"activations", arena_.bytes()},
          {"workspace", workspace_.bytes()},
          {"kernels' plans", plans_.bytes()},
          {"block of a step", block_.bytes()},
          {"states", states_.bytes()},
          {"pages of an encoder's run", run_pages_.bytes()}};
}

void CudaProgram::Forget(std::map<Key, Bucket>::iterator bucket) {
  // Of a step that was not waited for, it may still run.
  if (!bucket->second.graphs.empty()) context_.Synchronize().IgnoreError();
  for (const auto& [work, graph] : bucket->second.graphs) {
    if (graph != nullptr) context_.driver().GraphExecDestroy(graph);
  }
  resolved_.erase(bucket);
}

void CudaProgram::ForgetAll() {
  while (!resolved_.empty()) Forget(resolved_.begin());
}

absl::StatusOr<CudaProgram::Bucket*> CudaProgram::FindBucket(int64_t T, int64_t R,
                                                             const CudaPagePool& pool,
                                                             const CudaPagePool* encoder_pool) {
  const std::pair<uint64_t, uint64_t> numbers = {
      pool.number(), encoder_pool == nullptr ? 0 : encoder_pool->number()};
  if (pool_numbers_ != numbers) ForgetAll();
  pool_numbers_ = numbers;
  const auto [found, is_new] = resolved_.try_emplace({T, R});
  Bucket& bucket = found->second;
  bucket.last_step = steps_;
  if (!is_new) return &bucket;
  const absl::Status status =
      Resolve({T, R, StepLayout(T, R, caches_), pool, encoder_pool}, &bucket);
  if (!status.ok()) {
    resolved_.erase(found);
    return status;
  }
  if (resolved_.size() > kMostBuckets) {
    Forget(std::min_element(resolved_.begin(), resolved_.end(), [](const auto& a, const auto& b) {
      return a.second.last_step < b.second.last_step;
    }));
  }
  return &bucket;
}

absl::Status CudaProgram::Resolve(const Frame& frame, Bucket* bucket) const {
  for (const Use& use : uses_) {
    // Operands that it reads, all launches have in common.
    const auto first = std::find_if(launches_.begin(), launches_.end(), [&](const Launch& launch) {
      return &uses_[launch.use] == &use;
    });
    for (const CudaLaunch& launch : use.preparation.launches) {
      QUIRE_ASSIGN_OR_RETURN(Call call, ResolveCall(launch, use, *first, frame));
      bucket->calls.push_back(std::move(call));
    }
  }
  for (const Launch& bound : launches_) {
    const Use& use = uses_[bound.use];
    const CudaLaunches launches =
        sources_[use.kernel]->Launches(bound.rows_are_t ? frame.T : frame.R);
    if (launches.workspace_bytes > workspace_.bytes()) {
      return absl::InternalError("cuda: a kernel's workspace grows with fewer rows");
    }
    for (const CudaLaunch& launch : launches.launches) {
      QUIRE_ASSIGN_OR_RETURN(Call call, ResolveCall(launch, use, bound, frame));
      call.launch = static_cast<size_t>(&bound - launches_.data());
      bucket->calls.push_back(std::move(call));
    }
  }
  for (const Call& call : bucket->calls) {
    std::vector<Work>& works = bucket->works;
    if (std::find(works.begin(), works.end(), call.work) == works.end()) {
      works.push_back(call.work);
    }
  }
  if (bucket->works.size() > 64) return absl::InternalError("cuda: too many kinds of launches");
  return absl::OkStatus();
}

// But for its arguments.
CudaProgram::Call CudaProgram::CallOf(size_t kernel, const CudaLaunch& launch) const {
  const CudaEntry& entry = sources_[kernel]->entries()[launch.entry];
  Call call;
  call.function = kernels_[kernel].functions[launch.entry];
  call.grid = static_cast<unsigned>(launch.grid);
  call.threads = static_cast<unsigned>(entry.block_threads);
  call.shared_bytes = static_cast<unsigned>(entry.shared_bytes);
  call.words.reserve(launch.arguments.size());
  call.maps.reserve(launch.tensor_maps.size());
  return call;
}

absl::StatusOr<CudaProgram::Call> CudaProgram::ResolveCall(const CudaLaunch& launch, const Use& use,
                                                           const Launch& bound,
                                                           const Frame& frame) const {
  const Work work = {launch.work, use.cache == own_};
  if (launch.product.has_value()) {
    Call call;
    call.work = work;
    call.product = launch.product;
    for (const CudaArgument* argument :
         {&launch.product->x, &launch.product->weight, &launch.product->sums}) {
      QUIRE_ASSIGN_OR_RETURN(const uint64_t word, ResolveArgument(*argument, use, bound, frame));
      call.words.push_back(word);
    }
    return call;
  }
  Call call = CallOf(use.kernel, launch);
  call.work = work;
  for (const CudaArgument& argument : launch.arguments) {
    if (argument.kind != CudaArgument::Kind::kTensorMap) {
      QUIRE_ASSIGN_OR_RETURN(const uint64_t word, ResolveArgument(argument, use, bound, frame));
      call.arguments.push_back(&call.words.emplace_back(word));
      continue;
    }
    const CudaTensorMap& map = launch.tensor_maps[static_cast<size_t>(argument.value)];
    QUIRE_ASSIGN_OR_RETURN(const CuDevicePtr base, ResolveArgument(map.base, use, bound, frame));
    QUIRE_ASSIGN_OR_RETURN(const EncodedTensorMap encoded,
                           EncodeTensorMap(context_.driver(), map, base));
    if (call.maps.size() == call.maps.capacity()) {
      return absl::InternalError(absl::StrCat(
          "cuda: ", sources_[use.kernel]->entries()[launch.entry].entry, " asks twice for a map"));
    }
    call.arguments.push_back(&call.maps.emplace_back(encoded));
  }
  return call;
}

// The value of an argument that is no tensor map.
absl::StatusOr<uint64_t> CudaProgram::ResolveArgument(const CudaArgument& argument, const Use& use,
                                                      const Launch& bound,
                                                      const Frame& frame) const {
  const auto value = static_cast<uint64_t>(argument.value);
  const StepLayout::Cache& cache = use.cache == own_ ? frame.layout.own : frame.layout.other;
  const auto in_block = [&](int64_t offset) { return block_.at() + static_cast<uint64_t>(offset); };
  switch (argument.kind) {
    case CudaArgument::Kind::kOperand:
      if (argument.value < 0) return 0;
      if (value >= bound.operands.size()) {
        return absl::InternalError(absl::StrCat("cuda: a kernel has no operand ", argument.value));
      }
      return Find(bound.operands[value], frame) + static_cast<uint64_t>(argument.offset);
    case CudaArgument::Kind::kWorkspace:
      return workspace_.at() + value + static_cast<uint64_t>(argument.offset);
    case CudaArgument::Kind::kPlan:
      return plans_.at() + static_cast<uint64_t>(use.plan_offset) + value;
    case CudaArgument::Kind::kHeader:
      return in_block(frame.layout.header);
    case CudaArgument::Kind::kSequences:
      return in_block(cache.sequences);
    case CudaArgument::Kind::kPages:
      return in_block(frame.layout.pages);
    case CudaArgument::Kind::kTokenSlots:
      return in_block(cache.token_slots + argument.offset);
    case CudaArgument::Kind::kInt32:
      return value;
    case CudaArgument::Kind::kTensorMap:
      break;
  }
  return absl::InternalError("cuda: a tensor map of a tensor map");
}

CuDevicePtr CudaProgram::Find(StepArgument argument, const StepLayout& layout) const {
  const auto in_block = [&](int64_t offset) { return block_.at() + static_cast<uint64_t>(offset); };
  switch (argument) {
    case StepArgument::kIds:
      return in_block(layout.ids);
    case StepArgument::kPositions:
      return in_block(layout.positions);
    case StepArgument::kLogitRows:
      return in_block(layout.logit_rows);
    case StepArgument::kStates:
      return states_.at();
  }
  return 0;
}

CuDevicePtr CudaProgram::Find(const Operand& operand, const Frame& frame) const {
  switch (operand.place) {
    case Operand::Place::kWeight:
      return operand.weight;
    case Operand::Place::kArgument:
      return Find(operand.argument, frame.layout);
    case Operand::Place::kBuffer:
      return arena_.at() +
             static_cast<uint64_t>(Evaluate(forms_.buffers[operand.index], frame.T, frame.R));
    case Operand::Place::kGreatest:
      return greatest_.at();
    case Operand::Place::kLayer:
      if (operand.cache == plan::KvCache::Encoder) return run_pages_.at();
      return (operand.cache == own_ ? frame.pool : *frame.encoder_pool).layer(operand.index);
  }
  return 0;
}

}  // namespace quire
