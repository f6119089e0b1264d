// States for a model whose encoder reads a tensor, from a .safetensors file.
#ifndef QUIRE_TOOLS_SOURCE_STATES_H_
#define QUIRE_TOOLS_SOURCE_STATES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// The file's one tensor, of f32, f16 or bf16; its last extent is `width`, and all before it count
// rows. INVALID_ARGUMENT saying what the file has instead. REQUIRES: width > 0.
absl::StatusOr<std::shared_ptr<const std::vector<float>>> ReadSourceStates(absl::string_view path,
                                                                           int64_t width);

}  // namespace quire

#endif  // QUIRE_TOOLS_SOURCE_STATES_H_
