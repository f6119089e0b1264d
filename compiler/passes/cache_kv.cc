// cache-kv: one sequence as a whole becomes steps over a cache.
//
//   attention(q, k, v) {mask=causal}, all [T,...]
//     =>  attention(q, kv_append(k), kv_append(v)) {mask=causal}, K/V [C,...]
//
// Legal because every other op treats each row on its own, and a causal row reads rows at or before
// its own: the rows of an earlier step are the same numbers whether they are computed again or read
// from the cache. Both are proven here, op by op. Attention over the same k and v shares one cache.
// A kv_scale of k or v is that of its cache where this is of f8e4m3; otherwise nothing needs it.
// Declines when an attention already reads a cache, its own or that of an encoder's output.
// Refuses, naming the op, when:
//   - an op other than attention mixes rows;
//   - an attention is not causal, or its q, k and v do not all have T as rows.
// Saves the computation of all C - T earlier rows in each step.
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/names.h"
#include "compiler/pass.h"
#include "compiler/row_wise.h"
#include "ir/builder.h"
#include "ir/status.h"

namespace quire {
namespace {

bool IsCache(const Op& op) { return op.Is(OpKind::kKvAppend) || op.Is(OpKind::kKvRead); }

bool ReadsCache(const Op& attention) {
  return IsCache(*attention.operand(1)) && IsCache(*attention.operand(2));
}

absl::Status CheckAttention(const Op& attention) {
  if (attention.Text(AttrKind::kMask) != "causal") {
    return absl::InvalidArgumentError(
        Describe(attention, "mixes rows: mask=none lets a row read rows after it"));
  }
  for (int i = 0; i < 3; ++i) {  // q, k, v; a table of biases has no rows
    const Op* operand = attention.operand(i);
    if (!HasRows(operand->type, 'T')) {
      return absl::InvalidArgumentError(
          Describe(attention, absl::StrCat("%", operand->name, " does not have T as rows")));
    }
  }
  return absl::OkStatus();
}

Op* Append(Builder& builder, absl::string_view scope, Op* x, int64_t layer, absl::string_view slot,
           DType dtype) {
  const Extents& rows = x->type.extents;
  return builder.Named(absl::StrCat(scope, slot, "c"))
      .Make(OpKind::kKvAppend, KeptBy(x, dtype),
            {{AttrKind::kLayer, layer}, {AttrKind::kSlot, std::string(slot)}},
            Type{dtype, {Extent::Letter('C'), rows[1], rows[2]}});
}

}  // namespace

absl::StatusOr<bool> CacheKv(Func& func, const Target& target, Notes& notes) {
  std::vector<Op*> attentions;
  int64_t layer = 0;
  for (const auto& op : func.ops()) {
    if (op->Is(OpKind::kKvAppend) && op->Text(AttrKind::kCache) == "self") {
      layer = std::max(layer, op->Int(AttrKind::kLayer) + 1);
    }
    if (IsCache(*op) || (op->Is(OpKind::kAttention) && ReadsCache(*op))) continue;
    if (op->Is(OpKind::kAttention)) {
      QUIRE_RETURN_IF_ERROR(CheckAttention(*op));
      attentions.push_back(op.get());
    } else {
      QUIRE_RETURN_IF_ERROR(CheckRowWise(*op, 'T'));
    }
  }
  absl::flat_hash_map<std::pair<const Op*, const Op*>, std::pair<Op*, Op*>> caches;
  for (Op* attention : attentions) {
    auto [it, is_new] = caches.try_emplace({attention->operand(1), attention->operand(2)});
    if (is_new) {
      Builder builder(&func, attention);
      const absl::string_view scope = ScopeOf(attention->name);
      it->second.first = Append(builder, scope, attention->operand(1), layer, "k", target.kv_dtype);
      it->second.second =
          Append(builder, scope, attention->operand(2), layer, "v", target.kv_dtype);
      QUIRE_RETURN_IF_ERROR(builder.status());
      ++layer;
    }
    const auto& [k, v] = it->second;
    attention->operands[1] = k;
    attention->operands[2] = v;
    const Extents& extents = v->type.extents;
    notes.Fired(
        attention->name,
        absl::StrCat("layer ", k->Int(AttrKind::kLayer), " caches ",
                     RowBytes(k->type.dtype, extents[1].value() *
                                                 (k->type.extents[2].value() + extents[2].value())),
                     " bytes for each context token; earlier rows are not computed again"));
  }
  return !attentions.empty();
}

}  // namespace quire
