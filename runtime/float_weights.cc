#include "runtime/float_weights.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "ir/floats.h"
#include "ir/plan_check.h"
#include "ir/status.h"

namespace quire {

absl::StatusOr<std::vector<float>> LoadFloats(const plan::WeightSlotT& slot,
                                              const WeightSource& source) {
  QUIRE_ASSIGN_OR_RETURN(const Type type, TypeOfTensor(slot.dtype, slot.extents));
  if (!IsFloat(type.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("weight ", slot.name, ": ", slot.dtype, "\n  allowed: f32, f16, bf16"));
  }
  QUIRE_ASSIGN_OR_RETURN(const SlotBytes loaded, source.Load(slot));
  if (loaded.bytes.size() != BytesOfTensor(type)) {
    return absl::DataLossError(absl::StrCat("weight ", slot.name, ": ", loaded.bytes.size(),
                                            " bytes\n  allowed: ", BytesOfTensor(type)));
  }
  const auto bytes = static_cast<size_t>(InfoOf(type.dtype).block_bytes);
  std::vector<float> values(loaded.bytes.size() / bytes);
  ReadFloats(type.dtype, loaded.bytes.data(), absl::MakeSpan(values));
  return values;
}

absl::StatusOr<std::vector<float>> LoadKvScales(const plan::WeightSlotT& slot,
                                                const WeightSource& source, int64_t heads) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<float> scales, LoadFloats(slot, source));
  const auto count = static_cast<size_t>(heads);
  if (scales.size() != 1 && scales.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("weight ", slot.name, ": ", scales.size(),
                                                   " scales of keys or values\n  allowed: 1, or ",
                                                   heads, ", one for each head"));
  }
  for (size_t i = 0; i < scales.size(); ++i) {
    if (scales[i] > 0 && std::isfinite(scales[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "weight ", slot.name, ": scale ", i, " of ", scales.size(), " is ", scales[i],
        "\n  allowed: positive numbers\n  fix: get the weights' files again, or do without it: a "
        "cache's by --kv-dtype of another type, an input's by --activations=keep"));
  }
  if (scales.size() == 1) scales.assign(count, scales[0]);
  return scales;
}

}  // namespace quire
