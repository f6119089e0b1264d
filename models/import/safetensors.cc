#include "models/import/safetensors.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/file.h"
#include "ir/status.h"
#include "models/import/json.h"

namespace quire {
namespace {

using nlohmann::json;

struct ElementType {
  absl::string_view text;
  uint64_t bits;
  std::optional<DType> dtype;
};

constexpr ElementType kElementTypes[] = {
    {"F32", 32, DType::kF32},     {"F16", 16, DType::kF16},     {"BF16", 16, DType::kBF16},
    {"I32", 32, DType::kI32},     {"BOOL", 8, std::nullopt},    {"U8", 8, std::nullopt},
    {"I8", 8, std::nullopt},      {"U16", 16, std::nullopt},    {"I16", 16, std::nullopt},
    {"U32", 32, std::nullopt},    {"U64", 64, std::nullopt},    {"I64", 64, std::nullopt},
    {"F64", 64, std::nullopt},    {"C64", 64, std::nullopt},    {"F8_E4M3", 8, DType::kF8E4M3},
    {"F8_E5M2", 8, std::nullopt}, {"F8_E8M0", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"F4", 4, std::nullopt},
};

const ElementType* FindElementType(absl::string_view text) {
  for (const ElementType& type : kElementTypes) {
    if (type.text == text) return &type;
  }
  return nullptr;
}

std::string ElementTypeNames() {
  return absl::StrJoin(kElementTypes, ", ", [](std::string* out, const ElementType& type) {
    absl::StrAppend(out, type.text);
  });
}

// One value of the header: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}. Offsets come
// out counted from the start of the file, whose data begin at `data_begin` and are `data_bytes`
// long.
absl::StatusOr<TensorInfo> ParseEntry(const std::string& name, const json& entry,
                                      uint64_t data_begin, uint64_t data_bytes) {
  if (!entry.is_object()) {
    return absl::DataLossError(absl::StrCat("is ", JsonValueText(entry), ", not an object"));
  }
  for (const auto& item : entry.items()) {
    const std::string& key = item.key();
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return absl::DataLossError(absl::StrCat("has the unknown key ", Quoted(key)));
    }
  }
  TensorInfo info;
  info.name = name;

  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) {
    return absl::DataLossError("has no dtype, or one that is not a string");
  }
  info.dtype_text = *dtype->get_ptr<const std::string*>();
  const ElementType* type = FindElementType(info.dtype_text);
  if (type == nullptr) {
    return WithLine(absl::UnimplementedError(absl::StrCat("dtype=", Quoted(info.dtype_text),
                                                          " is not a type of safetensors files")),
                    "allowed", ElementTypeNames());
  }
  info.dtype = type->dtype;

  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) {
    return absl::DataLossError("has no shape, or one that is not an array");
  }
  for (const json& extent : *shape) {
    const uint64_t* value =
        extent.is_number_unsigned() ? extent.get_ptr<const uint64_t*>() : nullptr;
    if (value == nullptr || *value > static_cast<uint64_t>(INT64_MAX)) {
      return absl::DataLossError(
          absl::StrCat("shape has the extent ", JsonValueText(extent), ", not a count"));
    }
    info.extents.push_back(static_cast<int64_t>(*value));
  }

  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return absl::DataLossError("has no data_offsets, or ones that are not two counts");
  }
  const uint64_t begin = *(*offsets)[0].get_ptr<const uint64_t*>();
  const uint64_t end = *(*offsets)[1].get_ptr<const uint64_t*>();
  const std::string range = absl::StrCat("data_offsets [", begin, ", ", end, "]");
  if (begin > end) return absl::DataLossError(absl::StrCat(range, " end before they begin"));
  if (end > data_bytes) {
    return absl::DataLossError(
        absl::StrCat(range, " run past the file's ", data_bytes, " bytes of data"));
  }

  const std::optional<uint64_t> elements = ElementCount(info.extents);
  const std::optional<uint64_t> bits =
      elements.has_value() ? CheckedMultiply(*elements, type->bits) : std::nullopt;
  if (!bits.has_value() || *bits % 8 != 0) {
    return absl::DataLossError(absl::StrCat("shape ", ExtentsText(info.extents), " of ", type->text,
                                            " is not a whole number of bytes below 2^61"));
  }
  if (*bits / 8 != end - begin) {
    return absl::DataLossError(absl::StrCat(range, " hold ", end - begin, " bytes, but shape ",
                                            ExtentsText(info.extents), " of ", type->text,
                                            " needs ", *bits / 8));
  }
  info.offset = data_begin + begin;
  info.bytes = end - begin;
  return info;
}

