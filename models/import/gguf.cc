#include "models/import/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr int kMaxArrayDepth = 4;
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kDefaultAlignment = 32;

struct GgmlType {
  uint32_t number;
  absl::string_view text;
  uint64_t block_elements;
  uint64_t block_bytes;
};

constexpr GgmlType kGgmlTypes[] = {
#define GGML_TYPE(number, name, elements, bytes) {number, #name, elements, bytes},
#include "models/import/ggml_types.def"
};

const GgmlType* FindGgmlType(uint32_t number) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

std::optional<DType> DTypeOf(absl::string_view ggml_text) {
#define DTYPE(name, text, elements, bytes) \
  if (ggml_text == #name) return DType::k##name;
#include "ir/dtype.def"
  return std::nullopt;
}

// Reads numbers and strings from the front of a file, and remembers what it was reading for its
// error.
class Cursor {
 public:
  explicit Cursor(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  template <typename T>
  absl::Status Read(absl::string_view what, T& value) {
    if (left() < sizeof(T)) return Truncated(what);
    uint64_t bits = 0;
    for (size_t i = sizeof(T); i-- > 0;) bits = bits << 8 | bytes_[at_ + i];
    std::memcpy(&value, &bits, sizeof(T));
    at_ += sizeof(T);
    return absl::OkStatus();
  }

  absl::Status Read(absl::string_view what, std::string& text) {
    uint64_t text_bytes = 0;
    QUIRE_RETURN_IF_ERROR(Read(what, text_bytes));
    if (text_bytes > left()) return Truncated(what);
    text.assign(reinterpret_cast<const char*>(bytes_.data() + at_), text_bytes);
    at_ += text_bytes;
    return absl::OkStatus();
  }

  absl::Status Truncated(absl::string_view what) const {
    return absl::DataLossError(
        absl::StrCat("the file ends inside ", what, ", which begins at byte ", at_));
  }

 private:
  absl::Span<const uint8_t> bytes_;
  uint64_t at_ = 0;
};
static_assert(std::endian::native == std::endian::little);

template <typename T>
absl::Status ReadNumber(Cursor& cursor, absl::string_view what, GgufValue& out) {
  T number = {};
  QUIRE_RETURN_IF_ERROR(cursor.Read(what, number));
  if constexpr (std::is_floating_point_v<T>) {
    out.floats.push_back(static_cast<double>(number));
  } else {
    out.integers.push_back(static_cast<int64_t>(number));
  }
  return absl::OkStatus();
}

// Reads one scalar of `type` onto the end of the vector of `out` that holds it.
absl::Status ReadScalar(Cursor& cursor, absl::string_view what, GgufType type, GgufValue& out) {
  switch (type) {
    case GgufType::kU8:
      return ReadNumber<uint8_t>(cursor, what, out);
    case GgufType::kI8:
      return ReadNumber<int8_t>(cursor, what, out);
    case GgufType::kU16:
      return ReadNumber<uint16_t>(cursor, what, out);
    case GgufType::kI16:
      return ReadNumber<int16_t>(cursor, what, out);
    case GgufType::kU32:
      return ReadNumber<uint32_t>(cursor, what, out);
    case GgufType::kI32:
      return ReadNumber<int32_t>(cursor, what, out);
    case GgufType::kU64:
      return ReadNumber<uint64_t>(cursor, what, out);
    case GgufType::kI64:
      return ReadNumber<int64_t>(cursor, what, out);
    case GgufType::kF32:
      return ReadNumber<float>(cursor, what, out);
    case GgufType::kF64:
      return ReadNumber<double>(cursor, what, out);
    case GgufType::kBool: {
      QUIRE_RETURN_IF_ERROR(ReadNumber<uint8_t>(cursor, what, out));
      if (out.integers.back() <= 1) return absl::OkStatus();
      return absl::DataLossError(
          absl::StrCat(what, " holds the boolean ", out.integers.back(), ", not 0 or 1"));
    }
    case GgufType::kString:
      out.strings.emplace_back();
      return cursor.Read(what, out.strings.back());
    case GgufType::kArray:
      break;
  }
  return absl::DataLossError(
      absl::StrCat(what, " has the unknown value type ", static_cast<uint32_t>(type)));
}

absl::Status ReadValue(Cursor& cursor, absl::string_view what, int depth, GgufValue& out) {
  uint32_t type = 0;
  if (depth == 0) {
    QUIRE_RETURN_IF_ERROR(cursor.Read(what, type));
    out.type = out.element = static_cast<GgufType>(type);
    if (out.type != GgufType::kArray) return ReadScalar(cursor, what, out.type, out);
  }
  out.type = GgufType::kArray;
  uint64_t count = 0;
  QUIRE_RETURN_IF_ERROR(cursor.Read(what, type));
  QUIRE_RETURN_IF_ERROR(cursor.Read(what, count));
  out.element = static_cast<GgufType>(type);
  if (type > static_cast<uint32_t>(GgufType::kF64)) {
    return absl::DataLossError(absl::StrCat(what, " has the unknown value type ", type));
  }
  // A string is at least its length, an array at least its type and count. Checked before anything
  // is allocated.
  const uint64_t least_bytes = out.element == GgufType::kString  ? 8
                               : out.element == GgufType::kArray ? 12
                                                                 : GgufTypeBytes(out.element);
  if (count > cursor.left() / least_bytes) return cursor.Truncated(what);
  if (out.element != GgufType::kArray) {
    for (uint64_t i = 0; i < count; ++i) {
      QUIRE_RETURN_IF_ERROR(ReadScalar(cursor, what, out.element, out));
    }
    return absl::OkStatus();
  }
  if (depth + 1 >= kMaxArrayDepth) {
    return absl::DataLossError(
        absl::StrCat(what, " nests arrays deeper than ", kMaxArrayDepth, " levels"));
  }
  for (uint64_t i = 0; i < count; ++i) {
    out.arrays.emplace_back();
    QUIRE_RETURN_IF_ERROR(ReadValue(cursor, what, depth + 1, out.arrays.back()));
  }
  return absl::OkStatus();
}

absl::Status ReadMetadata(Cursor& cursor, uint64_t keys, GgufMetadata& metadata) {
  for (uint64_t i = 0; i < keys; ++i) {
    std::string key;
    QUIRE_RETURN_IF_ERROR(cursor.Read(absl::StrCat("the name of key ", i, " of ", keys), key));
    GgufValue value;
    QUIRE_RETURN_IF_ERROR(ReadValue(cursor, absl::StrCat("the value of ", Quoted(key)), 0, value));
    if (!metadata.Add(key, std::move(value))) {
      return absl::DataLossError(absl::StrCat("the key ", Quoted(key), " appears twice"));
    }
  }
  return absl::OkStatus();
}

// Reads one description; `offset` still counts from the start of the tensors' bytes. `bytes` is 0
// for a type whose size is not known.
absl::Status ReadTensorInfo(Cursor& cursor, absl::string_view what, TensorInfo& info) {
  QUIRE_RETURN_IF_ERROR(cursor.Read(what, info.name));
  const std::string tensor = absl::StrCat("tensor ", Quoted(info.name));
  uint32_t rank = 0;
  QUIRE_RETURN_IF_ERROR(cursor.Read(tensor, rank));
  if (rank > kMaxRank) {
    return absl::DataLossError(
        absl::StrCat(tensor, " has rank ", rank, ", above the format's limit of ", kMaxRank));
  }
  info.extents.resize(rank);
  for (uint32_t i = rank; i-- > 0;) {
    QUIRE_RETURN_IF_ERROR(cursor.Read(tensor, info.extents[i]));
    if (info.extents[i] < 0) {
      return absl::DataLossError(absl::StrCat(tensor, " has the extent ",
                                              static_cast<uint64_t>(info.extents[i]),
                                              ", which is not below 2^63"));
    }
  }
  uint32_t number = 0;
  QUIRE_RETURN_IF_ERROR(cursor.Read(tensor, number));
  QUIRE_RETURN_IF_ERROR(cursor.Read(tensor, info.offset));
  const GgmlType* type = FindGgmlType(number);
  if (type == nullptr) {
    info.dtype_text = absl::StrCat("type ", number);
    return absl::OkStatus();
  }
  info.dtype_text = std::string(type->text);
  info.dtype = DTypeOf(type->text);
  const uint64_t row = rank == 0 ? 1 : static_cast<uint64_t>(info.extents.back());
  if (row % type->block_elements != 0) {
    return absl::DataLossError(
        absl::StrCat(tensor, " of shape ", ExtentsText(info.extents), " and type ", type->text,
                     " has rows that are no multiple of ", type->block_elements, " elements"));
  }
  const std::optional<uint64_t> elements = ElementCount(info.extents);
  const std::optional<uint64_t> bytes =
      elements.has_value() ? CheckedMultiply(*elements / type->block_elements, type->block_bytes)
                           : std::nullopt;
  if (!bytes.has_value()) {
    return absl::DataLossError(absl::StrCat(tensor, " of shape ", ExtentsText(info.extents),
                                            " has more bytes than can be counted"));
  }
  info.bytes = *bytes;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ReadAlignment(const GgufMetadata& metadata) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t alignment,
                         metadata.GetIntOr("general.alignment", kDefaultAlignment));
  if (alignment <= 0 || !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return absl::DataLossError(
        absl::StrCat("general.alignment=", alignment, " is not a power of two"));
  }
  return static_cast<uint64_t>(alignment);
}

absl::Status PlaceTensors(uint64_t header_bytes, uint64_t file_bytes, uint64_t alignment,
                          std::vector<TensorInfo>& tensors) {
  if (tensors.empty()) return absl::OkStatus();
  // header_bytes <= file_bytes < 2^63 and alignment < 2^63, so the sum does not wrap.
  const uint64_t data_begin = (header_bytes + alignment - 1) & ~(alignment - 1);
  if (data_begin > file_bytes) {
    return absl::DataLossError(absl::StrCat("the file ends at byte ", file_bytes,
                                            ", before its tensors' bytes begin at ", data_begin));
  }
  const uint64_t data_bytes = file_bytes - data_begin;
  for (TensorInfo& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      return absl::DataLossError(absl::StrCat("tensor ", Quoted(tensor.name), " is at offset ",
                                              tensor.offset, ", not a multiple of ", alignment));
    }
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      return absl::DataLossError(
          absl::StrCat("tensor ", Quoted(tensor.name), " of ", tensor.bytes, " bytes at offset ",
                       tensor.offset, " runs past the file's ", data_bytes, " bytes of data"));
    }
    tensor.offset += data_begin;
  }
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
      return absl::DataLossError(absl::StrCat("tensors ", Quoted(order[i - 1]->name), " and ",
                                              Quoted(order[i]->name), " overlap"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckVersion(uint32_t version) {
  if (version == 2 || version == 3) return absl::OkStatus();
  if (version != 0 && (version & 0xffffu) == 0) {
    return WithLine(absl::UnimplementedError("the file is big-endian"), "allowed",
                    "little-endian GGUF; convert it with gguf_convert_endian.py of llama.cpp");
  }
  return WithLine(absl::UnimplementedError(absl::StrCat("GGUF version ", version)), "allowed",
                  "versions 2 and 3; convert the model again with a current llama.cpp");
}

absl::Status CheckNotSplit(const GgufMetadata& metadata) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t parts, metadata.GetIntOr("split.count", 0));
  if (parts <= 1) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const int64_t part, metadata.GetIntOr("split.no", 0));
  return WithLine(absl::UnimplementedError(
                      absl::StrCat("the file is part ", part + 1, " of a model split in ", parts)),
                  "fix", "join the parts: llama-gguf-split --merge FIRST-PART.gguf JOINED.gguf");
}

