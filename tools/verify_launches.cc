#include "tools/verify_launches.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/plan_check.h"
#include "ir/reference/dequantize.h"
#include "ir/reference/stored_tensor.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire {
namespace {

using reference::Tensor;

constexpr size_t kMostDifferences = 5;

plan::KvCache CacheNamed(absl::string_view name) {
  return name == "self"    ? plan::KvCache::Self
         : name == "cross" ? plan::KvCache::Cross
                           : plan::KvCache::Encoder;
}

std::string CacheOf(const Op& op) {
  return op.Is(OpKind::kKvRead) ? "cross" : op.Text(AttrKind::kCache);
}

double RoundStored(DType dtype, double value) {
  return dtype == DType::kF32 ? static_cast<double>(static_cast<float>(value))
                              : reference::RoundTo(dtype, value);
}

template <typename T>
Tensor TensorOf(absl::Span<const T> values) {
  return {{static_cast<int64_t>(values.size())}, {values.begin(), values.end()}};
}

// The values under this type's extents, of which one may be a letter.
Tensor Reshaped(Tensor tensor, const Type& type) {
  int64_t others = 1;
  for (const Extent& extent : type.extents) others *= extent.is_letter() ? 1 : extent.value();
  std::vector<int64_t> extents;
  for (const Extent& extent : type.extents) {
    extents.push_back(extent.is_letter() ? tensor.elements() / others : extent.value());
  }
  tensor.extents = std::move(extents);
  return tensor;
}

// Columns of a block type that share a scale.
int64_t ScaleColumns(DType dtype) {
  if (!IsIntegerBlockType(dtype)) return 0;
  return dtype == DType::kQ6_K ? 16 : 32;
}

// Bytes of a block before its numbers, of types with a minimum that is added apart.
size_t HeaderBytes(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
      return 4;
    case DType::kQ4_K:
    case DType::kQ5_K:
      return 16;
    default:
      return 0;
  }
}

}  // namespace

bool MinimumsOf(DType dtype, absl::Span<const uint8_t> bytes, absl::Span<double> values) {
  const size_t header = HeaderBytes(dtype), block = static_cast<size_t>(InfoOf(dtype).block_bytes);
  if (header == 0) return false;
  std::vector<uint8_t> blank(bytes.begin(), bytes.end());
  for (size_t at = 0; at < blank.size(); at += block) {
    std::fill(blank.begin() + static_cast<ptrdiff_t>(at + header),
              blank.begin() + static_cast<ptrdiff_t>(at + block), uint8_t{0});
  }
  return Dequantize(dtype, blank, values).ok();
}

void QuantizeActivations(Tensor* x) {
  constexpr size_t kBlock = 32;
  for (size_t begin = 0; begin + kBlock <= x->values.size(); begin += kBlock) {
    double* block = x->values.data() + begin;
    float largest = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      largest = std::max(largest, static_cast<float>(std::fabs(block[i])));
    }
    const bool is_tiny = largest < 0x1p-100f;
    const float scale = is_tiny ? 0 : largest * (1.0f / 127);
    const float inverse = is_tiny ? 0 : 127.0f / largest;
    for (size_t i = 0; i < kBlock; ++i) {
      const float steps = std::nearbyint(static_cast<float>(block[i]) * inverse);
      block[i] = static_cast<double>(scale) * static_cast<double>(steps);
    }
  }
}

Func* FuncOf(const Module& lowered, const plan::ProgramT& program) {
  return program.name == "encode" ? lowered.Encoder() : lowered.Find(program.name);
}

LaunchVerifier::CacheKey LaunchVerifier::KeyOf(const Op& op) {
  return {CacheOf(op), op.Int(AttrKind::kLayer), op.Text(AttrKind::kSlot)};
}

absl::StatusOr<std::unique_ptr<LaunchVerifier>> LaunchVerifier::Create(const plan::PlanT& plan,
                                                                       const plan::TargetT& target,
                                                                       const TensorFiles& files) {
  std::unique_ptr<LaunchVerifier> verifier(new LaunchVerifier(plan, target, files));
  std::string text;
  for (const auto& program : target.programs) text += program->ir;
  QUIRE_ASSIGN_OR_RETURN(verifier->module_, Parse(text, "ir"));
  for (const auto& program : target.programs) {
    Lowered& lowered = verifier->programs_.emplace_back();
    lowered.program = program.get();
    lowered.func = FuncOf(verifier->module_, *program);
    if (lowered.func == nullptr) {
      return absl::DataLossError(absl::StrCat("the plan has no IR of program ", program->name));
    }
    int groups = 0;
    for (const auto& op : lowered.func->ops()) groups = std::max(groups, op->group + 1);
    if (static_cast<size_t>(groups) != program->launches.size()) {
      return absl::DataLossError(absl::StrCat("program ", program->name, " has ",
                                              program->launches.size(), " launches, its IR ",
                                              groups, " groups"));
    }
    for (const auto& buffer : program->buffers) lowered.computed.insert(buffer->name);
  }
  return verifier;
}

