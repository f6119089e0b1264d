#include "runtime/cpu_weights.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/cpu/pack.h"
#include "codegen/spec.h"
#include "ir/dtype.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr size_t kAlign = 64;

std::vector<float> ToF32(DType dtype, absl::Span<const uint8_t> bytes, int64_t elements) {
  std::vector<float> out(static_cast<size_t>((elements + 15) / 16 * 16), 0.0f);
  for (size_t i = 0; i < static_cast<size_t>(elements); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&out[i], bytes.data() + 4 * i, 4);
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    out[i] = dtype == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
  }
  return out;
}

}  // namespace

absl::StatusOr<CpuWeights::Slot> CpuWeights::LoadSlot(const plan::WeightSlotT& slot,
                                                      const WeightSource& source) {
  QUIRE_ASSIGN_OR_RETURN(SlotBytes bytes, source.Load(slot));
  QUIRE_ASSIGN_OR_RETURN(const WeightLayout layout, ParseLayout(slot.layout));
  const DType dtype = *ParseDType(slot.dtype);
  Slot loaded;
  if (slot.extents.size() == 1 && IsFloat(dtype))
    loaded.bias = ToF32(dtype, bytes.bytes, slot.extents[0]);
  if (bytes.packed || layout == WeightLayout::kRows) {
    loaded.data = bytes.bytes.data();
    loaded.owner = bytes.owner;
    return loaded;
  }
  const int64_t n = slot.extents[0], k = slot.extents[1];
  const int64_t packed_bytes = PackedBytes(layout, dtype, n, k);
  const size_t rounded = (static_cast<size_t>(packed_bytes) + kAlign - 1) / kAlign * kAlign;
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kAlign, rounded));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", packed_bytes, " bytes of weights"));
  }
  loaded.data = memory;
  loaded.owner = std::shared_ptr<const void>(
      memory, [](const void* held) { std::free(const_cast<void*>(held)); });
  std::vector<const uint8_t*> rows;
  rows.reserve(static_cast<size_t>(n));
  for (int64_t row = 0; row < n; ++row)
    rows.push_back(bytes.bytes.data() + row * RowBytes(dtype, k));
  QUIRE_RETURN_IF_ERROR(Pack(layout, dtype, k, rows, {memory, static_cast<size_t>(packed_bytes)}));
  return loaded;
}

absl::StatusOr<CpuWeights> CpuWeights::Load(const plan::TargetT& target, const WeightSource& source,
                                            ThreadPool& threads) {
  CpuWeights weights;
  weights.slots_.resize(target.weights.size());
  std::vector<absl::Status> statuses(target.weights.size());
  threads.ForEach(static_cast<int64_t>(target.weights.size()), [&](int64_t at) {
    const auto i = static_cast<size_t>(at);
    absl::StatusOr<Slot> slot = LoadSlot(*target.weights[i], source);
    if (slot.ok()) weights.slots_[i] = *std::move(slot);
    statuses[i] = WithPrefix(slot.status(), absl::StrCat("weight ", target.weights[i]->name));
  });
  for (const absl::Status& status : statuses) QUIRE_RETURN_IF_ERROR(status);
  return weights;
}

}  // namespace quire
