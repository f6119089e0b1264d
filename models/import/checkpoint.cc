#include "models/import/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/file.h"
#include "ir/file_errors.h"
#include "ir/status.h"
#include "models/import/fp8.h"
#include "models/import/gguf.h"
#include "models/import/json.h"
#include "models/import/safetensors.h"

namespace quire {
namespace {

constexpr absl::string_view kConfigFile = "config.json";
constexpr absl::string_view kGenerationConfigFile = "generation_config.json";

std::string NamesEndingIn(const std::set<std::string>& names, absl::string_view suffix) {
  std::vector<std::string> matching;
  for (const std::string& name : names) {
    if (absl::EndsWith(name, suffix)) matching.push_back(name);
  }
  return absl::StrJoin(matching, ", ");
}

// Why a directory has no weights that can be read, with the nearest thing to do.
absl::Status NoWeights(const std::string& directory, const std::set<std::string>& names) {
  const absl::Status status = absl::InvalidArgumentError(
      absl::StrCat(directory, ": has neither ", kSafetensorsFile, " nor ", kSafetensorsIndexFile));
  const std::string ggufs = NamesEndingIn(names, ".gguf");
  if (!ggufs.empty()) {
    return WithLine(status, "fix", absl::StrCat("name the file instead of the directory: ", ggufs));
  }
  const std::string others = NamesEndingIn(names, ".safetensors");
  if (!others.empty()) {
    return WithLine(
        status, "fix",
        absl::StrCat("found ", others, "; rename the one to use to ", kSafetensorsFile));
  }
  const std::string pickles =
      absl::StrCat(NamesEndingIn(names, ".bin"), NamesEndingIn(names, ".pt"),
                   NamesEndingIn(names, ".pth"), NamesEndingIn(names, ".bin.index.json"));
  if (!pickles.empty()) {
    return WithLine(
        WithLine(status, "from", absl::StrCat("found ", pickles, ", which are pickles")), "fix",
        "load the model with transformers and save_pretrained(DIR), which writes "
        "safetensors");
  }
  return WithLine(status, "allowed",
                  "a folder with config.json and these; tokenizer.json beside them gives text");
}

}  // namespace

std::string Checkpoint::PathOf(const TensorInfo& tensor) const {
  return JoinPath(directory_, index_.files[tensor.file]);
}

const TensorInfo* Checkpoint::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &index_.tensors[found->second];
}

absl::StatusOr<const TensorInfo*> Checkpoint::Require(absl::string_view name) const {
  const TensorInfo* tensor = Find(name);
  if (tensor == nullptr) {
    const absl::Status missing = WithLine(
        absl::InvalidArgumentError(absl::StrCat(name, ": the tensor is missing")), "from", path_);
    std::vector<absl::string_view> names;
    for (const TensorInfo& other : index_.tensors) names.push_back(other.name);
    const std::string near = Nearest(name, names);
    if (near.empty()) return missing;
    return WithLine(missing, "fix", absl::StrCat("the nearest name is ", Quoted(near)));
  }
  if (tensor->dtype.has_value()) return tensor;
  std::vector<absl::string_view> allowed;
  for (const DTypeInfo& info : AllDTypes()) allowed.push_back(info.text);
  return WithLine(
      WithLine(absl::UnimplementedError(absl::StrCat(name, ": the element type ",
                                                     tensor->dtype_text, " is not supported")),
               "from", PathOf(*tensor)),
      "allowed", absl::StrJoin(allowed, ", "));
}

absl::StatusOr<std::string> Checkpoint::ReadSmallTensor(const TensorInfo& tensor) const {
  const std::string path = PathOf(tensor);
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  // The file may have been replaced since it was indexed.
  if (tensor.offset > file.file_bytes() || tensor.bytes > file.file_bytes() - tensor.offset) {
    return absl::DataLossError(
        absl::StrCat(path, ": changed since it was opened: ", Quoted(tensor.name), " is gone"));
  }
  return std::string(file.text().substr(tensor.offset, tensor.bytes));
}

void Checkpoint::IndexNames() {
  for (size_t i = 0; i < index_.tensors.size(); ++i) {
    by_name_.emplace(index_.tensors[i].name, static_cast<int>(i));
  }
}

absl::Status Checkpoint::OpenDirectory() {
  directory_ = path_;
  QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string> listed, NamesIn(directory_));
  const std::set<std::string> names(listed.begin(), listed.end());
  const auto has = [&names](absl::string_view name) { return names.count(std::string(name)) != 0; };
  if (!has(kSafetensorsFile) && !has(kSafetensorsIndexFile)) return NoWeights(directory_, names);
  if (!has(kConfigFile)) {
    return WithLine(absl::InvalidArgumentError(absl::StrCat(directory_, ": has no ", kConfigFile)),
                    "fix", "copy the one that was published with the weights");
  }
  QUIRE_ASSIGN_OR_RETURN(config_, ReadJsonObject(JoinPath(directory_, kConfigFile)));
  if (has(kGenerationConfigFile)) {
    QUIRE_ASSIGN_OR_RETURN(generation_config_,
                           ReadJsonObject(JoinPath(directory_, kGenerationConfigFile)));
  }
  // Where both are there, the single file is the one transformers loads.
  QUIRE_ASSIGN_OR_RETURN(index_, has(kSafetensorsFile)
                                     ? ReadSafetensorsFile(directory_, kSafetensorsFile)
                                     : ReadShardedSafetensors(directory_));
  return WithPrefix(PairScales(&index_), directory_);
}

absl::Status Checkpoint::OpenGguf() {
  format_ = CheckpointFormat::kGguf;
  const size_t slash = path_.rfind('/');
  directory_ = slash == std::string::npos ? "." : path_.substr(0, std::max<size_t>(slash, 1));
  index_.files.push_back(slash == std::string::npos ? path_ : path_.substr(slash + 1));
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path_));
  if (!absl::StartsWith(file.text(), "GGUF")) {
    const absl::Status wrong =
        WithLine(absl::InvalidArgumentError(absl::StrCat(path_, ": is not a GGUF file")), "allowed",
                 "a model directory (config.json and safetensors) or a .gguf file");
    if (KindOfPath(JoinPath(directory_, kConfigFile)) != PathKind::kFile) return wrong;
    return WithLine(wrong, "fix", absl::StrCat("name the folder that it is in: ", directory_));
  }
  QUIRE_ASSIGN_OR_RETURN(Gguf gguf, ParseGguf(file.bytes(), path_));
  metadata_ = std::move(gguf.metadata);
  index_.tensors = std::move(gguf.tensors);
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> OpenCheckpoint(absl::string_view path) {
  Checkpoint checkpoint;
  checkpoint.path_ = std::string(path);
  switch (KindOfPath(path)) {
    case PathKind::kDirectory:
      QUIRE_RETURN_IF_ERROR(checkpoint.OpenDirectory());
      break;
    case PathKind::kFile:
      QUIRE_RETURN_IF_ERROR(checkpoint.OpenGguf());
      break;
    case PathKind::kMissing:
      return CannotRead(path, access(checkpoint.path_.c_str(), F_OK) == 0 ? ENOENT : errno);
    case PathKind::kOther:
      return WithLine(absl::InvalidArgumentError(
                          absl::StrCat(path, ": is neither a directory nor a regular file")),
                      "allowed", "a model directory (config.json and safetensors) or a .gguf file");
  }
  checkpoint.IndexNames();
  return checkpoint;
}

}  // namespace quire
