// recognise-attention: attention written out becomes one op.
//
//   matmul(softmax([causal_mask|alibi|relative_bias](softcap(scale(matmul(q, k^T))))), v)
//     =>  attention(q, k, v)
//
// Every step between the products is optional; scale may stand on the scores, on q or on k. Legal
// because that is what the attention op means, with heads on the batch axis of the products: both
// have rank 3, with a fixed number of heads and a fixed head size. alibi, relative_bias and
// causal_mask may stand in any order, since all add. Transposes around the pattern are composed and
// vanish when they cancel; repeated K/V heads are left as they are (remove-kv-expansion). Declines
// when:
//   - the softmax has no matmul as user, or stands on its right side;
//   - the chain from the scores to the softmax holds another op, or one twice, or scale or softcap
//     after a bias or the mask, or scale after softcap;
//   - the products are not batched over a fixed number of heads with fixed head sizes;
//   - scale is not in the range of attention's attribute.
// Saves the T x C scores, which are never written to memory.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/pass.h"
#include "ir/builder.h"
#include "ir/status.h"

namespace quire {
namespace {

using Perm = std::vector<int64_t>;

// What was found, or why it is not attention.
struct Pattern {
  Op *q = nullptr, *k = nullptr, *v = nullptr;
  // From the axes of q, k, v to [rows, heads, size].
  Perm q_perm, k_perm, v_perm;
  double scale = 1, cap = 0, alibi_max = 0;
  bool causal = false;
  int64_t window = 0;
  const Op* relative = nullptr;  // the relative_bias
  std::string declined;
};

Pattern Decline(absl::string_view why) {
  Pattern pattern;
  pattern.declined = std::string(why);
  return pattern;
}

// Walks from the softmax up to the product that makes the scores. Returns it, or nullptr with
// `declined` set.
const Op* MatchScores(const Op* softmax, Pattern* pattern) {
  // Steps as they are met, from the softmax upward; a later step may not precede an earlier one.
  enum Step { kMask, kCapped, kScaled };
  Step reached = kMask;
  bool masked = false, biased = false, capped = false;
  auto decline = [pattern](const Op* op, absl::string_view why) -> const Op* {
    pattern->declined = absl::StrCat("%", op->name, ": ", op->def().mnemonic, " ", why);
    return nullptr;
  };
  for (const Op* op = softmax->operand(0);; op = op->operand(0)) {
    switch (op->kind) {
      case OpKind::kMatMul:
        return op;
      case OpKind::kCausalMask:
        if (masked) return decline(op, "stands twice");
        if (reached > kMask) return decline(op, "stands before the scale or the softcap");
        masked = pattern->causal = true;
        pattern->window = op->Int(AttrKind::kWindow);
        break;
      case OpKind::kAlibi:
        if (biased) return decline(op, "stands twice");
        if (reached > kMask) return decline(op, "stands before the scale or the softcap");
        biased = true;
        pattern->alibi_max = op->Float(AttrKind::kAlibiMax);
        break;
      case OpKind::kRelativeBias:
        if (pattern->relative != nullptr) return decline(op, "stands twice");
        if (reached > kMask) return decline(op, "stands before the scale or the softcap");
        pattern->relative = op;
        break;
      case OpKind::kSoftcap:
        if (capped) return decline(op, "stands twice");
        if (reached > kCapped) return decline(op, "stands before the scale");
        capped = true;
        reached = kCapped;
        pattern->cap = op->Float(AttrKind::kCap);
        break;
      case OpKind::kScale:
        reached = kScaled;
        pattern->scale *= op->Float(AttrKind::kFactor);
        break;
      default:
        return decline(op, "is not a step of attention");
    }
  }
}

Perm Compose(const Perm& inner, const Perm& outer) {
  Perm perm;
  for (int64_t axis : outer) perm.push_back(inner[static_cast<size_t>(axis)]);
  return perm;
}

bool IsIdentity(const Perm& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Follows `value` up through transposes, which are composed into `perm`, and through scales, which
// are multiplied into `scale` when it is given.
void FollowUp(Op** value, Perm* perm, double* scale) {
  while (true) {
    if ((*value)->Is(OpKind::kTranspose)) {
      *perm = Compose((*value)->Ints(AttrKind::kPerm), *perm);
    } else if (scale != nullptr && (*value)->Is(OpKind::kScale)) {
      *scale *= (*value)->Float(AttrKind::kFactor);
    } else {
      return;
    }
    *value = (*value)->operand(0);
  }
}

Pattern Match(const Op* softmax, const Op* product) {
  Pattern pattern;
  if (product->operand(0) != softmax)
    return Decline("the softmax is the right side of its product");
  const Op* scores = MatchScores(softmax, &pattern);
  if (scores == nullptr) return pattern;
  if (scores->type.rank() != 3) return Decline("the scores do not have rank 3");
  pattern.q = scores->operand(0);
  pattern.k = scores->operand(1);
  pattern.v = product->operand(1);
  // Heads are axis 0 of both products; the head size is summed over in the first and kept in the
  // second.
  const Extent heads = scores->type.extents[0];
  const Extent size = pattern.q->type.extents[2];
  const Extent value_size = product->type.extents[2];
  if (heads.is_letter() || size.is_letter() || value_size.is_letter()) {
    return Decline("the number of heads and the head size are not fixed");
  }
  const bool k_rows_first = scores->Int(AttrKind::kTransposeB) != 0;
  const bool v_rows_first = product->Int(AttrKind::kTransposeB) == 0;
  const Perm heads_first = {1, 0, 2}, rows_last = {2, 0, 1};
  pattern.q_perm = heads_first;
  pattern.k_perm = k_rows_first ? heads_first : rows_last;
  pattern.v_perm = v_rows_first ? heads_first : rows_last;
  FollowUp(&pattern.q, &pattern.q_perm, &pattern.scale);
  FollowUp(&pattern.k, &pattern.k_perm, &pattern.scale);
  FollowUp(&pattern.v, &pattern.v_perm, nullptr);
  if (!CheckAttr(DefOf(AttrKind::kScale), AttrValue(pattern.scale)).ok()) {
    return Decline(absl::StrCat("scale=", pattern.scale, " is out of the range of attention"));
  }
  return pattern;
}

Op* Permuted(Builder& builder, Op* value, const Perm& perm) {
  return IsIdentity(perm) ? value : builder.Transpose(value, perm);
}

Op* Build(Builder& builder, const Pattern& pattern) {
  Op* q = Permuted(builder, pattern.q, pattern.q_perm);
  Op* k = Permuted(builder, pattern.k, pattern.k_perm);
  Op* v = Permuted(builder, pattern.v, pattern.v_perm);
  std::vector<Op*> operands = {q, k, v};
  Builder::AttrList attrs = {{AttrKind::kMask, std::string(pattern.causal ? "causal" : "none")},
                             {AttrKind::kWindow, pattern.window},
                             {AttrKind::kScale, pattern.scale},
                             {AttrKind::kCap, pattern.cap},
                             {AttrKind::kAlibiMax, pattern.alibi_max}};
  if (pattern.relative != nullptr) {
    operands.push_back(pattern.relative->operand(1));
    for (const AttrKind attr : {AttrKind::kMaxDistance, AttrKind::kDirection}) {
      attrs.emplace_back(attr, pattern.relative->Get(attr));
    }
  }
  return builder.Make(OpKind::kAttention, std::move(operands), std::move(attrs));
}

// Readers of the product [heads, rows, size] read `attention` [rows, heads, size] instead. Returns
// the name of the value that attention stands for.
std::string Replace(Func& func, Op* product, Op* attention, const std::vector<Op*>& readers) {
  const Perm heads_first = {1, 0, 2};
  std::string name = product->name;
  bool is_read_as_it_was = func.IsReturned(product);
  for (Op* reader : readers) {
    if (!reader->Is(OpKind::kTranspose)) {
      is_read_as_it_was = true;
      continue;
    }
    Perm perm = Compose(heads_first, reader->Ints(AttrKind::kPerm));
    if (IsIdentity(perm)) {
      name = reader->name;
      func.ReplaceUses(reader, attention);
    } else {
      reader->operands[0] = attention;
      reader->Set(AttrKind::kPerm, std::move(perm));
    }
  }
  if (is_read_as_it_was) {
    Builder builder(&func, product);
    Op* transposed = builder.Transpose(attention, heads_first);
    func.ReplaceUses(product, transposed);
  }
  return name;
}

}  // namespace

absl::StatusOr<bool> RecogniseAttention(Func& func, const Target&, Notes& notes) {
  const auto users = func.Users();
  std::vector<std::pair<Op*, Op*>> products;  // softmax, product
  for (const auto& op : func.ops()) {
    if (!op->Is(OpKind::kSoftmax)) continue;
    size_t found = products.size();
    if (auto it = users.find(op.get()); it != users.end()) {
      for (Op* user : it->second) {
        if (user->Is(OpKind::kMatMul)) products.emplace_back(op.get(), user);
      }
    }
    if (found == products.size()) notes.Declined(op->name, "the softmax has no matmul as user");
  }

  std::vector<std::pair<Op*, std::string>> renames;
  for (const auto& [softmax, product] : products) {
    const Pattern pattern = Match(softmax, product);
    if (!pattern.declined.empty()) {
      notes.Declined(product->name, pattern.declined);
      continue;
    }
    Builder builder(&func, product);
    Op* attention = Build(builder, pattern);
    if (!builder.status().ok()) {
      notes.Declined(product->name, builder.status().message());
      continue;
    }
    const auto readers = users.find(product);
    std::string name = Replace(func, product, attention,
                               readers == users.end() ? std::vector<Op*>() : readers->second);
    notes.Fired(name, absl::StrCat("attention over ", attention->type.extents[1].value(),
                                   " heads; the scores ", softmax->type.ToString(),
                                   " are never in memory"));
    renames.emplace_back(attention, std::move(name));
  }
  if (renames.empty()) return false;
  func.EraseDead();
  for (auto& [attention, name] : renames) {
    if (func.Find(name) == nullptr) func.Rename(attention, name);
  }
  return true;
}

}  // namespace quire
