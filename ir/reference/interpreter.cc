#include "ir/reference/interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/reference/kernels.h"
#include "ir/status.h"
#include "ir/verify.h"

namespace quire::reference {
namespace {

absl::Status Dispatch(const Call& call) {
  switch (call.op.kind) {
    case OpKind::kArg:
    case OpKind::kWeight:
    case OpKind::kKvAppend:
    case OpKind::kKvRead:
    case OpKind::kKvScale:
      return absl::InternalError("the interpreter answers this op itself");
    case OpKind::kEmbed:
      return Embed(call);
    case OpKind::kLinear:
      return Linear(call);
    case OpKind::kMatMul:
      return MatMul(call);
    case OpKind::kAdd:
      return Add(call);
    case OpKind::kMul:
      return Mul(call);
    case OpKind::kScale:
      return Scale(call);
    case OpKind::kSoftcap:
      return Softcap(call);
    case OpKind::kSilu:
      return Silu(call);
    case OpKind::kGelu:
      return Gelu(call);
    case OpKind::kRelu:
      return Relu(call);
    case OpKind::kTanh:
      return Tanh(call);
    case OpKind::kSigmoid:
      return Sigmoid(call);
    case OpKind::kCast:
      return Cast(call);
    case OpKind::kRmsNorm:
      return RmsNorm(call);
    case OpKind::kLayerNorm:
      return LayerNorm(call);
    case OpKind::kQuantize:
      return Quantize(call);
    case OpKind::kRope:
      return Rope(call);
    case OpKind::kReshape:
      return Reshape(call);
    case OpKind::kTranspose:
      return Transpose(call);
    case OpKind::kSlice:
      return Slice(call);
    case OpKind::kConcat:
      return Concat(call);
    case OpKind::kTake:
      return Take(call);
    case OpKind::kExpandHeads:
      return ExpandHeads(call);
    case OpKind::kCausalMask:
      return CausalMask(call);
    case OpKind::kAlibi:
      return Alibi(call);
    case OpKind::kRelativeBias:
      return RelativeBias(call);
    case OpKind::kSoftmax:
      return Softmax(call);
    case OpKind::kAttention:
      return Attention(call);
  }
  return absl::InternalError("unknown op");
}

std::string ExtentsText(absl::Span<const int64_t> extents) {
  return absl::StrCat("[", absl::StrJoin(extents, ","), "]");
}

absl::Status CheckWhole(const Tensor& tensor) {
  for (double value : tensor.values) {
    if (!(std::rint(value) == value && std::abs(value) <= std::numeric_limits<int32_t>::max())) {
      return absl::InvalidArgumentError(absl::StrCat(value, " is not an i32"));
    }
  }
  return absl::OkStatus();
}

// The operand that scales what a cache keeps; -1: none.
int ScaleOf(const Op& op) {
  const int at = op.Is(OpKind::kKvAppend) ? 1 : op.Is(OpKind::kKvRead) ? 0 : op.num_operands();
  return at < op.num_operands() ? at : -1;
}

// Rounded to what a cache of this type keeps, by a scale where there is one.
void RoundKept(DType dtype, const Tensor* scale, Tensor* kept) {
  if (scale == nullptr) return RoundAll(dtype, absl::MakeSpan(kept->values));
  const int64_t heads = kept->extent(1), d = kept->last();
  for (int64_t i = 0; i < kept->elements(); ++i) {
    const int64_t head = scale->elements() == 1 ? 0 : i / d % heads;
    const double s = scale->values[static_cast<size_t>(head)];
    double& value = kept->values[static_cast<size_t>(i)];
    value = s * RoundTo(dtype, value / s);
  }
}

class Evaluation {
 public:
  Evaluation(const Func& func, const Inputs& inputs)
      : func_(func), inputs_(inputs), bindings_(inputs.bindings) {}

