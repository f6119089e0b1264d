#include "codegen/plan_check.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "codegen/row_operands.h"
#include "codegen/spec.h"
#include "codegen/target.h"
#include "ir/graph.h"
#include "ir/plan_check.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire {
namespace {

using plan::OperandKind;

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

// A kernel's spec, and for a row kernel its function.
struct Kernel {
  KernelSpec spec;
  Module module;
  Func* func = nullptr;
  std::vector<const Op*> appends;
  RowOperands operands;
  bool has_both_letters = false;
};

absl::StatusOr<Kernel> ReadKernel(absl::string_view text) {
  Kernel kernel;
  QUIRE_ASSIGN_OR_RETURN(kernel.spec, ParseSpec(text));
  const auto* row = std::get_if<RowSpec>(&kernel.spec);
  if (row == nullptr) return kernel;
  QUIRE_ASSIGN_OR_RETURN(kernel.module, Parse(row->func));
  if (kernel.module.funcs.size() != 1) return Bad("a row kernel is one function");
  kernel.func = kernel.module.funcs[0].get();
  kernel.operands = RowOperandsOf(*kernel.func);
  bool has_t = false, has_r = false;
  for (const auto* list : {&kernel.func->args(), &kernel.func->ops()}) {
    for (const auto& op : *list) {
      if (op->Is(OpKind::kKvAppend)) kernel.appends.push_back(op.get());
      for (const Extent& extent : op->type.extents) {
        has_t |= extent == Extent::Letter('T');
        has_r |= extent == Extent::Letter('R');
      }
    }
  }
  kernel.has_both_letters = has_t && has_r;
  return kernel;
}

// A value with rows, as a kernel sees it: what one row takes, and which rows there are.
struct Rows {
  DType dtype = DType::kF32;
  int64_t row_elements = 0;
  char letter = 0;
  friend bool operator==(const Rows& a, const Rows& b) {
    return a.dtype == b.dtype && a.row_elements == b.row_elements && a.letter == b.letter;
  }
  std::string ToString() const {
    return absl::StrCat(DTypeText(dtype), "[", std::string(1, letter), ",", row_elements, "]");
  }
};

absl::StatusOr<Rows> RowsOf(const Type& type) {
  if (type.rank() == 0 || !type.extents[0].is_letter()) {
    return Bad(absl::StrCat(type.ToString(), " has no rows"));
  }
  QUIRE_ASSIGN_OR_RETURN(const int64_t elements,
                         Product(absl::MakeConstSpan(type.extents).subspan(1)));
  return Rows{type.dtype, elements, type.extents[0].letter()};
}

class LaunchChecker {
 public:
  LaunchChecker(const plan::TargetT& target, const plan::ModelT& model,
                const plan::ProgramT& program, const plan::LaunchT& launch)
      : target_(target),
        traits_(TraitsOf(target.name)),
        model_(model),
        program_(program),
        launch_(launch) {}

  absl::Status Check(const Kernel& kernel) {
    if (const auto* linear = std::get_if<LinearSpec>(&kernel.spec)) return CheckLinear(*linear);
    if (const auto* spec = std::get_if<AttentionSpec>(&kernel.spec)) return CheckAttention(*spec);
    return CheckRow(kernel);
  }

 private:
  char rows() const { return launch_.rows[0]; }

  absl::Status Counts(size_t inputs, size_t outputs) const {
    if (launch_.inputs.size() == inputs && launch_.outputs.size() == outputs) {
      return absl::OkStatus();
    }
    return Bad(absl::StrCat(launch_.inputs.size(), " inputs and ", launch_.outputs.size(),
                            " outputs, its kernel has ", inputs, " and ", outputs));
  }

  absl::Status ExpectRows(const plan::Operand& operand, const Rows& expected) const {
    const auto* values = operand.kind() == OperandKind::Argument ? &program_.arguments
                         : operand.kind() == OperandKind::Buffer ? &program_.buffers
                                                                 : nullptr;
    if (values == nullptr) return Bad("an operand with rows is neither argument nor buffer");
    const plan::ValueT& value = *(*values)[operand.index()];
    QUIRE_ASSIGN_OR_RETURN(const Type type, TypeOfValue(value));
    QUIRE_ASSIGN_OR_RETURN(const Rows found, RowsOf(type));
    if (found == expected) return absl::OkStatus();
    return Bad(absl::StrCat(value.name, " is ", found.ToString(), ", its kernel takes ",
                            expected.ToString()));
  }

