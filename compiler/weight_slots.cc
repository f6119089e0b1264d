#include "compiler/weight_slots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/row_wise.h"
#include "ir/status.h"
#include "ir/weight_scales.h"

namespace quire {
namespace {

// Nested joins could name a tensor any number of times.
constexpr size_t kMaxParts = 65536;

using Parts = std::vector<plan::WeightPartT>;

absl::StatusOr<Parts> PartsOfTensor(const Op& weight, const TensorTable& tensors,
                                    const absl::flat_hash_map<absl::string_view, uint32_t>& index) {
  const std::string& name = weight.Text(AttrKind::kName);
  auto it = index.find(name);
  if (it == index.end()) {
    std::vector<absl::string_view> names;
    for (const auto& tensor : tensors) names.push_back(tensor->name);
    absl::Status status = absl::InvalidArgumentError(
        Describe(weight, absl::StrCat("tensor ", name, " is not in the checkpoint")));
    const std::string near = Nearest(name, names);
    return near.empty() ? status : WithLine(status, "fix", absl::StrCat("the nearest is ", near));
  }
  const plan::TensorT& tensor = *tensors[it->second];
  Type type;
  const std::optional<DType> dtype = ParseDType(tensor.dtype);
  for (int64_t extent : tensor.extents) type.extents.emplace_back(extent);
  type.dtype = dtype.value_or(DType::kI32);
  if (!dtype.has_value() || type != weight.type) {
    return absl::InvalidArgumentError(
        Describe(weight, absl::StrCat("tensor ", name, " is ", type.ToString(),
                                      ", the definition says ", weight.type.ToString())));
  }
  plan::WeightPartT part;
  part.tensor = it->second;
  part.row_end = type.rank() == 0 ? 1 : type.extents[0].value();
  return Parts{part};
}

// Rows [begin, end) of joined parts.
Parts Cut(const Parts& parts, int64_t begin, int64_t end) {
  Parts cut;
  int64_t at = 0;
  for (plan::WeightPartT part : parts) {
    const int64_t rows = part.row_end - part.row_begin;
    const int64_t from = std::max<int64_t>(begin - at, 0), to = std::min(end - at, rows);
    if (from < to) {
      part.row_end = part.row_begin + to;
      part.row_begin += from;
      cut.push_back(part);
    }
    at += rows;
  }
  return cut;
}

absl::Status Refuse(const Op& op, absl::string_view what) {
  return WithLine(absl::UnimplementedError(Describe(op, what)), "allowed",
                  "weights joined or cut along axis 0, and a tensor of rank 2 transposed");
}

absl::StatusOr<Parts> PartsOf(const Op& op, const TensorTable& tensors,
                              const absl::flat_hash_map<absl::string_view, uint32_t>& index,
                              const absl::flat_hash_map<const Op*, Parts>& known) {
  switch (op.kind) {
    case OpKind::kWeight:
      return PartsOfTensor(op, tensors, index);
    case OpKind::kTranspose: {
      Parts parts = known.at(op.operand(0));
      if (!op.operand(0)->Is(OpKind::kWeight) || op.type.rank() != 2) {
        return Refuse(op, "only a whole tensor of rank 2 can be transposed at load");
      }
      if (op.Ints(AttrKind::kPerm)[0] == 0) return parts;
      parts[0].transposed = true;
      parts[0].row_end = op.type.extents[0].value();
      return parts;
    }
    case OpKind::kSlice:
      if (op.Int(AttrKind::kAxis) != 0)
        return Refuse(op, "cuts a weight along another axis than 0");
      return Cut(known.at(op.operand(0)), op.Int(AttrKind::kBegin), op.Int(AttrKind::kEnd));
    default: {  // concat
      if (op.Int(AttrKind::kAxis) != 0)
        return Refuse(op, "joins weights along another axis than 0");
      Parts parts;
      for (const Op* operand : op.operands) {
        const Parts& more = known.at(operand);
        if (parts.size() + more.size() > kMaxParts) return Refuse(op, "joins too many parts");
        parts.insert(parts.end(), more.begin(), more.end());
      }
      return parts;
    }
  }
}

}  // namespace

absl::StatusOr<WeightSlots> WeightSlots::Create(const Module& module, const TensorTable& tensors,
                                                const TargetTraits& traits) {
  absl::flat_hash_map<absl::string_view, uint32_t> index;
  for (size_t i = 0; i < tensors.size(); ++i) index[tensors[i]->name] = static_cast<uint32_t>(i);
  WeightSlots slots;
  slots.tensors_ = &tensors;
  slots.matrix_layout_ = traits.matrix_layout;
  for (const auto& func : module.funcs) {
    const OpSet weights = WeightExpressionsOf(*func);
    for (const auto& op : func->ops()) {
      if (!weights.contains(op.get())) continue;
      QUIRE_ASSIGN_OR_RETURN(Parts parts, PartsOf(*op, tensors, index, slots.parts_));
      slots.parts_[op.get()] = std::move(parts);
    }
    for (const auto& op : func->ops()) {
      if (op->Is(OpKind::kLinear) && slots.Contains(op->operand(1))) {
        slots.layouts_[KeyOf(slots.parts_.at(op->operand(1)))] = traits.matrix_layout;
      }
    }
  }
  return slots;
}

std::string WeightSlots::KeyOf(const Parts& parts) {
  std::string key;
  for (const plan::WeightPartT& part : parts) {
    absl::StrAppend(&key, part.tensor, part.transposed ? "t" : ":", part.row_begin, "-",
                    part.row_end, " ");
  }
  return key;
}

WeightLayout WeightSlots::LayoutOf(const Op* weight) const {
  if (IsBlockType(weight->type.dtype)) return matrix_layout_;
  auto it = layouts_.find(KeyOf(parts_.at(weight)));
  return it == layouts_.end() ? WeightLayout::kRows : it->second;
}

bool WeightSlots::HasRowScales(const Op* weight) const {
  const Parts& parts = parts_.at(weight);
  return std::all_of(parts.begin(), parts.end(), [&](const plan::WeightPartT& part) {
    const plan::TensorT& tensor = *(*tensors_)[part.tensor];
    if (tensor.scale < 0) return false;
    const auto scales = WeightScalesOf((*tensors_)[static_cast<size_t>(tensor.scale)]->extents,
                                       tensor.extents[0], tensor.extents[1]);
    return scales.has_value() && scales->row_scales == 1;
  });
}

uint32_t WeightSlots::SlotOf(const Op* weight) {
  const Parts& parts = parts_.at(weight);
  auto [it, is_new] = index_.try_emplace(KeyOf(parts), static_cast<uint32_t>(slots_.size()));
  if (!is_new) return it->second;
  auto slot = std::make_unique<plan::WeightSlotT>();
  slot->name = weight->name;
  slot->dtype = std::string(DTypeText(weight->type.dtype));
  for (const Extent& extent : weight->type.extents) slot->extents.push_back(extent.value());
  if (slot->extents.empty()) slot->extents.push_back(1);  // one number is a row
  for (const plan::WeightPartT& part : parts) {
    slot->parts.push_back(std::make_unique<plan::WeightPartT>(part));
  }
  slot->layout = std::string(LayoutText(LayoutOf(weight)));
  slots_.push_back(std::move(slot));
  return it->second;
}

}  // namespace quire
