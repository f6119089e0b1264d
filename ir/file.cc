#include "ir/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ir/file_errors.h"
#include "ir/status.h"

namespace quire {
namespace {

std::string ErrnoText(int error) { return std::generic_category().message(error); }

}  // namespace

absl::StatusOr<std::vector<std::string>> NamesIn(absl::string_view folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry{std::string(folder), error};
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return CannotRead(folder, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status WriteFile(const std::string& path, absl::string_view text) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return CannotWrite(path, "create", errno);
  int error = 0;
  while (error == 0 && !text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written >= 0) text.remove_prefix(static_cast<size_t>(written));
    if (written < 0 && errno != EINTR) error = errno;
  }
  // What is full may show only here.
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  if (error == 0) error = errno;
  unlink(temporary.c_str());
  return CannotWrite(path, "write", error);
}

absl::StatusOr<MappedFile> MappedFile::Open(absl::string_view path) {
  MappedFile file;
  file.path_ = std::string(path);
  // O_NONBLOCK: opening a named pipe must not wait for a writer; it has no effect on a regular
  // file.
  const int fd = open(file.path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return CannotRead(path, errno);
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  struct stat status = {};
  if (fstat(fd, &status) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot stat: ", ErrnoText(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    return WithLine(absl::InvalidArgumentError(
                        absl::StrCat(path, S_ISDIR(status.st_mode) ? ": is a directory, not a file"
                                                                   : ": is not a regular file")),
                    "fix", "the name of a file");
  }
  if (status.st_size == 0) return file;
  const size_t length_bytes = static_cast<size_t>(status.st_size);
  void* mapped = mmap(nullptr, length_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    return absl::Status(
        error == ENOMEM ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInvalidArgument,
        absl::StrCat(path, ": cannot map ", length_bytes, " bytes: ", ErrnoText(error)));
  }
  file.bytes_ = absl::MakeConstSpan(static_cast<const uint8_t*>(mapped), length_bytes);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

PathKind KindOfPath(absl::string_view path) {
  struct stat status = {};
  if (stat(std::string(path).c_str(), &status) != 0) return PathKind::kMissing;
  if (S_ISREG(status.st_mode)) return PathKind::kFile;
  if (S_ISDIR(status.st_mode)) return PathKind::kDirectory;
  return PathKind::kOther;
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  if (directory.empty()) return std::string(name);
  return absl::StrCat(directory, absl::EndsWith(directory, "/") ? "" : "/", name);
}

std::string FolderOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return "";
  return std::string(path.substr(0, slash == 0 ? 1 : slash));
}

}  // namespace quire
