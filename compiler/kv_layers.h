// Collects the caches of a function as the plan's KV layers.
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
  static absl::StatusOr<KvLayers> Create(const Func& func);

  // Index of the layer that an attention reads.
  absl::StatusOr<uint32_t> LayerOf(const Op& attention) const;
  // Index of the layer that a kv_append of the function writes.
  uint32_t IndexOf(const Op& append) const;

  std::vector<std::unique_ptr<plan::KvLayerT>> TakeLayers() { return std::move(layers_); }

 private:
  std::map<int64_t, uint32_t> index_;  // by the attribute `layer`
  std::vector<std::unique_ptr<plan::KvLayerT>> layers_;
};

}  // namespace quire

#endif  // QUIRE_COMPILER_KV_LAYERS_H_
