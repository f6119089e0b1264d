#include "runtime/weights.h"

#include <cmath>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/fingerprint.h"
#include "tests/ir/plan_fixture.h"
#include "tests/models/checkpoint_files.h"

namespace quire {
namespace {

using ::quire::testing::AsBytes;
using ::quire::testing::BytesFor;
using ::quire::testing::MakePart;
using ::quire::testing::MakeSlot;
using ::quire::testing::MakeTensor;
using ::quire::testing::TempDir;
using ::quire::testing::TinyPlan;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(absl::Span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

class WeightsTest : public ::testing::Test {
 protected:
  WeightsTest() : plan_(TinyPlan()), contents_(BytesFor("w", 1600)) {
    dir_.Write("w.safetensors", contents_);
    plan_.files[0]->fingerprint = Fingerprint(AsBytes(contents_));
  }

  // Writes the plan into the folder and opens its weights.
  std::unique_ptr<WeightSource> Open(const WeightOptions& options = {}) {
    const std::string path = dir_.File("x.qplan");
    const absl::Status written = WritePlan(plan_, path, {.force = true});
    EXPECT_TRUE(written.ok()) << written;
    auto file = OpenPlan(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return OpenWeights(std::make_shared<PlanFile>(std::move(file).value()), options);
  }

  absl::Status LoadStatus(const WeightOptions& options = {}) {
    return Open(options)->Load(*plan_.targets[0]->weights[0]).status();
  }

  // Element [row, column] of the f32 tensor at `offset` with that many columns, as bytes.
  std::string Element(size_t offset, size_t columns, size_t row, size_t column) const {
    return contents_.substr(offset + (row * columns + column) * 4, 4);
  }

  TempDir dir_;
  plan::PlanT plan_;
  std::string contents_;
};

TEST_F(WeightsTest, OnePartIsTheFileItself) {
  plan_.targets[0]->weights.push_back(MakeSlot("part", "f32", {5, 16}));
  plan_.targets[0]->weights[2]->parts.push_back(MakePart(0, 3, 8));
  auto source = Open();
  auto whole = source->Load(*plan_.targets[0]->weights[0]);
  auto part = source->Load(*plan_.targets[0]->weights[2]);
  source.reset();  // what was loaded outlives the source
  ASSERT_TRUE(whole.ok() && part.ok()) << whole.status() << part.status();
  EXPECT_EQ(Text(whole->bytes), contents_.substr(64, 768));
  EXPECT_EQ(Text(part->bytes), contents_.substr(64 + 3 * 64, 5 * 64));
  EXPECT_FALSE(whole->packed);
  EXPECT_EQ(part->bytes.data(), whole->bytes.data() + 3 * 64);  // no copy
}

TEST_F(WeightsTest, TransposesRowsOfATensor) {
  plan_.targets[0]->weights.push_back(MakeSlot("some", "f32", {4, 16}));
  plan_.targets[0]->weights[2]->parts.push_back(MakePart(1, 5, 9, /*transposed=*/true));
  auto source = Open();
  auto all = source->Load(*plan_.targets[0]->weights[1]);
  auto some = source->Load(*plan_.targets[0]->weights[2]);
  ASSERT_TRUE(all.ok() && some.ok());
  for (size_t row = 0; row < 12; ++row) {
    for (size_t column = 0; column < 16; ++column) {
      const std::string expected = Element(832, 12, column, row);
      EXPECT_EQ(Text(all->bytes.subspan((row * 16 + column) * 4, 4)), expected);
      if (row >= 5 && row < 9) {
        EXPECT_EQ(Text(some->bytes.subspan(((row - 5) * 16 + column) * 4, 4)), expected);
      }
    }
  }
}

TEST_F(WeightsTest, TransposesBeyondOneTileInTwoByteTypes) {
  const std::string bytes = BytesFor("wide", 70 * 45 * 2);
  plan_.files[0]->bytes = bytes.size();
  plan_.files[0]->fingerprint = Fingerprint(AsBytes(bytes));
  dir_.Write("w.safetensors", bytes);
  plan_.tensors.clear();
  plan_.tensors.push_back(MakeTensor("wide", "bf16", {70, 45}, 0, bytes.size()));
  plan_.targets[0]->weights.clear();
  plan_.targets[0]->programs.clear();
  plan_.targets[0]->weights.push_back(MakeSlot("t", "bf16", {40, 70}));
  plan_.targets[0]->weights[0]->parts.push_back(MakePart(0, 3, 43, /*transposed=*/true));
  auto loaded = Open()->Load(*plan_.targets[0]->weights[0]);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  for (size_t row = 0; row < 40; ++row) {
    for (size_t column = 0; column < 70; ++column) {
      ASSERT_EQ(Text(loaded->bytes.subspan((row * 70 + column) * 2, 2)),
                bytes.substr((column * 45 + row + 3) * 2, 2));
    }
  }
}

TEST_F(WeightsTest, JoinsParts) {
  plan_.targets[0]->weights.push_back(MakeSlot("joined", "f32", {6, 16}));
  auto& parts = plan_.targets[0]->weights[2]->parts;
  parts.push_back(MakePart(0, 10, 12));
  parts.push_back(MakePart(1, 2, 3, /*transposed=*/true));
  parts.push_back(MakePart(0, 0, 3));
  auto loaded = Open()->Load(*plan_.targets[0]->weights[2]);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  std::string expected = contents_.substr(64 + 10 * 64, 2 * 64);
  for (size_t column = 0; column < 16; ++column) expected += Element(832, 12, column, 2);
  expected += contents_.substr(64, 3 * 64);
  EXPECT_EQ(Text(loaded->bytes), expected);
}

TEST_F(WeightsTest, PiecesAreTheSameBytes) {
  plan_.targets[0]->weights.push_back(MakeSlot("joined", "f32", {5, 16}));
  plan_.targets[0]->weights[2]->parts.push_back(MakePart(0, 10, 12));
  plan_.targets[0]->weights[2]->parts.push_back(MakePart(0, 0, 3));
  plan_.targets[0]->weights.push_back(MakeSlot("turned", "f32", {3, 16}));
  plan_.targets[0]->weights[3]->parts.push_back(MakePart(0, 1, 2));
  plan_.targets[0]->weights[3]->parts.push_back(MakePart(1, 2, 4, /*transposed=*/true));
  auto source = Open();
  const size_t pieces_of[] = {1, 1, 2, 1};
  for (size_t i = 0; i < 4; ++i) {
    const plan::WeightSlotT& slot = *plan_.targets[0]->weights[i];
    const auto whole = source->Load(slot);
    const auto pieces = source->LoadPieces(slot);
    ASSERT_TRUE(whole.ok() && pieces.ok()) << whole.status() << pieces.status();
    EXPECT_EQ(pieces->pieces.size(), pieces_of[i]) << slot.name;
    std::string joined;
    for (const auto& piece : pieces->pieces) joined += Text(piece);
    EXPECT_EQ(joined, Text(whole->bytes)) << slot.name;
  }
}

TEST_F(WeightsTest, EightBitFloatsGetTheirScales) {
  // Of [130,256]: a scale for each 128 rows and columns, for each row, for all.
  const std::string elements = BytesFor("elements", 130 * 256);
  const float by_block[] = {1, 2, 3, 4};
  std::string bytes = elements;
  for (float scale : by_block) bytes += testing::LittleEndian(scale);
  for (int row = 0; row < 130; ++row) {
    bytes += testing::LittleEndian(F32ToBF16(static_cast<float>(row)));
  }
  plan_.files[0]->bytes = bytes.size();
  plan_.files[0]->fingerprint = Fingerprint(AsBytes(bytes));
  dir_.Write("w.safetensors", bytes);
  const auto expect = [&](const auto& scale_of) {
    plan_.targets[0]->weights.clear();
    plan_.targets[0]->programs.clear();
    plan_.targets[0]->weights.push_back(MakeSlot("w", "f8e4m3_128", {129, 256}));
    plan_.targets[0]->weights[0]->parts.push_back(MakePart(0, 127, 130));
    plan_.targets[0]->weights[0]->parts.push_back(MakePart(0, 0, 126));
    const auto source = Open();
    const auto loaded = source->Load(*plan_.targets[0]->weights[0]);
    const auto pieces = source->LoadPieces(*plan_.targets[0]->weights[0]);
    ASSERT_TRUE(loaded.ok() && pieces.ok()) << loaded.status() << pieces.status();
    std::string expected;
    for (int i = 0; i < 129; ++i) {
      const int row = i < 3 ? 127 + i : i - 3;
      for (int block = 0; block < 2; ++block) {
        expected += testing::LittleEndian(static_cast<float>(scale_of(row, block)));
        expected += elements.substr(static_cast<size_t>(row * 256 + block * 128), 128);
      }
    }
    EXPECT_EQ(Text(loaded->bytes), expected);
    EXPECT_EQ(Text(pieces->pieces.at(0)), expected);
  };
  plan_.tensors.clear();
  plan_.tensors.push_back(MakeTensor("w", "f8e4m3_128", {130, 256}, 0, elements.size()));
  plan_.tensors[0]->scale = 1;
  plan_.tensors.push_back(MakeTensor("scales", "f32", {2, 2}, elements.size(), 16));
  expect([&](int row, int block) { return by_block[row / 128 * 2 + block]; });
  plan_.tensors[1] = MakeTensor("scales", "bf16", {130, 1}, elements.size() + 16, 260);
  expect([](int row, int) { return row; });
  plan_.tensors[1] = MakeTensor("scales", "f32", {}, elements.size() + 8, 4);
  expect([](int, int) { return 3; });
}

TEST_F(WeightsTest, AScaleThatIsNoneIsRefused) {
  for (const float scale : {NAN, INFINITY, 256.0f}) {
    const std::string bytes = std::string(128, 'a') + testing::LittleEndian(scale);
    plan_.files[0]->bytes = bytes.size();
    plan_.files[0]->fingerprint = Fingerprint(AsBytes(bytes));
    dir_.Write("w.safetensors", bytes);
    plan_.tensors.clear();
    plan_.tensors.push_back(MakeTensor("w", "f8e4m3_128", {1, 128}, 0, 128));
    plan_.tensors[0]->scale = 1;
    plan_.tensors.push_back(MakeTensor("w_scale", "f32", {1}, 128, 4));
    plan_.targets[0]->weights.clear();
    plan_.targets[0]->programs.clear();
    plan_.targets[0]->weights.push_back(MakeSlot("w", "f8e4m3_128", {1, 128}));
    plan_.targets[0]->weights[0]->parts.push_back(MakePart(0, 0, 1));
    const absl::Status status = LoadStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("tensor w_scale: scale 0 is "));
  }
}

TEST_F(WeightsTest, MisalignedTensorsAreCopied) {
  plan_.tensors[0]->offset = 63;
  auto loaded = Open()->Load(*plan_.targets[0]->weights[0]);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(loaded->bytes.data()) % 4, 0u);
  EXPECT_EQ(Text(loaded->bytes), contents_.substr(63, 768));
}

TEST_F(WeightsTest, PackedBytesComeFromThePlan) {
  auto writer = PlanWriter::Create(dir_.File("p.qplan"));
  ASSERT_TRUE(writer.ok());
  plan::WeightSlotT& slot = *plan_.targets[0]->weights[0];
  ASSERT_TRUE(writer->AddPacked(AsBytes(BytesFor("packed", 1000)), &slot).ok());
  ASSERT_TRUE(writer->Finish(plan_).ok());
  auto file = OpenPlan(dir_.File("p.qplan"));
  ASSERT_TRUE(file.ok());
  auto loaded = OpenWeights(std::make_shared<PlanFile>(std::move(file).value()), {})->Load(slot);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(loaded->packed);
  EXPECT_EQ(Text(loaded->bytes), BytesFor("packed", 1000));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(loaded->bytes.data()) % 4096, 0u);
}

TEST_F(WeightsTest, WeightsDirReplacesTheFolder) {
  const TempDir elsewhere;
  elsewhere.Write("w.safetensors", contents_);
  plan_.files[0]->path = "/nowhere/at/all/w.safetensors";
  const absl::Status missing = LoadStatus();
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(missing.message(), AllOf(HasSubstr("/nowhere/at/all/w.safetensors"),
                                       HasSubstr("1600 bytes"), HasSubstr("--weights-dir")));
  EXPECT_TRUE(LoadStatus({.weights_dir = elsewhere.path()}).ok());
}

TEST_F(WeightsTest, AnotherFileIsRefused) {
  std::string other = contents_;
  other[1500] ^= 1;
  dir_.Write("w.safetensors", other);
  const absl::Status differs = LoadStatus();
  EXPECT_EQ(differs.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(differs.message(), AllOf(HasSubstr("w.safetensors: not the file"),
                                       HasSubstr("expected: 1600 bytes"), HasSubstr("fix: ")));
  dir_.Write("w.safetensors", contents_ + "more");
  EXPECT_EQ(LoadStatus().code(), absl::StatusCode::kFailedPrecondition);
  dir_.Write("w.safetensors", contents_.substr(0, 1599));
  const absl::Status truncated = LoadStatus();
  EXPECT_EQ(truncated.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(truncated.message(), HasSubstr("found: 1599 bytes"));
}

TEST(FingerprintTest, ReadsSizeAndBothEnds) {
  std::string file = BytesFor("file", 400000);
  const uint64_t fingerprint = Fingerprint(AsBytes(file));
  EXPECT_NE(Fingerprint(AsBytes(file).subspan(0, 399999)), fingerprint);
  for (const size_t at : {size_t{0}, size_t{65535}, file.size() - 65536, file.size() - 1}) {
    file[at] ^= 1;
    EXPECT_NE(Fingerprint(AsBytes(file)), fingerprint) << at;
    file[at] ^= 1;
  }
  file[65536] ^= 1;  // the middle is not read
  EXPECT_EQ(Fingerprint(AsBytes(file)), fingerprint);
  EXPECT_NE(Fingerprint(AsBytes("a")), Fingerprint(AsBytes("b")));
  EXPECT_EQ(Fingerprint({}), Fingerprint({}));
}

}  // namespace
}  // namespace quire
