#include "models/import/safetensors.h"

#include <sys/resource.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/checkpoint_files.h"

namespace quire {
namespace {

using ::quire::testing::AsBytes;
using ::quire::testing::BytesFor;
using ::quire::testing::LittleEndian;
using ::quire::testing::SafetensorsFile;
using ::quire::testing::SafetensorsWithHeader;
using ::quire::testing::TempDir;
using ::quire::testing::TestTensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<std::vector<TensorInfo>> Parse(const std::string& file) {
  return ParseSafetensors(AsBytes(file), "x.safetensors", 3);
}

// The error of a file with this header and this many bytes of data.
absl::Status HeaderError(absl::string_view header, size_t data_bytes) {
  const auto tensors = Parse(SafetensorsWithHeader(header, BytesFor("data", data_bytes)));
  if (tensors.ok()) return absl::OkStatus();
  EXPECT_THAT(std::string(tensors.status().message()), ::testing::StartsWith("x.safetensors: "));
  return tensors.status();
}

void ExpectDataLoss(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(SafetensorsTest, ListsTensorsInTheOrderOfTheirBytes) {
  const std::string file = SafetensorsFile({{"z", "BF16", {2, 3}, BytesFor("z", 12)},
                                            {"a", "F32", {}, BytesFor("a", 4)},
                                            {"empty", "F16", {0, 7}, ""},
                                            {"position_ids", "I64", {2}, BytesFor("p", 16)}});
  const auto tensors = Parse(file);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 4u);
  const TensorInfo& z = (*tensors)[0];
  EXPECT_EQ(z.name, "z");
  EXPECT_EQ(z.dtype, DType::kBF16);
  EXPECT_EQ(z.dtype_text, "BF16");
  EXPECT_THAT(z.extents, ElementsAre(2, 3));
  EXPECT_EQ(z.file, 3);
  EXPECT_EQ(z.bytes, 12u);
  EXPECT_EQ(file.substr(z.offset, z.bytes), BytesFor("z", 12));
  EXPECT_EQ((*tensors)[1].name, "a");
  EXPECT_THAT((*tensors)[1].extents, IsEmpty());
  EXPECT_EQ(file.substr((*tensors)[1].offset, 4), BytesFor("a", 4));
  EXPECT_EQ((*tensors)[2].bytes, 0u);
  EXPECT_EQ((*tensors)[3].dtype, std::nullopt);
  EXPECT_EQ((*tensors)[3].dtype_text, "I64");
}

TEST(SafetensorsTest, HeaderOrderNeedNotBeByteOrder) {
  const auto tensors = Parse(SafetensorsWithHeader(
      R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]},
          "a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]},
          "c":{"dtype":"F4","shape":[2,2],"data_offsets":[3,5]}})",
      BytesFor("x", 8)));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[2].name, "b");
}

TEST(SafetensorsTest, RefusesALengthThatDoesNotFit) {
  ExpectDataLoss(Parse("1234567").status(), "the file has 7 bytes, too few");
  ExpectDataLoss(Parse(LittleEndian<uint64_t>(3) + "{}").status(),
                 "header length 3 runs past the end of the file (10 bytes)");
  ExpectDataLoss(Parse(LittleEndian<uint64_t>(100'000'001) + "{}").status(),
                 "header length 100000001 is above the limit of 100000000 bytes");
  ExpectDataLoss(Parse(LittleEndian<uint64_t>(UINT64_MAX) + "{}").status(), "above the limit");
}

TEST(SafetensorsTest, RefusesAHeaderThatIsNotAnObject) {
  ExpectDataLoss(HeaderError("", 0), "does not begin with {");
  ExpectDataLoss(HeaderError("[1]", 0), "does not begin with {");
  ExpectDataLoss(HeaderError("{\n  \"a\": }", 0), "header:2:8: not JSON");
  ExpectDataLoss(HeaderError("{} {}", 0), "not JSON");
  ExpectDataLoss(HeaderError("{\"\xff\":1}", 0), "not JSON");
  ExpectDataLoss(HeaderError(R"({"a":1})", 0), "tensor \"a\": is 1, not an object");
  ExpectDataLoss(HeaderError(R"({"__metadata__":[]})", 0), "__metadata__ is not an object");
  ExpectDataLoss(HeaderError(R"({"__metadata__":{"k":1}})", 0), "not a string at \"k\"");
}

