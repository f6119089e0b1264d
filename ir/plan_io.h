// The plan file: a header, page-aligned sections, the FlatBuffer of ir/plan.fbs, the section table.
//
//   header      128 bytes, little endian:
//                 0 magic "quirepln"        8 u32 format version     12 u32 header bytes
//                16 u64 file bytes         24 u64 FlatBuffer offset  32 u64 its bytes  40 u64 XXH3
//                48 u64 table offset       56 u64 its bytes          64 u64 its XXH3
//                72 zeros                 120 u64 XXH3 of bytes [0, 120)
//   sections    each at a multiple of 4096, in file order; packed weights of one slot, or one
//               binary of a kernel
//   FlatBuffer  at a multiple of 16
//   table       at a multiple of 8, up to the end of the file; for each section 32 bytes:
//                 0 u32 kind (1: weights, 2: kernel binary)   4 u32 zero
//                 8 u64 offset  16 u64 bytes  24 u64 XXH3
//   Bytes between these are zero.
//
// Sections stand before the FlatBuffer, because it names their offsets and the table holds their
// checksums: a writer streams them once, and patches the header last.
//
// Opening verifies everything but the contents of sections: header, checksums, FlatBuffer, and
// every index, extent, type and byte range in it (ir/plan_check.h). The contents of sections would
// have to be read whole; VerifySections() does, on demand. A kernel's binary is small, and is
// verified whenever it is asked for.
//
// Errors:  INVALID_ARGUMENT when a file cannot be opened or is no plan;
//          ALREADY_EXISTS when one is where a plan is to be, and is not to be replaced;
//          DATA_LOSS naming the section when it is truncated or corrupt;
//          FAILED_PRECONDITION with the command to run when another build wrote it;
//          RESOURCE_EXHAUSTED when the disk is full.
#ifndef QUIRE_IR_PLAN_IO_H_
#define QUIRE_IR_PLAN_IO_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/file.h"
#include "ir/plan_generated.h"

namespace quire {

inline constexpr uint64_t kPlanPageBytes = 4096;

struct PlanSection {
  enum class Kind : uint32_t { kWeights = 1, kBinary = 2 };
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;
  uint64_t checksum = 0;
  Kind kind = Kind::kWeights;
};

class PlanFile {
 public:
  PlanFile(PlanFile&&) = default;
  PlanFile& operator=(PlanFile&&) = default;

  const std::string& path() const { return file_.path(); }
  uint64_t file_bytes() const { return file_.file_bytes(); }
  // When lowered_status() is not OK, targets are without programs, kernels and weights, which mean
  // nothing to this build.
  const plan::PlanT& plan() const { return *plan_; }
  absl::Span<const PlanSection> sections() const { return sections_; }

  // FAILED_PRECONDITION when the targets were lowered with another op table. Model, tensors,
  // tokenizer and the text of the IR stay usable.
  const absl::Status& lowered_status() const { return lowered_status_; }

  // The target of that name. FAILED_PRECONDITION: lowered_status(), or the plan has no such target.
  absl::StatusOr<const plan::TargetT*> Target(absl::string_view name) const;

  // Bytes of a packed slot. DATA_LOSS when it is not one of the file's sections.
  absl::StatusOr<absl::Span<const uint8_t>> PackedBytes(const plan::WeightSlotT& slot) const;

  // A kernel's binary, compared with its checksum. DATA_LOSS when they differ, or it is not one of
  // the file's sections.
  absl::StatusOr<absl::Span<const uint8_t>> BinaryBytes(const plan::KernelBinaryT& binary) const;

  // Reads every section and compares checksums.
  absl::Status VerifySections() const;

 private:
  friend absl::StatusOr<PlanFile> OpenPlan(absl::string_view path);
  explicit PlanFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::unique_ptr<plan::PlanT> plan_;
  std::vector<PlanSection> sections_;
  absl::Status lowered_status_;
};

absl::StatusOr<PlanFile> OpenPlan(absl::string_view path);

// The part of OpenPlan that needs no file: what `file` holds, verified. `name` is for messages.
// REQUIRES: `file` is aligned to 16 bytes.
struct PlanContents {
  std::unique_ptr<plan::PlanT> plan;
  std::vector<PlanSection> sections;
  absl::Status lowered_status;
};
absl::StatusOr<PlanContents> ReadPlan(absl::Span<const uint8_t> file, absl::string_view name);

// The FlatBuffer alone: verified and unpacked, contents not checked. DATA_LOSS.
// REQUIRES: `flatbuffer` is aligned to 16 bytes.
absl::StatusOr<std::unique_ptr<plan::PlanT>> UnpackPlan(absl::Span<const uint8_t> flatbuffer);

struct PlanWriteOptions {
  bool force = false;  // replace an existing file
};

// Writes to a file without a name in the folder of `path`, which gets the name at the end: a writer
// that is destroyed before leaves nothing behind, nor does a process that is killed. Where the file
// system has no such files, the file has a temporary name until then.
class PlanWriter {
 public:
  static absl::StatusOr<PlanWriter> Create(absl::string_view path,
                                           const PlanWriteOptions& options = {});
  PlanWriter(PlanWriter&& other) noexcept;
  PlanWriter& operator=(PlanWriter&& other) noexcept;
  ~PlanWriter();

  // Writes `bytes` as the next section and describes it in `slot`. REQUIRES: bytes is not empty.
  absl::Status AddPacked(absl::Span<const uint8_t> bytes, plan::WeightSlotT* slot);
  // Likewise for a kernel's binary.
  absl::Status AddBinary(absl::Span<const uint8_t> bytes, plan::KernelBinaryT* binary);

  // Writes the rest, syncs and publishes. INTERNAL when `plan` is one that OpenPlan would refuse.
  absl::Status Finish(const plan::PlanT& plan);

 private:
  PlanWriter() = default;
  absl::Status Write(const void* data, size_t data_bytes);
  // Returns where the section lies.
  absl::StatusOr<uint64_t> AddSection(PlanSection::Kind kind, absl::Span<const uint8_t> bytes);
  absl::Status PadTo(uint64_t alignment);
  absl::Status Publish();
  absl::Status Rename();
  absl::Status Failed(absl::string_view action) const;
  void Discard();

  std::string path_, temporary_;
  bool force_ = false;
  bool has_name_ = false;  // temporary_
  int fd_ = -1;
  uint64_t position_ = 0;
  std::vector<PlanSection> sections_;
};

// A plan that packs no weights.
absl::Status WritePlan(const plan::PlanT& plan, absl::string_view path,
                       const PlanWriteOptions& options = {});

}  // namespace quire

#endif  // QUIRE_IR_PLAN_IO_H_
