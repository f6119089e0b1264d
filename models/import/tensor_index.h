// The tensors of a checkpoint: what each is called, what it holds and where its bytes lie.
//
// Every importer fills this one form from its file headers; no weight byte is read for it.
//
// Units:   offsets and lengths in bytes; extents in elements, row-major (the last axis is
// contiguous). Invariants, checked by the importers before an index is handed out:
//   (1) offset + bytes <= size of files[file];
//   (2) bytes == product(extents) * the element type's size, wherever the type's size is known, and
//       of f8e4m3's where scales are apart;
//   (3) names are unique, and no two tensors of one file overlap.
#ifndef QUIRE_MODELS_IMPORT_TENSOR_INDEX_H_
#define QUIRE_MODELS_IMPORT_TENSOR_INDEX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/dtype.h"

namespace quire {

struct TensorInfo {
  std::string name;
  // Empty for a type that Quire does not compute with. Such a tensor is listed, since a stray
  // integer buffer must not break an import, and refused when it is asked for
  // (Checkpoint::Require).
  std::optional<DType> dtype;
  std::string dtype_text;  // the type as the file names it: "BF16", "I64", "IQ2_XS"
  std::vector<int64_t> extents;
  int file = 0;         // into TensorIndex::files
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;
  // Of an f8e4m3_128 that the file has as f8e4m3: the tensor of its scales (fp8.h).
  std::string scale = "";
};

struct TensorIndex {
  std::vector<std::string> files;  // relative to the checkpoint's directory
  std::vector<TensorInfo> tensors;
};

// `a * b`, or nothing if it does not fit.
std::optional<uint64_t> CheckedMultiply(uint64_t a, uint64_t b);

// The product of extents that are already known to be non-negative, or nothing if it does not fit.
std::optional<uint64_t> ElementCount(absl::Span<const int64_t> extents);

// Text from a file, fit for a message: quoted, control characters escaped, cut when it is long.
std::string Quoted(absl::string_view text);

// "[2, 3]".
std::string ExtentsText(absl::Span<const int64_t> extents);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_TENSOR_INDEX_H_
