// split-phases: what depends on encoder inputs alone becomes a function of its own.
//
//   @step(ids, pos, source...)  =>  @encode(source...), which appends K and V of each
//                                   cross-attention to a cross cache, and @step(ids, pos), whose
//                                   cross-attention reads them (compiler/encoder_split.h)
//
// @encode runs once for an encoder input. Legal because a value that depends on encoder inputs
// alone is the same in every step. Declines when:
//   - there are several functions, or no argument has rows S;
//   - FindCrossCaches says why the encoder's rows cannot be apart.
// Saves the encoder and the projections of its output on every step but the first.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/encoder_split.h"
#include "compiler/pass.h"
#include "ir/norm.h"
#include "ir/status.h"

namespace quire {
namespace {

// Of the projection that makes K or V, for one row; 0 where it is none.
int64_t MultiplyAddsOf(const Op* value) {
  int64_t columns = 1;
  for (size_t i = 1; i < value->type.extents.size(); ++i) {
    columns *= value->type.extents[i].value();
  }
  while (value->Is(OpKind::kReshape) || value->Is(OpKind::kSlice) || IsNorm(*value)) {
    value = value->operand(0);
  }
  return value->Is(OpKind::kLinear) ? columns * value->operand(1)->type.extents[1].value() : 0;
}

}  // namespace

absl::StatusOr<bool> SplitPhases(Module& module, const Target& target, Notes& notes) {
  if (module.funcs.empty()) return false;
  const Func& step = *module.funcs[0];
  const auto decline = [&](absl::string_view why) {
    notes.Declined(step.name(), why);
    return false;
  };
  if (module.funcs.size() > 1) return decline("there are several functions");
  if (!HasEncoderInputs(step)) return decline("there are no encoder inputs");
  const absl::StatusOr<CrossCaches> cross = FindCrossCaches(step);
  if (!cross.ok()) return decline(cross.status().message());
  for (size_t i = 0; i < cross->pairs.size(); ++i) {
    const auto& [k, v] = cross->pairs[i];
    const int64_t heads = k->type.extents[1].value();
    const int64_t row = heads * (k->type.extents[2].value() + v->type.extents[2].value());
    notes.Fired(cross->readers[i][0]->name,
                absl::StrCat("layer ", i, " keeps ", RowBytes(target.kv_dtype, row),
                             " bytes for each encoder token; multiply-adds for each of them in a "
                             "step: ",
                             MultiplyAddsOf(k) + MultiplyAddsOf(v), " => 0"));
  }
  QUIRE_RETURN_IF_ERROR(SplitEncoder(module, "encode", *cross, target));
  notes.Fired("encode", absl::StrCat("runs once for an encoder input; multiply-adds for each "
                                     "encoder token in a step: ",
                                     MultiplyAdds(*module.funcs[1]), " => 0"));
  return true;
}

}  // namespace quire