  absl::StatusOr<std::vector<Tensor>> Run() {
    QUIRE_RETURN_IF_ERROR(Verify(func_));
    QUIRE_RETURN_IF_ERROR(BindLetters());
    CountUses();
    for (const auto& arg : func_.args()) {
      QUIRE_RETURN_IF_ERROR(WithPrefix(TakeArgument(*arg), Place(*arg)));
    }
    for (const auto& op : func_.ops()) {
      // Weights are read at their first use, so that a list of them at the top costs no memory.
      if (op->Is(OpKind::kWeight)) continue;
      QUIRE_RETURN_IF_ERROR(Evaluate(*op));
    }
    std::vector<Tensor> results;
    for (const Op* result : func_.returns()) {
      QUIRE_RETURN_IF_ERROR(Need(*result));
      results.push_back(*values_.at(result));
    }
    CommitKv();
    return results;
  }

 private:
  std::string Place(const Op& op) const {
    return absl::StrCat("@", func_.name(), ": %", op.name, ": ", op.def().mnemonic);
  }

  absl::Status BindLetters() {
    for (const auto& [name, tensor] : inputs_.args) {
      const Op* arg = func_.Find(name);
      if (arg == nullptr || !arg->Is(OpKind::kArg)) {
        return absl::InvalidArgumentError(
            absl::StrCat("@", func_.name(), ": %", name, " is not an argument"));
      }
    }
    for (const auto& arg : func_.args()) {
      const auto given = inputs_.args.find(arg->name);
      if (given == inputs_.args.end()) {
        return absl::InvalidArgumentError(absl::StrCat(Place(*arg), ": no value is given"));
      }
      QUIRE_RETURN_IF_ERROR(WithPrefix(Unify(arg->type, given->second), Place(*arg)));
    }
    if (!bindings_.contains('S') && inputs_.cross != nullptr)
      bindings_['S'] = inputs_.cross->tokens;
    if (bindings_.contains('C') || !bindings_.contains('T')) return absl::OkStatus();
    bindings_['C'] = bindings_.at('T') + PastTokens();
    return absl::OkStatus();
  }

  absl::Status Unify(const Type& type, const Tensor& given) {
    const absl::StatusOr<int64_t> elements = Product(given.extents);
    if (!elements.ok() || *elements != given.elements()) {
      return absl::InvalidArgumentError(absl::StrCat(
          given.elements(), " values are given for extents ", ExtentsText(given.extents)));
    }
    bool matches = given.extents.size() == type.extents.size();
    for (size_t i = 0; matches && i < given.extents.size(); ++i) {
      const Extent& extent = type.extents[i];
      if (extent.is_letter()) {
        matches =
            bindings_.emplace(extent.letter(), given.extents[i]).first->second == given.extents[i];
      } else {
        matches = extent.value() == given.extents[i];
      }
    }
    if (matches) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("extents ", ExtentsText(given.extents),
                                                   " do not match ", type.ToString(),
                                                   " and the other arguments"));
  }

  void CountUses() {
    for (const auto& op : func_.ops()) {
      for (const Op* operand : op->operands) ++uses_left_[operand];
    }
    for (const Op* result : func_.returns()) ++uses_left_[result];
  }

  absl::Status TakeArgument(const Op& arg) {
    Tensor value = inputs_.args.at(arg.name);
    if (arg.type.dtype == DType::kI32) QUIRE_RETURN_IF_ERROR(CheckWhole(value));
    return Store(arg, std::move(value));
  }

  // Rounds a finished value to its type and keeps it, if anything reads it.
  absl::Status Store(const Op& op, Tensor value) {
    if (uses_left_[&op] == 0) return absl::OkStatus();
    if (value.elements() > FreeElements()) return TooMuch(op);
    // By a scale it was rounded when it was appended.
    if (ScaleOf(op) < 0) RoundAll(op.type.dtype, absl::MakeSpan(value.values));
    live_elements_ += value.elements();
    values_[&op] = std::make_unique<Tensor>(std::move(value));
    return absl::OkStatus();
  }

