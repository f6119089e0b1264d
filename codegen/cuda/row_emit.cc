#include "codegen/cuda/row_emit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "codegen/row_func.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr int kWarp = 32;

std::string ElementText(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "Bf16";
    case DType::kF16:
      return "F16";
    case DType::kF32:
      return "F32";
    case DType::kF8E4M3:
      return "E4m3";
    case DType::kI32:
      return "int";
    default:
      return "uint8_t";  // of blocks
  }
}

}  // namespace

CudaRowEmitter::CudaRowEmitter(const RowSpec& spec, const Func& func, const RowPlan& plan)
    : spec_(spec), func_(func), plan_(plan), scopes_(1) {
  for (size_t i = 0; i < func.args().size(); ++i) argument_of_[func.args()[i].get()] = i;
  for (const RowWalk& walk : plan.steps) {
    if (walk.kind != RowWalk::Kind::kRow || plan.row_threads == kWarp) continue;
    const auto groups = static_cast<int>((walk.length + 8 * kWarp - 1) / (8 * kWarp));
    scratch_floats_ = std::max(scratch_floats_, (groups + 3) / 4 * 4);
  }
}

absl::StatusOr<CudaRowText> CudaRowEmitter::Emit(absl::string_view entry) {
  const bool is_warp = plan_.row_threads == kWarp;
  const int64_t teams = is_warp ? kRowWarpsPerBlock : 1;
  const int64_t shared_bytes = 4 * (2 * scratch_floats_ + plan_.staged_floats * teams);
  CudaRowText text;
  text.block_threads = is_warp ? kRowWarpsPerBlock * kWarp : plan_.row_threads;
  text.shared_bytes = static_cast<int>(std::min<int64_t>(shared_bytes, 1 << 30));

  EmitFrame();
  const std::string frame = std::exchange(body_, "");
  for (const RowWalk& walk : plan_.steps) EmitStep(walk);
  EmitLast();
  QUIRE_RETURN_IF_ERROR(status_);

  const std::string spec =
      absl::StrReplaceAll(absl::StripSuffix(SpecText(spec_), "\n"), {{"\n", "\n// "}});
  text.source = absl::StrCat("// ", spec, "\n#include \"row.cuh\"\n#include \"step.cuh\"\n",  //
                             "using Vec = Vector<", plan_.vector, ">;\n", declarations_,      //
                             "extern \"C\" __global__ void __launch_bounds__(", text.block_threads,
                             ")\n", entry, "(", Parameters(), ") {\n  AllowNextGrid();\n", frame,
                             fixed_, "  WaitForPriorGrid();\n",
                             is_warp ? "  if (!exists) return;\n" : "", body_, "}\n");
  return text;
}

std::string CudaRowEmitter::Parameters() const {
  std::vector<std::string> parameters;
  for (size_t i = 0; i < func_.args().size(); ++i) {
    const DType dtype = func_.args()[i]->type.dtype;
    parameters.push_back(absl::StrCat("const ", ElementText(dtype), "* a", i));
  }
  bool appends = false, takes = false;
  for (const auto& op : func_.ops()) {
    takes |= op->Is(OpKind::kTake);
    if (!op->Is(OpKind::kKvAppend)) continue;
    parameters.push_back(absl::StrCat(ElementText(op->type.dtype), "* kv_", op->name));
    appends = true;
  }
  for (size_t i = 0; i < func_.returns().size(); ++i) {
    parameters.push_back(absl::StrCat(ElementText(func_.returns()[i]->type.dtype), "* r", i));
  }
  if (appends) parameters.push_back("const int* slots");
  if (takes) parameters.push_back("const StepHeader* header");
  parameters.push_back("int rows");
  if (plan_.divisible) parameters.push_back("int parts");
  return absl::StrJoin(parameters, ", ");
}

