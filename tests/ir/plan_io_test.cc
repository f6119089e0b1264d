#include "ir/plan_io.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/plan_format.h"
#include "tests/ir/plan_fixture.h"
#include "tests/models/checkpoint_files.h"

namespace quire {
namespace {

using ::quire::testing::AsBytes;
using ::quire::testing::BytesFor;
using ::quire::testing::TempDir;
using ::quire::testing::TinyPlan;
using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::unique_ptr<plan::KernelBinaryT> Binary(std::string architecture) {
  auto binary = std::make_unique<plan::KernelBinaryT>();
  binary->entry = "linear_few_8";
  binary->key = "0123456789abcdef0123456789abcdef";
  binary->key[0] = architecture[3];  // one of its own
  binary->architecture = std::move(architecture);
  return binary;
}

// The tiny plan with both weights packed, and its last kernel built for some architectures.
std::string WritePacked(const TempDir& dir,
                        const std::vector<std::string>& architectures = {"sm_90a"}) {
  const std::string path = dir.File("packed.qplan");
  plan::PlanT plan = TinyPlan();
  auto writer = PlanWriter::Create(path);
  EXPECT_TRUE(writer.ok()) << writer.status();
  for (auto& slot : plan.targets[0]->weights) {
    EXPECT_TRUE(writer->AddPacked(AsBytes(BytesFor(slot->name, 768)), slot.get()).ok());
  }
  for (const std::string& architecture : architectures) {
    auto& binaries = plan.targets[0]->kernels[2]->binaries;
    binaries.push_back(Binary(architecture));
    EXPECT_TRUE(
        writer->AddBinary(AsBytes(BytesFor(architecture, 300)), binaries.back().get()).ok());
  }
  EXPECT_TRUE(writer->Finish(plan).ok());
  return path;
}

// Rewrites the checksums of a file whose parts a test has edited.
void Reseal(std::string* file) {
  auto header = DecodeHeader(AsBytes(*file));
  auto get = [&](size_t at) {
    uint64_t value;
    std::memcpy(&value, file->data() + at, sizeof(value));
    return value;
  };
  PlanHeader sealed;
  sealed.file_bytes = file->size();
  sealed.flatbuffer_offset = get(24);
  sealed.flatbuffer_bytes = get(32);
  sealed.flatbuffer_checksum =
      PlanChecksum(AsBytes(*file).subspan(sealed.flatbuffer_offset, sealed.flatbuffer_bytes));
  sealed.table_offset = get(48);
  sealed.table_bytes = get(56);
  sealed.table_checksum =
      PlanChecksum(AsBytes(*file).subspan(sealed.table_offset, sealed.table_bytes));
  const std::string encoded = EncodeHeader(sealed);
  std::copy(encoded.begin(), encoded.end(), file->begin());
}

TEST(PlanIoTest, WritesAndOpens) {
  const TempDir dir;
  const std::string path = dir.File("x.qplan");
  ASSERT_TRUE(WritePlan(TinyPlan(), path).ok());
  auto file = OpenPlan(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->lowered_status().ok());
  EXPECT_EQ(file->plan().model->name, "tiny");
  EXPECT_EQ(file->plan().tensors[1]->name, "head.t");
  EXPECT_EQ(file->plan().targets[0]->programs[0]->buffers[2]->offset->r(), 64);
  EXPECT_TRUE(file->sections().empty());
  EXPECT_TRUE(file->Target("cpu").ok());
  EXPECT_THAT(file->Target("cuda").status().message(), HasSubstr("allowed: cpu"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(PlanIoTest, RefusesToOverwriteUnlessForced) {
  const TempDir dir;
  const std::string path = dir.Write("x.qplan", "precious");
  const absl::Status refused = WritePlan(TinyPlan(), path);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.message(), HasSubstr("--force"));
  EXPECT_EQ(ReadFile(path), "precious");
  ASSERT_TRUE(WritePlan(TinyPlan(), path, {.force = true}).ok());
  EXPECT_TRUE(OpenPlan(path).ok());
}

TEST(PlanIoTest, FileThatAppearsDuringWritingIsKept) {
  const TempDir dir;
  const std::string path = dir.File("x.qplan");
  auto writer = PlanWriter::Create(path);
  ASSERT_TRUE(writer.ok());
  dir.Write("x.qplan", "precious");
  EXPECT_EQ(writer->Finish(TinyPlan()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadFile(path), "precious");
}

TEST(PlanIoTest, AbandonedWriterLeavesNothing) {
  const TempDir dir;
  {
    auto writer = PlanWriter::Create(dir.File("x.qplan"));
    ASSERT_TRUE(writer.ok());
    plan::WeightSlotT slot;
    ASSERT_TRUE(writer->AddPacked(AsBytes("some bytes"), &slot).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(PlanIoTest, MalformedPlanIsNotWritten) {
  const TempDir dir;
  plan::PlanT plan = TinyPlan();
  plan.targets[0]->programs[0]->launches[0]->kernel = 9;
  EXPECT_EQ(WritePlan(plan, dir.File("x.qplan")).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(PlanIoTest, PackedSectionsArePageAlignedAndVerified) {
  const TempDir dir;
  const std::string path = WritePacked(dir);
  auto file = OpenPlan(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->sections().size(), 3u);
  for (const auto& slot : file->plan().targets[0]->weights) {
    EXPECT_EQ(slot->offset % kPlanPageBytes, 0u);
    auto bytes = file->PackedBytes(*slot);
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(std::string(bytes->begin(), bytes->end()), BytesFor(slot->name, 768));
  }
  EXPECT_TRUE(file->VerifySections().ok());
  plan::WeightSlotT elsewhere;
  elsewhere.offset = 4096;
  elsewhere.bytes = 767;
  EXPECT_EQ(file->PackedBytes(elsewhere).status().code(), absl::StatusCode::kDataLoss);

  std::string damaged = ReadFile(path);
  damaged[file->sections()[1].offset + 100] ^= 4;
  auto reopened = OpenPlan(dir.Write("damaged.qplan", damaged));
  ASSERT_TRUE(reopened.ok());
  const absl::Status verified = reopened->VerifySections();
  EXPECT_EQ(verified.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(verified.message(), HasSubstr("weight head"));
}

TEST(PlanIoTest, BinariesAreSectionsThatAreVerifiedAtEachUse) {
  const TempDir dir;
  const std::string path = WritePacked(dir, {"sm_80", "sm_90a"});
  auto file = OpenPlan(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto& binaries = file->plan().targets[0]->kernels[2]->binaries;
  ASSERT_EQ(binaries.size(), 2u);
  for (const auto& binary : binaries) {
    EXPECT_EQ(binary->offset % kPlanPageBytes, 0u);
    auto bytes = file->BinaryBytes(*binary);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(std::string(bytes->begin(), bytes->end()), BytesFor(binary->architecture, 300));
  }
  // A section of weights is no binary, nor the other way round.
  plan::KernelBinaryT weights = *Binary("sm_90a");
  weights.offset = file->sections()[0].offset;
  weights.bytes = file->sections()[0].bytes;
  EXPECT_EQ(file->BinaryBytes(weights).status().code(), absl::StatusCode::kDataLoss);
  plan::WeightSlotT slot;
  slot.offset = binaries[0]->offset;
  slot.bytes = binaries[0]->bytes;
  EXPECT_EQ(file->PackedBytes(slot).status().code(), absl::StatusCode::kDataLoss);

  std::string damaged = ReadFile(path);
  damaged[binaries[1]->offset + 299] ^= 4;
  auto reopened = OpenPlan(dir.Write("damaged.qplan", damaged));
  ASSERT_TRUE(reopened.ok());
  const auto& damaged_binaries = reopened->plan().targets[0]->kernels[2]->binaries;
  EXPECT_TRUE(reopened->BinaryBytes(*damaged_binaries[0]).ok());
  const absl::Status status = reopened->BinaryBytes(*damaged_binaries[1]).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("linear_few_8 for sm_90a: its checksum differs"));
  EXPECT_THAT(reopened->VerifySections().message(), HasSubstr("binary of linear_few_8 for sm_90a"));
}

// Every single-bit flip outside of section contents is seen at opening, those inside on demand.
TEST(PlanIoTest, EveryBitFlipIsSeen) {
  const TempDir dir;
  const std::string whole = ReadFile(WritePacked(dir));
  const std::string path = dir.Write("flipped.qplan", whole);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (size_t at = 0; at < whole.size(); ++at) {
    const char flipped = static_cast<char>(whole[at] ^ (1 << (at % 8)));
    file.seekp(static_cast<std::streamoff>(at)).put(flipped).flush();
    auto opened = OpenPlan(path);
    const absl::Status status = opened.ok() ? opened->VerifySections() : opened.status();
    const auto expected = at < 8 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss;
    ASSERT_EQ(status.code(), expected) << at << ": " << status;
    file.seekp(static_cast<std::streamoff>(at)).put(whole[at]).flush();
  }
  EXPECT_TRUE(OpenPlan(path).ok());
}

TEST(PlanIoTest, EveryTruncationIsSeen) {
  const TempDir dir;
  const std::string whole = ReadFile(WritePacked(dir));
  const std::string path = dir.Write("cut.qplan", whole);
  for (size_t bytes = whole.size() - 1; bytes > 0; bytes -= bytes > 600 ? 97 : 1) {
    std::filesystem::resize_file(path, bytes);
    ASSERT_EQ(OpenPlan(path).status().code(), absl::StatusCode::kDataLoss) << bytes;
  }
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(OpenPlan(path).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PlanIoTest, AnotherOpTableKeepsTheRestReadable) {
  const TempDir dir;
  plan::PlanT plan = TinyPlan();
  plan.op_table_hash ^= 1;
  const std::string path = dir.File("old.qplan");
  ASSERT_TRUE(WritePlan(plan, path).ok());
  auto file = OpenPlan(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->lowered_status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(file->lowered_status().message(),
              HasSubstr("quire compile " + path + " -o " + dir.File("old.new.qplan")));
  EXPECT_EQ(file->plan().ir, plan.ir);
  ASSERT_EQ(file->plan().targets.size(), 1u);
  EXPECT_EQ(file->plan().targets[0]->page_tokens, 16);
  EXPECT_TRUE(file->plan().targets[0]->programs.empty());
  EXPECT_EQ(file->Target("cpu").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(PlanIoTest, AnotherFormatVersionIsNamed) {
  const TempDir dir;
  ASSERT_TRUE(WritePlan(TinyPlan(), dir.File("x.qplan")).ok());
  std::string file = ReadFile(dir.File("x.qplan"));
  file[8] = 7;
  const uint64_t checksum = PlanChecksum(AsBytes(file).subspan(0, 120));
  std::memcpy(file.data() + 120, &checksum, 8);
  const absl::Status status = OpenPlan(dir.Write("y.qplan", file)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("format version 7"));
}

// Valid checksums around a broken FlatBuffer: the verifier and the checks must hold on their own.
TEST(PlanIoTest, FlippedFlatBufferBehindGoodChecksumsNeverCrashes) {
  const TempDir dir;
  ASSERT_TRUE(WritePlan(TinyPlan(), dir.File("x.qplan")).ok());
  const std::string whole = ReadFile(dir.File("x.qplan"));
  int opened = 0;
  for (size_t bit = 128 * 8; bit < whole.size() * 8; ++bit) {
    std::string file = whole;
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ (1 << (bit % 8)));
    Reseal(&file);
    const auto contents = ReadPlan(AsBytes(file), "x");
    opened += contents.ok();
    if (!contents.ok()) {
      ASSERT_EQ(contents.status().code(), absl::StatusCode::kDataLoss) << contents.status();
    }
  }
  EXPECT_GT(opened, 0);  // flips within names and texts are not errors of the format
}

TEST(PlanIoTest, SharedTablesAreRefused) {
  // A vector of 600 tensors that are one table: 7 KB that would unpack to 2.4 MB.
  flatbuffers::FlatBufferBuilder builder;
  const auto name = builder.CreateString(std::string(4000, 'n'));
  const auto tensor = plan::CreateTensor(builder, name);
  const auto tensors =
      builder.CreateVector(std::vector<flatbuffers::Offset<plan::Tensor>>(600, tensor));
  plan::FinishPlanBuffer(builder, plan::CreatePlan(builder, 0, 0, 0, 0, 0, tensors));
  const auto plan = UnpackPlan({builder.GetBufferPointer(), builder.GetSize()});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(plan.status().message(), HasSubstr("more than once"));
}

}  // namespace
}  // namespace quire
