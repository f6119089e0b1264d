// Binaries of generated kernels on disk, found by content: the key is everything that determines
// the binary (generated source, target, compiler version), so an entry never goes stale.
//
// An entry is published whole: written to a temporary file beside its place, synced, renamed. Two
// processes that build the same kernel both publish the same bytes. An entry that is torn, corrupt
// or of another key (all three are checked) is as good as absent, and is replaced by the next
// Publish.
// Errors:  a cache that cannot be read or written is no error: kernels are built each time.
// Threads: any number of threads and processes.
#ifndef QUIRE_CODEGEN_KERNEL_CACHE_H_
#define QUIRE_CODEGEN_KERNEL_CACHE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace quire {

// Whether a kernel that no plan and no cache has may be compiled when a plan is loaded, or is an
// error.
enum class JitPolicy { kAuto, kNever };

class KernelCache {
 public:
  // `dir`: a directory, made when the first entry is published; "none": a cache that holds
  // nothing; "": $QUIRE_CACHE, else $XDG_CACHE_HOME/quire, else ~/.cache/quire, else none.
  explicit KernelCache(absl::string_view dir);

  // The directory, or "" for none.
  const std::string& dir() const { return dir_; }

  std::optional<std::string> Find(absl::string_view key) const;
  // The status says why nothing was kept; callers may ignore it.
  absl::Status Publish(absl::string_view key, absl::string_view binary) const;

  // Where the entry of a key lies.
  std::string PathOf(absl::string_view key) const;

 private:
  std::string dir_;
};

}  // namespace quire

#endif  // QUIRE_CODEGEN_KERNEL_CACHE_H_
