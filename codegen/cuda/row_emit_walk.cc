// Walks over a row's elements, and the sums of norms.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/cuda/row_emit.h"
#include "codegen/row_func.h"

namespace quire {
namespace {

constexpr int kWarp = 32, kNormChunk = 8;
constexpr int64_t kMostUnrolled = 4;  // chunks or vectors

}  // namespace

void CudaRowEmitter::Scoped(const std::function<void()>& body) {
  scopes_.emplace_back();
  ++indent_;
  body();
  --indent_;
  scopes_.pop_back();
}

void CudaRowEmitter::Line(const std::string& text) {
  absl::StrAppend(&body_, std::string(static_cast<size_t>(2 * indent_), ' '), text, "\n");
}

std::string CudaRowEmitter::NewName(absl::string_view prefix) {
  return absl::StrCat(prefix, names_++);
}

std::string CudaRowEmitter::Define(absl::string_view type, const std::string& value, bool fixed) {
  const std::string key = absl::StrCat(type, " ", value);
  for (const Scope& scope : scopes_) {
    auto known = scope.texts.find(key);
    if (known != scope.texts.end()) return known->second;
  }
  const std::string name = NewName(type == "int" ? "i" : type == "bool" ? "b" : "v");
  const std::string line = absl::StrCat("const ", type, " ", name, " = ", value, ";");
  if (fixed) {
    absl::StrAppend(&fixed_, "  ", line, "\n");
  } else {
    Line(line);
  }
  (fixed ? scopes_.front() : scopes_.back()).texts[key] = name;
  return name;
}

// `elements` from the first vector on, of which `length` exist.
CudaRowEmitter::Spot CudaRowEmitter::Ragged(const std::string& element, int64_t elements,
                                            int64_t length, bool fixed) {
  Spot spot;
  spot.place = {length, "0", Define("int", element, fixed), fixed, 0, ""};
  if (elements == length) return spot;
  // Threads without elements compute those of the last one, and write nothing.
  const std::string& at = spot.place.offset;
  spot.condition = Define("bool", absl::StrCat(at, " < ", length), fixed);
  spot.place.offset =
      Define("int", absl::StrCat(spot.condition, " ? ", at, " : ", length - plan_.vector), fixed);
  return spot;
}

std::vector<CudaRowEmitter::Spot> CudaRowEmitter::RowSpots(const RowWalk& walk,
                                                           const std::string& chunk, bool fixed) {
  std::vector<Spot> spots;
  const char* thread = plan_.row_threads == kWarp ? "lane" : "static_cast<int>(threadIdx.x)";
  for (int i = 0; i < kNormChunk; i += plan_.vector) {
    spots.push_back(
        Ragged(absl::StrCat("(", chunk, " * ", plan_.row_threads, " + ", thread, ") * 8 + ", i),
               walk.chunks * plan_.row_threads * kNormChunk, walk.length, fixed));
  }
  return spots;
}

std::vector<CudaRowEmitter::Spot> CudaRowEmitter::SegmentSpots(const RowWalk& walk,
                                                               const std::string& unit,
                                                               const std::string& chunk,
                                                               bool fixed) {
  const int64_t half = walk.pairs ? walk.length / 2 : walk.length;
  const int64_t per_warp = kWarp / walk.lanes;
  Spot first = Ragged(
      absl::StrCat("(", chunk, " * ", walk.lanes, " + lane % ", walk.lanes, ") * ", plan_.vector),
      walk.chunks * walk.lanes * plan_.vector, half, fixed);
  Place& place = first.place;
  place.length = walk.length;
  place.lanes = walk.lanes;
  place.segment = Define("int", absl::StrCat(unit, " * ", per_warp, " + lane / ", walk.lanes));
  if (walk.segments % per_warp != 0) {
    const std::string exists = Define("bool", absl::StrCat(place.segment, " < ", walk.segments));
    place.segment =
        Define("int", absl::StrCat(exists, " ? ", place.segment, " : ", walk.segments - 1));
    first.condition =
        first.condition.empty() ? exists : absl::StrCat(exists, " && ", first.condition);
  }
  if (!walk.pairs) return {first};
  place.half = 1;
  place.pair = place.offset;
  Spot second = first;
  second.place.half = 2;
  second.place.offset = Define("int", absl::StrCat(place.offset, " + ", half), fixed);
  return {first, second};
}

void CudaRowEmitter::WalkChunks(const RowWalk& walk, const std::string& unit,
                                const ChunkBody& body) {
  if (walk.kind == RowWalk::Kind::kFlat) {
    body("0", {Ragged(absl::StrCat("(", unit, " * 32 + lane) * ", plan_.vector),
                      walk.units * kWarp * plan_.vector, walk.length, false)});
    return;
  }
  const auto spots = [&](const std::string& chunk, bool fixed) {
    return walk.kind == RowWalk::Kind::kRow ? RowSpots(walk, chunk, fixed)
                                            : SegmentSpots(walk, unit, chunk, fixed);
  };
  if (walk.chunks * (walk.pairs ? 2 : 1) <= kMostUnrolled) {
    for (int64_t chunk = 0; chunk < walk.chunks; ++chunk) {
      const std::string text = absl::StrCat(chunk);
      body(text, spots(text, true));
    }
    return;
  }
  const std::string chunk = NewName("j");
  Line(absl::StrCat("for (int ", chunk, " = 0; ", chunk, " < ", walk.chunks, "; ++", chunk, ") {"));
  Scoped([&] { body(chunk, spots(chunk, false)); });
  Line("}");
}

// Adds what `norm` sums of a chunk's elements to `sum`.
void CudaRowEmitter::AddChunk(const Op& norm, bool squares, const std::vector<Spot>& spots,
                              const std::string& sum) {
  for (const Spot& spot : spots) {
    const std::string vector =
        squares ? Centred(norm, spot.place) : Evaluate(*norm.operand(0), spot.place);
    const char* function = norm.Is(OpKind::kQuantize) ? "TakeGreatest"
                           : squares                  ? "AddSquares"
                                                      : "AddElements";
    Line(absl::StrCat(spot.condition.empty() ? "" : absl::StrCat("if (", spot.condition, ") "), sum,
                      " = ", function, "(", sum, ", ", vector, ".x);"));
  }
}

// Mean, where there is one, and inverse root, from two sums; of a quantize its scale.
void CudaRowEmitter::EmitStatistics(const Op& norm,
                                    const std::function<std::string(bool squares)>& sum) {
  if (norm.Is(OpKind::kQuantize)) {
    const std::string most = FloatText(norm.Float(AttrKind::kMost));
    const std::string scale = absl::StrCat("ScaleOf(", sum(true), ", ", most, ")");
    scopes_.back().statistics[&norm].inverse = Define("float", scale);
    return;
  }
  const std::string per_element =
      FloatText(1.0 / static_cast<double>(norm.type.extents.back().value()));
  Statistics& statistics = scopes_.back().statistics[&norm];
  if (norm.Is(OpKind::kLayerNorm)) {
    statistics.mean = Define("float", absl::StrCat("Mul(", sum(false), ", ", per_element, ")"));
  }
  const std::string squares = sum(true);
  // Its own scope's, which what was evaluated since may have moved.
  scopes_.back().statistics[&norm].inverse =
      Define("float", absl::StrCat("InverseRoot(", squares, ", ", per_element, ", ",
                                   FloatText(norm.Float(AttrKind::kEps)), ")"));
}

void CudaRowEmitter::EmitRowNorm(const Op& norm, const RowWalk& walk) {
  const bool is_greatest = norm.Is(OpKind::kQuantize);
  EmitStatistics(norm, [&](bool squares) {
    if (plan_.row_threads == kWarp) {
      std::vector<std::string> sums;
      WalkChunks(walk, "", [&](const std::string&, const std::vector<Spot>& spots) {
        sums.push_back(NewName("s"));
        Line(absl::StrCat("float ", sums.back(), " = 0;"));
        AddChunk(norm, squares, spots, sums.back());
      });
      const std::string all = NewName("s");
      Line(absl::StrCat("const float ", all, "[] = {", absl::StrJoin(sums, ", "), "};"));
      return absl::StrCat("SumOfWarp", is_greatest ? "<GreatestTree>(" : "(", all, ")");
    }
    const std::string place =
        sums_++ % 2 == 0 ? "scratch" : absl::StrCat("scratch + ", scratch_floats_);
    const int64_t groups = (walk.length + kWarp * kNormChunk - 1) / (kWarp * kNormChunk);
    WalkChunks(walk, "", [&](const std::string& chunk, const std::vector<Spot>& spots) {
      const std::string sum = NewName("s");
      Line(absl::StrCat("float ", sum, " = 0;"));
      AddChunk(norm, squares, spots, sum);
      Line(absl::StrCat("PutSum<", plan_.row_threads, ", ", groups,
                        is_greatest ? ", GreatestTree>(" : ">(", place, ", ", chunk, ", ", sum,
                        ");"));
    });
    Line("SyncBlock();");
    return absl::StrCat("Total<", groups, is_greatest ? ", GreatestTree>(" : ">(", place, ")");
  });
}

void CudaRowEmitter::EmitSegmentNorm(const Op& norm, const RowWalk& walk, const std::string& unit) {
  EmitStatistics(norm, [&](bool squares) {
    const std::string sum = NewName("s");
    Line(absl::StrCat("float ", sum, " = 0;"));
    WalkChunks(walk, unit, [&](const std::string&, const std::vector<Spot>& spots) {
      AddChunk(norm, squares, spots, sum);
    });
    return absl::StrCat("SumOfLanes<", walk.lanes,
                        norm.Is(OpKind::kQuantize) ? ", GreatestTree>(" : ">(", sum, ")");
  });
}

}  // namespace quire
