// Short ways to the reference interpreter for tests.
#ifndef QUIRE_TESTS_EVALUATE_H_
#define QUIRE_TESTS_EVALUATE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/reference/interpreter.h"
#include "ir/status.h"
#include "ir/text.h"

namespace quire::testing {

using TensorMap = absl::flat_hash_map<std::string, reference::Tensor>;

// The weights callback that looks names up in `tensors`.
inline reference::WeightFn WeightsFrom(TensorMap tensors) {
  return [tensors = std::move(tensors)](absl::string_view name,
                                        const Type&) -> absl::StatusOr<reference::Tensor> {
    const auto found = tensors.find(name);
    if (found == tensors.end()) return absl::NotFoundError(absl::StrCat("no tensor ", name));
    return found->second;
  };
}

// The first function of `text`, applied to `inputs`.
inline absl::StatusOr<std::vector<reference::Tensor>> Evaluate(absl::string_view text,
                                                               const reference::Inputs& inputs) {
  QUIRE_ASSIGN_OR_RETURN(Module module, Parse(text));
  return reference::Interpret(*module.funcs.front(), inputs);
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_EVALUATE_H_
