// Encoder rows in a function of their own, since a program has rows of one kind.
//
//   @step(ids, pos, source...)  =>  NAME(source...), which appends K and V of each
//                                   cross-attention to a cross cache, and @step(ids, pos), whose
//                                   cross-attention reads them
//
// Legal because a value that depends on encoder inputs alone does not need the decoder's. NAME
// calls its rows T, as every program does its own, and its arguments ids and pos; it sees an input
// as a whole, so that its own attention reads K and V of this run.
#ifndef QUIRE_COMPILER_ENCODER_SPLIT_H_
#define QUIRE_COMPILER_ENCODER_SPLIT_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/target.h"
#include "ir/graph.h"

namespace quire {

// Attentions by the pair of K and V that they read, in program order.
struct CrossCaches {
  std::vector<std::pair<Op*, Op*>> pairs;
  std::vector<std::vector<Op*>> readers;

  void Add(Op* attention);
};

// Whether an argument has rows S.
bool HasEncoderInputs(const Func& step);

// The attentions over encoder rows that will read cross caches. INVALID_ARGUMENT with the reason
// when
//   - a result depends on encoder inputs alone, or nothing else reads them;
//   - an op of the decoder reads encoder rows other than as K and V of an attention over all of
//     them: @step would be left with an operation on encoder rows;
//   - an op of the encoder other than attention mixes rows, or has others than S: several inputs
//     could not share a run;
//   - a cross cache is read already.
absl::StatusOr<CrossCaches> FindCrossCaches(const Func& step);

// Splits the module's only function; the new one, `name`, comes behind it. `cross`: of that
// function.
absl::Status SplitEncoder(Module& module, absl::string_view name, const CrossCaches& cross,
                          const Target& target);

// Multiply-adds of the linear ops for one row.
int64_t MultiplyAdds(const Func& func);

}  // namespace quire

#endif  // QUIRE_COMPILER_ENCODER_SPLIT_H_
