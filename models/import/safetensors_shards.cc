#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/file.h"
#include "ir/status.h"
#include "models/import/json.h"
#include "models/import/safetensors.h"

namespace quire {
namespace {

using nlohmann::json;

// {tensor name: shard}. A shard must be a plain file name, so that an index cannot reach outside
// its directory.
absl::StatusOr<std::map<std::string, std::string>> ReadWeightMap(const std::string& path) {
  absl::StatusOr<json> index = ReadJsonObject(path);
  if (!index.ok()) return index.status();
  const auto weight_map = index->find("weight_map");
  if (weight_map == index->end() || !weight_map->is_object()) {
    return absl::DataLossError(absl::StrCat(path, ": has no weight_map object"));
  }
  std::map<std::string, std::string> shards;
  for (const auto& item : weight_map->items()) {
    const std::string* shard =
        item.value().is_string() ? item.value().get_ptr<const std::string*>() : nullptr;
    if (shard == nullptr || !absl::EndsWith(*shard, ".safetensors") ||
        absl::StrContains(*shard, "/") || absl::StrContains(*shard, '\0')) {
      return WithLine(
          absl::DataLossError(absl::StrCat(path, ": weight_map puts ", Quoted(item.key()), " into ",
                                           JsonValueText(item.value()))),
          "allowed", "the name of a .safetensors file in the same directory");
    }
    shards.emplace(item.key(), *shard);
  }
  if (shards.empty()) return absl::DataLossError(absl::StrCat(path, ": weight_map is empty"));
  return shards;
}

}  // namespace

absl::StatusOr<TensorIndex> ReadShardedSafetensors(absl::string_view directory) {
  const std::string index_path = JoinPath(directory, kSafetensorsIndexFile);
  QUIRE_ASSIGN_OR_RETURN(const auto shard_of, ReadWeightMap(index_path));

  std::map<std::string, int>
      file_of;  // in the order of names, so that an index is the same on every run
  for (const auto& [name, shard] : shard_of) file_of.emplace(shard, 0);
  TensorIndex index;
  for (auto& [shard, file] : file_of) {
    file = static_cast<int>(index.files.size());
    index.files.push_back(shard);
  }

  absl::flat_hash_map<std::string, int> found_in;
  for (const auto& [shard, file] : file_of) {
    absl::StatusOr<TensorIndex> one = ReadSafetensorsFile(directory, shard);
    if (!one.ok()) {
      return WithLine(one.status(), "from", absl::StrCat(index_path, " lists this shard"));
    }
    for (TensorInfo& info : one->tensors) {
      const auto listed = shard_of.find(info.name);
      if (listed != shard_of.end() && listed->second != shard) {
        return absl::DataLossError(absl::StrCat(index_path, ": tensor ", Quoted(info.name),
                                                " is listed in ", listed->second, ", but found in ",
                                                shard));
      }
      const auto [first, is_new] = found_in.emplace(info.name, file);
      if (!is_new) {
        return absl::DataLossError(absl::StrCat(index_path, ": tensor ", Quoted(info.name),
                                                " is found in both ", index.files[first->second],
                                                " and ", shard));
      }
      info.file = file;
      index.tensors.push_back(std::move(info));
    }
  }
  for (const auto& [name, shard] : shard_of) {
    if (!found_in.contains(name)) {
      return absl::DataLossError(absl::StrCat(index_path, ": tensor ", Quoted(name),
                                              " is listed in ", shard, ", which does not hold it"));
    }
  }
  return index;
}

}  // namespace quire
