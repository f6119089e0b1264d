// Runs a lowered program as a device would, launch by launch over one arena, in double precision:
// for tests of what lowering wires together. Each kernel's meaning is the reference interpreter's,
// applied to the kernel's spec; nothing of the graph that was lowered is looked at.
//
// The arena starts as NaN in each step, so that a value that is read before it is written, or after
// it was overwritten, is seen in the result. One sequence; its KV layers are kept between steps.
//
// Values, keys, and weights that the device converts at load can be stored as the plan says; exact,
// to see the wiring alone; or each with a random relative error of up to the unit of its type.
// Rounding has errors of at most that, and of a smaller deviation: so the last gives the deviation
// that rounding may cause in the result.
#ifndef QUIRE_TESTS_COMPILER_PLAN_EXECUTOR_H_
#define QUIRE_TESTS_COMPILER_PLAN_EXECUTOR_H_

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "codegen/spec.h"
#include "compiler/weight_slots.h"
#include "ir/plan_generated.h"
#include "ir/reference/interpreter.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire::testing {

enum class Storing { kExact, kRounded, kDisturbed };

class PlanExecutor {
 public:
  using Tensor = reference::Tensor;

  PlanExecutor(const plan::TargetT& target, const TensorTable& tensors, reference::WeightFn weights,
               Storing storing = Storing::kExact)
      : target_(target), tensors_(tensors), weights_(std::move(weights)), storing_(storing) {}

  // One step over rows that follow those of earlier steps. The arguments are the program's, in
  // order: ids [T], pos [T], rows [R]. Returns logits [R,V].
  absl::StatusOr<Tensor> Step(std::vector<Tensor> arguments) {
    r_ = arguments[2].extent(0);
    QUIRE_RETURN_IF_ERROR(Run(*target_.programs[0], std::move(arguments)));
    context_ += t_;
    return ReadBuffer(program_->results[0].index());
  }

  // The program `encode` over a whole input: ids [S], pos [S].
  absl::Status Encode(std::vector<Tensor> arguments) {
    r_ = 0;
    source_ = arguments[0].extent(0);
    return Run(*target_.programs[1], std::move(arguments));
  }

 private:
  absl::Status Run(const plan::ProgramT& program, std::vector<Tensor> arguments) {
    program_ = &program;
    arguments_ = std::move(arguments);
    t_ = arguments_[0].extent(0);
    arena_.assign(static_cast<size_t>(At(*program.arena) / kUnitBytes),
                  std::numeric_limits<double>::quiet_NaN());
    for (const auto& launch : program.launches) {
      QUIRE_RETURN_IF_ERROR(WithPrefix(Launch(*launch), launch->name));
    }
    return absl::OkStatus();
  }

  // Tokens before this step's in the cache that a layer is of.
  int64_t Before(uint32_t layer) const {
    return target_.kv_layers[layer]->cache == plan::KvCache::Self ? context_ : 0;
  }
  // And with this step's.
  int64_t Context(uint32_t layer) const {
    return target_.kv_layers[layer]->cache == plan::KvCache::Self ? context_ + t_ : source_;
  }

  int64_t At(const plan::Linear& x) const { return x.constant() + x.t() * t_ + x.r() * r_; }

  static constexpr int64_t kUnitBytes = 2;  // that one number of the arena stands for

  // An element fills all its units; one that was overwritten in part is NaN.
  Tensor ReadBuffer(uint32_t index) const {
    const plan::ValueT& value = *program_->buffers[index];
    Tensor tensor;
    for (const std::string& extent : value.extents) {
      tensor.extents.push_back(extent == "T" ? t_ : extent == "R" ? r_ : std::stoll(extent));
    }
    const int64_t units = InfoOf(*ParseDType(value.dtype)).block_bytes / kUnitBytes;
    const double* unit = arena_.data() + At(*value.offset) / kUnitBytes;
    const double* end = unit + At(*value.bytes) / kUnitBytes;
    for (; unit < end; unit += units) {
      const bool is_whole = std::count(unit, unit + units, *unit) == units;
      tensor.values.push_back(is_whole ? *unit : std::numeric_limits<double>::quiet_NaN());
    }
    return tensor;
  }