  absl::Status ExpectWeight(const plan::Operand& operand, const Type& expected,
                            WeightLayout layout) const {
    if (operand.kind() != OperandKind::Weight) return Bad("an operand is not a weight");
    const plan::WeightSlotT& slot = *target_.weights[operand.index()];
    QUIRE_ASSIGN_OR_RETURN(const Type type, TypeOfTensor(slot.dtype, slot.extents));
    if (type == expected && slot.layout == LayoutText(layout)) return absl::OkStatus();
    return Bad(absl::StrCat(slot.name, " is ", type.ToString(), " in ", slot.layout,
                            ", its kernel takes ", expected.ToString(), " in ",
                            LayoutText(layout)));
  }

  // step appends to its own cache and reads that or the cross cache, which encode fills; what
  // encode reads lasts for its run.
  bool MayUse(plan::KvCache cache, bool appends) const {
    const bool is_encode = program_.name == "encode";
    switch (cache) {
      case plan::KvCache::Self:
        return !is_encode;
      case plan::KvCache::Cross:
        return is_encode == appends;
      case plan::KvCache::Encoder:
        return is_encode;
    }
    return false;
  }

  absl::Status ExpectLayer(const plan::Operand& operand, bool appends, DType dtype, int64_t heads,
                           int64_t k_dim, int64_t v_dim) const {
    if (operand.kind() != OperandKind::KvLayer) return Bad("an operand is not a KV layer");
    const plan::KvLayerT& layer = *target_.kv_layers[operand.index()];
    if (!MayUse(layer.cache, appends)) {
      return Bad(absl::StrCat("KV layer ", layer.layer, " is of a cache that ", program_.name,
                              " does not ", appends ? "append to" : "read"));
    }
    if (layer.dtype == DTypeText(dtype) && layer.heads == heads &&
        (k_dim == 0 || layer.k_dim == k_dim) && (v_dim == 0 || layer.v_dim == v_dim)) {
      return absl::OkStatus();
    }
    return Bad(absl::StrCat("KV layer ", layer.layer, " has other heads than its kernel"));
  }

  // A vector or table of floats in any type: devices read it as f32.
  absl::Status ExpectFloats(const plan::Operand& operand, const Extents& extents) const {
    if (operand.kind() != OperandKind::Weight) return Bad("the bias is not a weight");
    const std::optional<DType> dtype = ParseDType(target_.weights[operand.index()]->dtype);
    if (!dtype.has_value() || !IsFloat(*dtype)) return Bad("the bias is not of floats");
    return ExpectWeight(operand, {*dtype, extents}, WeightLayout::kRows);
  }

  // Of K or V of so many heads; of rows of 8-bit numbers, one.
  absl::Status ExpectScales(const plan::Operand& operand, int64_t heads) const {
    if (operand.kind() != OperandKind::Weight) return Bad("scales are no weight");
    const plan::WeightSlotT& slot = *target_.weights[operand.index()];
    return ExpectFloats(operand, {slot.extents[0] == 1 ? 1 : heads});
  }

  // What a linear reads, or what the device makes that of.
  absl::Status ExpectMatrix(const plan::Operand& operand, const LinearSpec& spec) const {
    Type expected{spec.weight, {spec.weight_rows(), spec.k}};
    if (operand.kind() == OperandKind::Weight && traits_.converts_weights && IsFloat(spec.weight)) {
      const std::optional<DType> dtype = ParseDType(target_.weights[operand.index()]->dtype);
      if (dtype.has_value() && IsFloat(*dtype)) expected.dtype = *dtype;
    }
    return ExpectWeight(operand, expected, spec.layout);
  }

