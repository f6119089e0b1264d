// GGUF files, versions 2 and 3, little-endian.
//
//   "GGUF" u32 version  u64 tensors  u64 keys
//   keys    x {string key, u32 type, value}             string = u64 bytes, text; array = u32 type,
//   u64 count, values tensors x {string name, u32 rank, u64 dims[rank] fastest first, u32 type, u64
//   offset} padding to general.alignment (32 unless given), then the tensors' bytes, each at its
//   offset from here
//
// Dims come out reversed, as row-major extents. Gaps between tensors are padding and allowed. Only
// the part before the tensors' bytes is touched.
//
// Errors:  DATA_LOSS for a file that contradicts the format or ends early; UNIMPLEMENTED for
// another version,
//          big-endian files and split files, with what to do.
// Source:  docs/gguf.md of github.com/ggml-org/ggml; limits on rank and alignment are its reader's.
#ifndef QUIRE_MODELS_IMPORT_GGUF_H_
#define QUIRE_MODELS_IMPORT_GGUF_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "models/import/gguf_metadata.h"
#include "models/import/tensor_index.h"

namespace quire {

struct Gguf {
  uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<TensorInfo> tensors;  // in the file's order, all with file = 0
};

// `bytes` is the whole file, `path` is for messages.
absl::StatusOr<Gguf> ParseGguf(absl::Span<const uint8_t> bytes, absl::string_view path);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_GGUF_H_
