// The text of a row kernel for NVRTC, over codegen/cuda/kernels/row.cuh.
//
// The kernel's text has four parts: what a thread is (row, warp of the row); what can be read
// before the grid before is done (weights, tables, ids, positions); the steps of the plan
// (row_plan.h); the loop over units of work. Each element is evaluated where it is written; an
// evaluation is one C++ variable, found again when the same element is asked for in the same scope.
#ifndef QUIRE_CODEGEN_CUDA_ROW_EMIT_H_
#define QUIRE_CODEGEN_CUDA_ROW_EMIT_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "codegen/cuda/row_plan.h"
#include "codegen/spec.h"
#include "ir/graph.h"

namespace quire {

struct CudaRowText {
  std::string source;
  int block_threads = 0;
  int shared_bytes = 0;
};

inline constexpr int kRowWarpsPerBlock = 4;  // where a warp or part of one has a row

class CudaRowEmitter {
 public:
  CudaRowEmitter(const RowSpec& spec, const Func& func, const RowPlan& plan);
  absl::StatusOr<CudaRowText> Emit(absl::string_view entry);

 private:
  // Where V elements lie in one row of a value: the first is segment * length + offset. Both are
  // C++ expressions; a fixed offset is known before the steps.
  struct Place {
    int64_t length = 0;
    std::string segment, offset;
    bool fixed = false;
    // Of a walk in pairs: this is the first (1) or second (2) half's element at `pair`.
    int half = 0;
    std::string pair;
    // Of a fixed offset: every so many'th lane of the warp has the same.
    int lanes = 32;

    bool IsFixed() const { return fixed && segment == "0"; }
  };
  // A place of a walk, and the condition under which it is one; empty: always.
  struct Spot {
    Place place;
    std::string condition;
  };

  struct Statistics {
    std::string mean, inverse;
  };

  // Frame (row_emit.cc).
  std::string Parameters() const;
  void EmitFrame();
  void EmitLookUp(const Op& op);
  void EmitAppends();
  void EmitStep(const RowWalk& walk);
  void EmitLast();
  void EmitUnits(const std::vector<const RowWalk*>& walks);
  void EmitSinks(const RowWalk& walk, const Spot& spot);

  // Walks (row_emit_walk.cc). Calls `body` with the spots of one chunk at a time, in a loop where
  // they are many.
  using ChunkBody = std::function<void(const std::string& chunk, const std::vector<Spot>& spots)>;
  void WalkChunks(const RowWalk& walk, const std::string& unit, const ChunkBody& body);
  Spot Ragged(const std::string& element, int64_t elements, int64_t length, bool fixed);
  std::vector<Spot> RowSpots(const RowWalk& walk, const std::string& chunk, bool fixed);
  std::vector<Spot> SegmentSpots(const RowWalk& walk, const std::string& unit,
                                 const std::string& chunk, bool fixed);
  void AddChunk(const Op& norm, bool squares, const std::vector<Spot>& spots,
                const std::string& sum);
  void EmitStatistics(const Op& norm, const std::function<std::string(bool squares)>& sum);
  void EmitRowNorm(const Op& norm, const RowWalk& walk);
  void EmitSegmentNorm(const Op& norm, const RowWalk& walk, const std::string& unit);

  // Evaluation (row_emit_ops.cc): the name of a variable of type Vec.
  std::string Evaluate(const Op& op, const Place& place);
  std::string EvaluateNew(const Op& op, const Place& place);
  std::string EvaluateArgument(const Op& arg, const Place& place);
  std::string EvaluatePointwise(const Op& op, const Place& place);
  std::string EvaluateNorm(const Op& op, const Place& place);
  std::string EvaluateQuantize(const Op& op, const Place& place);
  std::string EvaluateConcat(const Op& op, const Place& place);
  std::string EvaluateEmbed(const Op& op, const Place& place);
  Statistics StatisticsOf(const Op& norm);
  std::string Centred(const Op& norm, const Place& place);
  std::string DefineFixed(const std::string& value, bool fixed);
  std::string RoundedTo(const Op& op, const std::string& value, bool fixed);

  // Rope (row_emit_rope.cc).
  std::string EvaluateRope(const Op& op, const Place& place);
  std::string TurnsAt(const Op& op, const std::string& pair, int64_t dims, int vector,
                      const Place& place);
  std::string FrequenciesAt(const Op& op, const std::string& pair, int64_t dims, int count,
                            const std::string& position);
  std::string Table(const std::vector<double>& numbers);

  // Text.
  std::string Define(absl::string_view type, const std::string& value, bool fixed = false);
  void Line(const std::string& text);
  std::string NewName(absl::string_view prefix);
  // The same place of a value of `count` elements, by segments of `length`.
  Place Rebase(const Place& place, int64_t length, int64_t count);
  std::string Flat(const Place& place) const;
  void Scoped(const std::function<void()>& body);

  const RowSpec& spec_;
  const Func& func_;
  const RowPlan& plan_;
  absl::Status status_;
  std::string declarations_, fixed_, body_;
  int indent_ = 1;
  int names_ = 0, fixed_vectors_ = 0, evaluations_ = 0;
  std::map<const Op*, size_t> argument_of_;
  // Variables in reach, outermost scope first.
  struct Scope {
    std::map<std::string, std::string> values;
    std::map<std::string, std::string> texts;
    std::map<const Op*, Statistics> statistics;
  };
  std::vector<Scope> scopes_;
  const Op* staging_ = nullptr;  // the value that a step computes into shared memory
  int scratch_floats_ = 0;       // of each of two places for sums
  int sums_ = 0;
};

// A literal of the nearest f32, and of a double.
std::string FloatText(double value);
std::string DoubleText(double value);

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_ROW_EMIT_H_
