#include "codegen/cuda/row_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/row_func.h"
#include "codegen/row_operands.h"
#include "codegen/row_ops.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr int kWarp = 32, kNormChunk = 8, kMostThreads = 1024;
constexpr int64_t kMostChunks = 4;  // of a thread that keeps its elements in registers

constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool IsNorm(const Op& op) {
  return op.Is(OpKind::kRmsNorm) || op.Is(OpKind::kLayerNorm) ||
         (op.Is(OpKind::kQuantize) && op.num_operands() == 1);
}

int64_t LastExtent(const Op& op) { return op.type.extents.back().value(); }
bool IsRowNorm(const Op& op) { return IsNorm(op) && ElementsOf(op) == NormedElements(op); }
bool IsSegmentNorm(const Op& op) { return IsNorm(op) && !IsRowNorm(op); }
// Of a segment of a norm's, or a rope's.
int64_t SegmentOf(const Op& op) { return IsNorm(op) ? NormedElements(op) : LastExtent(op); }

int64_t TurnedDims(const Op& rope) {
  const int64_t dims = rope.Int(AttrKind::kDims);
  return dims == 0 ? LastExtent(rope) : dims;
}

// The largest vector that no view, segment or row cuts.
int VectorOf(const Func& func) {
  int64_t vector = 8;
  const auto whole = [&](int64_t elements) {
    while (elements % vector != 0) vector /= 2;
  };
  const RowOperands operands = RowOperandsOf(func);
  const auto is_scale = [&](size_t i) { return KvScaleHeads(RowSpec(), operands, i) > 0; };
  for (size_t i = 0; i < func.args().size(); ++i) {
    const auto& arg = func.args()[i];
    // A head's scale is read alone.
    if (is_scale(i)) continue;
    // A single number is read as such; row numbers are no elements.
    const int64_t count = ElementsOf(*arg);
    if (arg->type.dtype != DType::kI32 && (HasRowExtent(arg->type) || count > 1)) whole(count);
  }
  for (const auto& op : func.ops()) {
    if (op->Is(OpKind::kKvAppend)) {
      whole(LastExtent(*op->operand(0)));
      continue;
    }
    whole(ElementsOf(*op));
    if (IsNorm(*op) || op->Is(OpKind::kExpandHeads)) whole(SegmentOf(*op));
    if (op->Is(OpKind::kRope)) {
      const int64_t dims = TurnedDims(*op);
      whole(LastExtent(*op));
      whole(op->Text(AttrKind::kStyle) == "half" ? dims / 2 : dims);
    }
    if (op->Is(OpKind::kSlice)) {
      const int64_t axis = op->Int(AttrKind::kAxis), inner = ElementsFrom(*op, axis + 1);
      whole(ElementsFrom(*op, axis));
      whole(ElementsFrom(*op->operand(0), axis));
      whole(op->Int(AttrKind::kBegin) * inner);
    }
    if (op->Is(OpKind::kConcat)) {
      for (const Op* part : op->operands) whole(ElementsFrom(*part, op->Int(AttrKind::kAxis)));
    }
  }
  return static_cast<int>(vector);
}

class Planner {
 public:
  explicit Planner(const Func& func) : func_(func) {
    for (size_t i = 0; i < func.ops().size(); ++i) order_[func.ops()[i].get()] = i;
  }

  absl::StatusOr<RowPlan> Plan() {
    plan_.vector = VectorOf(func_);
    QUIRE_RETURN_IF_ERROR(ChooseThreads());
    for (size_t i = 0; i < func_.returns().size(); ++i) {
      Place({RowSink::Kind::kReturn, func_.returns()[i], nullptr, i});
    }
    for (const auto& op : func_.ops()) {
      if (op->Is(OpKind::kKvAppend)) {
        Place({RowSink::Kind::kAppend, op->operand(0), op.get(), 0});
      }
    }
    // Later steps first: they decide what is staged before them.
    for (auto op = func_.ops().rbegin(); op != func_.ops().rend(); ++op) AddStep(**op);
    std::reverse(plan_.steps.begin(), plan_.steps.end());
    std::stable_partition(plan_.last.begin(), plan_.last.end(),
                          [](const RowWalk& walk) { return walk.kind == RowWalk::Kind::kRow; });
    for (RowWalk& walk : plan_.steps) DropStaged(walk);
    for (RowWalk& walk : plan_.last) {
      DropStaged(walk);
      plan_.units += walk.units;
    }
    plan_.divisible = plan_.steps.empty();
    return std::move(plan_);
  }

