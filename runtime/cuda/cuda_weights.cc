#include "runtime/cuda/cuda_weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>

#include "absl/strings/str_cat.h"
#include "ir/plan_check.h"
#include "ir/status.h"
#include "ir/weight_scales.h"

namespace quire {
namespace {

constexpr int64_t kAlignment = 256;
// What one copy to the device takes at most: long enough for full speed, short enough that reading
// and copying overlap.
constexpr int64_t kStageBytes = int64_t{4} << 20;

template <typename From, typename To, typename Convert>
void ConvertEach(const uint8_t* source, uint8_t* target, int64_t count, Convert convert) {
  for (int64_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, source + i * static_cast<int64_t>(sizeof from), sizeof from);
    const To to = convert(from);
    std::memcpy(target + i * static_cast<int64_t>(sizeof to), &to, sizeof to);
  }
}

float ToF32(DType dtype, uint16_t bits) {
  return dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}
uint16_t FromF32(DType dtype, float value) {
  return dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
}

// Two buffers that the host fills in turn while the device copies from the other one.
class Stage {
 public:
  static absl::StatusOr<Stage> Create(const CudaContext& context) {
    Stage stage(context);
    for (Buffer& buffer : stage.buffers_) {
      QUIRE_ASSIGN_OR_RETURN(buffer.memory, PinnedMemory::Allocate(context, kStageBytes));
      QUIRE_RETURN_IF_ERROR(
          context.Check(context.driver().EventCreate(&buffer.copied, 0), "making an event"));
    }
    return stage;
  }
  ~Stage() {
    for (Buffer& buffer : buffers_) {
      if (buffer.copied == nullptr) continue;
      // Until then the device reads the buffer.
      if (buffer.is_used) context_->driver().EventSynchronize(buffer.copied);
      context_->driver().EventDestroy(buffer.copied);
    }
  }
  Stage(Stage&& other) noexcept : context_(other.context_) { std::swap(buffers_, other.buffers_); }
  Stage& operator=(Stage&&) = delete;

  // Sends `bytes` that `fill` writes, at most kStageBytes.
  template <typename Fill>
  absl::Status Send(CuDevicePtr to, int64_t bytes, const Fill& fill) {
    Buffer& buffer = buffers_[next_];
    next_ = 1 - next_;
    const CudaDriver& driver = context_->driver();
    if (buffer.is_used) {
      QUIRE_RETURN_IF_ERROR(
          context_->Check(driver.EventSynchronize(buffer.copied), "copying weights"));
    }
    fill(buffer.memory.data());
    QUIRE_RETURN_IF_ERROR(
        context_->Check(driver.MemcpyHtoDAsync(to, buffer.memory.data(), static_cast<size_t>(bytes),
                                               context_->stream()),
                        "copying weights"));
    buffer.is_used = true;
    return context_->Check(driver.EventRecord(buffer.copied, context_->stream()),
                           "copying weights");
  }

 private:
  struct Buffer {
    PinnedMemory memory;
    CuEvent copied = nullptr;
    bool is_used = false;
  };
  explicit Stage(const CudaContext& context) : context_(&context) {}

  const CudaContext* context_;
  Buffer buffers_[2];
  int next_ = 0;
};

}  // namespace

WeightForm FormRead(const KernelSpec& spec, bool splits_scales, size_t i, DType stored) {
  const auto* linear = std::get_if<LinearSpec>(&spec);
  if (linear == nullptr) return {stored};
  if (i == 1) {
    return {splits_scales ? DType::kF8E4M3 : linear->weight, CudaLinearRowOrder(*linear)};
  }
  return {linear->bias && i == 2 ? DType::kF32 : stored};
}

std::vector<absl::Span<const uint8_t>> Ordered(absl::Span<const absl::Span<const uint8_t>> pieces,
                                               int64_t row_bytes, const CudaRowOrder& order) {
  // Where each piece begins.
  std::vector<int64_t> begins;
  int64_t rows = 0;
  for (const auto& piece : pieces) {
    begins.push_back(rows);
    rows += static_cast<int64_t>(piece.size()) / row_bytes;
  }
  std::vector<absl::Span<const uint8_t>> ordered;
  for (int64_t at = 0; at < rows;) {
    const int64_t row = order.RowAt(at);
    const size_t i = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), row) -
                                         begins.begin() - 1);
    const int64_t begin = row - begins[i];
    const int64_t there = static_cast<int64_t>(pieces[i].size()) / row_bytes - begin;
    // Eight at once, unless a piece ends between them; behind the heads all that is there.
    const bool in_heads = at < order.heads * order.rows;
    const int64_t count = in_heads ? std::min<int64_t>(8 - at % 8, there) : there;
    ordered.push_back(pieces[i].subspan(static_cast<size_t>(begin * row_bytes),
                                        static_cast<size_t>(count * row_bytes)));
    at += count;
  }
  return ordered;
}

