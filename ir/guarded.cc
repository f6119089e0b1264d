#include "ir/guarded.h"

#include "ir/status.h"

namespace quire {

absl::Status UsedUp(absl::string_view what) {
  return WithLine(absl::ResourceExhaustedError(what), "fix",
                  "less at a time (memory for keys and values, threads, samples), or more memory");
}

}  // namespace quire
