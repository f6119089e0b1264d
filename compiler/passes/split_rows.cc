// split-rows: encoder rows that are left in @step become a function that runs with every step.
//
//   @step(ids, pos, source...)  =>  @encode_every_step(source...), which appends K and V of each
//                                   cross-attention to a cross cache, and @step(ids, pos), whose
//                                   cross-attention reads them (compiler/encoder_split.h)
//
// A program has rows of one kind. Legal because @encode_every_step runs before @step in every step,
// over all encoder inputs of the step's sequences, so that what it needs is there and what it
// computes is read. Nothing is left to do after split-phases, which says that once suffices.
// Declines when FindCrossCaches says why the encoder's rows cannot be apart. Saves nothing.
#include "absl/strings/str_cat.h"
#include "compiler/encoder_split.h"
#include "compiler/pass.h"
#include "ir/status.h"

namespace quire {

absl::StatusOr<bool> SplitRows(Module& module, const Target& target, Notes& notes) {
  if (module.funcs.size() != 1 || !HasEncoderInputs(*module.funcs[0])) return false;
  const absl::StatusOr<CrossCaches> cross = FindCrossCaches(*module.funcs[0]);
  if (!cross.ok()) {
    notes.Declined(module.funcs[0]->name(), cross.status().message());
    return false;
  }
  QUIRE_RETURN_IF_ERROR(SplitEncoder(module, "encode_every_step", *cross, target));
  notes.Fired("encode_every_step",
              absl::StrCat("runs in every step; multiply-adds for each encoder token: ",
                           MultiplyAdds(*module.funcs[1])));
  return true;
}

}  // namespace quire
