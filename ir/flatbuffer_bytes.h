// What the verifier of FlatBuffers does not see: how many bytes unpacking copies, and vectors whose
// elements are not aligned.
//
// A well-formed buffer references each of its bytes once. A hostile one may reference one table or
// string from thousands of places, which costs it four bytes each, and would unpack to gigabytes;
// comparing this sum with the buffer's size tells.
#ifndef QUIRE_IR_FLATBUFFER_BYTES_H_
#define QUIRE_IR_FLATBUFFER_BYTES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "flatbuffers/flatbuffers.h"

namespace quire {

// True if the tables, vectors and strings reached from `root` sum up to at most `limit_bytes`, and
// the elements of every vector are aligned.
// REQUIRES: the buffer passed the verifier for `type`, which holds no unions and no arrays.
bool UnpacksWithin(const flatbuffers::Table& root, const flatbuffers::TypeTable& type,
                   uint64_t limit_bytes);

}  // namespace quire

#endif  // QUIRE_IR_FLATBUFFER_BYTES_H_