absl::Status ParseFile(absl::Span<const uint8_t> bytes, Gguf& gguf) {
  Cursor cursor(bytes);
  uint32_t magic = 0;
  QUIRE_RETURN_IF_ERROR(cursor.Read("the magic number", magic));
  if (magic != 0x46554747u) return absl::DataLossError("does not begin with \"GGUF\"");
  QUIRE_RETURN_IF_ERROR(cursor.Read("the version", gguf.version));
  QUIRE_RETURN_IF_ERROR(CheckVersion(gguf.version));
  uint64_t tensors = 0;
  uint64_t keys = 0;
  QUIRE_RETURN_IF_ERROR(cursor.Read("the tensor count", tensors));
  QUIRE_RETURN_IF_ERROR(cursor.Read("the key count", keys));
  QUIRE_RETURN_IF_ERROR(ReadMetadata(cursor, keys, gguf.metadata));
  QUIRE_RETURN_IF_ERROR(CheckNotSplit(gguf.metadata));
  QUIRE_ASSIGN_OR_RETURN(const uint64_t alignment, ReadAlignment(gguf.metadata));

  absl::flat_hash_set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    TensorInfo info;
    QUIRE_RETURN_IF_ERROR(ReadTensorInfo(
        cursor, absl::StrCat("the description of tensor ", i, " of ", tensors), info));
    if (!names.insert(info.name).second) {
      return absl::DataLossError(absl::StrCat("tensor ", Quoted(info.name), " appears twice"));
    }
    gguf.tensors.push_back(std::move(info));
  }
  return PlaceTensors(cursor.at(), bytes.size(), alignment, gguf.tensors);
}

}  // namespace

absl::StatusOr<Gguf> ParseGguf(absl::Span<const uint8_t> bytes, absl::string_view path) {
  Gguf gguf;
  gguf.metadata = GgufMetadata(path);
  const absl::Status status = ParseFile(bytes, gguf);
  if (!status.ok()) return WithPrefix(status, path);
  return gguf;
}

}  // namespace quire
