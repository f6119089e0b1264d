#include "tools/check_weights.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/file.h"
#include "ir/plan_check.h"
#include "ir/reference/dequantize.h"
#include "ir/status.h"
#include "models/import/gguf.h"
#include "models/import/safetensors.h"

namespace quire {
namespace {

absl::StatusOr<std::vector<TensorInfo>> TensorsOf(const MappedFile& file) {
  if (absl::StartsWith(file.text(), "GGUF")) {
    QUIRE_ASSIGN_OR_RETURN(Gguf gguf, ParseGguf(file.bytes(), file.path()));
    return std::move(gguf.tensors);
  }
  return ParseSafetensors(file.bytes(), file.path(), /*file=*/0);
}

// "f32 [48, 32] at byte 1024"
std::string PlaceText(absl::string_view dtype, const std::vector<int64_t>& extents,
                      uint64_t offset) {
  return absl::StrCat(dtype, " ", ExtentsText(extents), " at byte ", offset);
}

absl::Status CompareTensor(const plan::TensorT& wanted, const plan::WeightFileT& wanted_file,
                           const std::vector<TensorInfo>& found, const MappedFile& file) {
  const auto same = std::find_if(found.begin(), found.end(), [&](const TensorInfo& tensor) {
    return tensor.name == wanted.name;
  });
  const absl::string_view stored =
      wanted.scale < 0 ? absl::string_view(wanted.dtype) : DTypeText(DType::kF8E4M3);
  const std::string expected = PlaceText(stored, wanted.extents, wanted.offset);
  std::string place = "none of that name";
  if (same != found.end()) {
    const absl::string_view dtype =
        same->dtype.has_value() ? DTypeText(*same->dtype) : same->dtype_text;
    place = PlaceText(dtype, same->extents, same->offset);
  }
  if (place == expected) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      file.path(), ": not the file that the plan was compiled from: tensor ", wanted.name,
      " differs\n  expected: ", expected, ", in a file of ", wanted_file.bytes,
      " bytes\n  found: ", place, ", in a file of ", file.file_bytes(),
      " bytes\n  fix: name the folder that holds it (--weights-dir=DIR), or compile the plan "
      "again"));
}

}  // namespace

absl::Status ExplainRefusal(const plan::PlanT& plan, const TensorFiles& files,
                            const absl::Status& refused) {
  for (uint32_t i = 0; i < plan.files.size(); ++i) {
    const absl::StatusOr<MappedFile> file = MappedFile::Open(files.PathOf(i));
    if (!file.ok()) return refused;
    const absl::StatusOr<std::vector<TensorInfo>> found = TensorsOf(*file);
    if (!found.ok()) return found.status();
    for (const auto& tensor : plan.tensors) {
      if (tensor->file != i) continue;
      QUIRE_RETURN_IF_ERROR(CompareTensor(*tensor, *plan.files[i], *found, *file));
    }
  }
  return refused;
}

absl::Status CheckFinite(const plan::PlanT& plan, const TensorFiles& files) {
  constexpr int64_t kPart = 1 << 16;  // elements; a multiple of every block
  std::vector<double> values;
  for (uint32_t i = 0; i < plan.tensors.size(); ++i) {
    const plan::TensorT& tensor = *plan.tensors[i];
    QUIRE_ASSIGN_OR_RETURN(const Type type, StoredTypeOf(tensor));
    const DType dtype = type.dtype;
    QUIRE_ASSIGN_OR_RETURN(absl::Span<const uint8_t> bytes, files.Read(i));
    for (int64_t first = 0; !bytes.empty(); first += kPart) {
      const auto part =
          bytes.first(std::min(bytes.size(), static_cast<size_t>(RowBytes(dtype, kPart))));
      bytes.remove_prefix(part.size());
      const DTypeInfo& info = InfoOf(dtype);
      values.resize(part.size() / info.block_bytes * info.block_elements);
      QUIRE_RETURN_IF_ERROR(Dequantize(dtype, part, absl::MakeSpan(values)));
      const auto bad = std::find_if(values.begin(), values.end(),
                                    [](double value) { return !std::isfinite(value); });
      if (bad == values.end()) continue;
      return WithLine(
          absl::DataLossError(absl::StrCat("tensor ", tensor.name, ": element ",
                                           first + (bad - values.begin()), " is ", *bad)),
          "from", files.PathOf(tensor.file));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
