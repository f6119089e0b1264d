// remove-kv-expansion: attention reads grouped K/V directly.
//
//   attention(q, expand_heads(k, g), expand_heads(v, g))  =>  attention(q, k, v)
//
// Legal because attention's own rule maps query head h to KV head h / (Hq/Hkv), which is what
// interleaved expansion by g materialises; with a single KV head, tiling is the same function.
// Declines when:
//   - order is tile and there are several KV heads: that maps h to h % Hkv, a different function;
//   - only one of k and v is expanded;
//   - they are expanded from different numbers of heads.
// Saves (g - 1)/g of the K/V bytes that each step reads, and of the cache.
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/pass.h"

namespace quire {
namespace {

bool IsTiled(const Op& expand) {
  return expand.Text(AttrKind::kOrder) == "tile" && expand.operand(0)->type.extents[1].value() > 1;
}

// Why the expansion of k and v has to stay, or "".
std::string ReasonToDecline(const Op& k, const Op& v) {
  if (!k.Is(OpKind::kExpandHeads) || !v.Is(OpKind::kExpandHeads)) {
    const Op& other = k.Is(OpKind::kExpandHeads) ? v : k;
    return absl::StrCat("%", other.name, " is not expanded, the other of k and v is");
  }
  for (const Op* expand : {&k, &v}) {
    if (IsTiled(*expand)) return absl::StrCat("%", expand->name, " has order=tile");
  }
  if (k.Int(AttrKind::kGroup) != v.Int(AttrKind::kGroup)) {
    return absl::StrCat("%", k.name, " has group=", k.Int(AttrKind::kGroup), ", %", v.name,
                        " has group=", v.Int(AttrKind::kGroup));
  }
  return "";
}

// Elements of K and V in one context token.
int64_t ElementsPerToken(const Op& attention) {
  const Extents& k = attention.operand(1)->type.extents;
  const Extents& v = attention.operand(2)->type.extents;
  return k[1].value() * (k[2].value() + v[2].value());
}

}  // namespace

absl::StatusOr<bool> RemoveKvExpansion(Func& func, const Target& target, Notes& notes) {
  bool changed = false;
  for (const auto& op : func.ops()) {
    if (!op->Is(OpKind::kAttention)) continue;
    const int64_t before = ElementsPerToken(*op);
    bool fired = false;
    while (op->operand(1)->Is(OpKind::kExpandHeads) || op->operand(2)->Is(OpKind::kExpandHeads)) {
      const std::string reason = ReasonToDecline(*op->operand(1), *op->operand(2));
      if (!reason.empty()) {
        notes.Declined(op->name, reason);
        break;
      }
      op->operands[1] = op->operand(1)->operand(0);
      op->operands[2] = op->operand(2)->operand(0);
      fired = true;
    }
    if (!fired) continue;
    changed = true;
    notes.Fired(op->name, absl::StrCat("K/V bytes for each context token: ",
                                       RowBytes(target.kv_dtype, before), " => ",
                                       RowBytes(target.kv_dtype, ElementsPerToken(*op))));
  }
  if (changed) func.EraseDead();
  return changed;
}

}  // namespace quire
