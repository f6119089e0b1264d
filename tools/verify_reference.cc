#include "tools/verify_reference.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/spec.h"
#include "ir/file.h"
#include "ir/fingerprint.h"
#include "ir/norm.h"
#include "ir/reference/dequantize.h"
#include "ir/reference/interpreter.h"
#include "ir/status.h"
#include "ir/text.h"
#include "runtime/weights.h"
#include "tools/verify_launches.h"

namespace quire {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kDoubleUnit = 0x1p-53;
// Small, so that errors add up as they are; large beside the interpreter's own 2^-53.
constexpr double kDisturbance = 0x1p-16;

double StorageUnit(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF8E4M3:
      return 0x1p-4;
    default:
      return kUnit;
  }
}

// The deviation of rounding to a type.
double RoundingError(DType dtype) { return StorageUnit(dtype) / std::sqrt(3.0); }

// The relative error that a launch adds, with weights of that type in the checkpoint.
double LaunchError(const KernelSpec& spec, DType stored) {
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    const double sums = std::sqrt(static_cast<double>(linear->k)) * kUnit;
    const bool is_block = InfoOf(linear->weight).block_elements > 1;
    // What is rounded to 8 bits may fall to either side where what comes before differs at all.
    if (linear->quantize.has_value()) return sums + RoundingError(DType::kF8E4M3);
    if (linear->x == DType::kF32) {
      return is_block ? std::sqrt(32.0) / (127 * std::sqrt(12.0)) : sums;
    }
    return sums + (is_block || stored != linear->weight ? RoundingError(linear->x) : 0);
  }
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
    return std::sqrt(2.0 / 3) * StorageUnit(attention->kv) + RoundingError(attention->x);
  }
  const bool quantizes = absl::StrContains(std::get<RowSpec>(spec).func, "= quantize ");
  return 4 * kUnit + (quantizes ? RoundingError(DType::kF8E4M3) : 0);
}

// The same in the reference's arithmetic, where nothing is stored in another type.
double ReferenceError(const KernelSpec& spec, DType) {
  const auto* linear = std::get_if<LinearSpec>(&spec);
  return kDoubleUnit * (linear == nullptr ? 4 : std::sqrt(static_cast<double>(linear->k)));
}

// The `e` of the header.
double GreatestError(const plan::TargetT& target, double (*error_of)(const KernelSpec&, DType)) {
  double greatest = 0;
  for (const auto& launch : target.programs[0]->launches) {
    const absl::StatusOr<KernelSpec> spec = ParseSpec(target.kernels[launch->kernel]->spec);
    if (!spec.ok()) continue;
    DType stored = DType::kF32;
    if (std::holds_alternative<LinearSpec>(*spec)) {
      stored = *ParseDType(target.weights[launch->inputs[1].index()]->dtype);
    }
    greatest = std::max(greatest, error_of(*spec, stored));
  }
  return greatest;
}

absl::StatusOr<reference::Tensor> ReadTensor(const plan::PlanT& plan, const TensorFiles& files,
                                             absl::string_view name) {
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const plan::TensorT& tensor = *plan.tensors[i];
    if (tensor.name != name) continue;
    QUIRE_ASSIGN_OR_RETURN(const SlotRows rows,
                           RowsOfTensor(static_cast<uint32_t>(i), plan.tensors, files));
    QUIRE_ASSIGN_OR_RETURN(reference::Tensor value, reference::Tensor::Zeros(tensor.extents));
    QUIRE_RETURN_IF_ERROR(
        Dequantize(*ParseDType(tensor.dtype), rows.bytes, absl::MakeSpan(value.values)));
    return value;
  }
  return absl::DataLossError(
      absl::StrCat("the plan's IR names tensor ", name, ", the plan does not"));
}

// Multiplies every element by 1 + a normal error. The same name gives the same errors.
void Disturb(absl::string_view name, double deviation, reference::Tensor* tensor) {
  std::mt19937_64 random(Fingerprint({reinterpret_cast<const uint8_t*>(name.data()), name.size()}));
  std::normal_distribution<double> error(0, deviation);
  for (double& value : tensor->values) value *= 1 + error(random);
}

// Makes every type but that of ids f32, which the interpreter does not round to.
void Widen(Module* module) {
  for (const auto& func : module->funcs) {
    for (const auto& op : func->ops()) {
      if (op->type.dtype != DType::kI32) op->type.dtype = DType::kF32;
    }
  }
}

// How errors are passed on is measured without rounding to 8 bits, which answers a small error by
// none or by a large one. Whether there was any.
bool PassQuantize(Module* module) {
  bool passed = false;
  for (const auto& func : module->funcs) {
    for (const auto& op : func->ops()) {
      if (!op->Is(OpKind::kQuantize)) continue;
      func->ReplaceUses(op.get(), op->operand(0));
      passed = true;
    }
  }
  return passed;
}

