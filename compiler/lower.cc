#include "compiler/lower.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/rope.h"
#include "codegen/spec.h"
#include "compiler/kv_layers.h"
#include "compiler/linear_group.h"
#include "compiler/row_spec.h"
#include "compiler/row_wise.h"
#include "compiler/storage_types.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire {
namespace {

// Sizes and extents of a value with rows, stored as `stored`. UNIMPLEMENTED when it is not f32 (or
// i32, for arguments) or has another letter than T or R on axis 0 alone.
absl::StatusOr<std::unique_ptr<plan::ValueT>> MakeValue(const Op& op, DType stored) {
  const Type& type = op.type;
  const bool is_index = op.Is(OpKind::kArg) && type.dtype == DType::kI32;
  if (type.dtype != DType::kF32 && !is_index) {
    return absl::UnimplementedError(Describe(
        op, absl::StrCat(type.ToString(), op.Is(OpKind::kArg)
                                              ? " as argument; arguments are i32 or f32"
                                              : " between kernels; these values are f32")));
  }
  const bool by_t = HasRows(type, 'T');
  if (!by_t && !HasRows(type, 'R')) {
    return absl::UnimplementedError(
        Describe(op, absl::StrCat(type.ToString(), " does not have T or R as its first extent")));
  }
  const auto row = absl::MakeConstSpan(type.extents).subspan(1);
  if (std::any_of(row.begin(), row.end(),
                  [](const Extent& extent) { return extent.is_letter(); })) {
    return absl::UnimplementedError(
        Describe(op, absl::StrCat(type.ToString(), " has a letter behind its first extent")));
  }
  const absl::StatusOr<int64_t> elements = Product(row);
  if (!elements.ok() || *elements > (int64_t{1} << 56)) {
    return absl::UnimplementedError(Describe(op, absl::StrCat(type.ToString(), " is too large")));
  }
  auto value = std::make_unique<plan::ValueT>();
  value->name = op.name;
  value->dtype = std::string(DTypeText(stored));
  for (const Extent& extent : type.extents) value->extents.push_back(extent.ToString());
  const int64_t row_bytes = RowBytes(stored, *elements);
  value->bytes = std::make_unique<plan::Linear>(0, by_t ? row_bytes : 0, by_t ? 0 : row_bytes);
  value->offset = std::make_unique<plan::Linear>(0, 0, 0);
  return value;
}

// By what a cache keeps its values; nullptr: as they are.
const Op* KvScaleOf(const Op& cache) {
  const int at = cache.Is(OpKind::kKvAppend) ? 1 : 0;
  return cache.num_operands() > at ? cache.operand(at) : nullptr;
}

// What the programs of a target share.
struct Shared {
  Shared(const Target& lowered_for, WeightSlots weight_slots, KvLayers kv_layers)
      : target(lowered_for), slots(std::move(weight_slots)), layers(std::move(kv_layers)) {}

  const Target& target;
  WeightSlots slots;
  KvLayers layers;
  absl::flat_hash_map<std::string, uint32_t> kernel_index;  // by spec
  std::vector<std::unique_ptr<plan::KernelT>> kernels;
};

// One function.
class Lowering {
 public:
  Lowering(const Func& func, Shared& shared)
      : func_(func),
        target_(shared.target),
        types_(func, shared.target),
        slots_(shared.slots),
        layers_(shared.layers),
        kernel_index_(shared.kernel_index),
        kernels_(shared.kernels) {}

  absl::StatusOr<std::unique_ptr<plan::ProgramT>> Run() {
    program_->every_step = func_.name() == "encode_every_step";
    program_->name = program_->every_step ? "encode" : func_.name();
    program_->ir = Print(func_);
    for (size_t i = 0; i < func_.args().size(); ++i) {
      const Op* arg = func_.args()[i].get();
      QUIRE_ASSIGN_OR_RETURN(auto value, MakeValue(*arg, types_.Of(arg)));
      program_->arguments.push_back(std::move(value));
      places_[arg] = plan::Operand(plan::OperandKind::Argument, static_cast<uint32_t>(i));
    }
    QUIRE_RETURN_IF_ERROR(CollectGroups());
    for (const auto& group : groups_) QUIRE_RETURN_IF_ERROR(LowerGroup(group));
    for (const Op* result : func_.returns()) {
      if (result->Is(OpKind::kKvAppend)) continue;  // stays in its cache
      auto it = places_.find(Storage(result));
      if (it == places_.end() || it->second.kind() != plan::OperandKind::Buffer) {
        return absl::UnimplementedError(Describe(*result, "is returned but not computed"));
      }
      program_->results.push_back(it->second);
    }
    return std::move(program_);
  }

