#include "runtime/cuda/cuda_tables.h"

#include "absl/strings/str_cat.h"
#include "codegen/relative_bias.h"
#include "ir/status.h"
#include "runtime/float_weights.h"

namespace quire {

void CudaTables::Add(Key key, absl::Span<const float> table) {
  places_[key] = values_.size();
  values_.insert(values_.end(), table.begin(), table.end());
}

absl::Status CudaTables::AddBiases(const plan::WeightSlotT& slot, Key key,
                                   const AttentionSpec& spec, const WeightSource& source) {
  if (Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<float> table, LoadFloats(slot, source));
  if (static_cast<int64_t>(table.size()) != spec.buckets * spec.hq) {
    return absl::InvalidArgumentError(absl::StrCat("weight ", slot.name, ": ", table.size(),
                                                   " biases\n  allowed: ", spec.buckets,
                                                   " buckets of ", spec.hq, " heads"));
  }
  Add(key, BiasesByDistance(spec, table));
  return absl::OkStatus();
}

absl::Status CudaTables::AddKvScales(const plan::WeightSlotT& slot, Key key, int64_t heads,
                                     const WeightSource& source) {
  if (Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<float> scales, LoadKvScales(slot, source, heads));
  Add(key, scales);
  return absl::OkStatus();
}

absl::Status CudaTables::Upload(const CudaContext& context) {
  if (values_.empty()) return absl::OkStatus();
  const size_t bytes = values_.size() * sizeof(float);
  QUIRE_ASSIGN_OR_RETURN(
      memory_, CudaMemory::Allocate(context, static_cast<int64_t>(bytes), "biases and scales"));
  QUIRE_RETURN_IF_ERROR(context.Check(
      context.driver().MemcpyHtoDAsync(memory_.at(), values_.data(), bytes, context.stream()),
      "copying biases and scales"));
  QUIRE_RETURN_IF_ERROR(context.Synchronize());
  values_ = {};
  return absl::OkStatus();
}

}  // namespace quire