absl::Status LaunchVerifier::Begin(absl::string_view program, const Step& step) {
  now_ = nullptr;
  for (const Lowered& lowered : programs_) {
    if (lowered.program->name == program) now_ = &lowered;
  }
  if (now_ == nullptr || step.sequences.size() != 1) {
    return absl::InvalidArgumentError("only steps of one sequence can be watched");
  }
  t_ = static_cast<int64_t>(step.ids.size());
  r_ = static_cast<int64_t>(step.logit_rows.size());
  values_.clear();
  values_["ids"] = TensorOf(step.ids);
  values_["pos"] = TensorOf(step.positions);
  values_["rows"] = TensorOf(step.logit_rows);
  for (const auto& argument : now_->program->arguments) {
    if (argument->name != "states" || step.states.empty()) continue;
    // As the device holds them.
    const DType stored = *ParseDType(argument->dtype);
    Tensor& states = values_["states"] = TensorOf(step.states[0]);
    for (double& value : states.values) value = RoundStored(stored, value);
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> LaunchVerifier::WeightOf(const Op& expression, bool minimum) const {
  reference::Inputs inputs;
  inputs.weights = [&](absl::string_view name, const Type&) -> absl::StatusOr<Tensor> {
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const plan::TensorT& stored = *plan_.tensors[i];
      if (stored.name != name) continue;
      QUIRE_ASSIGN_OR_RETURN(const SlotRows rows,
                             RowsOfTensor(static_cast<uint32_t>(i), plan_.tensors, files_));
      QUIRE_ASSIGN_OR_RETURN(Tensor value, Tensor::Zeros(stored.extents));
      const DType dtype = *ParseDType(stored.dtype);
      if (!minimum) {
        QUIRE_RETURN_IF_ERROR(Dequantize(dtype, rows.bytes, absl::MakeSpan(value.values)));
      } else {
        MinimumsOf(dtype, rows.bytes, absl::MakeSpan(value.values));
      }
      return value;
    }
    return absl::DataLossError(absl::StrCat("the plan does not name tensor ", name));
  };
  QUIRE_ASSIGN_OR_RETURN(std::vector<Tensor> results,
                         reference::Interpret(*MakeWeightFunc(expression), inputs));
  return std::move(results[0]);
}

absl::StatusOr<Tensor> LaunchVerifier::ReadBuffer(const LaunchMemory& memory,
                                                  uint32_t index) const {
  const plan::ValueT& buffer = *now_->program->buffers[index];
  QUIRE_ASSIGN_OR_RETURN(Type type, TypeOfValue(buffer));
  for (Extent& extent : type.extents) {
    if (extent.is_letter()) extent = extent.letter() == 'R' ? r_ : t_;
  }
  QUIRE_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, memory.ReadBuffer(index));
  return reference::TensorFromBytes(type, bytes);
}

absl::StatusOr<Tensor> LaunchVerifier::ReadLayer(const LaunchMemory& memory,
                                                 const CacheKey& key) const {
  const auto& [cache, number, slot] = key;
  for (size_t i = 0; i < target_.kv_layers.size(); ++i) {
    const plan::KvLayerT& layer = *target_.kv_layers[i];
    if (layer.layer != number || layer.cache != CacheNamed(cache)) continue;
    const bool is_v = slot == "v";
    QUIRE_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes,
                           memory.ReadLayer(static_cast<uint32_t>(i), is_v, 0));
    const DType dtype = *ParseDType(layer.dtype);
    const int64_t dim = is_v ? layer.v_dim : layer.k_dim;
    const int64_t rows =
        static_cast<int64_t>(bytes.size()) / (layer.heads * dim * InfoOf(dtype).block_bytes);
    return reference::TensorFromBytes(Type{dtype, {rows, layer.heads, dim}}, bytes);
  }
  return absl::DataLossError(
      absl::StrCat("the plan has no KV layer ", number, " of class ", cache));
}