  absl::Status CheckLinear(const LinearSpec& spec) const {
    const bool has_norm_weight = spec.norm.has_value() && spec.norm->weight.has_value();
    const bool has_norm_bias = spec.norm.has_value() && spec.norm->bias.has_value();
    const bool has_scale = spec.quantize.has_value() && spec.quantize->has_scale;
    QUIRE_RETURN_IF_ERROR(Counts(2 + (spec.bias ? 1 : 0) + (spec.residual ? 1 : 0) +
                                     (has_norm_weight ? 1 : 0) + (has_norm_bias ? 1 : 0) +
                                     (has_scale ? 1 : 0) + TurnsOf(spec) + LayersOf(spec),
                                 spec.y_columns() > 0 ? 1 : 0));
    const Rows y = {spec.y, spec.y_columns(), rows()};
    QUIRE_RETURN_IF_ERROR(ExpectRows(launch_.inputs[0], {spec.x, spec.k, rows()}));
    QUIRE_RETURN_IF_ERROR(ExpectMatrix(launch_.inputs[1], spec));
    size_t next = 2;
    if (spec.bias) {
      QUIRE_RETURN_IF_ERROR(ExpectFloats(launch_.inputs[next++], {spec.weight_rows()}));
    }
    if (spec.residual) QUIRE_RETURN_IF_ERROR(ExpectRows(launch_.inputs[next++], y));
    for (const bool is_bias : {false, true}) {
      if (is_bias ? !has_norm_bias : !has_norm_weight) continue;
      const DType dtype = is_bias ? *spec.norm->bias : *spec.norm->weight;
      QUIRE_RETURN_IF_ERROR(
          ExpectWeight(launch_.inputs[next++], {dtype, {spec.k}}, WeightLayout::kRows));
    }
    if (has_scale) QUIRE_RETURN_IF_ERROR(ExpectScales(launch_.inputs[next++], 1));
    if (spec.rope.has_value()) QUIRE_RETURN_IF_ERROR(CheckRope(spec, next));
    next += TurnsOf(spec);
    if (spec.append.has_value()) QUIRE_RETURN_IF_ERROR(CheckAppend(spec, next));
    return spec.y_columns() > 0 ? ExpectRows(launch_.outputs[0], y) : absl::OkStatus();
  }

  static size_t LayersOf(const LinearSpec& spec) {
    return spec.append.has_value() ? static_cast<size_t>(spec.append->layers) : 0;
  }

  // Operands that say how heads are turned.
  static size_t TurnsOf(const LinearSpec& spec) {
    return !spec.rope.has_value() ? 0 : spec.rope->factors.has_value() ? 2 : 1;
  }

  // From input `first` on. All launches of a kernel have these in common: what turns a step's rows
  // is computed once.
  absl::Status CheckRope(const LinearSpec& spec, size_t first) const {
    if (launch_.inputs[first].kind() != OperandKind::Argument) {
      return Bad("its positions are no argument");
    }
    QUIRE_RETURN_IF_ERROR(ExpectRows(launch_.inputs[first], {DType::kI32, 1, rows()}));
    if (spec.rope->factors.has_value()) {
      QUIRE_RETURN_IF_ERROR(ExpectWeight(launch_.inputs[first + 1],
                                         {*spec.rope->factors, {spec.append->d / 2}},
                                         WeightLayout::kRows));
    }
    for (const auto& other : program_.launches) {
      if (other->kernel != launch_.kernel) continue;
      for (size_t i = first; i < first + TurnsOf(spec); ++i) {
        if (i < other->inputs.size() && other->inputs[i].index() == launch_.inputs[i].index()) {
          continue;
        }
        return Bad(absl::StrCat("its heads are turned by other positions or factors than those of ",
                                other->name));
      }
    }
    return absl::OkStatus();
  }