// Sorts by offset and checks that the tensors tile the data: no overlap, no hole, nothing left
// over.
absl::Status CheckTiling(uint64_t data_begin, uint64_t data_bytes,
                         std::vector<TensorInfo>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  uint64_t at = data_begin;
  const TensorInfo* previous = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset < at) {
      return absl::DataLossError(absl::StrCat("tensors ", Quoted(previous->name), " and ",
                                              Quoted(tensor.name), " overlap"));
    }
    if (tensor.offset > at) {
      return absl::DataLossError(absl::StrCat(tensor.offset - at, " bytes before tensor ",
                                              Quoted(tensor.name), " belong to no tensor"));
    }
    at += tensor.bytes;
    previous = &tensor;
  }
  if (at != data_begin + data_bytes) {
    return absl::DataLossError(absl::StrCat(data_begin + data_bytes - at,
                                            " bytes at the end of the file belong to no tensor"));
  }
  return absl::OkStatus();
}

absl::Status CheckMetadata(const json& metadata) {
  if (!metadata.is_object()) return absl::DataLossError("__metadata__ is not an object");
  for (const auto& item : metadata.items()) {
    if (!item.value().is_string()) {
      return absl::DataLossError(
          absl::StrCat("__metadata__ has a value that is not a string at ", Quoted(item.key())));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorInfo>> ParseFile(absl::Span<const uint8_t> bytes, int file) {
  constexpr uint64_t kLengthBytes = 8;
  if (bytes.size() < kLengthBytes) {
    return absl::DataLossError(absl::StrCat("the file has ", bytes.size(),
                                            " bytes, too few for a safetensors header length"));
  }
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | bytes[i];
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return absl::DataLossError(absl::StrCat("header length ", header_bytes,
                                            " is above the limit of ", kMaxSafetensorsHeaderBytes,
                                            " bytes; is this a safetensors file?"));
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    return absl::DataLossError(absl::StrCat("header length ", header_bytes,
                                            " runs past the end of the file (", bytes.size(),
                                            " bytes)"));
  }
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data() + kLengthBytes),
                               header_bytes);
  if (!absl::StartsWith(text, "{")) return absl::DataLossError("the header does not begin with {");
  const absl::StatusOr<json> header = ParseJsonObject(text, "header");
  if (!header.ok()) return absl::DataLossError(header.status().message());

  const uint64_t data_begin = kLengthBytes + header_bytes;
  const uint64_t data_bytes = bytes.size() - data_begin;
  std::vector<TensorInfo> tensors;
  for (const auto& item : header->items()) {
    if (item.key() == "__metadata__") {
      QUIRE_RETURN_IF_ERROR(CheckMetadata(item.value()));
      continue;
    }
    absl::StatusOr<TensorInfo> info = ParseEntry(item.key(), item.value(), data_begin, data_bytes);
    if (!info.ok()) {
      return WithPrefix(info.status(), absl::StrCat("tensor ", Quoted(item.key())));
    }
    info->file = file;
    tensors.push_back(*std::move(info));
  }
  QUIRE_RETURN_IF_ERROR(CheckTiling(data_begin, data_bytes, tensors));
  return tensors;
}

}  // namespace

absl::StatusOr<std::vector<TensorInfo>> ParseSafetensors(absl::Span<const uint8_t> bytes,
                                                         absl::string_view path, int file) {
  absl::StatusOr<std::vector<TensorInfo>> tensors = ParseFile(bytes, file);
  if (!tensors.ok()) return WithPrefix(tensors.status(), path);
  return tensors;
}

absl::StatusOr<TensorIndex> ReadSafetensorsFile(absl::string_view directory,
                                                absl::string_view name) {
  const std::string path = JoinPath(directory, name);
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  TensorIndex index;
  index.files.emplace_back(name);
  QUIRE_ASSIGN_OR_RETURN(index.tensors, ParseSafetensors(file.bytes(), path, 0));
  return index;
}

}  // namespace quire