absl::Status LaunchVerifier::After(size_t index, const LaunchMemory& memory) {
  const plan::LaunchT& launch = *now_->program->launches[index];
  LaunchRounding rounding;
  KernelArithmetic arithmetic;
  if (IsOnCpu()) {
    rounding.quantizes = true;
  } else {
    const DType activation = ParseDType(target_.activation).value_or(DType::kF32);
    rounding.norm = rounding.product = rounding.weights = activation;
    arithmetic.sum_unit = 0x1p-22;
    arithmetic.probabilities = activation;
  }
  QUIRE_ASSIGN_OR_RETURN(const LaunchFunc made, MakeLaunchFunc(*now_->func, static_cast<int>(index),
                                                               now_->computed, rounding));
  if (IsOnCpu() && made.linear != nullptr) {
    arithmetic.scale_columns = ScaleColumns(made.linear->operand(1)->type.dtype);
  }
  // Tensor cores cut sums of such products off at 2^-13 of the largest term; devices that have no
  // such products round both operands to 16 bits, which is not more.
  if (made.is_8bit) arithmetic.sum_unit = 0x1p-12;
  launch_name_ = Describe(index, launch.name, made);
  ++launches_;
  return WithPrefix(CheckLaunch(launch, made, arithmetic, memory), launch_name_);
}

std::string LaunchVerifier::Describe(size_t index, const std::string& values,
                                     const LaunchFunc& made) const {
  std::string kind = made.linear != nullptr ? "linear" : "rows";
  if (made.attention != nullptr) {
    kind = absl::StrCat("attention of layer ", made.attention->operand(1)->Int(AttrKind::kLayer));
  }
  return absl::StrCat(
      "launch ", index, " of ", now_->program->name, ", ", kind, " %", values,
      made.tensors.empty() ? "" : absl::StrCat(" (", absl::StrJoin(made.tensors, ", "), ")"));
}

absl::Status LaunchVerifier::CheckLaunch(const plan::LaunchT& launch, const LaunchFunc& made,
                                         const KernelArithmetic& arithmetic,
                                         const LaunchMemory& memory) {
  Replay replay;
  QUIRE_RETURN_IF_ERROR(SetArguments(made, &replay));
  reference::Inputs inputs;
  for (const auto& [arg, value] : replay.values) inputs.args[arg->name] = value;
  reference::KvState kv;
  for (const Op* append : made.appends) {
    if (CacheOf(*append) != "self") continue;
    inputs.kv = &kv;
    const CacheKey key = KeyOf(*append);
    kv.tokens = static_cast<int64_t>(values_.at("pos").values.at(0));
    if (kv.tokens > 0) kv.rows[{std::get<1>(key), std::get<2>(key)}] = caches_[key];
  }
  QUIRE_ASSIGN_OR_RETURN(std::vector<Tensor> results, reference::Interpret(*made.func, inputs));
  for (size_t i = 0; i < results.size(); ++i) {
    replay.values[made.func->returns()[i]] = std::move(results[i]);
  }
  QUIRE_ASSIGN_OR_RETURN(replay.errors,
                         ErrorBounds(*made.func, replay.values, replay.minimums, arithmetic));
  QUIRE_RETURN_IF_ERROR(CheckOutputs(memory, launch, made, replay));
  return CheckAppends(memory, made, replay);
}

absl::Status LaunchVerifier::SetArguments(const LaunchFunc& made, Replay* replay) {
  for (const auto* list : {&made.values, &made.quantized}) {
    for (const auto& [arg, stands_for] : *list) {
      const auto left = values_.find(stands_for->name);
      if (left == values_.end()) {
        return absl::DataLossError(absl::StrCat("no launch before it leaves %", stands_for->name));
      }
      Tensor& value = replay->values[arg] = Reshaped(left->second, arg->type);
      if (list == &made.quantized) QuantizeActivations(&value);
    }
  }
  for (const auto& [arg, stands_for] : made.caches)
    replay->values[arg] = caches_[KeyOf(*stands_for)];
  for (const auto& [arg, expression] : made.weights) {
    QUIRE_ASSIGN_OR_RETURN(replay->values[arg], WeightOf(*expression, false));
    const DType stored = expression->type.dtype;
    const bool is_converted = IsBlockType(stored) && !(IsOnCpu() && made.linear != nullptr);
    if (HeaderBytes(stored) == 0 && !is_converted) continue;
    QUIRE_ASSIGN_OR_RETURN(replay->minimums[arg], WeightOf(*expression, true));
  }
  return absl::OkStatus();
}

