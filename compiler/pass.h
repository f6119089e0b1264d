// What a pass is.
//
// A pass rewrites one function in place and says whether it changed it. Contract:
//   (1) the function before and after means the same, for every input, in exact arithmetic;
//   (2) the result is verified IR, and "changed" is the truth: the pipeline checks both;
//   (3) a pass that does not apply declines (leaves a note and goes on); it fails only when nothing
//       later could run the function, and then names the op;
//   (4) no global state, no file, no clock: equal inputs give equal outputs, names included.
// Errors: INVALID_ARGUMENT when the definition is at fault, UNIMPLEMENTED when it is valid but not
// supported.
#ifndef QUIRE_COMPILER_PASS_H_
#define QUIRE_COMPILER_PASS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/target.h"
#include "ir/graph.h"

namespace quire {

// What a pass did, or declined to do, about one value; for `--explain`.
struct PassNote {
  bool fired = false;
  std::string value;  // without '%'
  std::string text;   // what was saved, or why it declined
};

// Collected notes. A parameter of its own and not part of the result, since a pass that declines
// everywhere has as much to say as one that fires.
class Notes {
 public:
  void Fired(absl::string_view value, absl::string_view text) { Add(true, value, text); }
  void Declined(absl::string_view value, absl::string_view text) { Add(false, value, text); }
  const std::vector<PassNote>& list() const { return list_; }

 private:
  void Add(bool fired, absl::string_view value, absl::string_view text) {
    list_.push_back({fired, std::string(value), std::string(text)});
  }
  std::vector<PassNote> list_;
};

using PassFn = absl::StatusOr<bool> (*)(Func& func, const Target& target, Notes& notes);
// A pass that makes or removes functions. The contract is the same, with the module's functions for
// the function.
using ModulePassFn = absl::StatusOr<bool> (*)(Module& module, const Target& target, Notes& notes);

enum class PassPhase { kRaise, kDerive, kLower };

struct PassDef {
  const char* name;
  PassFn run;  // of each function; null for a pass over the module
  PassPhase phase;
  const char* summary;
  ModulePassFn run_module = nullptr;
};

#define PASS(function, name, phase, summary) \
  absl::StatusOr<bool> function(Func& func, const Target& target, Notes& notes);
#define MODULE_PASS(function, name, phase, summary) \
  absl::StatusOr<bool> function(Module& module, const Target& target, Notes& notes);
#include "compiler/passes.def"

// In the order of the default pipeline.
absl::Span<const PassDef> AllPasses();
absl::string_view PhaseText(PassPhase phase);

// "cache-kv,fuse" as passes; "" is none. INVALID_ARGUMENT on an unknown name, with the nearest.
absl::StatusOr<std::vector<const PassDef*>> ParsePassList(absl::string_view list);

}  // namespace quire

#endif  // QUIRE_COMPILER_PASS_H_
