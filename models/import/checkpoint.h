// What a model directory or a .gguf file holds: configuration and an index of tensors. Reads no
// weight bytes.
//
// A Hugging Face directory has config.json, model.safetensors or model.safetensors.index.json with
// its shards, and perhaps generation_config.json. A .gguf file has metadata in place of the JSON
// files.
//
// Errors:  INVALID_ARGUMENT for a path that is neither, or a directory that lacks a file; those of
// safetensors.h and
//          gguf.h for what is in them.
#ifndef QUIRE_MODELS_IMPORT_CHECKPOINT_H_
#define QUIRE_MODELS_IMPORT_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "models/import/gguf_metadata.h"
#include "models/import/tensor_index.h"
#include "nlohmann/json.hpp"

namespace quire {

enum class CheckpointFormat { kSafetensors, kGguf };

class Checkpoint {
 public:
  CheckpointFormat format() const { return format_; }
  // As given by the user: the directory, or the .gguf file.
  const std::string& path() const { return path_; }
  // Where files() are; "." for a .gguf in the current directory.
  const std::string& directory() const { return directory_; }
  absl::Span<const std::string> files() const { return index_.files; }
  std::string PathOf(const TensorInfo& tensor) const;

  absl::Span<const TensorInfo> tensors() const { return index_.tensors; }
  // Null if there is none; whatever its type.
  const TensorInfo* Find(absl::string_view name) const;
  // INVALID_ARGUMENT with the nearest name if there is none; UNIMPLEMENTED if its type is not
  // supported, so that the result's dtype has a value.
  absl::StatusOr<const TensorInfo*> Require(absl::string_view name) const;
  // A tensor's bytes, for the few small tensors that are configuration; weights are never read this
  // way.
  absl::StatusOr<std::string> ReadSmallTensor(const TensorInfo& tensor) const;

  // Hugging Face only, otherwise null. generation_config() is null where the file is absent.
  const nlohmann::json& config() const { return config_; }
  const nlohmann::json& generation_config() const { return generation_config_; }
  // GGUF only, otherwise empty.
  const GgufMetadata& metadata() const { return metadata_; }

 private:
  friend absl::StatusOr<Checkpoint> OpenCheckpoint(absl::string_view path);
  Checkpoint() = default;
  absl::Status OpenDirectory();
  absl::Status OpenGguf();
  void IndexNames();

  CheckpointFormat format_ = CheckpointFormat::kSafetensors;
  std::string path_;
  std::string directory_;
  TensorIndex index_;
  absl::flat_hash_map<std::string, int> by_name_;
  nlohmann::json config_;
  nlohmann::json generation_config_;
  GgufMetadata metadata_;
};

// `path` is a directory or a .gguf file. A file counts as GGUF by its first bytes, whatever its
// name.
absl::StatusOr<Checkpoint> OpenCheckpoint(absl::string_view path);

}  // namespace quire

#endif  // QUIRE_MODELS_IMPORT_CHECKPOINT_H_
