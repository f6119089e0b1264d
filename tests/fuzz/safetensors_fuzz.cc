// Any bytes either fail to parse, or give an index that keeps its invariants.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "models/import/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const auto tensors = quire::ParseSafetensors({data, bytes}, "fuzz.safetensors", 0);
  if (!tensors.ok()) return 0;
  std::set<std::string> names;
  uint64_t total_bytes = 0;
  for (const quire::TensorInfo& tensor : *tensors) {
    if (!names.insert(tensor.name).second) std::abort();
    if (tensor.offset > bytes || tensor.bytes > bytes - tensor.offset) std::abort();
    const auto elements = quire::ElementCount(tensor.extents);
    if (!elements.has_value()) std::abort();
    if (tensor.dtype.has_value() &&
        tensor.bytes != *elements * quire::InfoOf(*tensor.dtype).block_bytes) {
      std::abort();
    }
    total_bytes += tensor.bytes;
  }
  if (total_bytes > bytes) std::abort();  // so some overlap
  return 0;
}
