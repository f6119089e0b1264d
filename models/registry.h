// The architectures that Quire knows, by the model_type of config.json.
#ifndef QUIRE_MODELS_REGISTRY_H_
#define QUIRE_MODELS_REGISTRY_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "models/family.h"

namespace quire {

absl::Span<const Family> AllFamilies();

// UNIMPLEMENTED with the nearest and all known ones. `file` is where model_type was read.
absl::StatusOr<const Family*> FindFamily(absl::string_view model_type, absl::string_view file);

}  // namespace quire

#endif  // QUIRE_MODELS_REGISTRY_H_