  int64_t FreeElements() const { return inputs_.max_live_elements - live_elements_; }

  absl::Status TooMuch(const Op& op) const {
    return absl::ResourceExhaustedError(
        absl::StrCat(op.type.ToString(), " does not fit beside ", live_elements_,
                     " live elements\n  allowed: ", inputs_.max_live_elements, " in all"));
  }

  // Makes sure that the value is there: a weight is read at its first use.
  absl::Status Need(const Op& op) {
    if (values_.contains(&op)) return absl::OkStatus();
    return WithPrefix(ReadWeight(op), Place(op));
  }

  absl::Status ReadWeight(const Op& op) {
    const std::string& name = op.Text(AttrKind::kName);
    QUIRE_ASSIGN_OR_RETURN(std::vector<int64_t> extents, Bind(op.type.extents, bindings_));
    QUIRE_RETURN_IF_ERROR(CheckedElements(extents, FreeElements()).status());
    if (inputs_.weights == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("no weights are given, not even ", name));
    }
    Type type{op.type.dtype, Extents(extents.begin(), extents.end())};
    absl::StatusOr<Tensor> weight = inputs_.weights(name, type);
    if (!weight.ok()) return WithPrefix(weight.status(), name);
    const absl::StatusOr<int64_t> elements = Product(extents);
    if (weight->extents != extents || !elements.ok() || weight->elements() != *elements) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " has extents ", ExtentsText(weight->extents), ", not ", ExtentsText(extents)));
    }
    return Store(op, *std::move(weight));
  }

  absl::Status Evaluate(const Op& op) {
    std::vector<const Tensor*> operands;
    for (const Op* operand : op.operands) {
      QUIRE_RETURN_IF_ERROR(Need(*operand));
      operands.push_back(values_.at(operand).get());
    }
    QUIRE_RETURN_IF_ERROR(WithPrefix(Compute(op, operands), Place(op)));
    for (const Op* operand : op.operands) Release(operand);
    return absl::OkStatus();
  }

  absl::Status Compute(const Op& op, const std::vector<const Tensor*>& operands) {
    if (op.Is(OpKind::kKvRead)) return ReadCross(op);
    if (op.Is(OpKind::kKvScale)) return Store(op, *operands[0]);
    QUIRE_ASSIGN_OR_RETURN(std::vector<int64_t> extents, Bind(op.type.extents, bindings_));
    QUIRE_ASSIGN_OR_RETURN(Tensor out, Tensor::Zeros(std::move(extents), FreeElements()));
    if (op.Is(OpKind::kKvAppend) && op.Text(AttrKind::kCache) != "self") {
      QUIRE_RETURN_IF_ERROR(AppendEncoded(op, operands, &out));
    } else if (op.Is(OpKind::kKvAppend)) {
      QUIRE_RETURN_IF_ERROR(AppendKv(op, operands, &out));
    } else if (out.elements() > 0) {
      // An empty result needs no work, and may have an outer extent too long to count through.
      QUIRE_RETURN_IF_ERROR(Dispatch({op, operands, &out}));
    }
    return Store(op, std::move(out));
  }

  void Release(const Op* op) {
    if (--uses_left_[op] > 0) return;
    live_elements_ -= values_.at(op)->elements();
    values_.erase(op);
  }

  int64_t PastTokens() const { return inputs_.kv == nullptr ? 0 : inputs_.kv->tokens; }

  absl::Status AppendKv(const Op& op, const std::vector<const Tensor*>& operands, Tensor* context) {
    const Tensor& rows = *operands[0];
    const auto key = std::make_pair(op.Int(AttrKind::kLayer), op.Text(AttrKind::kSlot));
    if (context->extent(0) != PastTokens() + rows.extent(0)) {
      return absl::InvalidArgumentError(absl::StrCat("C=", context->extent(0), ", but ",
                                                     PastTokens(), " tokens precede ",
                                                     rows.extent(0), " rows"));
    }
    if (appended_.contains(key)) {
      return absl::InvalidArgumentError(
          absl::StrCat(key.second, " of layer ", key.first, " is appended to twice"));
    }
    if (PastTokens() > 0) {
      const auto past = inputs_.kv->rows.find(key);
      std::vector<int64_t> wanted = rows.extents;
      wanted[0] = PastTokens();
      if (past == inputs_.kv->rows.end() || past->second.extents != wanted) {
        return absl::InvalidArgumentError(absl::StrCat("the state holds no ", key.second,
                                                       " of layer ", key.first, " of extents ",
                                                       ExtentsText(wanted)));
      }
      std::copy(past->second.values.begin(), past->second.values.end(), context->values.begin());
    }
    std::copy(rows.values.begin(), rows.values.end(),
              context->values.end() - static_cast<std::ptrdiff_t>(rows.values.size()));
    // Rounded here and not only in Store, since the state keeps it too.
    RoundKept(op.type.dtype, operands.size() > 1 ? operands[1] : nullptr, context);
    if (inputs_.kv != nullptr) appended_[key] = *context;
    return absl::OkStatus();
  }

  // An encoder sees its input as a whole: the rows are the context.
  absl::Status AppendEncoded(const Op& op, const std::vector<const Tensor*>& operands,
                             Tensor* context) {
    const Tensor& rows = *operands[0];
    if (context->extents != rows.extents) {
      return absl::InvalidArgumentError(
          absl::StrCat("C=", context->extent(0), ", but an encoder has ", rows.extent(0), " rows"));
    }
    context->values = rows.values;
    RoundKept(op.type.dtype, operands.size() > 1 ? operands[1] : nullptr, context);
    if (op.Text(AttrKind::kCache) == "encoder" || inputs_.cross == nullptr) return absl::OkStatus();
    const auto key = std::make_pair(op.Int(AttrKind::kLayer), op.Text(AttrKind::kSlot));
    if (encoded_.emplace(key, *context).second) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(key.second, " of layer ", key.first, " is appended to twice"));
  }

  absl::Status ReadCross(const Op& op) {
    const auto key = std::make_pair(op.Int(AttrKind::kLayer), op.Text(AttrKind::kSlot));
    const auto* rows = inputs_.cross == nullptr ? nullptr : &inputs_.cross->rows;
    if (rows == nullptr || rows->find(key) == rows->end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no encoder left ", key.second, " of layer ", key.first));
    }
    QUIRE_ASSIGN_OR_RETURN(std::vector<int64_t> extents, Bind(op.type.extents, bindings_));
    Tensor value = rows->at(key);
    if (value.extents == extents) return Store(op, std::move(value));
    return absl::InvalidArgumentError(absl::StrCat(
        "an encoder left extents ", ExtentsText(value.extents), ", not ", ExtentsText(extents)));
  }

  void CommitKv() {
    if (!encoded_.empty()) {
      inputs_.cross->tokens = encoded_.begin()->second.extent(0);
      inputs_.cross->rows = std::move(encoded_);
    }
    if (inputs_.kv == nullptr || appended_.empty()) return;
    inputs_.kv->tokens = appended_.begin()->second.extent(0);
    for (auto& [key, context] : appended_) inputs_.kv->rows[key] = std::move(context);
  }

  const Func& func_;
  const Inputs& inputs_;
  Bindings bindings_;
  absl::flat_hash_map<const Op*, std::unique_ptr<Tensor>> values_;
  absl::flat_hash_map<const Op*, int> uses_left_;
  int64_t live_elements_ = 0;
  std::map<std::pair<int64_t, std::string>, Tensor> appended_, encoded_;
};

}  // namespace

absl::StatusOr<std::vector<Tensor>> Interpret(const Func& func, const Inputs& inputs) {
  return Evaluation(func, inputs).Run();
}

}  // namespace quire::reference