 private:
  using Group = std::vector<const Op*>;

  absl::Status CollectGroups() {
    for (const auto& op : func_.ops()) {
      if (slots_.Contains(op.get())) continue;
      if (op->Is(OpKind::kKvRead)) {
        for (const Op* scale : op->operands) QUIRE_RETURN_IF_ERROR(CheckWeight(*op, scale));
        continue;
      }
      if (op->group < 0 && Storage(op.get()) == op.get()) {
        return absl::InternalError(Describe(*op, "has no group"));
      }
      if (op->group >= 0) {
        groups_.resize(std::max(groups_.size(), static_cast<size_t>(op->group) + 1));
        groups_[static_cast<size_t>(op->group)].push_back(op.get());
      }
      for (const Op* operand : op->operands) {
        if (Storage(operand)->group != op->group) read_outside_.insert(Storage(operand));
      }
    }
    for (const Op* result : func_.returns()) read_outside_.insert(Storage(result));
    return absl::OkStatus();
  }

  absl::Status LowerGroup(const Group& group) {
    if (group.empty()) return absl::InternalError("an empty group");
    if (group[0]->Is(OpKind::kAttention)) return LowerAttention(*group[0]);
    const LinearGroup linear = ReadLinearGroup(group);
    return linear.linear != nullptr ? LowerLinear(linear) : LowerRows(group);
  }

  absl::Status LowerLinear(const LinearGroup& group) {
    const Op& linear = *group.linear;
    const Op* weight = linear.operand(1);
    const Op* x = group.head()->operand(0);
    if (linear.type.rank() != 2) {
      return absl::UnimplementedError(
          Describe(linear, absl::StrCat(linear.type.ToString(), " does not have rank 2")));
    }
    LinearSpec spec;
    const LinearAppend& append = group.append;
    // A group that appends has no other epilogue.
    spec.n = (append.appends.empty() ? *group.result() : linear).type.extents[1].value();
    spec.k = weight->type.extents[1].value();
    spec.weight = weight->type.dtype;
    if (target_.traits.converts_weights && IsFloat(spec.weight)) {
      spec.weight = target_.activation;
    }
    spec.bias = linear.num_operands() > 2;
    spec.residual = group.add != nullptr;
    spec.layout = slots_.LayoutOf(weight);
    spec.x = types_.Of(Storage(x));
    spec.y = types_.Of(group.result());
    if (group.act != nullptr) spec.act = ActOf(*group.act);
    spec.gated = group.gated != nullptr;
    plan::LaunchT launch;
    QUIRE_ASSIGN_OR_RETURN(plan::Operand x_place, PlaceOf(linear, x));
    launch.inputs.push_back(x_place);
    for (int i = 1; i < linear.num_operands(); ++i) {
      QUIRE_RETURN_IF_ERROR(CheckWeight(linear, linear.operand(i)));
      launch.inputs.push_back(Weight(linear.operand(i)));
    }
    if (spec.residual) {
      QUIRE_ASSIGN_OR_RETURN(plan::Operand place, PlaceOf(*group.add, group.residual()));
      launch.inputs.push_back(place);
    }
    if (group.norm != nullptr) {
      const Op& norm = *group.norm;
      const bool is_rms = norm.Is(OpKind::kRmsNorm);
      spec.norm.emplace();
      spec.norm->kind = is_rms ? NormSpec::Kind::kRms : NormSpec::Kind::kLayer;
      spec.norm->eps = norm.Float(AttrKind::kEps);
      spec.norm->weight_offset = is_rms ? norm.Float(AttrKind::kWeightOffset) : 0;
      for (int i = 1; i < norm.num_operands(); ++i) {
        (i == 1 ? spec.norm->weight : spec.norm->bias) = norm.operand(i)->type.dtype;
        launch.inputs.push_back(Weight(norm.operand(i)));
      }
    }
    if (group.quantize != nullptr) {
      const Op& quantize = *group.quantize;
      spec.quantize = QuantizeSpec{quantize.Int(AttrKind::kColumns),
                                   quantize.Float(AttrKind::kMost), quantize.num_operands() > 1};
      spec.row_scales = slots_.HasRowScales(weight);
      if (spec.quantize->has_scale) launch.inputs.push_back(Weight(quantize.operand(1)));
    }
    if (append.appends.empty()) return Finish(linear, spec, std::move(launch), {group.result()});
    const Extents &k = append.appends[0]->type.extents, &v = append.appends[1]->type.extents;
    spec.append = AppendSpec{static_cast<int64_t>(append.appends.size()) / 2, k[1].value(),
                             k[2].value(), v[2].value(), target_.page_tokens};
    if (append.rope != nullptr) {
      const Op& rope = *append.rope;
      spec.rope = RopeSpec{RopeAttributes(rope), std::nullopt};
      QUIRE_ASSIGN_OR_RETURN(plan::Operand positions, PlaceOf(rope, rope.operand(1)));
      launch.inputs.push_back(positions);
      if (rope.num_operands() > 2) {
        QUIRE_RETURN_IF_ERROR(CheckWeight(rope, rope.operand(2)));
        spec.rope->factors = rope.operand(2)->type.dtype;
        launch.inputs.push_back(Weight(rope.operand(2)));
      }
    }
    for (size_t i = 0; i < append.appends.size(); i += 2) {
      launch.inputs.emplace_back(plan::OperandKind::KvLayer, layers_.IndexOf(*append.appends[i]));
    }
    std::vector<const Op*> outputs;
    if (append.result() != nullptr) outputs.push_back(append.result());
    return Finish(linear, spec, std::move(launch), outputs);
  }

