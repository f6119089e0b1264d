// Finds the tensors that a definition needs and makes weight ops of them.
//
// A weight op carries the checkpoint's own name and element type, whichever of the names it goes
// by: with or without the family's prefix, or GGUF's. Like ir/builder.h it keeps the first error.
//
// Errors: INVALID_ARGUMENT naming the tensor, what was wanted, the configuration keys that it came
//         from, what was found, and the nearest name; UNIMPLEMENTED for an element type.
#ifndef QUIRE_MODELS_WEIGHTS_MAP_H_
#define QUIRE_MODELS_WEIGHTS_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/builder.h"
#include "models/family.h"
#include "models/import/checkpoint.h"
#include "models/import/fp8.h"

namespace quire {

// One tensor of a family: which, of what extents, and why those.
struct WeightRequest {
  TensorRole role;
  int64_t layer = -1;                 // -1: of no layer
  bool encoder = false;               // the encoder's of both stacks
  absl::string_view part = "weight";  // "": the name alone
  std::vector<int64_t> extents = {};
  std::vector<const Dimension*> from = {};  // the dimensions that the extents were computed from
};

class WeightsMap {
 public:
  // All three must outlive the map. `config_file` is named in messages.
  WeightsMap(const Checkpoint& checkpoint, const Family& family, absl::string_view config_file)
      : checkpoint_(checkpoint), family_(family), config_file_(config_file) {}

  const absl::Status& status() const { return status_; }
  // Elements of the distinct tensors handed out so far.
  int64_t parameter_count() const { return parameter_count_; }

  bool Has(const WeightRequest& request) const { return Find(request) != nullptr; }
  // A weight op named `value`; the same op when the same tensor is asked for again. A matrix may be
  // of any element type, a vector only of a float type.
  Op* Get(Builder& builder, absl::string_view value, const WeightRequest& request);
  // What a linear with weight `w`, of `request`, reads of `x`: where the weight is of 8-bit floats,
  // `x` rounded as set_rounding() says; by a scale that is given, the tensor beside the weight of
  // the name input_scale or activation_scale.
  Op* Rounded(Builder& builder, Op* x, const Op* w, const WeightRequest& request);
  void set_rounding(const ActivationRounding& rounding) { rounding_ = rounding; }
  // The scale that a cache of 8-bit floats keeps keys ('k') or values ('v') by, as checkpoints have
  // it beside the projection that makes them: self_attn.k_scale, or k_proj.k_scale or
  // k_proj.output_scale of older ones; nullptr: it has none. One float, or one for each head.
  Op* KvScale(Builder& builder, absl::string_view value, const WeightRequest& projection, char slot,
              int64_t heads);

 private:
  // A scale that stands beside another tensor: the first of these names that is there; nullptr:
  // none is. One float, or one for each head.
  Op* Scale(Builder& builder, absl::string_view value, absl::Span<const std::string> names,
            int64_t heads);
  std::vector<std::string> Names(const WeightRequest& request) const;
  const TensorInfo* Find(const WeightRequest& request) const;
  absl::Status Check(const WeightRequest& request, const TensorInfo* tensor) const;

  const Checkpoint& checkpoint_;
  const Family& family_;
  std::string config_file_;
  absl::Status status_;
  int64_t parameter_count_ = 0;
  ActivationRounding rounding_;
  absl::flat_hash_map<std::string, Op*> made_;   // by the checkpoint's name
  absl::flat_hash_map<const Op*, Op*> rounded_;  // by what it was
};

}  // namespace quire

#endif  // QUIRE_MODELS_WEIGHTS_MAP_H_
