// The meaning of every op, in double precision: the second writing of what passes, kernels and the
// runtime implement. It shares no code with them, so that agreement says something; it is used by
// tests and by `quire verify` only.
//
// Letters are bound by the arguments' extents: T, S and R by whichever argument has them; C, if no
// argument has it, by the tokens in the KV state plus the rows appended; S, if no argument has it,
// by the tokens that an encoder left.
//
// Memory: a value lives until its last use, a weight is asked for at its first use.
// Errors: INVALID_ARGUMENT on an invalid function, a missing or misshapen argument or weight, an id
// outside its table; RESOURCE_EXHAUSTED when values would outgrow Inputs::max_live_elements.
#ifndef QUIRE_IR_REFERENCE_INTERPRETER_H_
#define QUIRE_IR_REFERENCE_INTERPRETER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"
#include "ir/reference/tensor.h"

namespace quire::reference {

// Gives a tensor of the checkpoint. `type` is the weight op's, without letters.
using WeightFn = std::function<absl::StatusOr<Tensor>(absl::string_view name, const Type& type)>;

// Keys and values of one sequence, as kv_append left them.
struct KvState {
  int64_t tokens = 0;
  // [tokens, Hkv, D] by (layer, slot), slot being "k" or "v".
  std::map<std::pair<int64_t, std::string>, Tensor> rows;
};

struct Inputs {
  absl::flat_hash_map<std::string, Tensor> args;  // by argument name, without '%'
  WeightFn weights;                               // may be empty when the function has no weights
  // Read by kv_append and, if the whole function succeeds, advanced by the rows that it appended.
  // nullptr: an empty state that is dropped afterwards.
  KvState* kv = nullptr;
  // What an encoder left for the decoder: read by kv_read, replaced by kv_append with cache=cross
  // if the whole function succeeds. nullptr: nothing, so that kv_read fails.
  KvState* cross = nullptr;
  // Letters that no argument binds.
  Bindings bindings;
  // Limit on the elements of all values alive at one time.
  int64_t max_live_elements = kMaxElements;
};

// The function's returned values, in order.
absl::StatusOr<std::vector<Tensor>> Interpret(const Func& func, const Inputs& inputs);

}  // namespace quire::reference

#endif  // QUIRE_IR_REFERENCE_INTERPRETER_H_
