#include "compiler/encoder_split.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/names.h"
#include "compiler/row_wise.h"
#include "ir/builder.h"
#include "ir/status.h"

namespace quire {
namespace {

// What a value depends on.
enum Dependence : unsigned { kNothing = 0, kDecoder = 1, kEncoder = 2, kBoth = 3 };
using Dependences = absl::flat_hash_map<const Op*, unsigned>;

Dependences DependencesOf(const Func& func) {
  Dependences depends;
  for (const auto& arg : func.args()) {
    depends[arg.get()] = HasRows(arg->type, 'S') ? kEncoder : kDecoder;
  }
  for (const auto& op : func.ops()) {
    unsigned on = kNothing;
    for (const Op* operand : op->operands) on |= depends.at(operand);
    depends[op.get()] = on;
  }
  return depends;
}

bool IsAttentionOverSource(const Op& op, const Dependences& depends) {
  return op.Is(OpKind::kAttention) && op.Text(AttrKind::kMask) == "none" &&
         depends.at(op.operand(0)) != kEncoder && depends.at(op.operand(1)) == kEncoder &&
         depends.at(op.operand(2)) == kEncoder && HasRows(op.operand(1)->type, 'S');
}

bool HasOtherLetters(const Type& type) {
  return std::any_of(type.extents.begin(), type.extents.end(), [](const Extent& extent) {
    return extent.is_letter() && extent != Extent::Letter('S');
  });
}

// An op that depends on encoder inputs alone may run in @encode, beside those of other inputs.
absl::Status CheckEncoderOp(const Op& op) {
  bool others = HasOtherLetters(op.type);
  for (const Op* operand : op.operands) others |= HasOtherLetters(operand->type);
  if (others) return absl::InvalidArgumentError(Describe(op, "has other rows than S"));
  return op.Is(OpKind::kAttention) ? absl::OkStatus() : CheckRowWise(op, 'S');
}

// K or V of one layer, appended behind `x`.
Op* Append(Builder& builder, Op* x, int64_t layer, absl::string_view slot, absl::string_view cache,
           DType dtype) {
  const Extents& rows = x->type.extents;
  return builder.Named(absl::StrCat(ScopeOf(x->name), cache == "cross" ? "cross_" : "", slot, "c"))
      .Make(OpKind::kKvAppend, KeptBy(x, dtype),
            {{AttrKind::kLayer, layer},
             {AttrKind::kSlot, std::string(slot)},
             {AttrKind::kCache, std::string(cache)}},
            Type{dtype, {Extent::Letter('C'), rows[1], rows[2]}});
}

void CallRowsT(Func& func) {
  for (const auto* values : {&func.args(), &func.ops()}) {
    for (const auto& value : *values) {
      for (Extent& extent : value->type.extents) {
        if (extent == Extent::Letter('S')) extent = Extent::Letter('T');
      }
    }
  }
}

// The encoder's function, from a copy of the whole one.
absl::StatusOr<std::unique_ptr<Func>> MakeEncode(const Func& whole, absl::string_view name,
                                                 const CrossCaches& cross, const Target& target) {
  std::unique_ptr<Func> encode = whole.Clone();
  encode->set_name(name);
  std::vector<Op*> kept;
  for (const auto& [k, v] : cross.pairs) {
    kept.push_back(encode->Find(k->name));
    kept.push_back(encode->Find(v->name));
  }
  encode->set_returns(kept);
  encode->EraseDead();
  std::vector<Op*> decoder_args;
  for (const auto& arg : encode->args()) {
    if (!HasRows(arg->type, 'S')) decoder_args.push_back(arg.get());
  }
  for (const Op* arg : decoder_args) encode->EraseArg(arg);
  for (const auto& [from, to] : {std::pair("source", "ids"), std::pair("source_pos", "pos")}) {
    Op* arg = encode->Find(from);
    if (arg != nullptr && arg->Is(OpKind::kArg) && arg->type.dtype == DType::kI32) {
      encode->Rename(arg, to);
    }
  }
  CallRowsT(*encode);

  CrossCaches own;
  for (const auto& op : encode->ops()) {
    if (op->Is(OpKind::kAttention)) own.Add(op.get());
  }
  for (size_t i = 0; i < own.pairs.size(); ++i) {
    Builder builder(encode.get(), own.readers[i][0]);
    const auto layer = static_cast<int64_t>(i);
    // Read in this run only: nothing is won by a narrower type than that of activations.
    Op* k = Append(builder, own.pairs[i].first, layer, "k", "encoder", target.activation);
    Op* v = Append(builder, own.pairs[i].second, layer, "v", "encoder", target.activation);
    QUIRE_RETURN_IF_ERROR(builder.status());
    for (Op* attention : own.readers[i]) {
      attention->operands[1] = k;
      attention->operands[2] = v;
    }
  }
  Builder builder(encode.get());
  std::vector<Op*> returns;
  for (size_t i = 0; i < kept.size(); ++i) {
    returns.push_back(Append(builder, kept[i], static_cast<int64_t>(i / 2), i % 2 == 0 ? "k" : "v",
                             "cross", target.kv_dtype));
  }
  QUIRE_RETURN_IF_ERROR(builder.status());
  encode->set_returns(std::move(returns));
  return encode;
}

absl::Status ReadCaches(Func& step, const CrossCaches& cross, const Target& target) {
  for (size_t i = 0; i < cross.pairs.size(); ++i) {
    Builder builder(&step, cross.readers[i][0]);
    const auto read = [&](Op* rows, absl::string_view slot) {
      std::vector<Op*> operands = KeptBy(rows, target.kv_dtype);
      operands.erase(operands.begin());
      return builder.Named(absl::StrCat(ScopeOf(cross.readers[i][0]->name), "cross_", slot, "c"))
          .Make(OpKind::kKvRead, std::move(operands),
                {{AttrKind::kLayer, static_cast<int64_t>(i)}, {AttrKind::kSlot, std::string(slot)}},
                Type{target.kv_dtype, rows->type.extents});
    };
    Op* k = read(cross.pairs[i].first, "k");
    Op* v = read(cross.pairs[i].second, "v");
    QUIRE_RETURN_IF_ERROR(builder.status());
    for (Op* attention : cross.readers[i]) {
      attention->operands[1] = k;
      attention->operands[2] = v;
    }
  }
  step.EraseDead();
  std::vector<Op*> encoder_args;
  for (const auto& arg : step.args()) {
    if (HasRows(arg->type, 'S')) encoder_args.push_back(arg.get());
  }
  for (const Op* arg : encoder_args) step.EraseArg(arg);
  return absl::OkStatus();
}

}  // namespace

void CrossCaches::Add(Op* attention) {
  const std::pair<Op*, Op*> pair = {attention->operand(1), attention->operand(2)};
  size_t i = 0;
  while (i < pairs.size() && pairs[i] != pair) ++i;
  if (i == pairs.size()) {
    pairs.push_back(pair);
    readers.emplace_back();
  }
  readers[i].push_back(attention);
}

bool HasEncoderInputs(const Func& step) {
  return std::any_of(step.args().begin(), step.args().end(),
                     [](const auto& arg) { return HasRows(arg->type, 'S'); });
}

absl::StatusOr<CrossCaches> FindCrossCaches(const Func& func) {
  const Dependences depends = DependencesOf(func);
  CrossCaches cross;
  for (const Op* result : func.returns()) {
    if (depends.at(result) != kEncoder) continue;
    return absl::InvalidArgumentError(Describe(*result, "depends on encoder inputs alone"));
  }
  for (const auto& op : func.ops()) {
    if (op->Is(OpKind::kKvRead)) {
      return absl::InvalidArgumentError(Describe(*op, "reads what an encoder left before"));
    }
    if (depends.at(op.get()) == kEncoder) {
      QUIRE_RETURN_IF_ERROR(CheckEncoderOp(*op));
      continue;
    }
    if (IsAttentionOverSource(*op, depends)) {
      cross.Add(op.get());
      continue;
    }
    for (const Op* operand : op->operands) {
      if (depends.at(operand) != kEncoder) continue;
      return absl::InvalidArgumentError(Describe(
          *op, absl::StrCat("reads %", operand->name,
                            ", encoder rows, other than as K or V of an attention over them")));
    }
  }
  if (!cross.pairs.empty()) return cross;
  return absl::InvalidArgumentError("nothing reads the encoder's output");
}

absl::Status SplitEncoder(Module& module, absl::string_view name, const CrossCaches& cross,
                          const Target& target) {
  Func& step = *module.funcs[0];
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<Func> encode, MakeEncode(step, name, cross, target));
  QUIRE_RETURN_IF_ERROR(ReadCaches(step, cross, target));
  module.funcs.push_back(std::move(encode));
  return absl::OkStatus();
}

int64_t MultiplyAdds(const Func& func) {
  int64_t sum = 0;
  for (const auto& op : func.ops()) {
    if (!op->Is(OpKind::kLinear)) continue;
    const Extents& w = op->operand(1)->type.extents;
    sum += w[0].value() * w[1].value();
  }
  return sum;
}

}  // namespace quire
