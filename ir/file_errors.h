// What is said of files and folders that cannot be read or written: the reason, and what to do.
#ifndef QUIRE_IR_FILE_ERRORS_H_
#define QUIRE_IR_FILE_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace quire {

// "PATH: cannot open: Permission denied", where that is what `error` means, an errno; and which
// path to let the user read, or what there is by a similar name. INVALID_ARGUMENT.
absl::Status CannotRead(absl::string_view path, int error);

// Likewise of what should be written. RESOURCE_EXHAUSTED where there is no room for it.
absl::Status CannotWrite(absl::string_view path, absl::string_view action, int error);

}  // namespace quire

#endif  // QUIRE_IR_FILE_ERRORS_H_