  // The layers, from input `first` on: a kernel finds the others by the distance of the first two.
  absl::Status CheckAppend(const LinearSpec& spec, size_t first) const {
    const AppendSpec& append = *spec.append;
    if (append.page_tokens != target_.page_tokens) return Bad("its kernel has other pages");
    if (rows() != 'T') return Bad("what appends computes rows T");
    for (size_t i = 0; i < LayersOf(spec); ++i) {
      const plan::Operand& layer = launch_.inputs[first + i];
      QUIRE_RETURN_IF_ERROR(
          ExpectLayer(layer, /*appends=*/true, spec.y, append.heads, append.d, append.dv));
      const plan::Operand& begin = launch_.inputs[first];
      if (layer.index() != begin.index() + i ||
          target_.kv_layers[layer.index()]->cache != target_.kv_layers[begin.index()]->cache) {
        return Bad("its KV layers do not follow each other in one cache");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckAttention(const AttentionSpec& spec) const {
    QUIRE_RETURN_IF_ERROR(Counts(
        2 + (spec.k_scale ? 1 : 0) + (spec.v_scale ? 1 : 0) + (spec.buckets > 0 ? 1 : 0), 1));
    size_t next = 2;
    for (const bool has_scale : {spec.k_scale, spec.v_scale}) {
      if (has_scale) QUIRE_RETURN_IF_ERROR(ExpectScales(launch_.inputs[next++], spec.hkv));
    }
    if (spec.buckets > 0) {
      QUIRE_RETURN_IF_ERROR(ExpectFloats(launch_.inputs[next], {spec.buckets, spec.hq}));
    }
    if (spec.page_tokens != target_.page_tokens) return Bad("its kernel has other pages");
    if (rows() != 'T') return Bad("attention computes rows T");
    QUIRE_RETURN_IF_ERROR(ExpectRows(launch_.inputs[0], {spec.x, spec.hq * spec.d, 'T'}));
    QUIRE_RETURN_IF_ERROR(
        ExpectLayer(launch_.inputs[1], /*appends=*/false, spec.kv, spec.hkv, spec.d, spec.dv));
    return ExpectRows(launch_.outputs[0], {spec.x, spec.hq * spec.dv, 'T'});
  }

  // A kernel that knows pages finds V of a layer behind K: it appends both, to one layer.
  absl::Status CheckPages(const Kernel& kernel) const {
    const int64_t page_tokens = std::get<RowSpec>(kernel.spec).page_tokens;
    const bool knows_pages = traits_.rows_know_pages && !kernel.appends.empty();
    if (page_tokens != (knows_pages ? target_.page_tokens : 0)) {
      return Bad("its kernel has other pages");
    }
    if (!knows_pages) return absl::OkStatus();
    const size_t args = kernel.func->args().size();
    for (size_t i = 0; i < kernel.appends.size(); ++i) {
      bool is_whole = false;
      for (size_t j = 0; j < kernel.appends.size(); ++j) {
        const Op &a = *kernel.appends[i], &b = *kernel.appends[j];
        is_whole |= a.Int(AttrKind::kLayer) == b.Int(AttrKind::kLayer) &&
                    a.Text(AttrKind::kSlot) != b.Text(AttrKind::kSlot) &&
                    launch_.inputs[args + i].index() == launch_.inputs[args + j].index();
      }
      if (!is_whole) return Bad("it does not append K and V of one layer");
    }
    return absl::OkStatus();
  }

  // A function that knows one kind of rows calls them T, and computes those of its launch.
  absl::StatusOr<Rows> RowsIn(const Kernel& kernel, const Type& type) const {
    QUIRE_ASSIGN_OR_RETURN(Rows expected, RowsOf(type));
    if (!kernel.has_both_letters) expected.letter = rows();
    return expected;
  }

  absl::Status CheckRow(const Kernel& kernel) const {
    const auto& args = kernel.func->args();
    QUIRE_RETURN_IF_ERROR(
        Counts(args.size() + kernel.appends.size(), kernel.func->returns().size()));
    for (size_t i = 0; i < args.size(); ++i) {
      const Op& arg = *args[i];
      if (arg.type.rank() > 0 && arg.type.extents[0].is_letter()) {
        QUIRE_ASSIGN_OR_RETURN(const Rows expected, RowsIn(kernel, arg.type));
        QUIRE_RETURN_IF_ERROR(ExpectRows(launch_.inputs[i], expected));
        continue;
      }
      const int64_t heads = KvScaleHeads(kernel.spec, kernel.operands, i);
      if (heads > 0) {
        QUIRE_RETURN_IF_ERROR(ExpectScales(launch_.inputs[i], heads));
        continue;
      }
      const size_t dot = arg.name.find('.');
      WeightLayout layout = WeightLayout::kRows;
      if (dot != std::string::npos) {
        QUIRE_ASSIGN_OR_RETURN(layout, ParseLayout(arg.name.substr(dot + 1)));
      }
      QUIRE_RETURN_IF_ERROR(ExpectWeight(launch_.inputs[i], arg.type, layout));
    }
    for (size_t i = 0; i < kernel.appends.size(); ++i) {
      const Op& append = *kernel.appends[i];
      const bool is_k = append.Text(AttrKind::kSlot) == "k";
      const int64_t dim = append.type.extents[2].value();
      QUIRE_RETURN_IF_ERROR(ExpectLayer(launch_.inputs[args.size() + i], /*appends=*/true,
                                        append.type.dtype, append.type.extents[1].value(),
                                        is_k ? dim : 0, is_k ? 0 : dim));
    }
    QUIRE_RETURN_IF_ERROR(CheckPages(kernel));
    for (size_t i = 0; i < launch_.outputs.size(); ++i) {
      QUIRE_ASSIGN_OR_RETURN(const Rows expected, RowsIn(kernel, kernel.func->returns()[i]->type));
      QUIRE_RETURN_IF_ERROR(ExpectRows(launch_.outputs[i], expected));
    }
    for (const auto& op : kernel.func->ops()) {
      if (op->Is(OpKind::kEmbed)) QUIRE_RETURN_IF_ERROR(CheckEmbed(*kernel.func, *op));
    }
    return absl::OkStatus();
  }

  // Ids are below the vocabulary and positions below max_positions, or an encoder's below
  // max_source: the table must have that many.
  absl::Status CheckEmbed(const Func& func, const Op& embed) const {
    for (size_t i = 0; i < func.args().size(); ++i) {
      if (func.args()[i].get() != embed.operand(1)) continue;
      const plan::Operand& operand = launch_.inputs[i];
      if (operand.kind() != OperandKind::Argument) break;
      const std::string& name = program_.arguments[operand.index()]->name;
      const int64_t bound =
          name == "ids"   ? model_.vocabulary
          : name == "pos" ? (program_.name == "encode" ? model_.max_source : model_.max_positions)
                          : 0;
      if (bound == 0) return Bad(absl::StrCat("nothing bounds the rows that ", name, " looks up"));
      const int64_t table_rows = embed.operand(0)->type.extents[0].value();
      if (bound + embed.Int(AttrKind::kOffset) <= table_rows) return absl::OkStatus();
      return Bad(absl::StrCat("a table of ", table_rows, " rows is too small for ", name, " up to ",
                              bound - 1));
    }
    return Bad("an embedding is not looked up by an argument");
  }

  const plan::TargetT& target_;
  const TargetTraits traits_;
  const plan::ModelT& model_;
  const plan::ProgramT& program_;
  const plan::LaunchT& launch_;
};

absl::Status CheckLayouts(const plan::TargetT& target) {
  for (size_t i = 0; i < target.weights.size(); ++i) {
    const plan::WeightSlotT& slot = *target.weights[i];
    const auto layout = ParseLayout(slot.layout);
    if (!layout.ok()) return PlanError("weights", i, layout.status().message());
    QUIRE_ASSIGN_OR_RETURN(const Type type, TypeOfTensor(slot.dtype, slot.extents));
    if (*layout == WeightLayout::kRows16 && type.rank() != 2) {
      return PlanError("weights", i, "only matrices are laid out in rows16");
    }
    if (*layout == WeightLayout::kRows && slot.packed && slot.bytes != BytesOfTensor(type)) {
      return PlanError("weights", i, "its packed bytes are not what its type takes");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckKernels(const plan::TargetT& target, const plan::ModelT& model) {
  QUIRE_RETURN_IF_ERROR(CheckLayouts(target));
  std::vector<Kernel> kernels;
  for (size_t i = 0; i < target.kernels.size(); ++i) {
    auto kernel = ReadKernel(target.kernels[i]->spec);
    if (!kernel.ok()) return PlanError("kernels", i, kernel.status().message());
    kernels.push_back(std::move(kernel).value());
  }
  for (size_t p = 0; p < target.programs.size(); ++p) {
    const plan::ProgramT& program = *target.programs[p];
    for (size_t i = 0; i < program.launches.size(); ++i) {
      const plan::LaunchT& launch = *program.launches[i];
      const absl::Status status =
          LaunchChecker(target, model, program, launch).Check(kernels[launch.kernel]);
      if (!status.ok()) {
        return PlanError(absl::StrCat("programs[", p, "].launches"), i,
                         absl::StrCat(launch.name, ": ", status.message()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
