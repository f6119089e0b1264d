#include "compiler/kv_layers.h"

#include <algorithm>

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
  return layer;
}

}  // namespace

absl::StatusOr<KvLayers> KvLayers::Create(const Func& func) {
  std::map<int64_t, Pair> pairs;
  for (const auto& op : func.ops()) {
    if (!op->Is(OpKind::kKvAppend)) continue;
    Pair& pair = pairs[op->Int(AttrKind::kLayer)];
    const Op*& slot = op->Text(AttrKind::kSlot) == "k" ? pair.k : pair.v;
    if (slot != nullptr) return Bad(*op, "is appended to twice in one slot");
    slot = op.get();
  }
  KvLayers layers;
  for (const auto& [number, pair] : pairs) {
    layers.index_[number] = static_cast<uint32_t>(layers.layers_.size());
    QUIRE_ASSIGN_OR_RETURN(auto layer, MakeLayer(number, pair));
    layers.layers_.push_back(std::move(layer));
  }
  // A layer keeps as many tokens as its widest reader wants.
  std::vector<bool> is_read(layers.layers_.size(), false);
  for (const auto& op : func.ops()) {
    if (!op->Is(OpKind::kAttention)) continue;
    QUIRE_ASSIGN_OR_RETURN(uint32_t index, layers.LayerOf(*op));
    const int64_t window = op->Int(AttrKind::kWindow);
    int64_t& kept = layers.layers_[index]->window;
    const bool is_unlimited = window == 0 || (is_read[index] && kept == 0);
    kept = is_unlimited ? 0 : std::max(kept, window);
    is_read[index] = true;
  }
  return layers;
}

absl::StatusOr<uint32_t> KvLayers::LayerOf(const Op& attention) const {
  const Op* k = attention.operand(1);
  const Op* v = attention.operand(2);
  if (!k->Is(OpKind::kKvAppend) || !v->Is(OpKind::kKvAppend) || k->Text(AttrKind::kSlot) != "k" ||
      v->Text(AttrKind::kSlot) != "v" || k->Int(AttrKind::kLayer) != v->Int(AttrKind::kLayer)) {
    return absl::UnimplementedError(
        Describe(attention, "does not read K and V of one layer's cache"));
  }
  return IndexOf(*k);
}

uint32_t KvLayers::IndexOf(const Op& append) const {
  return index_.at(append.Int(AttrKind::kLayer));
}

}  // namespace quire
