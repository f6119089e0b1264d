// Tiny checkpoint files for tests: safetensors and GGUF, well formed or deliberately not.
#ifndef QUIRE_TESTS_MODELS_CHECKPOINT_FILES_H_
#define QUIRE_TESTS_MODELS_CHECKPOINT_FILES_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace quire::testing {

inline absl::Span<const uint8_t> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A directory that is removed, with what is in it, at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quire-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const { return absl::StrCat(path_, "/", name); }
  std::string Write(absl::string_view name, absl::string_view contents) const {
    const std::string path = File(name);
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }

 private:
  std::string path_;
};

// `bytes` bytes that differ from one another and from those of other names.
inline std::string BytesFor(absl::string_view name, size_t bytes) {
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (const char c : name) state = (state ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  std::string out(bytes, '\0');
  for (char& c : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(state >> 56);
  }
  return out;
}

template <typename T>
std::string LittleEndian(T value) {
  std::string out(sizeof(T), '\0');
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  for (char& c : out) {
    c = static_cast<char>(bits);
    bits >>= 8;
  }
  return out;
}

// A tensor of a test file; `type` is the file's own name (safetensors) or unused (GGUF has
// numbers).
struct TestTensor {
  std::string name;
  std::string type;
  std::vector<int64_t> extents;
  std::string bytes;
};

// A safetensors file with exactly this header.
inline std::string SafetensorsWithHeader(absl::string_view header, absl::string_view data) {
  return absl::StrCat(LittleEndian<uint64_t>(header.size()), header, data);
}

inline std::string SafetensorsFile(const std::vector<TestTensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const TestTensor& tensor : tensors) {
    absl::StrAppend(&header, ",\"", tensor.name, "\":{\"dtype\":\"", tensor.type, "\",\"shape\":[",
                    absl::StrJoin(tensor.extents, ","), "],\"data_offsets\":[", data.size(), ",",
                    data.size() + tensor.bytes.size(), "]}");
    data += tensor.bytes;
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  return SafetensorsWithHeader(header, data);
}

// Writes a GGUF file piece by piece. Numbers of value and tensor types are the format's own.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  static std::string String(absl::string_view text) {
    return absl::StrCat(LittleEndian<uint64_t>(text.size()), text);
  }

  // A key whose value is `payload`, already encoded.
  GgufWriter& Raw(absl::string_view key, uint32_t type, absl::string_view payload) {
    absl::StrAppend(&metadata_, String(key), LittleEndian(type), payload);
    ++keys_;
    return *this;
  }
  GgufWriter& U8(absl::string_view key, uint8_t v) { return Raw(key, 0, LittleEndian(v)); }
  GgufWriter& I8(absl::string_view key, int8_t v) { return Raw(key, 1, LittleEndian(v)); }
  GgufWriter& U16(absl::string_view key, uint16_t v) { return Raw(key, 2, LittleEndian(v)); }
  GgufWriter& I16(absl::string_view key, int16_t v) { return Raw(key, 3, LittleEndian(v)); }
  GgufWriter& U32(absl::string_view key, uint32_t v) { return Raw(key, 4, LittleEndian(v)); }
  GgufWriter& I32(absl::string_view key, int32_t v) { return Raw(key, 5, LittleEndian(v)); }
  GgufWriter& F32(absl::string_view key, float v) { return Raw(key, 6, LittleEndian(v)); }
  GgufWriter& Bool(absl::string_view key, bool v) { return Raw(key, 7, LittleEndian<uint8_t>(v)); }
  GgufWriter& Str(absl::string_view key, absl::string_view v) { return Raw(key, 8, String(v)); }
  GgufWriter& U64(absl::string_view key, uint64_t v) { return Raw(key, 10, LittleEndian(v)); }
  GgufWriter& I64(absl::string_view key, int64_t v) { return Raw(key, 11, LittleEndian(v)); }
  GgufWriter& F64(absl::string_view key, double v) { return Raw(key, 12, LittleEndian(v)); }
  GgufWriter& Strings(absl::string_view key, const std::vector<std::string>& values) {
    std::string payload =
        absl::StrCat(LittleEndian<uint32_t>(8), LittleEndian<uint64_t>(values.size()));
    for (const std::string& value : values) payload += String(value);
    return Raw(key, 9, payload);
  }
  template <typename T>
  GgufWriter& Numbers(absl::string_view key, uint32_t type, const std::vector<T>& values) {
    std::string payload = absl::StrCat(LittleEndian(type), LittleEndian<uint64_t>(values.size()));
    for (const T value : values) payload += LittleEndian(value);
    return Raw(key, 9, payload);
  }

  // Appends a tensor after the last, at the next multiple of the alignment. `dims` fastest first,
  // as in the file.
  GgufWriter& Tensor(absl::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                     absl::string_view bytes) {
    data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_);
    TensorAt(name, type, dims, data_.size());
    data_ += std::string(bytes);
    return *this;
  }
  // Only the description of a tensor, at any offset.
  GgufWriter& TensorAt(absl::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                       uint64_t offset) {
    absl::StrAppend(&infos_, String(name), LittleEndian(static_cast<uint32_t>(dims.size())));
    for (const uint64_t dim : dims) infos_ += LittleEndian(dim);
    absl::StrAppend(&infos_, LittleEndian(type), LittleEndian(offset));
    ++tensors_;
    return *this;
  }
  // The alignment that Tensor() and Build() lay out by; the key general.alignment is the caller's
  // to write.
  GgufWriter& LayOutBy(uint64_t alignment) {
    alignment_ = alignment;
    return *this;
  }

  std::string Build() const {
    std::string out = absl::StrCat("GGUF", LittleEndian(version_), LittleEndian(tensors_),
                                   LittleEndian(keys_), metadata_, infos_);
    out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_);
    return out + data_;
  }

 private:
  uint32_t version_;
  uint64_t keys_ = 0;
  uint64_t tensors_ = 0;
  uint64_t alignment_ = 32;
  std::string metadata_;
  std::string infos_;
  std::string data_;
};

}  // namespace quire::testing

#endif  // QUIRE_TESTS_MODELS_CHECKPOINT_FILES_H_