 private:
  absl::Status ChooseThreads() {
    for (const auto& op : func_.ops()) {
      if (!IsRowNorm(*op)) continue;
      const int64_t chunks = DivideUp(SegmentOf(*op), kNormChunk);
      if (chunks > int64_t{kMostThreads} * kWarp) {
        return absl::UnimplementedError(absl::StrCat("cuda: row kernel: %", op->name, ": ",
                                                     op->def().mnemonic, " over ", SegmentOf(*op),
                                                     " elements\n  allowed: 262144"));
      }
      if (chunks <= kWarp * kMostChunks) continue;
      const int64_t threads = std::min<int64_t>(kMostThreads, DivideUp(chunks, 2 * kWarp) * kWarp);
      plan_.row_threads = std::max(plan_.row_threads, static_cast<int>(threads));
    }
    return absl::OkStatus();
  }

  RowWalk RowWalkOf(int64_t length) const {
    RowWalk walk;
    walk.kind = RowWalk::Kind::kRow;
    walk.length = length;
    walk.chunks = DivideUp(length, int64_t{kNormChunk} * plan_.row_threads);
    return walk;
  }

  bool IsPairable(const Op& rope) const {
    return rope.Text(AttrKind::kStyle) == "half" && TurnedDims(rope) == LastExtent(rope);
  }

  // Segment norms and ropes whose segments `op` can be walked by.
  void CollectAnchors(const Op& op, std::set<const Op*>& seen, std::vector<const Op*>& anchors) {
    if (!seen.insert(&op).second) return;
    if (IsSegmentNorm(op) || op.Is(OpKind::kRope)) anchors.push_back(&op);
    if (plan_.staged.count(&op) != 0) return;
    for (const Op* operand : SamePlaceOperands(op)) CollectAnchors(*operand, seen, anchors);
  }

  RowWalk WalkOf(const Op& value) {
    std::set<const Op*> seen;
    std::vector<const Op*> anchors;
    CollectAnchors(value, seen, anchors);
    RowWalk walk;
    walk.length = ElementsOf(value);
    if (anchors.empty()) {
      for (const auto& op : func_.ops()) {
        if (!IsRowNorm(*op) || SegmentOf(*op) != walk.length) continue;
        const RowWalk row = RowWalkOf(walk.length);
        if (row.chunks <= kMostChunks) return row;
      }
      walk.units = DivideUp(walk.length, kWarp * plan_.vector);
      return walk;
    }
    const Op& anchor =
        **std::max_element(anchors.begin(), anchors.end(),
                           [&](const Op* a, const Op* b) { return order_.at(a) < order_.at(b); });
    walk.kind = RowWalk::Kind::kSegments;
    walk.length = SegmentOf(anchor);
    walk.segments = ElementsOf(anchor) / walk.length;
    walk.pairs = std::any_of(anchors.begin(), anchors.end(), [&](const Op* op) {
      return op->Is(OpKind::kRope) && LastExtent(*op) == walk.length && IsPairable(*op);
    });
    const int64_t vectors = walk.length / plan_.vector / (walk.pairs ? 2 : 1);
    while (walk.lanes < kWarp && walk.lanes < vectors) walk.lanes *= 2;
    walk.chunks = DivideUp(vectors, walk.lanes);
    walk.units = DivideUp(walk.segments, kWarp / walk.lanes);
    return walk;
  }

  // Notes what is computed for `op`, which the walk reads at its own places (`same_place`), or
  // elsewhere.
  void Visit(const Op& op, bool same_place, RowWalk& walk,
             std::set<std::pair<const Op*, bool>>& seen) {
    if (op.Is(OpKind::kArg) || plan_.staged.count(&op) != 0) return;
    if (!seen.insert({&op, same_place}).second) return;
    if (IsSegmentNorm(op)) {
      if (!same_place || walk.kind != RowWalk::Kind::kSegments || walk.length != SegmentOf(op)) {
        plan_.staged[&op] = 0;
        return;
      }
      if (std::find(walk.norms.begin(), walk.norms.end(), &op) == walk.norms.end()) {
        walk.norms.push_back(&op);
      }
    }
    if (IsRowNorm(op)) row_norms_.insert(&op);
    const std::vector<const Op*> same = SamePlaceOperands(op);
    // A rope reads its partner, which is in the same segment if that is a head.
    const bool stays = !op.Is(OpKind::kRope) || LastExtent(op) == walk.length;
    for (const Op* operand : op.operands) {
      const bool is_same = std::find(same.begin(), same.end(), operand) != same.end();
      Visit(*operand, same_place && stays && is_same, walk, seen);
    }
  }

