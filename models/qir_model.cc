#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/file.h"
#include "ir/status.h"
#include "ir/text.h"
#include "models/import/json.h"
#include "models/import/tensor_index.h"
#include "models/model.h"

namespace quire {
namespace {

constexpr absl::string_view kSignature =
    "func @step(%ids: i32[T], %pos: i32[T]) returning f32[T,V]; with an encoder also "
    "%source: i32[S], %source_pos: i32[S], or %states: f32[S,E]";

// The vocabulary's extent, if `step` has the form of a definition.
absl::StatusOr<int64_t> CheckSignature(const Func* step, absl::string_view path) {
  const auto wrong = [&](absl::string_view problem) {
    return WithLine(absl::InvalidArgumentError(absl::StrCat(path, ": @step ", problem)), "allowed",
                    kSignature);
  };
  if (step == nullptr) return wrong("is missing");
  const std::vector<std::string> known = {"ids i32[T]", "pos i32[T]", "source i32[S]",
                                          "source_pos i32[S]"};
  const size_t count = step->args().size();
  const Op* last = count == 3 ? step->args()[2].get() : nullptr;
  const bool has_states = last != nullptr && last->name == "states" &&
                          last->type.dtype == DType::kF32 && last->type.rank() == 2 &&
                          last->type.extents[0] == Extent::Letter('S') &&
                          !last->type.extents[1].is_letter();
  bool are_known = count == 2 || count == 4 || has_states;
  for (size_t i = 0; are_known && i < (has_states ? 2 : count); ++i) {
    const Op& arg = *step->args()[i];
    are_known = absl::StrCat(arg.name, " ", arg.type.ToString()) == known[i];
  }
  if (!are_known) return wrong("has other arguments");
  if (step->returns().size() != 1) return wrong("does not return one value");
  const Type& logits = step->returns()[0]->type;
  if (logits.dtype != DType::kF32 || logits.rank() != 2 ||
      logits.extents[0] != Extent::Letter('T') || logits.extents[1].is_letter()) {
    return wrong(absl::StrCat("returns ", logits.ToString()));
  }
  return logits.extents[1].value();
}

// Reads weight -> tensor. Every entry is a string.
absl::StatusOr<nlohmann::json> ReadMap(absl::string_view path) {
  if (path.empty()) return nlohmann::json::object();
  QUIRE_ASSIGN_OR_RETURN(nlohmann::json map, ReadJsonObject(path));
  for (const auto& item : map.items()) {
    if (item.value().is_string()) continue;
    return WithLine(absl::InvalidArgumentError(
                        absl::StrCat(path, ": ", Quoted(item.key()), " is not mapped to a name")),
                    "allowed", "a JSON object from weight names to tensor names");
  }
  return map;
}

// Checks a weight's declared type against the checkpoint's tensor.
absl::Status CheckWeight(const Op& op, const Checkpoint& checkpoint) {
  const std::string& name = op.Text(AttrKind::kName);
  const absl::StatusOr<const TensorInfo*> found = checkpoint.Require(name);
  if (!found.ok()) return WithPrefix(found.status(), absl::StrCat("%", op.name, ": weight"));
  const TensorInfo* tensor = *found;
  const Type stored = {*tensor->dtype, Extents(tensor->extents.begin(), tensor->extents.end())};
  if (stored == op.type) return absl::OkStatus();
  return WithLine(WithLine(absl::InvalidArgumentError(absl::StrCat("%", op.name, ": weight: ", name,
                                                                   " is ", stored.ToString(),
                                                                   ", not ", op.type.ToString())),
                           "from", checkpoint.path()),
                  "fix", absl::StrCat("declare it as ", stored.ToString()));
}

// Tables of positions bound the lengths, each by its rows; those of ids must have all ids.
absl::Status BoundByTables(const Func& step, ModelDef& model) {
  for (const std::unique_ptr<Op>& op : step.ops()) {
    if (!op->Is(OpKind::kEmbed) || !op->operand(1)->Is(OpKind::kArg)) continue;
    const Extent extent = op->operand(0)->type.extents[0];
    if (extent.is_letter()) continue;
    const int64_t offset = op->Int(AttrKind::kOffset);
    const int64_t rows = extent.value() - offset;
    const std::string& arg = op->operand(1)->name;
    const auto wrong = [&](absl::string_view problem, int64_t wanted_rows) {
      return WithLine(absl::InvalidArgumentError(
                          absl::StrCat("@step: %", op->name, ": a table of ", extent.value(),
                                       " rows with offset=", offset, " ", problem)),
                      "allowed", absl::StrCat(wanted_rows, " rows or more"));
    };
    if (arg == "ids" || arg == "source") {
      if (rows >= model.vocab_size) continue;
      return wrong(
          absl::StrCat("is too small for %", arg, ": the logits are of ", model.vocab_size, " ids"),
          model.vocab_size + offset);
    }
    if (rows < 1) return wrong(absl::StrCat("has none for %", arg), 1 + offset);
    int64_t& most = arg == "pos" ? model.max_positions : model.max_source;
    most = most == 0 ? rows : std::min(most, rows);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDef> LoadQirModel(absl::string_view path, absl::string_view map_path,
                                      const Checkpoint& checkpoint) {
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  ModelDef model;
  QUIRE_ASSIGN_OR_RETURN(model.module, Parse(file.text(), path));
  QUIRE_ASSIGN_OR_RETURN(const nlohmann::json map, ReadMap(map_path));
  model.architecture = "qir";
  QUIRE_ASSIGN_OR_RETURN(model.vocab_size, CheckSignature(model.module.Find("step"), path));
  QUIRE_RETURN_IF_ERROR(WithPrefix(BoundByTables(*model.module.Find("step"), model), path));

  std::set<std::string> used, tensors;
  for (const std::unique_ptr<Func>& func : model.module.funcs) {
    for (const std::unique_ptr<Op>& op : func->ops()) {
      if (!op->Is(OpKind::kWeight)) continue;
      const std::string own = op->Text(AttrKind::kName);
      if (const auto mapped = map.find(own); mapped != map.end()) {
        op->Set(AttrKind::kName, *mapped->get_ptr<const std::string*>());
        used.insert(own);
      }
      const absl::Status status = CheckWeight(*op, checkpoint);
      if (!status.ok()) return WithPrefix(status, absl::StrCat(path, ": @", func->name()));
      if (!tensors.insert(op->Text(AttrKind::kName)).second) continue;
      QUIRE_ASSIGN_OR_RETURN(const int64_t elements, Product(op->type.extents));
      if (__builtin_add_overflow(model.parameter_count, elements, &model.parameter_count)) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": too many parameters"));
      }
    }
  }
  for (const auto& item : map.items()) {
    if (used.count(item.key()) != 0) continue;
    return WithLine(absl::InvalidArgumentError(
                        absl::StrCat(map_path, ": ", Quoted(item.key()), " names no weight")),
                    "from", path);
  }
  return model;
}

}  // namespace quire