void ConvertFloats(DType from, const uint8_t* source, DType to, uint8_t* target, int64_t count) {
  if (from == to) {
    std::memcpy(target, source, static_cast<size_t>(RowBytes(from, count)));
  } else if (from == DType::kF32) {
    ConvertEach<float, uint16_t>(source, target, count,
                                 [to](float value) { return FromF32(to, value); });
  } else if (to == DType::kF32) {
    ConvertEach<uint16_t, float>(source, target, count,
                                 [from](uint16_t bits) { return ToF32(from, bits); });
  } else {
    ConvertEach<uint16_t, uint16_t>(source, target, count, [from, to](uint16_t bits) {
      return FromF32(to, ToF32(from, bits));
    });
  }
}

void SplitScales(const uint8_t* blocks, int64_t rows, int64_t columns, uint8_t* numbers,
                 float* scales) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t block = 0; block < columns / kScaleBlock; ++block) {
      std::memcpy(&scales[block * rows + row], blocks, sizeof(float));
      std::memcpy(numbers, blocks + sizeof(float), kScaleBlock);
      blocks += sizeof(float) + kScaleBlock;
      numbers += kScaleBlock;
    }
  }
  const int64_t count = rows * columns / kScaleBlock;
  uint32_t is_shared = 1;
  for (int64_t i = 0; i < count; ++i) {
    if (scales[i] != scales[i - i % rows % kScaleBlock]) is_shared = 0;
  }
  std::memcpy(&scales[count], &is_shared, sizeof is_shared);
}

absl::Status CudaWeights::Want(const plan::TargetT& target, uint32_t index,
                               const WeightForm& form) {
  const DType dtype = form.dtype;
  const auto [found, is_new] = places_.try_emplace({index, form});
  if (!is_new) return absl::OkStatus();
  const plan::WeightSlotT& slot = *target.weights[index];
  QUIRE_ASSIGN_OR_RETURN(const Type type, TypeOfTensor(slot.dtype, slot.extents));
  const bool splits = dtype == DType::kF8E4M3 && type.dtype == DType::kF8E4M3_128;
  if (type.dtype != dtype && !splits && !(IsFloat(type.dtype) && IsFloat(dtype))) {
    return absl::InvalidArgumentError(absl::StrCat("weight ", slot.name, ": its kernel reads ",
                                                   DTypeText(dtype), ", it is ",
                                                   DTypeText(type.dtype)));
  }
  Place& place = found->second;
  place.stored = type.dtype;
  const auto stored_bytes = static_cast<int64_t>(BytesOfTensor(type));
  const DTypeInfo& info = InfoOf(type.dtype);
  place.elements = stored_bytes / info.block_bytes * info.block_elements;
  place.columns = slot.extents.back();
  place.bytes = type.dtype == dtype ? stored_bytes
                : splits            ? stored_bytes + 4
                                    : RowBytes(dtype, place.elements);
  return absl::OkStatus();
}

void CudaWeights::Borrow(const plan::TargetT& target, const WeightSource& source,
                         const Uploaded& uploaded) {
  for (const std::weak_ptr<const Block>& weak : uploaded) {
    const std::shared_ptr<const Block> block = weak.lock();
    if (block == nullptr || block->source != source.number() || block->target != &target) continue;
    const size_t wanted = places_.size();
    for (const auto& [key, at] : block->found) {
      if (places_.erase(key) > 0) found_[key] = at;
    }
    if (places_.size() < wanted) borrowed_.push_back(block);
  }
}

absl::StatusOr<int64_t> CudaWeights::PlaceAll() {
  int64_t end = 0;
  for (auto& [key, place] : places_) {
    place.offset = end;
    if (__builtin_add_overflow(end, place.bytes + kAlignment - 1, &end)) {
      return absl::ResourceExhaustedError("cuda: the weights are too large");
    }
    end = end / kAlignment * kAlignment;
  }
  return end;
}

int64_t CudaWeights::bytes() const { return own_ == nullptr ? 0 : own_->memory.bytes(); }