TEST(SafetensorsTest, RefusesDeepNestingWithoutRecursing) {
  const std::string deep(100'000, '[');
  ExpectDataLoss(HeaderError("{\"a\":" + deep, 0), "nested deeper than 64 levels");
}

TEST(SafetensorsTest, RefusesDuplicates) {
  ExpectDataLoss(HeaderError(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                 "a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                             2),
                 "key \"a\" appears twice");
  ExpectDataLoss(
      HeaderError(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
      "key \"dtype\" appears twice");
}

TEST(SafetensorsTest, RefusesBadTypes) {
  const absl::Status unknown =
      HeaderError(R"({"a":{"dtype":"Q7","shape":[1],"data_offsets":[0,1]}})", 1);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("tensor \"a\": dtype=\"Q7\" is not a type of safetensors files\n"
                        "  allowed: F32, F16, BF16, I32, BOOL"));
  ExpectDataLoss(HeaderError(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1),
                 "has no dtype");
  ExpectDataLoss(HeaderError(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1), "has no dtype");
  ExpectDataLoss(
      HeaderError(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"scale":2}})", 1),
      "unknown key \"scale\"");
}

TEST(SafetensorsTest, RefusesBadShapes) {
  ExpectDataLoss(HeaderError(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1),
                 "shape has the extent -1, not a count");
  ExpectDataLoss(HeaderError(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1),
                 "shape has the extent 1.0, not a count");
  ExpectDataLoss(
      HeaderError(R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", 1),
      "shape has the extent 9223372036854775808");
  ExpectDataLoss(HeaderError(R"({"a":{"dtype":"U8","shape":3,"data_offsets":[0,1]}})", 1),
                 "has no shape");
  // 2^32 * 2^32 wraps to 0, as does 2^61 * 8 bits.
  ExpectDataLoss(
      HeaderError(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
                  0),
      "shape [4294967296, 4294967296] of U8 is not a whole number of bytes below 2^61");
  ExpectDataLoss(
      HeaderError(R"({"a":{"dtype":"U8","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0),
      "is not a whole number of bytes below 2^61");
  ExpectDataLoss(HeaderError(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1),
                 "is not a whole number of bytes");
}

TEST(SafetensorsTest, RefusesBadOffsets) {
  const auto with_offsets = [](absl::string_view offsets) {
    return HeaderError(
        absl::StrCat(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)", offsets, "}}"), 8);
  };
  EXPECT_TRUE(with_offsets("[0,8]").ok());
  ExpectDataLoss(with_offsets("[0]"), "has no data_offsets, or ones that are not two counts");
  ExpectDataLoss(with_offsets("[0,8,8]"), "not two counts");
  ExpectDataLoss(with_offsets("[-8,0]"), "not two counts");
  ExpectDataLoss(with_offsets("[0,8.0]"), "not two counts");
  ExpectDataLoss(with_offsets("[8,0]"), "data_offsets [8, 0] end before they begin");
  ExpectDataLoss(with_offsets("[1,9]"), "data_offsets [1, 9] run past the file's 8 bytes of data");
  ExpectDataLoss(with_offsets("[0,18446744073709551615]"), "run past the file's 8 bytes");
  ExpectDataLoss(with_offsets("[0,4]"),
                 "data_offsets [0, 4] hold 4 bytes, but shape [2] of F32 needs 8");
}

TEST(SafetensorsTest, RefusesOverlapsAndHoles) {
  ExpectDataLoss(HeaderError(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
                                 "b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                             4),
                 "tensors \"a\" and \"b\" overlap");
  ExpectDataLoss(HeaderError(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                                 "b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
                             4),
                 "1 bytes before tensor \"b\" belong to no tensor");
  ExpectDataLoss(HeaderError(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 5),
                 "3 bytes at the end of the file belong to no tensor");
}

// Cut at every length, a file is refused; which is what a broken download looks like.
TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string file =
      SafetensorsFile({{"a", "F32", {2}, BytesFor("a", 8)}, {"b", "U8", {3}, BytesFor("b", 3)}});
  ASSERT_TRUE(Parse(file).ok());
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_EQ(Parse(file.substr(0, bytes)).status().code(), absl::StatusCode::kDataLoss) << bytes;
  }
}

