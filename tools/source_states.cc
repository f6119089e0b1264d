#include "tools/source_states.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "ir/dtype.h"
#include "ir/file.h"
#include "ir/floats.h"
#include "ir/status.h"
#include "ir/type.h"
#include "models/import/safetensors.h"

namespace quire {

absl::StatusOr<std::shared_ptr<const std::vector<float>>> ReadSourceStates(absl::string_view path,
                                                                           int64_t width) {
  const auto bad = [&](absl::string_view what) {
    return WithLine(absl::InvalidArgumentError(absl::StrCat(path, ": ", what)), "allowed",
                    absl::StrCat("one tensor of f32, f16 or bf16 whose last extent is ", width));
  };
  const absl::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  QUIRE_ASSIGN_OR_RETURN(const TensorIndex index, ReadSafetensorsFile(FolderOf(path), name));
  if (index.tensors.size() != 1) {
    return bad(absl::StrCat("a file of ", index.tensors.size(), " tensors"));
  }
  const TensorInfo& tensor = index.tensors[0];
  if (!tensor.dtype.has_value() || !IsFloat(*tensor.dtype) || tensor.extents.empty() ||
      tensor.extents.back() != width) {
    return bad(absl::StrCat(tensor.name, " is ", tensor.dtype_text, " [",
                            absl::StrJoin(tensor.extents, ", "), "]"));
  }
  QUIRE_ASSIGN_OR_RETURN(const int64_t count, Product(absl::MakeConstSpan(tensor.extents)));
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  std::vector<float> states(static_cast<size_t>(count));
  ReadFloats(*tensor.dtype, file.bytes().data() + tensor.offset, absl::MakeSpan(states));
  const auto unsound = std::find_if_not(states.begin(), states.end(),
                                        [](float value) { return std::isfinite(value); });
  if (unsound != states.end()) {
    const int64_t element = unsound - states.begin();
    return WithLine(absl::InvalidArgumentError(absl::StrCat(path, ": ", tensor.name, ": element ",
                                                            element, " is ", *unsound)),
                    "allowed", "finite numbers");
  }
  return std::make_shared<const std::vector<float>>(std::move(states));
}

}  // namespace quire