absl::Status CudaWeights::Upload(const CudaContext& context, const plan::TargetT& target,
                                 const WeightSource& source, int threads, Uploaded* uploaded) {
  Borrow(target, source, *uploaded);
  QUIRE_ASSIGN_OR_RETURN(const int64_t end, PlaceAll());
  auto block = std::make_shared<Block>();
  block->source = source.number();
  block->target = &target;
  QUIRE_ASSIGN_OR_RETURN(block->memory, CudaMemory::Allocate(context, end, "the weights"));
  for (const auto& [key, place] : places_) {
    block->found[key] = block->memory.at() + static_cast<uint64_t>(place.offset);
  }
  found_.insert(block->found.begin(), block->found.end());
  own_ = block;
  // Greatest first, so that threads end together.
  std::vector<std::pair<Key, const Place*>> order;
  for (const auto& [key, place] : places_) order.push_back({key, &place});
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second->bytes > b.second->bytes; });
  const auto send = [&](Stage& stage, const auto& wanted) -> absl::Status {
    const auto& [key, place] = wanted;
    const plan::WeightSlotT& slot = *target.weights[key.first];
    QUIRE_ASSIGN_OR_RETURN(SlotSpans loaded, source.LoadPieces(slot));
    const DType dtype = key.second.dtype;
    const DTypeInfo& info = InfoOf(place->stored);
    const int64_t stored_bytes = place->elements / info.block_elements * info.block_bytes;
    int64_t loaded_bytes = 0;
    for (const auto& piece : loaded.pieces) loaded_bytes += static_cast<int64_t>(piece.size());
    if (loaded_bytes != stored_bytes) {
      return absl::DataLossError(absl::StrCat("weight ", slot.name, ": ", loaded_bytes,
                                              " bytes\n  allowed: ", stored_bytes));
    }
    if (key.second.order.heads > 0) {
      loaded.pieces = Ordered(loaded.pieces, stored_bytes / slot.extents[0], key.second.order);
    }
    CuDevicePtr to = Find(key.first, key.second);
    const auto copy = [&](absl::Span<const uint8_t> bytes) -> absl::Status {
      for (size_t begin = 0; begin < bytes.size(); begin += kStageBytes) {
        const absl::Span<const uint8_t> part = bytes.subspan(begin, kStageBytes);
        QUIRE_RETURN_IF_ERROR(
            stage.Send(to, static_cast<int64_t>(part.size()),
                       [part](uint8_t* staged) { std::memcpy(staged, part.data(), part.size()); }));
        to += part.size();
      }
      return absl::OkStatus();
    };
    if (place->stored == DType::kF8E4M3_128 && dtype == DType::kF8E4M3) {
      std::vector<uint8_t> blocks;
      for (const auto& piece : loaded.pieces) {
        blocks.insert(blocks.end(), piece.begin(), piece.end());
      }
      const int64_t rows = place->elements / place->columns;
      std::vector<uint8_t> numbers(static_cast<size_t>(place->elements));
      std::vector<float> scales(static_cast<size_t>(place->elements / kScaleBlock + 1));
      SplitScales(blocks.data(), rows, place->columns, numbers.data(), scales.data());
      QUIRE_RETURN_IF_ERROR(copy(numbers));
      return copy({reinterpret_cast<const uint8_t*>(scales.data()), scales.size() * sizeof(float)});
    }
    // In units of an element where it is converted, otherwise of a byte.
    const bool converts = place->stored != dtype;
    const int64_t to_bytes = converts ? InfoOf(dtype).block_bytes : 1;
    const int64_t from_bytes = converts ? info.block_bytes : 1;
    // As much of the pieces at once as a buffer takes: those in an order of their own are short.
    auto left = absl::MakeSpan(loaded.pieces);
    while (!left.empty()) {
      if (left[0].empty()) {
        left.remove_prefix(1);
        continue;
      }
      const int64_t most = kStageBytes / to_bytes;
      int64_t sent = 0;
      for (size_t i = 0; i < left.size() && sent < most; ++i) {
        sent = std::min(most, sent + static_cast<int64_t>(left[i].size()) / from_bytes);
      }
      QUIRE_RETURN_IF_ERROR(stage.Send(to, sent * to_bytes, [&](uint8_t* staged) {
        for (int64_t filled = 0; filled < sent;) {
          const int64_t part =
              std::min(sent - filled, static_cast<int64_t>(left[0].size()) / from_bytes);
          uint8_t* at = staged + filled * to_bytes;
          if (converts) {
            ConvertFloats(place->stored, left[0].data(), dtype, at, part);
          } else {
            std::memcpy(at, left[0].data(), static_cast<size_t>(part));
          }
          filled += part;
          left[0].remove_prefix(static_cast<size_t>(part * from_bytes));
          if (left[0].empty()) left.remove_prefix(1);
        }
      }));
      to += static_cast<uint64_t>(sent * to_bytes);
    }
    return absl::OkStatus();
  };
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status status;
  const auto run = [&] {
    absl::Status one = context.MakeCurrent();
    if (one.ok()) {
      absl::StatusOr<Stage> stage = Stage::Create(context);
      one = stage.status();
      for (size_t i; one.ok() && (i = next++) < order.size();) one = send(*stage, order[i]);
    }
    if (one.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex);
    status.Update(one);
    next = order.size();
  };
  // A thread for less than this is not worth its buffers.
  const int64_t useful = 1 + end / (16 * kStageBytes);
  std::vector<std::thread> others;
  for (int64_t i = 1; i < std::min<int64_t>(threads, useful); ++i) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
  QUIRE_RETURN_IF_ERROR(status);
  QUIRE_RETURN_IF_ERROR(context.Synchronize());
  uploaded->erase(std::remove_if(uploaded->begin(), uploaded->end(),
                                 [](const auto& weak) { return weak.expired(); }),
                  uploaded->end());
  uploaded->push_back(block);
  return absl::OkStatus();
}

}  // namespace quire