TEST(SafetensorsTest, IndexesASparse13GigabyteFileFromItsHeader) {
  const TempDir dir;
  constexpr uint64_t kRows = 3'250'000;
  const std::string header = absl::StrCat(R"({"w":{"dtype":"BF16","shape":[)", kRows,
                                          R"(,2000],"data_offsets":[0,)", kRows * 4000, "]}}");
  dir.Write("model.safetensors", SafetensorsWithHeader(header, ""));
  std::filesystem::resize_file(dir.File("model.safetensors"), 8 + header.size() + kRows * 4000);
  rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  const auto index = ReadSafetensorsFile(dir.path(), "model.safetensors");
  getrusage(RUSAGE_SELF, &after);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->tensors[0].bytes, 13'000'000'000u);
  // Reading the weights would touch three million pages; the header is one.
  EXPECT_LT(after.ru_minflt - before.ru_minflt, 1000);
}

class ShardsTest : public ::testing::Test {
 protected:
  void WriteShard(absl::string_view name, const std::vector<std::string>& tensors) {
    std::vector<TestTensor> contents;
    for (const std::string& tensor : tensors) {
      contents.push_back({tensor, "F32", {2}, BytesFor(tensor, 8)});
    }
    dir_.Write(name, SafetensorsFile(contents));
  }
  void WriteIndex(absl::string_view text) { dir_.Write("model.safetensors.index.json", text); }
  absl::Status Error() const { return ReadShardedSafetensors(dir_.path()).status(); }

  TempDir dir_;
};

TEST_F(ShardsTest, JoinsShards) {
  WriteShard("m-2.safetensors", {"b"});
  WriteShard("m-1.safetensors", {"c", "a"});
  WriteIndex(R"({"metadata":{"total_size":24},
                 "weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-1.safetensors"}})");
  const auto index = ReadShardedSafetensors(dir_.path());
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_THAT(index->files, ElementsAre("m-1.safetensors", "m-2.safetensors"));
  ASSERT_EQ(index->tensors.size(), 3u);
  EXPECT_EQ(index->tensors[2].name, "b");
  EXPECT_EQ(index->tensors[2].file, 1);
}

TEST_F(ShardsTest, RefusesAMissingShard) {
  WriteShard("m-1.safetensors", {"a"});
  WriteIndex(R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  EXPECT_EQ(Error().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Error().message()),
              HasSubstr("m-2.safetensors: cannot open: No such file or directory\n  from: "));
}

TEST_F(ShardsTest, RefusesATensorInAnotherShardThanListed) {
  WriteShard("m-1.safetensors", {"a"});
  WriteShard("m-2.safetensors", {"b"});
  WriteIndex(R"({"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors"}})");
  ExpectDataLoss(Error(),
                 "tensor \"a\" is listed in m-2.safetensors, but found in m-1.safetensors");
}

TEST_F(ShardsTest, RefusesATensorThatIsNowhere) {
  WriteShard("m-1.safetensors", {"a"});
  WriteIndex(R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors"}})");
  ExpectDataLoss(Error(), "tensor \"b\" is listed in m-1.safetensors, which does not hold it");
}

TEST_F(ShardsTest, RefusesAnUnlistedTensorInTwoShards) {
  WriteShard("m-1.safetensors", {"a", "x"});
  WriteShard("m-2.safetensors", {"b", "x"});
  WriteIndex(R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  ExpectDataLoss(Error(), "tensor \"x\" is found in both m-1.safetensors and m-2.safetensors");
}

TEST_F(ShardsTest, RefusesAnIndexWithoutAMap) {
  WriteIndex("{}");
  ExpectDataLoss(Error(), "has no weight_map object");
  WriteIndex(R"({"weight_map":{}})");
  ExpectDataLoss(Error(), "weight_map is empty");
  WriteIndex("{\n\n\"weight_map\":");
  EXPECT_THAT(std::string(Error().message()), HasSubstr("index.json:3:14: not JSON"));
}

TEST_F(ShardsTest, RefusesShardsOutsideTheDirectory) {
  for (const char* shard : {"\"../m.safetensors\"", "\"/m.safetensors\"", "\"m.bin\"", "3"}) {
    WriteIndex(absl::StrCat(R"({"weight_map":{"a":)", shard, "}}"));
    ExpectDataLoss(Error(), absl::StrCat("weight_map puts \"a\" into ", shard,
                                         "\n  allowed: the name of a .safetensors file"));
  }
}

}  // namespace
}  // namespace quire
