#include "ir/plan_format.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr absl::string_view kMagic = "quirepln";
constexpr size_t kHeaderChecksumOffset = 120;
constexpr uint64_t kTableEntryBytes = 32;

template <typename T>
void Put(std::string* out, size_t offset, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    (*out)[offset + i] = static_cast<char>(value >> (8 * i));
  }
}

template <typename T>
T Get(absl::Span<const uint8_t> bytes, size_t offset) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(T{bytes[offset + i]} << (8 * i));
  return value;
}

absl::Span<const uint8_t> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

bool Inside(uint64_t offset, uint64_t bytes, uint64_t file_bytes) {
  return offset <= file_bytes && bytes <= file_bytes - offset;
}

absl::Status Lost(absl::string_view section, absl::string_view reason) {
  return absl::DataLossError(absl::StrCat(section, ": ", reason));
}

}  // namespace

uint64_t PlanChecksum(absl::Span<const uint8_t> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

bool IsZeroBytes(absl::Span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

std::string EncodeHeader(const PlanHeader& header) {
  std::string out(kPlanHeaderBytes, '\0');
  std::copy(kMagic.begin(), kMagic.end(), out.begin());
  Put<uint32_t>(&out, 8, kPlanFormatVersion);
  Put<uint32_t>(&out, 12, static_cast<uint32_t>(kPlanHeaderBytes));
  Put<uint64_t>(&out, 16, header.file_bytes);
  Put<uint64_t>(&out, 24, header.flatbuffer_offset);
  Put<uint64_t>(&out, 32, header.flatbuffer_bytes);
  Put<uint64_t>(&out, 40, header.flatbuffer_checksum);
  Put<uint64_t>(&out, 48, header.table_offset);
  Put<uint64_t>(&out, 56, header.table_bytes);
  Put<uint64_t>(&out, 64, header.table_checksum);
  Put<uint64_t>(&out, kHeaderChecksumOffset,
                PlanChecksum(AsBytes(out).subspan(0, kHeaderChecksumOffset)));
  return out;
}

std::string EncodeTable(absl::Span<const PlanSection> sections) {
  std::string out(sections.size() * kTableEntryBytes, '\0');
  size_t at = 0;
  for (const PlanSection& section : sections) {
    Put<uint32_t>(&out, at, static_cast<uint32_t>(section.kind));
    Put<uint64_t>(&out, at + 8, section.offset);
    Put<uint64_t>(&out, at + 16, section.bytes);
    Put<uint64_t>(&out, at + 24, section.checksum);
    at += kTableEntryBytes;
  }
  return out;
}

absl::StatusOr<PlanHeader> DecodeHeader(absl::Span<const uint8_t> file) {
  const size_t magic_bytes = std::min(file.size(), kMagic.size());
  if (file.empty() || std::memcmp(file.data(), kMagic.data(), magic_bytes) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not a plan: it ", file.empty() ? "is empty" : "does not start with \"quirepln\"",
        "\n  fix: quire compile writes one of a model"));
  }
  if (file.size() < kPlanHeaderBytes) {
    return Lost("header", absl::StrCat("truncated: ", file.size(), " bytes of 128"));
  }
  if (Get<uint64_t>(file, kHeaderChecksumOffset) !=
      PlanChecksum(file.subspan(0, kHeaderChecksumOffset))) {
    return Lost("header", "checksum differs: the file is corrupt");
  }
  if (const uint32_t version = Get<uint32_t>(file, 8); version != kPlanFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "format version ", version, " is not known to this build\n  allowed: ", kPlanFormatVersion,
        "\n  fix: compile the plan again with this build, or run it with the build that wrote it"));
  }
  if (Get<uint32_t>(file, 12) != kPlanHeaderBytes) return Lost("header", "its size is not 128");
  PlanHeader header;
  header.file_bytes = Get<uint64_t>(file, 16);
  header.flatbuffer_offset = Get<uint64_t>(file, 24);
  header.flatbuffer_bytes = Get<uint64_t>(file, 32);
  header.flatbuffer_checksum = Get<uint64_t>(file, 40);
  header.table_offset = Get<uint64_t>(file, 48);
  header.table_bytes = Get<uint64_t>(file, 56);
  header.table_checksum = Get<uint64_t>(file, 64);
  if (header.file_bytes != file.size()) {
    return Lost("file", absl::StrCat("truncated or extended: ", file.size(),
                                     " bytes, the header says ", header.file_bytes));
  }
  if (header.flatbuffer_offset < kPlanHeaderBytes || header.flatbuffer_offset % 16 != 0 ||
      !Inside(header.flatbuffer_offset, header.flatbuffer_bytes, file.size())) {
    return Lost("FlatBuffer", "lies outside of the file");
  }
  const uint64_t flatbuffer_end = header.flatbuffer_offset + header.flatbuffer_bytes;
  if (header.table_offset < flatbuffer_end || header.table_offset % 8 != 0 ||
      !Inside(header.table_offset, header.table_bytes, file.size()) ||
      header.table_offset + header.table_bytes != file.size()) {
    return Lost("section table", "lies outside of the file");
  }
  if (header.table_offset - flatbuffer_end >= 8 ||
      !IsZeroBytes(file.subspan(flatbuffer_end, header.table_offset - flatbuffer_end))) {
    return Lost("section table", "does not follow the FlatBuffer");
  }
  if (PlanChecksum(file.subspan(header.flatbuffer_offset, header.flatbuffer_bytes)) !=
      header.flatbuffer_checksum) {
    return Lost("FlatBuffer", "checksum differs: the file is corrupt");
  }
  return header;
}

absl::StatusOr<std::vector<PlanSection>> DecodeTable(absl::Span<const uint8_t> file,
                                                     const PlanHeader& header) {
  const absl::Span<const uint8_t> table = file.subspan(header.table_offset, header.table_bytes);
  if (PlanChecksum(table) != header.table_checksum || table.size() % kTableEntryBytes != 0) {
    return Lost("section table", "checksum differs: the file is corrupt");
  }
  std::vector<PlanSection> sections;
  sections.reserve(table.size() / kTableEntryBytes);
  uint64_t end = kPlanHeaderBytes;
  for (size_t at = 0; at < table.size(); at += kTableEntryBytes) {
    const std::string name = absl::StrCat("section ", sections.size());
    PlanSection section;
    section.kind = static_cast<PlanSection::Kind>(Get<uint32_t>(table, at));
    if ((section.kind != PlanSection::Kind::kWeights &&
         section.kind != PlanSection::Kind::kBinary) ||
        Get<uint32_t>(table, at + 4) != 0) {
      return Lost(name, "its kind is not known");
    }
    section.offset = Get<uint64_t>(table, at + 8);
    section.bytes = Get<uint64_t>(table, at + 16);
    section.checksum = Get<uint64_t>(table, at + 24);
    if (section.offset < end || section.offset % kPlanPageBytes != 0 || section.bytes == 0 ||
        !Inside(section.offset, section.bytes, header.flatbuffer_offset)) {
      return Lost(name, "lies outside of its part of the file");
    }
    if (section.offset - end >= kPlanPageBytes) return Lost(name, "does not follow the last");
    end = section.offset + section.bytes;
    sections.push_back(section);
  }
  if (header.flatbuffer_offset - end >= kPlanPageBytes ||
      !IsZeroBytes(file.subspan(end, header.flatbuffer_offset - end))) {
    return Lost("FlatBuffer", "does not follow the last section");
  }
  return sections;
}

}  // namespace quire
