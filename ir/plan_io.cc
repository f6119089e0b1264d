#include "ir/plan_io.h"

#include <cinttypes>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/flatbuffer_bytes.h"
#include "ir/op.h"
#include "ir/plan_check.h"
#include "ir/plan_format.h"
#include "ir/status.h"

namespace quire {
namespace {

// A new name beside the plan for the command that lowers it again.
std::string NewName(absl::string_view path) {
  const size_t dot = path.rfind('.');
  if (dot == absl::string_view::npos || path.find('/', dot) != absl::string_view::npos) {
    return absl::StrCat(path, ".new");
  }
  return absl::StrCat(path.substr(0, dot), ".new", path.substr(dot));
}

absl::Status LoweredStatus(const plan::PlanT& plan, absl::string_view path) {
  if (plan.op_table_hash == OpTableHash()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": lowered by another build, ", plan.producer, ", whose ops differ",
                   "\n  fix: quire compile ", path, " -o ", NewName(path)));
}

// Leaves what says how to lower the targets again, and nothing that could be run.
void DropLowered(plan::PlanT* plan) {
  for (const auto& target : plan->targets) {
    target->kernels.clear();
    target->weights.clear();
    target->programs.clear();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<plan::PlanT>> UnpackPlan(absl::Span<const uint8_t> flatbuffer) {
  // The verifier reads an offset and the identifier before it looks at the size.
  constexpr size_t kSmallestBytes = 8;
  // A table takes at least four bytes for its offset and as many for itself.
  flatbuffers::Verifier::Options options;
  options.max_tables = static_cast<flatbuffers::uoffset_t>(flatbuffer.size() / 8 + 1);
  if (flatbuffer.size() < kSmallestBytes || flatbuffer.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return absl::DataLossError(absl::StrCat("FlatBuffer: ", flatbuffer.size(), " bytes"));
  }
  flatbuffers::Verifier verifier(flatbuffer.data(), flatbuffer.size(), options);
  if (!plan::VerifyPlanBuffer(verifier)) {
    return absl::DataLossError("FlatBuffer: an offset in it is wrong");
  }
  const plan::Plan* plan = plan::GetPlan(flatbuffer.data());
  if (!UnpacksWithin(*reinterpret_cast<const flatbuffers::Table*>(plan), *plan::PlanTypeTable(),
                     flatbuffer.size())) {
    return absl::DataLossError(
        "FlatBuffer: parts of it are referenced more than once, or not aligned");
  }
  return std::unique_ptr<plan::PlanT>(plan->UnPack());
}

absl::StatusOr<PlanContents> ReadPlan(absl::Span<const uint8_t> file, absl::string_view name) {
  auto read = [&]() -> absl::StatusOr<PlanContents> {
    PlanContents contents;
    QUIRE_ASSIGN_OR_RETURN(const PlanHeader header, DecodeHeader(file));
    QUIRE_ASSIGN_OR_RETURN(contents.sections, DecodeTable(file, header));
    QUIRE_ASSIGN_OR_RETURN(
        contents.plan, UnpackPlan(file.subspan(header.flatbuffer_offset, header.flatbuffer_bytes)));
    contents.lowered_status = LoweredStatus(*contents.plan, name);
    if (!contents.lowered_status.ok()) DropLowered(contents.plan.get());
    QUIRE_RETURN_IF_ERROR(WithPrefix(CheckPlan(*contents.plan, contents.sections), "FlatBuffer"));
    return contents;
  };
  absl::StatusOr<PlanContents> contents = read();
  if (!contents.ok()) return WithPrefix(contents.status(), name);
  return contents;
}

absl::StatusOr<PlanFile> OpenPlan(absl::string_view path) {
  QUIRE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  QUIRE_ASSIGN_OR_RETURN(PlanContents contents, ReadPlan(file.bytes(), path));
  PlanFile plan(std::move(file));
  plan.plan_ = std::move(contents.plan);
  plan.sections_ = std::move(contents.sections);
  plan.lowered_status_ = std::move(contents.lowered_status);
  return plan;
}

absl::StatusOr<const plan::TargetT*> PlanFile::Target(absl::string_view name) const {
  QUIRE_RETURN_IF_ERROR(lowered_status_);
  for (const auto& target : plan_->targets) {
    if (target->name == name) return target.get();
  }
  std::vector<std::string> names;
  for (const auto& target : plan_->targets) names.push_back(target->name);
  const std::string allowed = absl::StrJoin(names, ", ");
  names.emplace_back(name);
  return absl::FailedPreconditionError(absl::StrCat(
      path(), ": not lowered for ", name, "\n  allowed: ", allowed, "\n  fix: quire compile ",
      path(), " -o ", NewName(path()), " --target=", absl::StrJoin(names, ",")));
}

absl::StatusOr<absl::Span<const uint8_t>> PlanFile::PackedBytes(
    const plan::WeightSlotT& slot) const {
  if (FindSection(sections_, PlanSection::Kind::kWeights, slot.offset, slot.bytes) != nullptr) {
    return file_.bytes().subspan(slot.offset, slot.bytes);
  }
  return absl::DataLossError(
      absl::StrCat(path(), ": weight ", slot.name, ": its bytes are no section of the file"));
}

absl::StatusOr<absl::Span<const uint8_t>> PlanFile::BinaryBytes(
    const plan::KernelBinaryT& binary) const {
  const PlanSection* section =
      FindSection(sections_, PlanSection::Kind::kBinary, binary.offset, binary.bytes);
  const absl::string_view what =
      section == nullptr ? "its bytes are no section of the file" : "its checksum differs";
  if (section != nullptr) {
    const absl::Span<const uint8_t> bytes = file_.bytes().subspan(binary.offset, binary.bytes);
    if (PlanChecksum(bytes) == section->checksum) return bytes;
  }
  return absl::DataLossError(
      absl::StrCat(path(), ": binary of ", binary.entry, " for ", binary.architecture, ": ", what));
}

absl::Status PlanFile::VerifySections() const {
  uint64_t end = kPlanHeaderBytes;
  for (const PlanSection& section : sections_) {
    const bool good =
        IsZeroBytes(file_.bytes().subspan(end, section.offset - end)) &&
        PlanChecksum(file_.bytes().subspan(section.offset, section.bytes)) == section.checksum;
    if (good) {
      end = section.offset + section.bytes;
      continue;
    }
    std::string name = "section";
    for (const auto& target : plan_->targets) {
      for (const auto& slot : target->weights) {
        if (slot->packed && slot->offset == section.offset) name = "weight " + slot->name;
      }
      for (const auto& kernel : target->kernels) {
        for (const auto& binary : kernel->binaries) {
          if (binary->offset == section.offset) {
            name = absl::StrCat("binary of ", binary->entry, " for ", binary->architecture);
          }
        }
      }
    }
    return absl::DataLossError(absl::StrCat(path(), ": ", name, ": checksum of ", section.bytes,
                                            " bytes at ", section.offset,
                                            " differs: the file is corrupt"));
  }
  return absl::OkStatus();
}

}  // namespace quire