  void WriteBuffer(uint32_t index, Tensor tensor) {
    const plan::ValueT& value = *program_->buffers[index];
    const DType dtype = *ParseDType(value.dtype);
    Store(dtype, absl::MakeSpan(tensor.values));
    const int64_t units = InfoOf(dtype).block_bytes / kUnitBytes;
    double* unit = arena_.data() + At(*value.offset) / kUnitBytes;
    for (const double element : tensor.values) {
      std::fill(unit, unit + units, element);
      unit += units;
    }
  }

  // What memory makes of values of this type.
  void Store(DType dtype, absl::Span<double> values) {
    if (dtype == DType::kF32 || storing_ == Storing::kExact) return;
    if (storing_ == Storing::kRounded) return reference::RoundAll(dtype, values);
    const double unit = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
    std::uniform_real_distribution<double> error(-unit, unit);
    for (double& value : values) value *= 1 + error(random_);
  }

  DType Stored(DType dtype) const { return storing_ == Storing::kRounded ? dtype : DType::kF32; }

  // Rows of the checkpoint's tensors, joined as the slot says.
  absl::StatusOr<Tensor> ReadWeight(uint32_t index) const {
    const plan::WeightSlotT& slot = *target_.weights[index];
    Tensor joined;
    joined.extents = slot.extents;
    for (const auto& part : slot.parts) {
      const plan::TensorT& stored = *tensors_[part->tensor];
      Type type{*ParseDType(stored.dtype), {}};
      for (int64_t extent : stored.extents) type.extents.emplace_back(extent);
      QUIRE_ASSIGN_OR_RETURN(Tensor tensor, weights_(stored.name, type));
      if (part->transposed) {
        const int64_t rows = tensor.extent(0), columns = tensor.extent(1);
        Tensor turned = tensor;
        turned.extents = {columns, rows};
        for (int64_t i = 0; i < rows * columns; ++i) {
          turned.values[static_cast<size_t>(i % columns * rows + i / columns)] =
              tensor.values[static_cast<size_t>(i)];
        }
        tensor = turned;
      }
      const int64_t row = tensor.elements() / std::max<int64_t>(tensor.extent(0), 1);
      joined.values.insert(joined.values.end(), tensor.values.begin() + part->row_begin * row,
                           tensor.values.begin() + part->row_end * row);
    }
    return joined;
  }

  absl::StatusOr<Tensor> Read(const plan::Operand& operand) const {
    switch (operand.kind()) {
      case plan::OperandKind::Argument:
        return arguments_[operand.index()];
      case plan::OperandKind::Buffer:
        return ReadBuffer(operand.index());
      case plan::OperandKind::Weight:
        return ReadWeight(operand.index());
      default:
        return absl::InternalError("no tensor");
    }
  }

  static std::string TypeText(const std::vector<int64_t>& extents) {
    return absl::StrCat("f32[", absl::StrJoin(extents, ","), "]");
  }

