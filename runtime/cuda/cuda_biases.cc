#include "runtime/cuda/cuda_biases.h"

#include "absl/strings/str_cat.h"
#include "codegen/relative_bias.h"
#include "ir/plan_check.h"
#include "ir/status.h"
#include "runtime/cuda/cuda_weights.h"

namespace quire {

absl::Status CudaBiases::Add(const plan::WeightSlotT& slot, Key key, const AttentionSpec& spec,
                             const WeightSource& source) {
  if (places_.contains(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const Type type, TypeOfTensor(slot.dtype, slot.extents));
  const int64_t count = spec.buckets * spec.hq;
  if (!IsFloat(type.dtype) ||
      BytesOfTensor(type) != static_cast<uint64_t>(RowBytes(type.dtype, count))) {
    return absl::InvalidArgumentError(absl::StrCat("weight ", slot.name, ": biases of ",
                                                   type.ToString(), "\n  allowed: ", spec.buckets,
                                                   " buckets of ", spec.hq, " heads"));
  }
  QUIRE_ASSIGN_OR_RETURN(const SlotBytes loaded, source.Load(slot));
  if (loaded.bytes.size() != BytesOfTensor(type)) {
    return absl::DataLossError(absl::StrCat("weight ", slot.name, ": ", loaded.bytes.size(),
                                            " bytes\n  allowed: ", BytesOfTensor(type)));
  }
  std::vector<float> table(static_cast<size_t>(count));
  ConvertFloats(type.dtype, loaded.bytes.data(), DType::kF32,
                reinterpret_cast<uint8_t*>(table.data()), count);
  const std::vector<float> biases = BiasesByDistance(spec, table);
  places_[key] = biases_.size();
  biases_.insert(biases_.end(), biases.begin(), biases.end());
  return absl::OkStatus();
}

absl::Status CudaBiases::Upload(const CudaContext& context) {
  if (biases_.empty()) return absl::OkStatus();
  const size_t bytes = biases_.size() * sizeof(float);
  QUIRE_ASSIGN_OR_RETURN(
      memory_, CudaMemory::Allocate(context, static_cast<int64_t>(bytes), "relative biases"));
  QUIRE_RETURN_IF_ERROR(context.Check(
      context.driver().MemcpyHtoDAsync(memory_.at(), biases_.data(), bytes, context.stream()),
      "copying relative biases"));
  QUIRE_RETURN_IF_ERROR(context.Synchronize());
  biases_ = {};
  return absl::OkStatus();
}

}  // namespace quire
