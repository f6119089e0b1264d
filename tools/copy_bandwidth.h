// The copy rate of a GPU's memory: what decoding there is compared with, as its kernels can read a
// little faster than memory can be copied, and no faster than a little.
#ifndef QUIRE_TOOLS_COPY_BANDWIDTH_H_
#define QUIRE_TOOLS_COPY_BANDWIDTH_H_

#include "absl/status/statusor.h"

namespace quire {

// Bytes read and written per second by the driver's copy of 1 GiB, or of an eighth of the free
// memory where that is less, of random bytes; best of ten. It holds twice that much meanwhile.
// Errors: UNAVAILABLE where there is no GPU.
absl::StatusOr<double> MeasureCopyBandwidth();

}  // namespace quire

#endif  // QUIRE_TOOLS_COPY_BANDWIDTH_H_
