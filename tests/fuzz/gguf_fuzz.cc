// Any bytes either fail to parse, or give metadata that can be read and an index that keeps its
// invariants.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "models/import/gguf.h"

namespace {

void ReadEveryWay(const quire::GgufMetadata& metadata, const std::string& key) {
  const bool read = metadata.GetInt(key).ok() + metadata.GetFloat(key).ok() +
                    metadata.GetBool(key).ok() + metadata.GetString(key).ok() +
                    metadata.GetInts(key).ok() + metadata.GetFloats(key).ok() +
                    metadata.GetStrings(key).ok();
  // What no accessor takes can still be named in a message.
  if (!read && metadata.Refuse(key, "", "").message().empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const auto gguf = quire::ParseGguf({data, bytes}, "fuzz.gguf");
  if (!gguf.ok()) return 0;
  for (const auto& [key, value] : gguf->metadata.entries()) ReadEveryWay(gguf->metadata, key);
  std::set<std::string> names;
  uint64_t total_bytes = 0;
  for (const quire::TensorInfo& tensor : gguf->tensors) {
    if (!names.insert(tensor.name).second) std::abort();
    if (tensor.offset > bytes || tensor.bytes > bytes - tensor.offset) std::abort();
    if (tensor.dtype.has_value()) {
      const auto elements = quire::ElementCount(tensor.extents);
      if (!elements.has_value()) std::abort();
      if (tensor.bytes !=
          static_cast<uint64_t>(quire::RowBytes(*tensor.dtype, static_cast<int64_t>(*elements)))) {
        std::abort();
      }
    }
    total_bytes += tensor.bytes;
  }
  if (total_bytes > bytes) std::abort();  // so some overlap
  return 0;
}