  absl::Status Launch(const plan::LaunchT& launch) {
    QUIRE_ASSIGN_OR_RETURN(KernelSpec spec, ParseSpec(target_.kernels[launch.kernel]->spec));
    if (const auto* linear = std::get_if<LinearSpec>(&spec)) return Linear(*linear, launch);
    if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
      return Attention(*attention, launch);
    }
    return Row(std::get<RowSpec>(spec), launch);
  }

  // Linear kernels compute in f32; what they round on the way is stored in between.
  absl::Status Linear(const LinearSpec& spec, const plan::LaunchT& launch) {
    std::vector<std::string> names = {"x", "w"};
    if (spec.bias) names.push_back("b");
    if (spec.residual) names.push_back("r");
    if (spec.norm.has_value() && spec.norm->weight.has_value()) names.push_back("nw");
    if (spec.norm.has_value() && spec.norm->bias.has_value()) names.push_back("nb");
    if (spec.quantize.has_value() && spec.quantize->has_scale) names.push_back("xs");
    if (spec.rope.has_value()) names.push_back("pos");
    if (spec.rope.has_value() && spec.rope->factors.has_value()) names.push_back("factors");
    const int64_t layers = spec.append.has_value() ? spec.append->layers : 0;
    if (launch.inputs.size() != names.size() + static_cast<size_t>(layers)) {
      return absl::InternalError("number of inputs");
    }
    std::map<std::string, Tensor> values;
    for (size_t i = 0; i < names.size(); ++i) {
      QUIRE_ASSIGN_OR_RETURN(values[names[i]], Read(launch.inputs[i]));
    }
    // Values are the same memory under whatever shape: [rows, k] and [rows, n] here.
    Tensor& x = values["x"];
    x.extents = {x.elements() / spec.k, spec.k};
    const int64_t rows = x.extents[0];
    const plan::WeightSlotT& slot = *target_.weights[launch.inputs[1].index()];
    if (slot.dtype != DTypeText(spec.weight)) {
      Store(spec.weight, absl::MakeSpan(values["w"].values));
    }
    if (spec.norm.has_value()) {
      const bool is_rms = spec.norm->kind == NormSpec::Kind::kRms;
      QUIRE_ASSIGN_OR_RETURN(
          x, Compute({"x", "nw", "nb"}, values,
                     absl::StrCat(is_rms ? "rms_norm" : "layer_norm", " %x", Mention(values, "nw"),
                                  Mention(values, "nb"), " {eps=", Number(spec.norm->eps),
                                  is_rms ? ", weight_offset=" : "",
                                  is_rms ? Number(spec.norm->weight_offset) : "", "}"),
                     {rows, spec.k}));
      Store(spec.x, absl::MakeSpan(x.values));
    }
    if (spec.quantize.has_value()) {
      QUIRE_ASSIGN_OR_RETURN(x, Compute({"x", "xs"}, values,
                                        absl::StrCat("quantize %x", Mention(values, "xs"),
                                                     " {columns=", spec.quantize->columns,
                                                     ", most=", Number(spec.quantize->most), "}"),
                                        {rows, spec.k}));
      Store(spec.x, absl::MakeSpan(x.values));
    }
    const int64_t columns = spec.weight_rows();
    QUIRE_ASSIGN_OR_RETURN(
        Tensor y, Compute({"x", "w", "b"}, values,
                          absl::StrCat("linear %x, %w", Mention(values, "b")), {rows, columns}));
    if (spec.residual) {
      y.extents = values["r"].extents;
      values["y"] = std::move(y);
      QUIRE_ASSIGN_OR_RETURN(y, Compute({"y", "r"}, values, "add %y, %r", values["r"].extents));
    }
    if (spec.act != LinearAct::kNone) {
      Store(spec.y, absl::MakeSpan(y.values));
      QUIRE_ASSIGN_OR_RETURN(y, Activate(spec, std::move(y)));
    }
    if (spec.rope.has_value()) {
      Store(spec.y, absl::MakeSpan(y.values));
      QUIRE_ASSIGN_OR_RETURN(y, TurnHeads(spec, values, y));
    }
    if (spec.append.has_value()) {
      const auto first_layer = launch.inputs.end() - static_cast<ptrdiff_t>(layers);
      for (int64_t i = 0; i < layers; ++i) {
        AppendLayer(*spec.append, i, first_layer[static_cast<ptrdiff_t>(i)].index(), y);
      }
      y = Columns(y, 0, spec.y_columns());
    }
    if (spec.y_columns() > 0) WriteBuffer(launch.outputs[0].index(), std::move(y));
    return absl::OkStatus();
  }

  // Heads of a product, all but those of V.
  static absl::StatusOr<Tensor> TurnHeads(const LinearSpec& spec,
                                          std::map<std::string, Tensor> values, Tensor product) {
    const int64_t rows = product.extent(0), d = spec.append->d;
    const int64_t columns = spec.n - spec.append->heads * spec.append->dv;
    values["y"] = Columns(product, 0, columns);
    values["y"].extents = {rows, columns / d, d};
    QUIRE_ASSIGN_OR_RETURN(
        const Tensor turned,
        Compute({"y", "pos", "factors"}, values,
                absl::StrCat("rope %y, %pos", Mention(values, "factors"), " {",
                             absl::StrReplaceAll(spec.rope->attributes, {{",", ", "}}), "}"),
                values["y"].extents));
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(turned.values.begin() + row * columns, columns,
                  product.values.begin() + row * spec.n);
    }
    return product;
  }

  static Tensor Columns(const Tensor& matrix, int64_t begin, int64_t end) {
    Tensor columns;
    columns.extents = {matrix.extent(0), end - begin};
    for (int64_t row = 0; row < matrix.extent(0); ++row) {
      const auto first = matrix.values.begin() + row * matrix.extent(1);
      columns.values.insert(columns.values.end(), first + begin, first + end);
    }
    return columns;
  }

  // K and V of the `number`th layer, from the last columns of `product`.
  void AppendLayer(const AppendSpec& append, int64_t number, uint32_t layer,
                   const Tensor& product) {
    int64_t begin =
        product.extent(1) - append.columns() + number * append.heads * (append.d + append.dv);
    for (const char* slot : {"k", "v"}) {
      const int64_t dim = *slot == 'k' ? append.d : append.dv;
      Tensor rows = Columns(product, begin, begin + append.heads * dim);
      begin += append.heads * dim;
      Store(*ParseDType(target_.kv_layers[layer]->dtype), absl::MakeSpan(rows.values));
      Tensor& cached = cache_[{layer, slot}];
      if (Before(layer) == 0) cached.values.clear();
      cached.values.insert(cached.values.end(), rows.values.begin(), rows.values.end());
      cached.extents = {Before(layer) + rows.extent(0), append.heads, dim};
    }
  }

  absl::StatusOr<Tensor> Activate(const LinearSpec& spec, Tensor y) {
    std::map<std::string, Tensor> values;
    const int64_t rows = y.extents[0], columns = y.extents[1];
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < columns; ++i) {
        Tensor& half = values[i < spec.n ? "a" : "b"];
        half.extents = {rows, spec.n};
        half.values.push_back(y.values[static_cast<size_t>(row * columns + i)]);
      }
    }
    // "gelu_tanh" is gelu {approximate=tanh}.
    const absl::string_view act = LinearActText(spec.act);
    const std::vector<std::string> words = absl::StrSplit(act, '_');
    QUIRE_ASSIGN_OR_RETURN(
        values["a"],
        Compute({"a"}, values,
                absl::StrCat(words[0], " %a",
                             words.size() > 1 ? absl::StrCat(" {approximate=", words[1], "}") : ""),
                {rows, spec.n}));
    if (!spec.gated) return values["a"];
    return Compute({"a", "b"}, values, "mul %a, %b", {rows, spec.n});
  }

  static std::string Mention(const std::map<std::string, Tensor>& values, const char* name) {
    return values.contains(name) ? absl::StrCat(", %", name) : "";
  }

  static std::string Number(double x) { return AttrText(DefOf(AttrKind::kScale), AttrValue(x)); }

  // One op of f32 values by name; those of `names` that there are.
  static absl::StatusOr<Tensor> Compute(const std::vector<std::string>& names,
                                        const std::map<std::string, Tensor>& values,
                                        const std::string& op,
                                        const std::vector<int64_t>& extents) {
    reference::Inputs inputs;
    std::vector<std::string> args;
    for (const std::string& name : names) {
      auto it = values.find(name);
      if (it == values.end()) continue;
      args.push_back(absl::StrCat("%", name, ": ", name == "pos" ? "i32" : "f32", "[",
                                  absl::StrJoin(it->second.extents, ","), "]"));
      inputs.args[name] = it->second;
    }
    QUIRE_ASSIGN_OR_RETURN(
        Module module,
        Parse(absl::StrCat("func @f(", absl::StrJoin(args, ", "), ") {\n  %result = ", op, " : ",
                           TypeText(extents), "\n  return %result\n}\n")));
    QUIRE_ASSIGN_OR_RETURN(std::vector<Tensor> results,
                           reference::Interpret(*module.funcs[0], inputs));
    return std::move(results[0]);
  }

  absl::Status Attention(const AttentionSpec& spec, const plan::LaunchT& launch) {
    const uint32_t layer = launch.inputs[1].index();
    std::map<std::string, Tensor> values;
    QUIRE_ASSIGN_OR_RETURN(values["q"], Read(launch.inputs[0]));
    values["q"].extents = {t_, spec.hq, spec.d};
    values["k"] = cache_[{layer, "k"}];
    values["v"] = cache_[{layer, "v"}];
    if (values["k"].extents != std::vector<int64_t>{Context(layer), spec.hkv, spec.d} ||
        values["v"].extents != std::vector<int64_t>{Context(layer), spec.hkv, spec.dv}) {
      return absl::InternalError("the cache is not what the spec says");
    }
    std::string distances;
    if (spec.buckets > 0) {
      QUIRE_ASSIGN_OR_RETURN(values["table"], Read(launch.inputs[2]));
      distances = absl::StrCat(", max_distance=", spec.max_distance,
                               ", direction=", spec.both_directions ? "both" : "back");
    }
    QUIRE_ASSIGN_OR_RETURN(
        Tensor y, Compute({"q", "k", "v", "table"}, values,
                          absl::StrCat("attention %q, %k, %v", Mention(values, "table"), " {mask=",
                                       spec.causal ? "causal" : "none", ", window=", spec.window,
                                       ", scale=", Number(spec.scale), ", cap=", Number(spec.cap),
                                       ", alibi_max=", Number(spec.alibi_max), distances, "}"),
                          {t_, spec.hq, spec.dv}));
    WriteBuffer(launch.outputs[0].index(), std::move(y));
    return absl::OkStatus();
  }

  absl::Status Row(const RowSpec& spec, const plan::LaunchT& launch) {
    QUIRE_ASSIGN_OR_RETURN(Module module, Parse(spec.func));
    const Func& func = *module.funcs[0];
    reference::Inputs inputs;
    reference::KvState kv;
    inputs.kv = &kv;
    const size_t args = func.args().size();
    for (size_t i = 0; i < args; ++i) {
      QUIRE_ASSIGN_OR_RETURN(inputs.args[func.args()[i]->name], Read(launch.inputs[i]));
    }
    std::vector<std::pair<std::pair<int64_t, std::string>, uint32_t>> appended;
    for (const auto& op : func.ops()) {
      if (!op->Is(OpKind::kKvAppend)) continue;
      const size_t operand = args + appended.size();
      if (operand >= launch.inputs.size() ||
          launch.inputs[operand].kind() != plan::OperandKind::KvLayer) {
        return absl::InternalError("kv_append without a layer");
      }
      const std::string slot = op->Text(AttrKind::kSlot);
      const uint32_t layer = launch.inputs[operand].index();
      appended.push_back({{op->Int(AttrKind::kLayer), slot}, layer});
      kv.tokens = Before(layer);
      if (kv.tokens > 0) kv.rows[appended.back().first] = cache_[{layer, slot}];
    }
    if (args + appended.size() != launch.inputs.size()) {
      return absl::InternalError("number of inputs");
    }
    // Casts round what this function returns and appends.
    for (const auto* list : {&func.args(), &func.ops()}) {
      for (const auto& op : *list) {
        if (op->type.dtype != DType::kI32) op->type.dtype = Stored(op->type.dtype);
      }
    }
    QUIRE_ASSIGN_OR_RETURN(std::vector<Tensor> results, reference::Interpret(func, inputs));
    if (results.size() != launch.outputs.size()) return absl::InternalError("number of outputs");
    for (size_t i = 0; i < results.size(); ++i) {
      WriteBuffer(launch.outputs[i].index(), std::move(results[i]));
    }
    for (const auto& [key, layer] : appended) {
      Tensor& cached = cache_[{layer, key.second}];
      const auto old = static_cast<size_t>(cached.elements());
      cached = std::move(kv.rows[key]);
      Store(*ParseDType(target_.kv_layers[layer]->dtype),
            absl::MakeSpan(cached.values).subspan(old));
    }
    return absl::OkStatus();
  }

  const plan::TargetT& target_;
  const TensorTable& tensors_;
  const reference::WeightFn weights_;
  const Storing storing_;
  std::mt19937_64 random_{1};
  const plan::ProgramT* program_ = nullptr;  // the one that runs
  std::vector<Tensor> arguments_;
  std::vector<double> arena_;  // one for each kUnitBytes
  int64_t t_ = 0, r_ = 0, context_ = 0, source_ = 0;
  std::map<std::pair<uint32_t, std::string>, Tensor> cache_;  // by KV layer and slot
};

}  // namespace quire::testing

#endif  // QUIRE_TESTS_COMPILER_PLAN_EXECUTOR_H_
