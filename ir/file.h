// Files that are read in place: a whole file mapped read-only.
//
// Pages are read as they are touched, so mapping a 13 GB file to read its header costs what the
// header costs. A file that another process shortens while it is mapped raises SIGBUS when a lost
// page is touched; there is no defence against that short of copying, and headers are parsed right
// after opening.
//
// Errors:  INVALID_ARGUMENT naming path and reason when the file cannot be opened or is not a
// regular file;
//          RESOURCE_EXHAUSTED when there is no address space left to map it.
// Owner:   a MappedFile owns its mapping; bytes() is valid while it lives, also after a move.
#ifndef QUIRE_IR_FILE_H_
#define QUIRE_IR_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace quire {

class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(absl::string_view path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return bytes_.size(); }
  absl::Span<const uint8_t> bytes() const { return bytes_; }
  absl::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  MappedFile() = default;

  std::string path_;
  absl::Span<const uint8_t> bytes_;  // empty, and nothing mapped, for an empty file
};

// kMissing: or in a folder that this user may not enter.
enum class PathKind { kMissing, kFile, kDirectory, kOther };
PathKind KindOfPath(absl::string_view path);

// The names in a folder, sorted. INVALID_ARGUMENT when it cannot be listed.
absl::StatusOr<std::vector<std::string>> NamesIn(absl::string_view folder);

// Writes `path` anew, or leaves what is there: the text goes to a file beside it that gets the name
// at the end. Errors: those of CannotWrite (ir/file_errors.h).
absl::Status WriteFile(const std::string& path, absl::string_view text);

// `directory`/`name`; `name` alone when `directory` is empty.
std::string JoinPath(absl::string_view directory, absl::string_view name);

// The folder of a file's path: "" for a bare name.
std::string FolderOf(absl::string_view path);

}  // namespace quire

#endif  // QUIRE_IR_FILE_H_
