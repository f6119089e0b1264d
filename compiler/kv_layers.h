// Collects the caches of all functions as the plan's KV layers.
#ifndef QUIRE_COMPILER_KV_LAYERS_H_
#define QUIRE_COMPILER_KV_LAYERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/plan_generated.h"

namespace quire {

class KvLayers {
 public:
  // INVALID_ARGUMENT, naming the op, when a layer lacks K or V, is appended to twice, or its K and
  // V disagree; UNIMPLEMENTED when an attention does not read the K and V of one layer.
  static absl::StatusOr<KvLayers> Create(const Module& module);

  // Index of the layer that an attention reads.
  absl::StatusOr<uint32_t> LayerOf(const Op& attention) const;
  // Index of the layer that a kv_append writes.
  uint32_t IndexOf(const Op& append) const;

  std::vector<std::unique_ptr<plan::KvLayerT>> TakeLayers() { return std::move(layers_); }

 private:
  using Key = std::pair<plan::KvCache, int64_t>;  // the latter is the attribute `layer`
  static Key KeyOf(const Op& op);
  absl::Status ReadBy(const Func& func);

  std::map<Key, uint32_t> index_;
  std::vector<std::unique_ptr<plan::KvLayerT>> layers_;
};

}  // namespace quire

#endif  // QUIRE_COMPILER_KV_LAYERS_H_