bool IsActivation(OpKind kind) {
  for (const OpKind act :
       {OpKind::kSilu, OpKind::kGelu, OpKind::kRelu, OpKind::kTanh, OpKind::kSigmoid}) {
    if (kind == act) return true;
  }
  return false;
}

// The name of the weight that stands for the errors of a stored value.
constexpr absl::string_view kErrorsOf = "errors of ";

// Multiplies each value that a launch of the program stores in 16 bits by errors, the same for
// every row, and so what linear kernels round on the way: a norm, and what an activation is of.
// The greatest unit of their types; 0 if there is none.
double DisturbStored(const plan::ProgramT& program, Func* lowered) {
  absl::flat_hash_set<std::string> names;
  double unit = 0;
  for (const auto& buffer : program.buffers) {
    const DType dtype = *ParseDType(buffer->dtype);
    if (dtype == DType::kF32) continue;
    names.insert(buffer->name);
    unit = std::max(unit, StorageUnit(dtype));
  }
  if (unit == 0) return 0;
  absl::flat_hash_set<int> linears, with_act;
  for (const auto& op : lowered->ops()) {
    if (op->Is(OpKind::kLinear)) linears.insert(op->group);
    if (IsActivation(op->kind)) with_act.insert(op->group);
  }
  std::vector<Op*> stored;
  for (const auto& op : lowered->ops()) {
    const bool is_rounded_inside = (IsNorm(*op) && linears.contains(op->group)) ||
                                   (op->Is(OpKind::kLinear) && with_act.contains(op->group));
    if (names.contains(op->name) || is_rounded_inside) stored.push_back(op.get());
  }
  for (Op* value : stored) {
    if (lowered->IsReturned(value)) continue;
    const auto& ops = lowered->ops();
    auto after =
        std::find_if(ops.begin(), ops.end(), [value](const auto& op) { return op.get() == value; });
    const Op* next = (++after)->get();
    auto errors = std::make_unique<Op>();
    errors->kind = OpKind::kWeight;
    errors->name = absl::StrCat("e.", value->name);
    errors->Set(AttrKind::kName, AttrValue(absl::StrCat(kErrorsOf, value->name)));
    errors->type = Type{DType::kF32, {value->type.extents.begin() + 1, value->type.extents.end()}};
    Op* factor = lowered->Insert(std::move(errors), next);
    auto product = std::make_unique<Op>();
    product->kind = OpKind::kMul;
    product->name = absl::StrCat("d.", value->name);
    product->type = value->type;
    Op* disturbed = lowered->Insert(std::move(product), next);
    lowered->ReplaceUses(value, disturbed);
    disturbed->operands = {value, factor};
  }
  return unit;
}

reference::Tensor TensorOf(absl::Span<const int32_t> values) {
  return {{static_cast<int64_t>(values.size())}, {values.begin(), values.end()}};
}

// As an argument of this type, [S,E].
reference::Tensor StatesOf(absl::Span<const float> states, const Type& type) {
  const int64_t width = type.extents[1].value();
  return {{static_cast<int64_t>(states.size()) / width, width}, {states.begin(), states.end()}};
}

reference::Tensor Positions(size_t count) {
  reference::Tensor positions{{static_cast<int64_t>(count)}, std::vector<double>(count)};
  for (size_t i = 0; i < count; ++i) positions.values[i] = static_cast<double>(i);
  return positions;
}

// Logits [T, V] of a definition, or of a lowered program for all rows.
absl::StatusOr<reference::Tensor> Logits(const Module& module, const reference::WeightFn& weights,
                                         const VerifyInput& input) {
  reference::Inputs inputs;
  reference::KvState cross;
  inputs.weights = weights;
  inputs.cross = &cross;
  if (const Func* encode = module.Encoder()) {
    inputs.args = {{"ids", TensorOf(input.source)}, {"pos", Positions(input.source.size())}};
    if (const Op* states = encode->Find("states")) {
      inputs.args = {{"states", StatesOf(input.states, states->type)}};
    }
    QUIRE_RETURN_IF_ERROR(reference::Interpret(*encode, inputs).status());
  }
  const Func& step = *module.Find("step");
  inputs.args = {{"ids", TensorOf(input.ids)}, {"pos", Positions(input.ids.size())}};
  if (step.Find("rows") != nullptr) inputs.args["rows"] = Positions(input.ids.size());
  if (step.Find("source") != nullptr) {
    inputs.args["source"] = TensorOf(input.source);
    inputs.args["source_pos"] = Positions(input.source.size());
  }
  if (const Op* states = step.Find("states")) {
    inputs.args["states"] = StatesOf(input.states, states->type);
  }
  QUIRE_ASSIGN_OR_RETURN(std::vector<reference::Tensor> results,
                         reference::Interpret(step, inputs));
  return std::move(results[0]);
}

