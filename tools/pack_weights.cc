#include "tools/pack_weights.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/cpu/pack.h"
#include "codegen/spec.h"
#include "codegen/weights.h"
#include "ir/file.h"
#include "ir/status.h"
#include "runtime/weights.h"

namespace quire {
namespace {

absl::Status PackSlot(const plan::PlanT& plan, const TensorReader& reader, PlanWriter& writer,
                      plan::WeightSlotT* slot) {
  QUIRE_ASSIGN_OR_RETURN(SlotRows rows, RowsOfSlot(*slot, plan.tensors, reader));
  QUIRE_ASSIGN_OR_RETURN(WeightLayout layout, ParseLayout(slot->layout));
  if (layout == WeightLayout::kRows) return writer.AddPacked(rows.bytes, slot);
  const DType dtype = *ParseDType(slot->dtype);
  const int64_t n = slot->extents[0], k = slot->extents[1];
  const int64_t row_bytes = RowBytes(dtype, k);
  std::vector<const uint8_t*> starts;
  for (int64_t row = 0; row < n; ++row) starts.push_back(rows.bytes.data() + row * row_bytes);
  std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(layout, dtype, n, k)));
  QUIRE_RETURN_IF_ERROR(Pack(layout, dtype, k, starts, absl::MakeSpan(packed)));
  return writer.AddPacked(packed, slot);
}

}  // namespace

bool IsPacked(const plan::TargetT& target) {
  return std::all_of(target.weights.begin(), target.weights.end(),
                     [](const auto& slot) { return slot->packed; });
}

absl::Status PackWeights(const std::string& folder, plan::PlanT* plan, PlanWriter* writer) {
  const TensorFiles reader(*plan, folder, "");
  QUIRE_RETURN_IF_ERROR(reader.Open());
  for (const auto& target : plan->targets) {
    for (const auto& slot : target->weights) {
      QUIRE_RETURN_IF_ERROR(WithPrefix(PackSlot(*plan, reader, *writer, slot.get()),
                                       absl::StrCat("packing ", slot->name)));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
