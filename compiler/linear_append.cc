#include "compiler/linear_append.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
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

// The kv_append that alone reads `slice`, as it is or reshaped.
const Op* AppendOf(const Func& func, const Op& slice, const ReaderMap& readers) {
  const Op* reader = OnlyReader(func, slice, readers);
  if (reader != nullptr && reader->Is(OpKind::kReshape)) {
    reader = OnlyReader(func, *reader, readers);
  }
  const bool appends =
      reader != nullptr && reader->Is(OpKind::kKvAppend) && Storage(reader->operand(0)) == &slice;
  return appends ? reader : nullptr;
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
  return "";
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
    if (const Op* append = AppendOf(func, *slice, readers)) {
      appended.appends.push_back(append);
      appended.slices.push_back(slice);
    } else if (slice == slices[0]) {
      appended.kept = slice;
    } else if (other == nullptr) {
      other = slice;
    }
  }
  if (appended.appends.empty()) return {};
  are_all = are_all && end == linear.type.extents[1].value();
  const DType stored = types.Of(&linear);
  std::string reason;
  if (other != nullptr) {
    reason = absl::StrCat("%", other->name, " is not only appended");
  } else if (!are_all) {
    reason = "not each of its columns is read once";
  } else if (appended.kept != nullptr && types.Of(appended.kept) != stored) {
    reason = absl::StrCat("%", appended.kept->name, " is stored in another type");
  } else {
    reason = ReasonToDecline(func, linear, appended, stored);
  }
  if (!reason.empty()) {
    notes.Declined(linear.name, absl::StrCat("appends nothing itself: ", reason));
    return {};
  }
  notes.Fired(linear.name, absl::StrCat("appends %", appended.appends.front()->name, " .. %",
                                        appended.appends.back()->name, " itself"));
  return appended;
}

LinearAppend ReadAppends(absl::Span<const Op* const> ops) {
  LinearAppend read;
  for (const Op* op : ops) {
    if (op->Is(OpKind::kKvAppend)) read.slices.push_back(Storage(op->operand(0)));
  }
  if (read.slices.empty()) return read;
  std::sort(read.slices.begin(), read.slices.end(), IsBefore);
  read.appends.resize(read.slices.size());
  for (const Op* op : ops) {
    const auto place = [&](const Op* slice) {
      return std::find(read.slices.begin(), read.slices.end(), slice);
    };
    if (op->Is(OpKind::kKvAppend)) {
      read.appends[static_cast<size_t>(place(Storage(op->operand(0))) - read.slices.begin())] = op;
    } else if (IsColumns(*op) && place(op) == read.slices.end()) {
      read.kept = op;
    }
  }
  return read;
}

}  // namespace quire