double Distance(absl::Span<const double> row, absl::Span<const double> reference) {
  double mean = 0, error = 0, norm = 0;
  for (const double value : reference) mean += value;
  mean /= static_cast<double>(reference.size());
  for (size_t i = 0; i < row.size(); ++i) {
    error += (row[i] - reference[i]) * (row[i] - reference[i]);
    norm += (reference[i] - mean) * (reference[i] - mean);
  }
  return std::sqrt(error / norm);
}

// A row's relative error, and the greatest of all rows.
double WorstDistance(const reference::Tensor& a, const reference::Tensor& reference) {
  double worst = 0;
  const auto V = static_cast<size_t>(reference.last());
  for (int64_t t = 0; t < reference.extent(0); ++t) {
    const double distance = Distance({a.row(t), V}, {reference.row(t), V});
    worst = std::isnan(distance) ? INFINITY : std::max(worst, distance);
  }
  return worst;
}

absl::StatusOr<Module> ParseLowered(const plan::TargetT& target) {
  std::string text;
  for (const auto& program : target.programs) text += program->ir;
  return Parse(text, "ir");
}

}  // namespace

absl::StatusOr<Reference> ComputeReference(const plan::PlanT& plan, const plan::TargetT& target,
                                           const std::string& plan_path,
                                           const std::string& weights_dir,
                                           const VerifyInput& input) {
  QUIRE_ASSIGN_OR_RETURN(Module definition, Parse(plan.ir, "ir"));
  QUIRE_ASSIGN_OR_RETURN(Module lowered, ParseLowered(target));
  const TensorFiles files(plan, FolderOf(plan_path), weights_dir);
  const auto weights = [&](absl::string_view name, const Type&) {
    return ReadTensor(plan, files, name);
  };
  const auto with_errors = [&](absl::string_view name,
                               const Type& type) -> absl::StatusOr<reference::Tensor> {
    if (!absl::StartsWith(name, kErrorsOf)) return ReadTensor(plan, files, name);
    std::vector<int64_t> extents;
    for (const Extent& extent : type.extents) extents.push_back(extent.value());
    QUIRE_ASSIGN_OR_RETURN(reference::Tensor errors, reference::Tensor::Zeros(extents));
    std::fill(errors.values.begin(), errors.values.end(), 1.0);
    Disturb(name, kDisturbance, &errors);
    return errors;
  };
  const auto disturbed = [&](absl::string_view name,
                             const Type&) -> absl::StatusOr<reference::Tensor> {
    QUIRE_ASSIGN_OR_RETURN(reference::Tensor tensor, ReadTensor(plan, files, name));
    if (tensor.rank() >= 2) Disturb(name, kDisturbance, &tensor);
    return tensor;
  };
  Reference reference;
  QUIRE_ASSIGN_OR_RETURN(reference.logits, Logits(definition, weights, input));
  Widen(&lowered);
  QUIRE_ASSIGN_OR_RETURN(const reference::Tensor low, Logits(lowered, weights, input));
  reference.lowered_error = WorstDistance(low, reference.logits);
  reference::Tensor from = low;
  if (PassQuantize(&lowered)) {
    QUIRE_ASSIGN_OR_RETURN(from, Logits(lowered, weights, input));
  }
  double stored_unit = 0;
  for (const auto& program : target.programs) {
    stored_unit = std::max(stored_unit, DisturbStored(*program, FuncOf(lowered, *program)));
  }
  reference::Tensor stored = from;
  if (stored_unit > 0) {
    QUIRE_ASSIGN_OR_RETURN(stored, Logits(lowered, with_errors, input));
  }
  Widen(&definition);
  PassQuantize(&definition);
  QUIRE_ASSIGN_OR_RETURN(const reference::Tensor off, Logits(definition, disturbed, input));
  const auto V = static_cast<size_t>(reference.logits.last());
  double greatest_gain = 0;
  for (int64_t t = 0; t < reference.logits.extent(0); ++t) {
    const double gain = Distance({off.row(t), V}, {from.row(t), V}) / kDisturbance;
    const double stored_gain = Distance({stored.row(t), V}, {from.row(t), V}) / kDisturbance;
    reference.allowed.push_back(3 * gain * GreatestError(target, LaunchError) +
                                3 * stored_gain * stored_unit / std::sqrt(3.0));
    greatest_gain = std::max(greatest_gain, gain);
  }
  reference.lowered_allowed = 3 * greatest_gain * GreatestError(target, ReferenceError);
  return reference;
}

double RelativeError(absl::Span<const float> row, absl::Span<const double> reference) {
  return Distance(std::vector<double>(row.begin(), row.end()), reference);
}

}  // namespace quire
