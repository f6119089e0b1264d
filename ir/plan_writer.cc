#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/file_errors.h"
#include "ir/op.h"
#include "ir/plan_check.h"
#include "ir/plan_format.h"
#include "ir/plan_io.h"
#include "ir/status.h"

namespace quire {
namespace {

absl::Status Exists(absl::string_view path) {
  return absl::AlreadyExistsError(
      absl::StrCat(path, ": the file exists\n  fix: write to another path, or force (--force)"));
}

// The name by which this process reaches an open file that has none.
std::string ProcessPath(int fd) { return absl::StrCat("/proc/self/fd/", fd); }

// A file without a name in `folder`, which is gone with the process, however that ends; -1 where
// the system has no such files.
int OpenUnnamed(const std::string& folder) {
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0 || access(ProcessPath(fd).c_str(), F_OK) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

absl::StatusOr<PlanWriter> PlanWriter::Create(absl::string_view path,
                                              const PlanWriteOptions& options) {
  const PathKind kind = KindOfPath(path);
  if (kind == PathKind::kDirectory || kind == PathKind::kOther) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, kind == PathKind::kDirectory ? ": is a folder" : ": is not a file",
                     "\n  fix: the name of a file"));
  }
  // Refused here, before hours of packing, and again when the file is published.
  if (kind == PathKind::kFile && !options.force) return Exists(path);
  PlanWriter writer;
  writer.path_ = std::string(path);
  writer.force_ = options.force;
  writer.temporary_ = absl::StrCat(path, ".", getpid(), ".tmp");
  writer.fd_ = OpenUnnamed(FolderOf(path));
  writer.has_name_ = writer.fd_ < 0;
  if (writer.has_name_) {
    writer.fd_ = open(writer.temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  if (writer.fd_ < 0) return writer.Failed("create");
  const std::string header(kPlanHeaderBytes, '\0');
  QUIRE_RETURN_IF_ERROR(writer.Write(header.data(), header.size()));
  return writer;
}

PlanWriter::PlanWriter(PlanWriter&& other) noexcept { *this = std::move(other); }

PlanWriter& PlanWriter::operator=(PlanWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(has_name_, other.has_name_);
  std::swap(force_, other.force_);
  std::swap(fd_, other.fd_);
  std::swap(position_, other.position_);
  std::swap(sections_, other.sections_);
  return *this;
}

PlanWriter::~PlanWriter() { Discard(); }

void PlanWriter::Discard() {
  if (fd_ < 0) return;
  close(fd_);
  if (has_name_) unlink(temporary_.c_str());
  fd_ = -1;
}

absl::Status PlanWriter::Failed(absl::string_view action) const {
  return CannotWrite(path_, action, errno);
}

absl::Status PlanWriter::Write(const void* data, size_t data_bytes) {
  const char* at = static_cast<const char*>(data);
  while (data_bytes > 0) {
    const ssize_t written = write(fd_, at, data_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write");
    at += written;
    data_bytes -= static_cast<size_t>(written);
    position_ += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status PlanWriter::PadTo(uint64_t alignment) {
  const std::string zeros((alignment - position_ % alignment) % alignment, '\0');
  return Write(zeros.data(), zeros.size());
}

absl::StatusOr<uint64_t> PlanWriter::AddSection(PlanSection::Kind kind,
                                                absl::Span<const uint8_t> bytes) {
  QUIRE_RETURN_IF_ERROR(PadTo(kPlanPageBytes));
  const uint64_t offset = position_;
  sections_.push_back({offset, bytes.size(), PlanChecksum(bytes), kind});
  QUIRE_RETURN_IF_ERROR(Write(bytes.data(), bytes.size()));
  return offset;
}

absl::Status PlanWriter::AddPacked(absl::Span<const uint8_t> bytes, plan::WeightSlotT* slot) {
  QUIRE_ASSIGN_OR_RETURN(slot->offset, AddSection(PlanSection::Kind::kWeights, bytes));
  slot->packed = true;
  slot->bytes = bytes.size();
  return absl::OkStatus();
}

absl::Status PlanWriter::AddBinary(absl::Span<const uint8_t> bytes, plan::KernelBinaryT* binary) {
  QUIRE_ASSIGN_OR_RETURN(binary->offset, AddSection(PlanSection::Kind::kBinary, bytes));
  binary->bytes = bytes.size();
  return absl::OkStatus();
}

absl::Status PlanWriter::Finish(const plan::PlanT& plan) {
  if (absl::Status checked = CheckPlan(plan, sections_); !checked.ok()) {
    return absl::InternalError(
        absl::StrCat(path_, ": the plan to be written is malformed: ", checked.message()));
  }
  flatbuffers::FlatBufferBuilder builder(size_t{1} << 20);
  plan::FinishPlanBuffer(builder, plan::Plan::Pack(builder, &plan));
  PlanHeader header;
  QUIRE_RETURN_IF_ERROR(PadTo(16));
  header.flatbuffer_offset = position_;
  header.flatbuffer_bytes = builder.GetSize();
  header.flatbuffer_checksum = PlanChecksum({builder.GetBufferPointer(), builder.GetSize()});
  QUIRE_RETURN_IF_ERROR(Write(builder.GetBufferPointer(), builder.GetSize()));
  QUIRE_RETURN_IF_ERROR(PadTo(8));
  const std::string table = EncodeTable(sections_);
  header.table_offset = position_;
  header.table_bytes = table.size();
  header.table_checksum =
      PlanChecksum({reinterpret_cast<const uint8_t*>(table.data()), table.size()});
  QUIRE_RETURN_IF_ERROR(Write(table.data(), table.size()));
  header.file_bytes = position_;
  if (lseek(fd_, 0, SEEK_SET) < 0) return Failed("seek");
  const std::string encoded = EncodeHeader(header);
  QUIRE_RETURN_IF_ERROR(Write(encoded.data(), encoded.size()));
  return Publish();
}

absl::Status PlanWriter::Publish() {
  if (fsync(fd_) != 0) return Failed("sync");
  if (!has_name_) {
    // Only a rename replaces a file.
    const std::string& name = force_ ? temporary_ : path_;
    if (force_) unlink(temporary_.c_str());  // of a process that was killed here
    if (linkat(AT_FDCWD, ProcessPath(fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW)) {
      return errno == EEXIST ? Exists(path_) : Failed("link");
    }
    has_name_ = force_;
  }
  if (has_name_) QUIRE_RETURN_IF_ERROR(Rename());
  close(std::exchange(fd_, -1));
  // The name is durable once the folder is; some file systems cannot sync one, which loses nothing
  // that was promised.
  const std::string folder = FolderOf(path_);
  const int folder_fd =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd >= 0) {
    fsync(folder_fd);
    close(folder_fd);
  }
  return absl::OkStatus();
}

absl::Status PlanWriter::Rename() {
  int renamed = renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(),
                          force_ ? 0 : RENAME_NOREPLACE);
  if (renamed != 0 && errno == EEXIST) return Exists(path_);
  if (renamed != 0 && errno == EINVAL) {
    // This file system cannot refuse to replace; a file that appeared meanwhile is still seen here.
    if (!force_ && KindOfPath(path_) != PathKind::kMissing) return Exists(path_);
    renamed = rename(temporary_.c_str(), path_.c_str());
  }
  return renamed == 0 ? absl::OkStatus() : Failed("rename");
}

absl::Status WritePlan(const plan::PlanT& plan, absl::string_view path,
                       const PlanWriteOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(PlanWriter writer, PlanWriter::Create(path, options));
  return writer.Finish(plan);
}

}  // namespace quire
