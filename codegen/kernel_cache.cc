#include "codegen/kernel_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ir/status.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire {
namespace {

// An entry: header, key, binary.
struct EntryHeader {
  char magic[8];
  uint64_t key_bytes, binary_bytes;
  uint64_t hash;  // of key and binary
};
constexpr char kMagic[8] = {'Q', 'U', 'I', 'R', 'E', 'K', 'C', '1'};

uint64_t HashOf(absl::string_view key, absl::string_view binary) {
  return XXH3_64bits_withSeed(binary.data(), binary.size(), XXH3_64bits(key.data(), key.size()));
}

std::string DefaultDir() {
  if (const char* dir = std::getenv("QUIRE_CACHE"); dir != nullptr && *dir != 0) return dir;
  if (const char* dir = std::getenv("XDG_CACHE_HOME"); dir != nullptr && *dir == '/') {
    return absl::StrCat(dir, "/quire");
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return absl::StrCat(home, "/.cache/quire");
  }
  return "none";
}

class File {
 public:
  File(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("kernel cache: cannot ", what, " ", path, ": ", std::strerror(errno)));
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Failed("write", path);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

std::optional<std::string> ReadAll(const std::string& path) {
  const File file(path, O_RDONLY);
  struct stat info;
  if (file.fd() < 0 || fstat(file.fd(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = read(file.fd(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    done += static_cast<size_t>(count);
  }
  return bytes;
}

absl::Status WriteAndSync(const std::string& path, absl::string_view key,
                          absl::string_view binary) {
  const File file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (file.fd() < 0) return Failed("create", path);
  EntryHeader header{{}, key.size(), binary.size(), HashOf(key, binary)};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  const absl::string_view head(reinterpret_cast<const char*>(&header), sizeof(header));
  for (absl::string_view part : {head, key, binary}) {
    QUIRE_RETURN_IF_ERROR(WriteAll(file.fd(), part, path));
  }
  if (fsync(file.fd()) != 0) return Failed("sync", path);
  return absl::OkStatus();
}

}  // namespace

KernelCache::KernelCache(absl::string_view dir) : dir_(dir.empty() ? DefaultDir() : dir) {
  if (dir_ == "none") dir_.clear();
}

std::string KernelCache::PathOf(absl::string_view key) const {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return absl::StrCat(dir_, "/", absl::StrFormat("%016x%016x", hash.high64, hash.low64), ".kernel");
}

std::optional<std::string> KernelCache::Find(absl::string_view key) const {
  if (dir_.empty()) return std::nullopt;
  std::optional<std::string> entry = ReadAll(PathOf(key));
  EntryHeader header;
  if (!entry.has_value() || entry->size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, entry->data(), sizeof(header));
  const absl::string_view rest = absl::string_view(*entry).substr(sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.key_bytes != key.size() ||
      header.key_bytes > rest.size() || header.binary_bytes != rest.size() - header.key_bytes) {
    return std::nullopt;
  }
  const absl::string_view binary = rest.substr(key.size());
  if (rest.substr(0, key.size()) != key || header.hash != HashOf(key, binary)) return std::nullopt;
  return std::string(binary);
}

absl::Status KernelCache::Publish(absl::string_view key, absl::string_view binary) const {
  if (dir_.empty()) return absl::UnavailableError("kernel cache: none");
  std::error_code error;
  std::filesystem::create_directories(dir_, error);  // a failure shows when the file is created
  static std::atomic<uint64_t> serial{0};
  const std::string path = PathOf(key);
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".", serial++, ".tmp");
  absl::Status status = WriteAndSync(temporary, key, binary);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = Failed("rename", temporary);
  }
  if (!status.ok()) std::remove(temporary.c_str());
  return status;
}

}  // namespace quire
