// Data for tests, drawn from a generator seeded by the tensor's name: every row differs, so that a
// swapped operand or a stride mistaken for another is seen.
#ifndef QUIRE_TESTS_RANDOM_TENSOR_H_
#define QUIRE_TESTS_RANDOM_TENSOR_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/reference/interpreter.h"
#include "ir/reference/tensor.h"
#include "ir/type.h"

namespace quire::testing {

// A checkpoint's tensor. Matrices are normal with deviation 1/sqrt(last extent), so that a product
// with unit activations has unit deviation; vectors are normal with deviation 1/2, around 1 if the
// name says that they are the weights of a norm.
reference::Tensor RandomTensor(absl::string_view name, absl::Span<const int64_t> extents);

// Normal values with the given deviation.
reference::Tensor RandomNormal(absl::string_view name, absl::Span<const int64_t> extents,
                               double deviation = 1);

// Whole numbers in [0, below).
reference::Tensor RandomIds(absl::string_view name, int64_t count, int64_t below);

// Whole numbers first, first + 1, ...
reference::Tensor Positions(int64_t first, int64_t count);

// RandomTensor as the bytes that a checkpoint holds. Block types get blocks of random bytes with
// scales such that values have about the deviation of RandomTensor. REQUIRES: a valid type without
// letters.
std::vector<uint8_t> RandomBytes(absl::string_view name, const Type& type);

// The weights callback that answers with the values of RandomBytes(name, type), which are those
// that a checkpoint written from RandomBytes has.
reference::WeightFn RandomWeights();

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RANDOM_TENSOR_H_
