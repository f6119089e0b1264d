#include "tests/parity/fixture.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "ir/file.h"
#include "ir/status.h"
#include "models/import/safetensors.h"
#include "tests/testdata.h"

namespace quire::testing {
namespace {

std::string Root() { return TestData("parity/fixtures"); }

const TensorInfo* Named(const TensorIndex& index, absl::string_view name) {
  for (const TensorInfo& tensor : index.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

template <typename T>
void Append(const MappedFile& file, const TensorInfo& tensor, std::vector<T>& values) {
  const size_t count = tensor.bytes / sizeof(T);
  values.resize(values.size() + count);
  std::memcpy(values.data() + values.size() - count, file.bytes().data() + tensor.offset,
              tensor.bytes);
}

}  // namespace

std::vector<std::string> FixtureNames() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(Root(), error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string FixturePath(absl::string_view name) {
  const std::string folder = JoinPath(Root(), name);
  const std::string gguf = JoinPath(folder, "model.gguf");
  return KindOfPath(gguf) == PathKind::kFile ? gguf : folder;
}

absl::StatusOr<Fixture> ReadFixture(absl::string_view name) {
  constexpr absl::string_view kFile = "expected.safetensors";
  const std::string folder = JoinPath(Root(), name);
  QUIRE_ASSIGN_OR_RETURN(const TensorIndex index, ReadSafetensorsFile(folder, kFile));
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(JoinPath(folder, kFile)));
  const TensorInfo* ids = Named(index, "ids");
  const TensorInfo* prefill = Named(index, "prefill");
  const TensorInfo* decode = Named(index, "decode");
  if (ids == nullptr || prefill == nullptr || decode == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not a fixture"));
  }
  Fixture fixture;
  Append(file, *ids, fixture.ids);
  Append(file, *prefill, fixture.logits);
  Append(file, *decode, fixture.logits);
  if (const TensorInfo* states = Named(index, "states")) {
    Append(file, *states, fixture.states);
    fixture.states_width = states->extents.back();
  }
  constexpr absl::string_view kImages = "images.safetensors";
  if (std::filesystem::exists(JoinPath(folder, kImages))) {
    QUIRE_ASSIGN_OR_RETURN(const TensorIndex images, ReadSafetensorsFile(folder, kImages));
    QUIRE_ASSIGN_OR_RETURN(const MappedFile tensors, MappedFile::Open(JoinPath(folder, kImages)));
    const TensorInfo* positions = Named(images, "positions");
    const TensorInfo* rows = Named(images, "rows");
    const TensorInfo* logits = Named(images, "logits");
    if (positions == nullptr || rows == nullptr || logits == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": images without logits"));
    }
    Append(tensors, *positions, fixture.image_positions);
    Append(tensors, *rows, fixture.image_rows);
    Append(tensors, *logits, fixture.image_logits);
  }
  if (const TensorInfo* source = Named(index, "source")) {
    const TensorInfo* beams = Named(index, "beams");
    const TensorInfo* scores = Named(index, "scores");
    if (beams == nullptr || scores == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": a source without beams"));
    }
    Append(file, *source, fixture.source);
    Append(file, *scores, fixture.scores);
    std::vector<int32_t> rows;
    Append(file, *beams, rows);
    const auto length = static_cast<size_t>(beams->extents[1]);
    for (size_t begin = 0; begin < rows.size(); begin += length) {
      auto& row = fixture.beams.emplace_back();
      for (size_t i = begin; i < begin + length && rows[i] >= 0; ++i) row.push_back(rows[i]);
    }
  }
  fixture.prompt_tokens = prefill->extents[0];
  fixture.vocab_size = prefill->extents[1];
  return fixture;
}

}  // namespace quire::testing