  absl::Status LowerAttention(const Op& op) {
    QUIRE_ASSIGN_OR_RETURN(uint32_t layer, layers_.LayerOf(op));
    const Extents& k = op.operand(1)->type.extents;
    AttentionSpec spec;
    spec.hq = op.type.extents[1].value();
    spec.hkv = k[1].value();
    spec.d = k[2].value();
    spec.dv = op.type.extents[2].value();
    spec.kv = op.operand(1)->type.dtype;
    spec.page_tokens = target_.page_tokens;
    spec.causal = op.Text(AttrKind::kMask) == "causal";
    spec.window = op.Int(AttrKind::kWindow);
    spec.scale = op.Float(AttrKind::kScale);
    spec.cap = op.Float(AttrKind::kCap);
    spec.alibi_max = op.Float(AttrKind::kAlibiMax);
    spec.x = types_.Of(&op);
    plan::LaunchT launch;
    QUIRE_ASSIGN_OR_RETURN(plan::Operand q, PlaceOf(op, op.operand(0)));
    launch.inputs = {q, plan::Operand(plan::OperandKind::KvLayer, layer)};
    for (const bool is_v : {false, true}) {
      const Op* scale = KvScaleOf(*op.operand(is_v ? 2 : 1));
      if (scale == nullptr) continue;
      QUIRE_RETURN_IF_ERROR(CheckWeight(op, scale));
      (is_v ? spec.v_scale : spec.k_scale) = true;
      launch.inputs.push_back(Weight(scale));
    }
    if (op.num_operands() > 3) {
      const Op* table = op.operand(3);
      QUIRE_RETURN_IF_ERROR(CheckWeight(op, table));
      launch.inputs.push_back(Weight(table));
      spec.buckets = table->type.extents[0].value();
      spec.max_distance = op.Int(AttrKind::kMaxDistance);
      spec.both_directions = op.Text(AttrKind::kDirection) == "both";
    }
    return Finish(op, spec, std::move(launch), {&op});
  }

  absl::Status CheckWeight(const Op& reader, const Op* weight) const {
    if (slots_.Contains(weight)) return absl::OkStatus();
    return absl::UnimplementedError(Describe(
        reader, absl::StrCat("%", weight->name, " is not made of rows of the checkpoint")));
  }