absl::Status LaunchVerifier::CheckOutputs(const LaunchMemory& memory, const plan::LaunchT& launch,
                                          const LaunchFunc& made, const Replay& replay) {
  for (const plan::Operand& output : launch.outputs) {
    const plan::ValueT& buffer = *now_->program->buffers[output.index()];
    QUIRE_ASSIGN_OR_RETURN(Tensor got, ReadBuffer(memory, output.index()));
    const auto copy = made.copies.find(now_->func->Find(buffer.name));
    const DType stored = *ParseDType(buffer.dtype);
    if (copy != made.copies.end()) {
      Compare(buffer.name, stored, got, replay.values.at(copy->second),
              replay.errors.at(copy->second));
    } else {
      // A launch that only appends leaves a copy of what it read.
      const Op* read = now_->func->Find(buffer.name);
      while (read != nullptr && read->Is(OpKind::kReshape)) read = read->operand(0);
      const auto left = read == nullptr ? values_.end() : values_.find(read->name);
      if (left == values_.end()) {
        return absl::DataLossError(absl::StrCat("the IR does not say what %", buffer.name, " is"));
      }
      Tensor copied = left->second;
      copied.extents = got.extents;
      Compare(buffer.name, stored, got, copied, std::vector<double>(got.values.size()));
    }
    values_[buffer.name] = std::move(got);
  }
  return absl::OkStatus();
}

absl::Status LaunchVerifier::CheckAppends(const LaunchMemory& memory, const LaunchFunc& made,
                                          const Replay& replay) {
  for (const Op* append : made.appends) {
    const CacheKey key = KeyOf(*append);
    QUIRE_ASSIGN_OR_RETURN(Tensor got, ReadLayer(memory, key));
    const Op* copy = made.copies.at(append);
    Tensor expected = replay.values.at(copy);
    std::vector<double> errors = replay.errors.at(copy);
    if (got.extents != expected.extents) {
      return absl::InternalError("the cache has another shape");
    }
    // What is kept by a scale is compared as it is kept.
    std::vector<double> scales(expected.values.size(), 1.0);
    if (append->num_operands() > 1) {
      const Tensor& given = replay.values.at(copy->operand(1));
      for (size_t i = 0; i < scales.size(); ++i) {
        const int64_t head = static_cast<int64_t>(i) / got.last() % got.extent(1);
        scales[i] = given.values[given.elements() == 1 ? 0 : static_cast<size_t>(head)];
        expected.values[i] /= scales[i];
        errors[i] = errors[i] / scales[i] + 0x1p-24 * std::fabs(expected.values[i]);
      }
    }
    // Earlier rows stay what they were, to the bit.
    Compare(append->name, append->type.dtype, got, expected, errors);
    for (size_t i = 0; i < scales.size(); ++i) got.values[i] *= scales[i];
    caches_[key] = std::move(got);
  }
  return absl::OkStatus();
}

void LaunchVerifier::Compare(const std::string& name, DType stored, const Tensor& got,
                             const Tensor& expected, const std::vector<double>& errors) {
  Worst worst;
  const int64_t columns =
      std::max<int64_t>(1, expected.elements() / std::max<int64_t>(1, expected.extent(0)));
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double y = expected.values[i], e = errors[i] * (1 + 0x1p-10), d = got.values[i];
    const double low = RoundStored(stored, y - e), high = RoundStored(stored, y + e);
    const double rounded = RoundStored(stored, y);
    const bool is_near = d >= low && d <= high;
    worst.different += is_near ? 0 : 1;
    // Of a value that was rounded to 16 bits: what it was off by before, at least.
    const bool is_narrow = stored != DType::kF32 && is_near;
    const double error =
        is_narrow ? (d == rounded ? 0 : std::fabs((d + rounded) / 2 - y)) : std::fabs(d - y);
    const double allowed = is_narrow ? e : std::max(high - y, y - low);
    double ratio = error == 0 ? 0 : error / allowed;
    if (!is_near) ratio = std::isnan(ratio) ? INFINITY : std::max(ratio, 1 + 1e-9);
    if (!worst.where.empty() && ratio <= worst.ratio) continue;
    const auto at = static_cast<int64_t>(i);
    worst.where = absl::StrCat("row ", at / columns, ", column ", at % columns, " of %", name);
    worst.got = d, worst.expected = y, worst.error = error, worst.allowed = allowed;
    worst.ratio = ratio;
  }
  worst.elements = expected.values.size();
  worst.launch = launch_name_;
  elements_ += static_cast<int64_t>(worst.elements);
  if (worst.elements == 0) return;
  if (worst.ratio > worst_.ratio || worst_.launch.empty()) worst_ = worst;
  if (worst.different == 0) return;
  ++different_launches_;
  if (different_.size() < kMostDifferences) different_.push_back(worst);
}

}  // namespace quire
