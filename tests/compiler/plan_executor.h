// Runs a lowered program as a device would, launch by launch over one arena, in double precision:
// for tests of what lowering wires together. Each kernel's meaning is the reference interpreter's,
// applied to the kernel's spec; nothing of the graph that was lowered is looked at.
//
// The arena starts as NaN in each step, so that a value that is read before it is written, or after
// it was overwritten, is seen in the result. One sequence; its KV layers are kept between steps.
#ifndef QUIRE_TESTS_COMPILER_PLAN_EXECUTOR_H_
#define QUIRE_TESTS_COMPILER_PLAN_EXECUTOR_H_

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/spec.h"
#include "compiler/weight_slots.h"
#include "ir/plan_generated.h"
#include "ir/reference/interpreter.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire::testing {

class PlanExecutor {
 public:
  using Tensor = reference::Tensor;

  PlanExecutor(const plan::TargetT& target, const TensorTable& tensors, reference::WeightFn weights)
      : target_(target), tensors_(tensors), weights_(std::move(weights)) {}

  // One step over rows that follow those of earlier steps. The arguments are the program's, in
  // order: ids [T], pos [T], rows [R]. Returns logits [R,V].
  absl::StatusOr<Tensor> Step(std::vector<Tensor> arguments) {
    const plan::ProgramT& program = *target_.programs[0];
    arguments_ = std::move(arguments);
    t_ = arguments_[0].extent(0);
    r_ = arguments_[2].extent(0);
    arena_.assign(static_cast<size_t>(At(*program.arena) / 4),
                  std::numeric_limits<double>::quiet_NaN());
    for (const auto& launch : program.launches) {
      QUIRE_RETURN_IF_ERROR(WithPrefix(Launch(*launch), launch->name));
    }
    context_ += t_;
    return ReadBuffer(program.results[0].index());
  }

 private:
  int64_t At(const plan::Linear& x) const { return x.constant() + x.t() * t_ + x.r() * r_; }

  Tensor ReadBuffer(uint32_t index) const {
    const plan::ValueT& value = *target_.programs[0]->buffers[index];
    Tensor tensor;
    for (const std::string& extent : value.extents) {
      tensor.extents.push_back(extent == "T" ? t_ : extent == "R" ? r_ : std::stoll(extent));
    }
    const auto begin = arena_.begin() + At(*value.offset) / 4;
    tensor.values.assign(begin, begin + At(*value.bytes) / 4);
    return tensor;
  }

  void WriteBuffer(uint32_t index, const Tensor& tensor) {
    const plan::ValueT& value = *target_.programs[0]->buffers[index];
    std::copy(tensor.values.begin(), tensor.values.end(), arena_.begin() + At(*value.offset) / 4);
  }

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

  static std::string TypeText(const Tensor& tensor) {
    return absl::StrCat("f32[", absl::StrJoin(tensor.extents, ","), "]");
  }