  absl::Status LowerRows(const Group& group) {
    QUIRE_ASSIGN_OR_RETURN(RowGroup rows,
                           MakeRowGroup(group, read_outside_, slots_, types_, target_));
    plan::LaunchT launch;
    for (const Op* input : rows.inputs) {
      QUIRE_ASSIGN_OR_RETURN(plan::Operand place, PlaceOf(*group[0], input));
      launch.inputs.push_back(place);
    }
    for (const Op* weight : rows.weights) launch.inputs.push_back(Weight(weight));
    for (const Op* append : rows.appends) {
      launch.inputs.emplace_back(plan::OperandKind::KvLayer, layers_.IndexOf(*append));
    }
    return Finish(*group[0], rows.spec, std::move(launch), rows.outputs);
  }

  // `place_of_error`: the op that messages name, and the launch if it has no outputs.
  absl::Status Finish(const Op& place_of_error, const KernelSpec& spec, plan::LaunchT launch,
                      const std::vector<const Op*>& outputs) {
    const std::string text = SpecText(spec);
    const absl::Status possible = ParseSpec(text).status();
    if (!possible.ok()) {
      return absl::UnimplementedError(Describe(place_of_error, possible.message()));
    }
    auto [it, is_new] = kernel_index_.try_emplace(text, static_cast<uint32_t>(kernels_.size()));
    if (is_new) {
      kernels_.push_back(std::make_unique<plan::KernelT>());
      kernels_.back()->spec = text;
    }
    launch.kernel = it->second;
    launch.name = absl::StrJoin(
        outputs, ",", [](std::string* out, const Op* output) { out->append(output->name); });
    // What only appends leaves no value.
    if (outputs.empty()) launch.name = place_of_error.name;
    launch.rows = (outputs.empty() ? place_of_error : *outputs[0]).type.extents[0].ToString();
    for (const Op* output : outputs) {
      QUIRE_ASSIGN_OR_RETURN(auto value, MakeValue(*output, types_.Of(Storage(output))));
      const plan::Operand place(plan::OperandKind::Buffer,
                                static_cast<uint32_t>(program_->buffers.size()));
      program_->buffers.push_back(std::move(value));
      // A group that only appends writes a copy of what it read: the value keeps its first place.
      places_.try_emplace(Storage(output), place);
      launch.outputs.push_back(place);
    }
    program_->launches.push_back(std::make_unique<plan::LaunchT>(std::move(launch)));
    return absl::OkStatus();
  }

  absl::StatusOr<plan::Operand> PlaceOf(const Op& reader, const Op* value) const {
    auto it = places_.find(Storage(value));
    if (it != places_.end()) return it->second;
    return absl::UnimplementedError(
        Describe(reader, absl::StrCat("%", value->name, " is not a value with rows")));
  }

  plan::Operand Weight(const Op* weight) {
    return plan::Operand(plan::OperandKind::Weight, slots_.SlotOf(weight));
  }

  const Func& func_;
  const Target& target_;
  const StorageTypes types_;
  WeightSlots& slots_;
  KvLayers& layers_;
  std::vector<Group> groups_;
  OpSet read_outside_;
  absl::flat_hash_map<const Op*, plan::Operand> places_;  // arguments and buffers, by Storage()
  absl::flat_hash_map<std::string, uint32_t>& kernel_index_;
  std::vector<std::unique_ptr<plan::KernelT>>& kernels_;
  std::unique_ptr<plan::ProgramT> program_ = std::make_unique<plan::ProgramT>();
};

}  // namespace

absl::StatusOr<plan::TargetT> SelectKernels(const Module& module, const TensorTable& tensors,
                                            const Target& target) {
  QUIRE_ASSIGN_OR_RETURN(WeightSlots slots, WeightSlots::Create(module, tensors, target.traits));
  QUIRE_ASSIGN_OR_RETURN(KvLayers layers, KvLayers::Create(module));
  Shared shared(target, std::move(slots), std::move(layers));
  plan::TargetT lowered;
  for (const auto& func : module.funcs) {
    QUIRE_ASSIGN_OR_RETURN(auto program, Lowering(*func, shared).Run());
    lowered.programs.push_back(std::move(program));
  }
  lowered.name = target.name;
  lowered.activation = std::string(DTypeText(target.activation));
  lowered.kernels = std::move(shared.kernels);
  lowered.weights = shared.slots.TakeSlots();
  lowered.kv_layers = shared.layers.TakeLayers();
  lowered.page_tokens = target.page_tokens;
  return lowered;
}

}  // namespace quire
