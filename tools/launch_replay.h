// One launch of a lowered program as a function of the IR by itself: what it computes, from what it
// reads.
//
// A launch is a group of the program's ops. Its function has them as they stand, in double
// precision; what other launches computed, the program's arguments, cached keys and values, and
// weights are arguments of the function. What a kernel rounds on the way stands there as casts.
#ifndef QUIRE_TOOLS_LAUNCH_REPLAY_H_
#define QUIRE_TOOLS_LAUNCH_REPLAY_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "ir/plan_generated.h"

namespace quire {

struct LaunchFunc {
  std::unique_ptr<Func> func;  // returns every op
  // Arguments by what they stand for, in the lowered function.
  std::vector<std::pair<const Op*, const Op*>> values;  // argument, argument or op of the program
  std::vector<std::pair<const Op*, const Op*>> quantized;  // likewise: rounded to 8 bits first
  std::vector<std::pair<const Op*, const Op*>> caches;     // argument, kv_append or kv_read
  std::vector<std::pair<const Op*, const Op*>> weights;    // argument, weight expression
  // Ops of the function by those that they are copies of.
  std::map<const Op*, const Op*> copies;
  const Op* linear = nullptr;        // in the lowered function, if it has one
  const Op* attention = nullptr;     // likewise
  bool is_8bit = false;              // of the linear: x is brought to 8 bits by the launch
  std::vector<const Op*> appends;    // likewise
  std::vector<std::string> tensors;  // of the checkpoint, that it reads
};

// What a target's kernels round inside a launch, beyond what they store.
struct LaunchRounding {
  DType norm = DType::kF32;     // of a norm before a linear: what goes into the product
  DType product = DType::kF32;  // of a linear before an activation
  DType weights = DType::kF32;  // of a linear
  bool quantizes = false;       // to 8 bits: what goes into a product with block weights
};

// The launch that is group `group` of `lowered`. `computed`: names of values that launches leave in
// buffers. INTERNAL when it reads a value that no launch computes.
absl::StatusOr<LaunchFunc> MakeLaunchFunc(const Func& lowered, int group,
                                          const absl::flat_hash_set<std::string>& computed,
                                          const LaunchRounding& rounding);

// A function without arguments that returns the value of a weight expression.
std::unique_ptr<Func> MakeWeightFunc(const Op& expression);

}  // namespace quire

#endif  // QUIRE_TOOLS_LAUNCH_REPLAY_H_