  absl::Status Launch(const plan::LaunchT& launch) {
    QUIRE_ASSIGN_OR_RETURN(KernelSpec spec, ParseSpec(target_.kernels[launch.kernel]->spec));
    if (const auto* linear = std::get_if<LinearSpec>(&spec)) return Linear(*linear, launch);
    if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
      return Attention(*attention, launch);
    }
    return Row(std::get<RowSpec>(spec), launch);
  }

  absl::Status Linear(const LinearSpec& spec, const plan::LaunchT& launch) {
    std::vector<std::string> names = {"x", "w"};
    if (spec.bias) names.push_back("b");
    if (spec.residual) names.push_back("r");
    if (launch.inputs.size() != names.size()) return absl::InternalError("number of inputs");
    reference::Inputs inputs;
    std::string args;
    for (size_t i = 0; i < names.size(); ++i) {
      QUIRE_ASSIGN_OR_RETURN(Tensor tensor, Read(launch.inputs[i]));
      // Values are the same memory under whatever shape: [rows, k] and [rows, n] here.
      if (names[i] == "x") tensor.extents = {tensor.elements() / spec.k, spec.k};
      absl::StrAppend(&args, i == 0 ? "" : ", ", "%", names[i], ": ", TypeText(tensor));
      inputs.args[names[i]] = std::move(tensor);
    }
    const std::string type = absl::StrCat("f32[", inputs.args["x"].extent(0), ",", spec.n, "]");
    return Run(absl::StrCat("func @f(", args, ") {\n  %y = linear %x, %w", spec.bias ? ", %b" : "",
                            " : ", type, "\n",
                            spec.residual ? absl::StrCat("  %z = add %y, %r : ", type, "\n") : "",
                            "  return ", spec.residual ? "%z" : "%y", "\n}\n"),
               inputs, launch);
  }

  absl::Status Attention(const AttentionSpec& spec, const plan::LaunchT& launch) {
    const uint32_t layer = launch.inputs[1].index();
    reference::Inputs inputs;
    QUIRE_ASSIGN_OR_RETURN(Tensor q, Read(launch.inputs[0]));
    q.extents = {t_, spec.hq, spec.d};
    inputs.args["q"] = q;
    inputs.args["k"] = cache_[{layer, "k"}];
    inputs.args["v"] = cache_[{layer, "v"}];
    if (inputs.args["k"].extents != std::vector<int64_t>{context_ + t_, spec.hkv, spec.d} ||
        inputs.args["v"].extents != std::vector<int64_t>{context_ + t_, spec.hkv, spec.dv}) {
      return absl::InternalError("the cache is not what the spec says");
    }
    auto number = [](double x) { return AttrText(DefOf(AttrKind::kScale), AttrValue(x)); };
    return Run(
        absl::StrCat("func @f(%q: ", TypeText(q), ", %k: ", TypeText(inputs.args["k"]),
                     ", %v: ", TypeText(inputs.args["v"]),
                     ") {\n  %y = attention %q, %k, %v {mask=", spec.causal ? "causal" : "none",
                     ", window=", spec.window, ", scale=", number(spec.scale),
                     ", cap=", number(spec.cap), ", alibi_max=", number(spec.alibi_max), "} : f32[",
                     t_, ",", spec.hq, ",", spec.dv, "]\n  return %y\n}\n"),
        inputs, launch);
  }

  absl::Status Row(const RowSpec& spec, const plan::LaunchT& launch) {
    QUIRE_ASSIGN_OR_RETURN(Module module, Parse(spec.func));
    const Func& func = *module.funcs[0];
    reference::Inputs inputs;
    reference::KvState kv;
    kv.tokens = context_;
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
      if (context_ > 0) kv.rows[appended.back().first] = cache_[{layer, slot}];
    }
    if (args + appended.size() != launch.inputs.size()) {
      return absl::InternalError("number of inputs");
    }
    QUIRE_RETURN_IF_ERROR(Run(spec.func, inputs, launch));
    for (const auto& [key, layer] : appended) cache_[{layer, key.second}] = kv.rows[key];
    return absl::OkStatus();
  }

  absl::Status Run(const std::string& text, reference::Inputs& inputs,
                   const plan::LaunchT& launch) {
    QUIRE_ASSIGN_OR_RETURN(Module module, Parse(text));
    QUIRE_ASSIGN_OR_RETURN(std::vector<Tensor> results,
                           reference::Interpret(*module.funcs[0], inputs));
    if (results.size() != launch.outputs.size()) return absl::InternalError("number of outputs");
    for (size_t i = 0; i < results.size(); ++i) {
      WriteBuffer(launch.outputs[i].index(), results[i]);
    }
    return absl::OkStatus();
  }

  const plan::TargetT& target_;
  const TensorTable& tensors_;
  const reference::WeightFn weights_;
  std::vector<Tensor> arguments_;
  std::vector<double> arena_;  // one for each four bytes
  int64_t t_ = 0, r_ = 0, context_ = 0;
  std::map<std::pair<uint32_t, std::string>, Tensor> cache_;  // by KV layer and slot
};

}  // namespace quire::testing

#endif  // QUIRE_TESTS_COMPILER_PLAN_EXECUTOR_H_