// Which row and which part of it a thread has, and where the row's values are.
void CudaRowEmitter::EmitFrame() {
  Line("const int lane = threadIdx.x % 32;");
  if (plan_.row_threads == kWarp) {
    Line(absl::StrCat("const int item = blockIdx.x * ", kRowWarpsPerBlock, " + threadIdx.x / 32;"));
    if (plan_.divisible) {
      Line("const bool exists = item < rows * parts;");
      Line("const int row = exists ? item / parts : rows - 1, part = item % parts;");
    } else {
      Line("const bool exists = item < rows;");
      Line("const int row = exists ? item : rows - 1;");
    }
  } else {
    Line("const int row = blockIdx.x;");
  }
  if (scratch_floats_ > 0) Line("float* scratch = reinterpret_cast<float*>(SharedMemory());");
  if (plan_.staged_floats > 0) {
    const std::string team = plan_.row_threads == kWarp
                                 ? absl::StrCat(" + threadIdx.x / 32 * ", plan_.staged_floats)
                                 : "";
    Line(absl::StrCat("float* staged = reinterpret_cast<float*>(SharedMemory()) + ",
                      2 * scratch_floats_, team, ";"));
  }
  const auto of_row = [](int64_t count) {
    return absl::StrCat(" + static_cast<int64_t>(row) * ", count, ";");
  };
  for (size_t i = 0; i < func_.args().size(); ++i) {
    const Type& type = func_.args()[i]->type;
    if (!HasRowExtent(type) || type.extents[0].letter() != RowLetter(func_)) continue;
    Line(absl::StrCat("const ", ElementText(type.dtype), "* x", i, " = a", i,
                      of_row(ElementsOf(*func_.args()[i]))));
  }
  for (size_t i = 0; i < func_.returns().size(); ++i) {
    const Op& value = *func_.returns()[i];
    Line(absl::StrCat(ElementText(value.type.dtype), "* y", i, " = r", i,
                      of_row(ElementsOf(value))));
  }
  for (const auto& op : func_.ops()) {
    if (op->Is(OpKind::kEmbed) || op->Is(OpKind::kTake)) EmitLookUp(*op);
  }
  EmitAppends();
}

// The row of the table or of the step that the thread's row looks up.
void CudaRowEmitter::EmitLookUp(const Op& op) {
  const auto argument = [&](int i) { return argument_of_.at(op.operand(i)); };
  const std::string number = absl::StrCat("LoadGlobal(a", argument(1), " + row)");
  const Type& table = op.operand(0)->type;
  if (op.Is(OpKind::kTake)) {
    Line(absl::StrCat("const ", ElementText(table.dtype), "* at_", op.name, " = a", argument(0),
                      " + static_cast<int64_t>(Inside(", number, ", LoadGlobal(&header->rows))) * ",
                      ElementsOf(op), ";"));
    return;
  }
  const int64_t elements = ElementsOf(op);
  const int64_t stride = IsBlockType(table.dtype) ? RowBytes(table.dtype, elements) : elements;
  Line(absl::StrCat("const ", ElementText(table.dtype), "* at_", op.name, " = a", argument(0),
                    " + static_cast<int64_t>(Inside(", number, ", ",
                    table.extents[0].value() - op.Int(AttrKind::kOffset), ") + ",
                    op.Int(AttrKind::kOffset), ") * ", stride, ";"));
}

// Where the row's token is in a page of each layer: K [heads][page_tokens][D], then V.
void CudaRowEmitter::EmitAppends() {
  bool any = false;
  for (const auto& op : func_.ops()) {
    if (!op->Is(OpKind::kKvAppend)) continue;
    int64_t page = 0, keys = 0;
    for (const auto& other : func_.ops()) {
      if (!other->Is(OpKind::kKvAppend)) continue;
      if (other->Int(AttrKind::kLayer) != op->Int(AttrKind::kLayer)) continue;
      const int64_t elements = spec_.page_tokens * ElementsOf(*other->operand(0));
      page += elements;
      if (other->Text(AttrKind::kSlot) == "k") keys = elements;
    }
    if (!any) {
      Line("const int slot = LoadGlobal(slots + row);");
      Line("const bool appends = slot >= 0;");
    }
    any = true;
    const int64_t first = op->Text(AttrKind::kSlot) == "k" ? 0 : keys;
    const int64_t width = op->operand(0)->type.extents.back().value();
    Line(absl::StrCat(ElementText(op->type.dtype), "* to_", op->name, " = kv_", op->name,
                      " + static_cast<int64_t>(slot / ", spec_.page_tokens, ") * ", page, " + ",
                      first, " + slot % ", spec_.page_tokens, " * ", width, ";"));
  }
}

void CudaRowEmitter::EmitStep(const RowWalk& walk) {
  const bool is_norm = walk.sinks.empty();
  if (is_norm) {
    EmitRowNorm(*walk.norms[0], walk);
    return;
  }
  staging_ = walk.sinks[0].value;
  if (walk.kind == RowWalk::Kind::kRow) {
    WalkChunks(walk, "", [&](const std::string&, const std::vector<Spot>& spots) {
      for (const Spot& spot : spots) EmitSinks(walk, spot);
    });
  } else {
    EmitUnits({&walk});
  }
  staging_ = nullptr;
  Line(plan_.row_threads == kWarp ? "SyncWarp();" : "SyncBlock();");
}

