#include "compiler/linear_append.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/rope.h"
#include "compiler/row_wise.h"

namespace quire {
namespace {

constexpr int64_t kGrain = 8;  // elements that a kernel stores at once

bool IsColumns(const Op& op) {
  return op.Is(OpKind::kSlice) && op.type.rank() == 2 && op.Int(AttrKind::kAxis) == 1;
}
int64_t BeginOf(const Op* slice) { return slice->Int(AttrKind::kBegin); }
int64_t EndOf(const Op* slice) { return slice->Int(AttrKind::kEnd); }
bool IsBefore(const Op* a, const Op* b) { return BeginOf(a) < BeginOf(b); }

const Op* OnlyReader(const Func& func, const Op& value, const ReaderMap& readers) {
  const auto found = readers.find(&value);
  const bool is_one =
      found != readers.end() && found->second.size() == 1 && !func.IsReturned(&value);
  return is_one ? found->second[0] : nullptr;
}

// What alone reads `value`, as it is or reshaped.
const Op* ReaderOf(const Func& func, const Op& value, const ReaderMap& readers) {
  const Op* reader = OnlyReader(func, value, readers);
  if (reader != nullptr && reader->Is(OpKind::kReshape)) {
    reader = OnlyReader(func, *reader, readers);
  }
  const bool reads = reader != nullptr && Storage(reader->operand(0)) == &value;
  return reads ? reader : nullptr;
}

// Columns, what alone turns them, and what alone appends them; where there is that.
struct Columns {
  const Op *slice = nullptr, *rope = nullptr, *append = nullptr;
};
Columns ColumnsOf(const Func& func, const Op& slice, const ReaderMap& readers) {
  Columns columns{&slice};
  const Op* reader = ReaderOf(func, slice, readers);
  if (reader != nullptr && reader->Is(OpKind::kRope)) {
    columns.rope = reader;
    reader = ReaderOf(func, *reader, readers);
  }
  if (reader != nullptr && reader->Is(OpKind::kKvAppend)) columns.append = reader;
  return columns;
}

int64_t HeadOf(const Op& append) { return append.type.extents[2].value(); }

// The layers that the function appends to in the cache of `append`.
std::set<int64_t> LayersLike(const Func& func, const Op& append) {
  std::set<int64_t> layers;
  for (const auto& op : func.ops()) {
    if (op->Is(OpKind::kKvAppend) && op->Text(AttrKind::kCache) == append.Text(AttrKind::kCache)) {
      layers.insert(op->Int(AttrKind::kLayer));
    }
  }
  return layers;
}

bool IsNorm(const Op* op) {
  return op != nullptr && (op->Is(OpKind::kRmsNorm) || op->Is(OpKind::kLayerNorm));
}

bool IsSameWeight(const Op& a, const Op& b) {
  return a.Is(OpKind::kWeight) && b.Is(OpKind::kWeight) &&
         a.Text(AttrKind::kName) == b.Text(AttrKind::kName);
}

// Why the linear's kernel does not turn K, and with it the first columns; or "".
std::string ReasonNotToTurn(const Func& func, const LinearAppend& found) {
  const Op& rope = *found.rope;
  const std::string name = absl::StrCat("%", rope.name);
  if (found.appends.size() != 2) return absl::StrCat(name, " is of one of several layers");
  const int64_t d = HeadOf(*found.appends[0]), dims = rope.Int(AttrKind::kDims);
  if (dims != 0 && dims != d) {
    return absl::StrCat(name, " turns ", dims, " of ", d, " elements of a head");
  }
  if (rope.Text(AttrKind::kStyle) == "half" && d % (2 * kGrain) != 0) {
    return absl::StrCat(name, " has halves of heads of no multiple of 8");
  }
  if (!rope.operand(1)->Is(OpKind::kArg)) return absl::StrCat(name, " is by computed positions");
  if (rope.num_operands() > 2 && !rope.operand(2)->Is(OpKind::kWeight)) {
    return absl::StrCat(name, " is by factors that are no tensor of the checkpoint");
  }
  const bool has_factors = rope.num_operands() > 2;
  for (const auto& op : func.ops()) {
    if (!op->Is(OpKind::kRope)) continue;
    if (op->operand(1) != rope.operand(1) || op->num_operands() != rope.num_operands() ||
        (has_factors && !IsSameWeight(*op->operand(2), *rope.operand(2)))) {
      return absl::StrCat("%", op->name, " is by other positions or factors than ", name);
    }
  }
  if (found.kept == nullptr) return "";
  const Op* kept = found.kept_rope;
  if (kept == nullptr || RopeAttributes(*kept) != RopeAttributes(rope) ||
      kept->type.extents.back().value() != d) {
    return absl::StrCat("%", found.kept->name, " is not turned as ", name, " is");
  }
  return "";
}

// Why these columns, which are all of the linear's, are not appended by its kernel; or "".
std::string ReasonToDecline(const Func& func, const Op& linear, const LinearAppend& found,
                            DType stored) {
  if (linear.type.extents[0] != Extent::Letter('T')) return "its rows are not T";
  if (found.kept != nullptr && EndOf(found.kept) % kGrain != 0) {
    return absl::StrCat("%", found.kept->name, " is no multiple of 8 columns");
  }
  const std::set<int64_t> layers = LayersLike(func, *found.appends[0]);
  auto layer = layers.find(found.appends[0]->Int(AttrKind::kLayer));
  for (size_t i = 0; i < found.appends.size(); ++i) {
    const Op &append = *found.appends[i], &first = *found.appends[i % 2];
    const std::string name = absl::StrCat("%", append.name);
    if (append.num_operands() > 1) return absl::StrCat(name, " is kept by a scale");
    if (append.type.dtype != stored) {
      return absl::StrCat(name, " is kept as ", DTypeText(append.type.dtype), " of ",
                          DTypeText(stored));
    }
    if (append.Text(AttrKind::kSlot) != (i % 2 == 0 ? "k" : "v") ||
        i + 1 - i % 2 >= found.appends.size()) {
      return absl::StrCat(name, " is not K followed by V, or V behind K");
    }
    if (append.Text(AttrKind::kCache) != first.Text(AttrKind::kCache) || layer == layers.end() ||
        append.Int(AttrKind::kLayer) != *layer) {
      return absl::StrCat(name, " is of a layer that does not follow the one before");
    }
    if (append.type != first.type || append.type.extents[1] != found.appends[0]->type.extents[1]) {
      return absl::StrCat(name, " has other heads than %", first.name);
    }
    if (HeadOf(append) % kGrain != 0) {
      return absl::StrCat(name, " has heads of no multiple of 8");
    }
    if (i % 2 == 1) ++layer;
  }
  return found.rope == nullptr ? "" : ReasonNotToTurn(func, found);
}

}  // namespace

LinearAppend FindAppends(const Func& func, const Op& linear, const ReaderMap& readers,
                         const StorageTypes& types, Notes& notes) {
  const auto found = readers.find(&linear);
  if (found == readers.end() || func.IsReturned(&linear)) return {};
  std::vector<const Op*> slices(found->second.begin(), found->second.end());
  if (!std::all_of(slices.begin(), slices.end(), [](const Op* op) { return IsColumns(*op); })) {
    return {};
  }
  std::sort(slices.begin(), slices.end(), IsBefore);
  LinearAppend appended;
  const Op* other = nullptr;  // columns that are not appended as they are, but for the first
  int64_t end = 0;
  bool are_all = true;
  for (const Op* slice : slices) {
    are_all = are_all && BeginOf(slice) == end;
    end = EndOf(slice);
    const Columns columns = ColumnsOf(func, *slice, readers);
    const bool is_first = appended.appends.empty();  // K
    if (columns.append != nullptr && (columns.rope == nullptr || is_first)) {
      appended.appends.push_back(columns.append);
      appended.slices.push_back(slice);
      if (is_first) appended.rope = columns.rope;
    } else if (slice == slices[0]) {
      appended.kept = slice;
      appended.kept_rope = columns.rope;
    } else if (other == nullptr) {
      other = slice;
    }
  }
  if (appended.rope == nullptr) appended.kept_rope = nullptr;  // turned by another kernel
  if (appended.appends.empty()) return {};
  are_all = are_all && end == linear.type.extents[1].value();
  const DType stored = types.Of(&linear);
  std::string reason;
  if (other != nullptr) {
    const Op* reader = ReaderOf(func, *other, readers);
    reason = IsNorm(reader) ? absl::StrCat("%", reader->name, " is a norm of heads")
                            : absl::StrCat("%", other->name, " is not only appended");
  } else if (!are_all) {
    reason = "not each of its columns is read once";
  } else if (appended.kept != nullptr && types.Of(appended.result()) != stored) {
    reason = absl::StrCat("%", appended.kept->name, " is stored in another type");
  } else {
    reason = ReasonToDecline(func, linear, appended, stored);
  }
  if (!reason.empty()) {
    notes.Declined(linear.name, absl::StrCat("appends nothing itself: ", reason));
    return {};
  }
  notes.Fired(linear.name, absl::StrCat(appended.rope == nullptr ? "" : "turns heads and ",
                                        "appends %", appended.appends.front()->name, " .. %",
                                        appended.appends.back()->name, " itself"));
  return appended;
}

LinearAppend ReadAppends(absl::Span<const Op* const> ops) {
  LinearAppend read;
  const auto slice_of = [](const Op* append) {
    const Op* value = Storage(append->operand(0));
    return value->Is(OpKind::kRope) ? Storage(value->operand(0)) : value;
  };
  for (const Op* op : ops) {
    if (op->Is(OpKind::kKvAppend)) read.slices.push_back(slice_of(op));
  }
  if (read.slices.empty()) return read;
  std::sort(read.slices.begin(), read.slices.end(), IsBefore);
  read.appends.resize(read.slices.size());
  for (const Op* op : ops) {
    const auto place = [&](const Op* slice) {
      return std::find(read.slices.begin(), read.slices.end(), slice);
    };
    if (op->Is(OpKind::kKvAppend)) {
      read.appends[static_cast<size_t>(place(slice_of(op)) - read.slices.begin())] = op;
    } else if (op->Is(OpKind::kRope)) {
      const bool is_key = place(Storage(op->operand(0))) != read.slices.end();
      (is_key ? read.rope : read.kept_rope) = op;
    } else if (IsColumns(*op) && place(op) == read.slices.end()) {
      read.kept = op;
    }
  }
  return read;
}

}  // namespace quire
