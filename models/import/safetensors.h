// safetensors: one file, or a directory of shards with an index.
//
// A file is an 8-byte little-endian header length, a JSON header {name: {dtype, shape,
// data_offsets}}, and the tensors' bytes; data_offsets count from the end of the header. Only
// headers are read.
//
// Errors:  DATA_LOSS for a header that contradicts the format, the file or the index;
// INVALID_ARGUMENT when a file
//          cannot be opened; UNIMPLEMENTED for an element type that the format does not name.
// Source:  the format notes of github.com/huggingface/safetensors; the limit on the header and the
// rule that the
//          tensors cover the bytes without holes are its reference implementation's.
#ifndef QUIRE_MODELS_IMPORT_SAFETENSORS_H_
#define QUIRE_MODELS_IMPORT_SAFETENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "models/import/tensor_index.h"

namespace quire {

inline constexpr absl::string_view kSafetensorsFile = "model.safetensors";
inline constexpr absl::string_view kSafetensorsIndexFile = "model.safetensors.index.json";

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// The tensors of one file, in the order of their bytes. `bytes` is the whole file, of which only
// the header is touched; `path` is for messages; `file` goes into each TensorInfo.
absl::StatusOr<std::vector<TensorInfo>> ParseSafetensors(absl::Span<const uint8_t> bytes,
                                                         absl::string_view path, int file);

// The tensors of `directory`/`name`.
absl::StatusOr<TensorIndex> ReadSafetensorsFile(absl::string_view directory,
                                                absl::string_view name);

// The tensors of every shard that `directory`/model.safetensors.index.json lists.
absl::StatusOr<TensorIndex> ReadShardedSafetensors(absl::string_view directory);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_SAFETENSORS_H_