  void VisitAll(const Op& value, RowWalk& walk) {
    std::set<std::pair<const Op*, bool>> seen;
    Visit(value, true, walk, seen);
  }

  static void CollectOps(const Op& op, std::set<const Op*>& ops) {
    if (op.Is(OpKind::kArg) || !ops.insert(&op).second) return;
    for (const Op* operand : op.operands) CollectOps(*operand, ops);
  }

  // Whether computing the values together saves something.
  static bool Share(const RowWalk& walk, const Op& value) {
    std::set<const Op*> own, other;
    CollectOps(value, own);
    for (const RowSink& sink : walk.sinks) CollectOps(*sink.value, other);
    return std::any_of(own.begin(), own.end(), [&](const Op* op) { return other.count(op) != 0; });
  }

  void Place(const RowSink& sink) {
    RowWalk walk = WalkOf(*sink.value);
    for (RowWalk& known : plan_.last) {
      const bool same = known.kind == walk.kind && known.length == walk.length &&
                        known.segments == walk.segments && known.pairs == walk.pairs;
      if (!same || (walk.kind != RowWalk::Kind::kRow && !Share(known, *sink.value))) continue;
      known.sinks.push_back(sink);
      VisitAll(*sink.value, known);
      return;
    }
    walk.sinks.push_back(sink);
    VisitAll(*sink.value, walk);
    plan_.last.push_back(std::move(walk));
  }

  void AddStep(const Op& op) {
    auto staged = plan_.staged.find(&op);
    if (staged != plan_.staged.end()) {
      staged->second = plan_.staged_floats;
      plan_.staged_floats += DivideUp(ElementsOf(op), 4) * 4;
      // Its own walk computes it.
      const int64_t place = staged->second;
      plan_.staged.erase(staged);
      RowWalk walk = WalkOf(op);
      walk.sinks.push_back({RowSink::Kind::kStage, &op, nullptr, 0});
      VisitAll(op, walk);
      plan_.staged[&op] = place;
      plan_.steps.push_back(std::move(walk));
    } else if (row_norms_.count(&op) != 0) {
      RowWalk walk = RowWalkOf(SegmentOf(op));
      walk.norms.push_back(&op);
      VisitAll(*op.operand(0), walk);
      plan_.steps.push_back(std::move(walk));
    }
  }

  // Norms that turned out to be staged are read, not computed, but for a stage's own.
  void DropStaged(RowWalk& walk) {
    const Op* own = walk.sinks.size() == 1 && walk.sinks[0].kind == RowSink::Kind::kStage
                        ? walk.sinks[0].value
                        : nullptr;
    walk.norms.erase(
        std::remove_if(walk.norms.begin(), walk.norms.end(),
                       [&](const Op* op) { return op != own && plan_.staged.count(op) != 0; }),
        walk.norms.end());
    std::sort(walk.norms.begin(), walk.norms.end(),
              [&](const Op* a, const Op* b) { return order_.at(a) < order_.at(b); });
  }

  const Func& func_;
  RowPlan plan_;
  std::map<const Op*, size_t> order_;
  std::set<const Op*> row_norms_;
};

}  // namespace

int64_t NormedElements(const Op& op) {
  const int64_t columns = op.Is(OpKind::kQuantize) ? op.Int(AttrKind::kColumns) : 0;
  return columns == 0 ? LastExtent(op) : columns;
}

std::vector<const Op*> SamePlaceOperands(const Op& op) {
  std::vector<const Op*> operands;
  if (IsPointwise(op.kind)) {
    for (const Op* operand : op.operands) {
      if (HasRowExtent(operand->type)) operands.push_back(operand);
    }
  } else if (IsNorm(op) || op.Is(OpKind::kQuantize) || op.Is(OpKind::kReshape) ||
             op.Is(OpKind::kRope)) {
    operands.push_back(op.operand(0));
  }
  return operands;
}

absl::StatusOr<RowPlan> PlanRow(const Func& func) { return Planner(func).Plan(); }

}  // namespace quire
