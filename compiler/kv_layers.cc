#include "compiler/kv_layers.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/row_wise.h"
#include "ir/status.h"

namespace quire {
namespace {

struct Pair {
  const Op *k = nullptr, *v = nullptr;
};

absl::Status Bad(const Op& op, absl::string_view what) {
  return absl::InvalidArgumentError(
      Describe(op, absl::StrCat("layer ", op.Int(AttrKind::kLayer), " ", what)));
}

plan::KvCache CacheOf(const Op& op) {
  if (op.Is(OpKind::kKvRead)) return plan::KvCache::Cross;
  const std::string& cache = op.Text(AttrKind::kCache);
  return cache == "self"    ? plan::KvCache::Self
         : cache == "cross" ? plan::KvCache::Cross
                            : plan::KvCache::Encoder;
}

absl::StatusOr<std::unique_ptr<plan::KvLayerT>> MakeLayer(int64_t number, const Pair& pair) {
  if (pair.k == nullptr) return Bad(*pair.v, "has no slot=k");
  if (pair.v == nullptr) return Bad(*pair.k, "has no slot=v");
  const Type& k = pair.k->type;
  const Type& v = pair.v->type;
  if (k.dtype != v.dtype || k.extents[1] != v.extents[1]) {
    return Bad(*pair.v, absl::StrCat("holds K as ", k.ToString(), " and V as ", v.ToString()));
  }
  for (const Extent& extent : {k.extents[1], k.extents[2], v.extents[2]}) {
    if (extent.is_letter() || extent.value() > INT32_MAX) {
      return Bad(*pair.k, absl::StrCat("has heads or a head size of ", extent.ToString()));
    }
  }
  auto layer = std::make_unique<plan::KvLayerT>();
  layer->layer = static_cast<int32_t>(number);
  layer->heads = static_cast<int32_t>(k.extents[1].value());
  layer->k_dim = static_cast<int32_t>(k.extents[2].value());
  layer->v_dim = static_cast<int32_t>(v.extents[2].value());
  layer->dtype = std::string(DTypeText(k.dtype));
  layer->cache = CacheOf(*pair.k);
  return layer;
}

}  // namespace

KvLayers::Key KvLayers::KeyOf(const Op& op) { return {CacheOf(op), op.Int(AttrKind::kLayer)}; }

absl::StatusOr<KvLayers> KvLayers::Create(const Module& module) {
  std::map<Key, Pair> pairs;
  for (const auto& func : module.funcs) {
    for (const auto& op : func->ops()) {
      if (!op->Is(OpKind::kKvAppend)) continue;
      Pair& pair = pairs[KeyOf(*op)];
      const Op*& slot = op->Text(AttrKind::kSlot) == "k" ? pair.k : pair.v;
      if (slot != nullptr) return Bad(*op, "is appended to twice in one slot");
      slot = op.get();
    }
  }
  KvLayers layers;
  for (const auto& [key, pair] : pairs) {
    layers.index_[key] = static_cast<uint32_t>(layers.layers_.size());
    QUIRE_ASSIGN_OR_RETURN(auto layer, MakeLayer(key.second, pair));
    layers.layers_.push_back(std::move(layer));
  }
  for (const auto& func : module.funcs) {
    QUIRE_RETURN_IF_ERROR(layers.ReadBy(*func));
  }
  return layers;
}

// A layer keeps as many tokens as its widest reader wants.
absl::Status KvLayers::ReadBy(const Func& func) {
  std::vector<bool> is_read(layers_.size(), false);
  for (const auto& op : func.ops()) {
    if (!op->Is(OpKind::kAttention)) continue;
    QUIRE_ASSIGN_OR_RETURN(uint32_t index, LayerOf(*op));
    const int64_t window = op->Int(AttrKind::kWindow);
    int64_t& kept = layers_[index]->window;
    const bool is_unlimited = window == 0 || (is_read[index] && kept == 0);
    kept = is_unlimited ? 0 : std::max(kept, window);
    is_read[index] = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> KvLayers::LayerOf(const Op& attention) const {
  const Op* k = attention.operand(1);
  const Op* v = attention.operand(2);
  const bool are_caches =
      k->kind == v->kind && (k->Is(OpKind::kKvAppend) || k->Is(OpKind::kKvRead));
  if (!are_caches || k->Text(AttrKind::kSlot) != "k" || v->Text(AttrKind::kSlot) != "v" ||
      KeyOf(*k) != KeyOf(*v)) {
    return absl::UnimplementedError(
        Describe(attention, "does not read K and V of one layer's cache"));
  }
  auto it = index_.find(KeyOf(*k));
  if (it != index_.end()) return it->second;
  return absl::InvalidArgumentError(Describe(*k, "no function appends to this cache"));
}

uint32_t KvLayers::IndexOf(const Op& append) const { return index_.at(KeyOf(append)); }

}  // namespace quire