void CudaRowEmitter::EmitLast() {
  std::vector<const RowWalk*> units;
  for (const RowWalk& walk : plan_.last) {
    if (walk.kind != RowWalk::Kind::kRow) {
      units.push_back(&walk);
      continue;
    }
    WalkChunks(walk, "", [&](const std::string&, const std::vector<Spot>& spots) {
      for (const Spot& spot : spots) EmitSinks(walk, spot);
    });
  }
  if (!units.empty()) EmitUnits(units);
}

// The units of all walks in one loop, so that they are spread evenly over the row's warps.
void CudaRowEmitter::EmitUnits(const std::vector<const RowWalk*>& walks) {
  int64_t count = 0;
  for (const RowWalk* walk : walks) count += walk->units;
  const bool is_warp = plan_.row_threads == kWarp;
  const absl::string_view first = plan_.divisible ? "part" : is_warp ? "0" : "threadIdx.x / 32";
  const std::string step =
      plan_.divisible ? std::string("parts") : absl::StrCat(plan_.row_threads / kWarp);
  const std::string unit = NewName("u");
  Line(absl::StrCat("for (int ", unit, " = ", first, "; ", unit, " < ", count, "; ", unit,
                    " += ", step, ") {"));
  Scoped([&] {
    int64_t begin = 0;
    for (size_t i = 0; i < walks.size(); ++i) {
      const RowWalk& walk = *walks[i];
      const bool is_last = i + 1 == walks.size();
      const std::string own = begin == 0 ? unit : absl::StrCat("(", unit, " - ", begin, ")");
      begin += walk.units;
      if (walks.size() > 1) {
        Line(absl::StrCat(i == 0 ? "" : "} else ",
                          is_last ? "" : absl::StrCat("if (", unit, " < ", begin, ") "), "{"));
      }
      indent_ -= walks.size() > 1 ? 0 : 1;
      Scoped([&] {
        for (const Op* norm : walk.norms) EmitSegmentNorm(*norm, walk, own);
        WalkChunks(walk, own, [&](const std::string&, const std::vector<Spot>& spots) {
          for (const Spot& spot : spots) EmitSinks(walk, spot);
        });
      });
      indent_ += walks.size() > 1 ? 0 : 1;
    }
    if (walks.size() > 1) Line("}");
  });
  Line("}");
}

void CudaRowEmitter::EmitSinks(const RowWalk& walk, const Spot& spot) {
  for (const RowSink& sink : walk.sinks) {
    const Op* value = sink.value;
    const DType dtype = sink.kind == RowSink::Kind::kAppend  ? sink.append->type.dtype
                        : sink.kind == RowSink::Kind::kStage ? DType::kF32
                                                             : value->type.dtype;
    // Storing rounds as the cast does.
    if (value->Is(OpKind::kCast) && value->type.dtype == dtype) value = value->operand(0);
    std::string vector = Evaluate(*value, spot.place);
    std::string condition = spot.condition, target;
    switch (sink.kind) {
      case RowSink::Kind::kReturn:
        target = absl::StrCat("y", sink.output, " + ", Flat(spot.place));
        break;
      case RowSink::Kind::kStage:
        target = absl::StrCat("staged + ", plan_.staged.at(sink.value), " + ", Flat(spot.place));
        break;
      case RowSink::Kind::kAppend: {
        const int64_t width = sink.value->type.extents.back().value();
        const Place head = Rebase(spot.place, width, ElementsOf(*sink.value));
        target = absl::StrCat("to_", sink.append->name, " + ", head.segment, " * ",
                              spec_.page_tokens * width, " + ", head.offset);
        condition = condition.empty() ? "appends" : absl::StrCat(condition, " && appends");
        if (sink.append->num_operands() > 1) {
          vector =
              absl::StrCat("Quotient(", vector, ", LoadGlobal(a",
                           argument_of_.at(sink.append->operand(1)), " + ", head.segment, "))");
        }
        break;
      }
    }
    Line(absl::StrCat(condition.empty() ? "" : absl::StrCat("if (", condition, ") "), "Store(",
                      target, ", ", vector, ");"));
  }
}

}  // namespace quire
