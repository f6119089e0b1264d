#include "models/import/gguf.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/checkpoint_files.h"

namespace quire {
namespace {

using ::quire::testing::AsBytes;
using ::quire::testing::BytesFor;
using ::quire::testing::GgufWriter;
using ::quire::testing::LittleEndian;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

absl::StatusOr<Gguf> Parse(const std::string& file) { return ParseGguf(AsBytes(file), "m.gguf"); }

void ExpectDataLoss(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith("m.gguf: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

void ExpectUnimplemented(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ4_0 = 2;
constexpr uint32_t kQ6_K = 14;
constexpr uint32_t kIQ2_XS = 17;

TEST(GgufTest, ReadsEveryValueType) {
  const std::string inner = absl::StrCat(LittleEndian<uint32_t>(4), LittleEndian<uint64_t>(2),
                                         LittleEndian<uint32_t>(7), LittleEndian<uint32_t>(8));
  const auto gguf =
      Parse(GgufWriter()
                .U8("u8", 200)
                .I8("i8", -100)
                .U16("u16", 60000)
                .I16("i16", -30000)
                .U32("u32", 4'000'000'000)
                .I32("i32", -2'000'000'000)
                .F32("f32", 0.1f)
                .Bool("bool", true)
                .Str("str", "h\u00e9llo")
                .U64("u64", uint64_t{1} << 62)
                .I64("i64", std::numeric_limits<int64_t>::min())
                .F64("f64", 0.1)
                .Strings("strings", {"a", "", "bc"})
                .Numbers<float>("floats", 6, {1.5f, -2.0f})
                .Numbers<int32_t>("ints", 5, {3, -4})
                .Raw("nested", 9,
                     absl::StrCat(LittleEndian<uint32_t>(9), LittleEndian<uint64_t>(1), inner))
                .Build());
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ(gguf->version, 3u);
  const GgufMetadata& m = gguf->metadata;
  EXPECT_EQ(*m.GetInt("u8"), 200);
  EXPECT_EQ(*m.GetInt("i8"), -100);
  EXPECT_EQ(*m.GetInt("u16"), 60000);
  EXPECT_EQ(*m.GetInt("i16"), -30000);
  EXPECT_EQ(*m.GetInt("u32"), 4'000'000'000);
  EXPECT_EQ(*m.GetInt("i32"), -2'000'000'000);
  EXPECT_EQ(*m.GetFloat("f32"), static_cast<double>(0.1f));
  EXPECT_EQ(*m.GetBool("bool"), true);
  EXPECT_EQ(*m.GetString("str"), "h\u00e9llo");
  EXPECT_EQ(*m.GetInt("u64"), int64_t{1} << 62);
  EXPECT_EQ(*m.GetInt("i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*m.GetFloat("f64"), 0.1);
  EXPECT_THAT(*m.GetStrings("strings"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(*m.GetFloats("floats"), ElementsAre(1.5, -2.0));
  EXPECT_THAT(*m.GetInts("ints"), ElementsAre(3, -4));
  const GgufValue* nested = m.Find("nested");
  ASSERT_NE(nested, nullptr);
  ASSERT_EQ(nested->arrays.size(), 1u);
  EXPECT_THAT(nested->arrays[0].integers, ElementsAre(7, 8));
}

TEST(GgufTest, AccessorsNameKeyAndTypes) {
  const auto gguf = Parse(GgufWriter()
                              .Str("a.count", "x")
                              .U32("a.eps", 1)
                              .U64("a.big", std::numeric_limits<uint64_t>::max())
                              .Numbers<uint64_t>("a.bigs", 10, {1, uint64_t{1} << 63})
                              .Strings("a.list", {"p", "q"})
                              .Build());
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  const GgufMetadata& m = gguf->metadata;
  EXPECT_EQ(m.GetInt("a.count").status(),
            absl::InvalidArgumentError("a.count=\"x\" is of type string\n  from: m.gguf\n"
                                       "  allowed: an integer"));
  EXPECT_EQ(m.GetFloatOr("a.eps", 1e-5).status(),
            absl::InvalidArgumentError("a.eps=1 is of type u32\n  from: m.gguf\n"
                                       "  allowed: f32 or f64"));
  EXPECT_EQ(m.GetInt("a.big").status(),
            absl::InvalidArgumentError("a.big=18446744073709551615 does not fit\n  from: m.gguf\n"
                                       "  allowed: an integer below 2^63"));
  EXPECT_EQ(m.GetInts("a.bigs").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(m.GetInt("a.list").status(),
            absl::InvalidArgumentError("a.list=[\"p\", \"q\"] is of type array of string\n"
                                       "  from: m.gguf\n  allowed: an integer"));
  EXPECT_EQ(m.GetString("none").status(),
            absl::InvalidArgumentError("none: the key is missing\n  from: m.gguf"));
  EXPECT_EQ(*m.GetIntOr("none", 7), 7);
  EXPECT_EQ(*m.GetStringOr("none", "z"), "z");
  EXPECT_FALSE(m.GetBool("a.eps").ok());
  EXPECT_FALSE(m.GetStrings("a.bigs").ok());
  EXPECT_FALSE(m.GetFloats("a.bigs").ok());
}

TEST(GgufTest, ReversesDimsAndPlacesTensors) {
  const std::string file = GgufWriter(2)
                               .Tensor("norm", kF32, {5}, BytesFor("norm", 20))
                               .Tensor("w", kQ4_0, {64, 3}, BytesFor("w", 6 * 18))
                               .Tensor("scalar", kF32, {}, BytesFor("scalar", 4))
                               .Tensor("odd", kIQ2_XS, {256}, BytesFor("odd", 74))
                               .Tensor("new", 1234, {8}, BytesFor("new", 8))
                               .Build();
  const auto gguf = Parse(file);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ(gguf->version, 2u);
  ASSERT_EQ(gguf->tensors.size(), 5u);
  const TensorInfo& norm = gguf->tensors[0];
  EXPECT_THAT(norm.extents, ElementsAre(5));
  EXPECT_EQ(file.substr(norm.offset, norm.bytes), BytesFor("norm", 20));
  const TensorInfo& w = gguf->tensors[1];
  EXPECT_EQ(w.dtype, DType::kQ4_0);
  EXPECT_EQ(w.dtype_text, "Q4_0");
  EXPECT_THAT(w.extents, ElementsAre(3, 64));
  EXPECT_EQ(w.offset % 32, 0u);
  EXPECT_EQ(file.substr(w.offset, w.bytes), BytesFor("w", 6 * 18));
  EXPECT_THAT(gguf->tensors[2].extents, IsEmpty());
  EXPECT_EQ(gguf->tensors[3].dtype, std::nullopt);
  EXPECT_EQ(gguf->tensors[3].dtype_text, "IQ2_XS");
  EXPECT_EQ(gguf->tensors[3].bytes, 74u);
  EXPECT_EQ(gguf->tensors[4].dtype, std::nullopt);
  EXPECT_EQ(gguf->tensors[4].dtype_text, "type 1234");
}

TEST(GgufTest, EveryDTypeButThoseOfF8E4M3HasATensorType) {
  const std::pair<uint32_t, DType> types[] = {
      {0, DType::kF32},   {1, DType::kF16},   {2, DType::kQ4_0}, {3, DType::kQ4_1},
      {6, DType::kQ5_0},  {7, DType::kQ5_1},  {8, DType::kQ8_0}, {12, DType::kQ4_K},
      {13, DType::kQ5_K}, {14, DType::kQ6_K}, {26, DType::kI32}, {30, DType::kBF16}};
  EXPECT_EQ(std::size(types) + 2, AllDTypes().size());
  for (const auto& [number, dtype] : types) {
    const size_t bytes = RowBytes(dtype, 512);
    const auto gguf = Parse(GgufWriter().Tensor("t", number, {512}, BytesFor("t", bytes)).Build());
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    EXPECT_EQ(gguf->tensors[0].dtype, dtype) << number;
    EXPECT_EQ(gguf->tensors[0].bytes, bytes) << number;
  }
}

TEST(GgufTest, HonoursTheAlignmentKey) {
  const auto write = [](GgufWriter writer) {
    return writer.Tensor("a", kF32, {1}, BytesFor("a", 4))
        .Tensor("b", kF32, {1}, BytesFor("b", 4))
        .Build();
  };
  const std::string file = write(GgufWriter().LayOutBy(128).U32("general.alignment", 128));
  const auto gguf = Parse(file);
  ASSERT_TRUE(gguf.ok()) << gguf.status();
  EXPECT_EQ(gguf->tensors[1].offset - gguf->tensors[0].offset, 128u);
  EXPECT_EQ(file.substr(gguf->tensors[1].offset, 4), BytesFor("b", 4));
  ExpectDataLoss(Parse(write(GgufWriter().U32("general.alignment", 0))).status(),
                 "general.alignment=0 is not a power of two");
  ExpectDataLoss(Parse(write(GgufWriter().U32("general.alignment", 24))).status(),
                 "general.alignment=24 is not a power of two");
  ExpectDataLoss(Parse(write(GgufWriter().U32("general.alignment", 64))).status(),
                 "tensor \"b\" is at offset 32, not a multiple of 64");
  ExpectDataLoss(Parse(write(GgufWriter().U64("general.alignment", uint64_t{1} << 62))).status(),
                 "before its tensors' bytes begin at 4611686018427387904");
}

// Even a tensor of no bytes must lie inside the file.
TEST(GgufTest, RefusesAFileThatEndsInItsPadding) {
  std::string file = GgufWriter().TensorAt("empty", kF32, {0}, 0).Build();
  ASSERT_TRUE(Parse(file).ok());
  file.pop_back();
  ExpectDataLoss(Parse(file).status(), "the file ends at byte 63, before its tensors' bytes");
}

TEST(GgufTest, RefusesOtherVersionsAndByteOrders) {
  ExpectDataLoss(Parse("GGML\3\0\0\0").status(), "does not begin with \"GGUF\"");
  ExpectUnimplemented(Parse(GgufWriter(1).Build()).status(),
                      "GGUF version 1\n  allowed: versions 2 and 3");
  ExpectUnimplemented(Parse(GgufWriter(4).Build()).status(), "GGUF version 4");
  ExpectUnimplemented(Parse(GgufWriter(0x03000000).Build()).status(), "the file is big-endian");
}

TEST(GgufTest, RefusesAPartOfASplitModelWithAdvice) {
  ExpectUnimplemented(Parse(GgufWriter().U16("split.no", 1).U16("split.count", 3).Build()).status(),
                      "the file is part 2 of a model split in 3\n  fix: join the parts: "
                      "llama-gguf-split --merge");
  EXPECT_TRUE(Parse(GgufWriter().U16("split.no", 0).U16("split.count", 1).Build()).ok());
}

TEST(GgufTest, RefusesBadMetadata) {
  ExpectDataLoss(Parse(GgufWriter().U32("a", 1).U32("a", 2).Build()).status(),
                 "the key \"a\" appears twice");
  ExpectDataLoss(Parse(GgufWriter().Raw("a", 13, "").Build()).status(),
                 "the value of \"a\" has the unknown value type 13");
  ExpectDataLoss(Parse(GgufWriter().Raw("a", 7, "\2").Build()).status(),
                 "holds the boolean 2, not 0 or 1");
  ExpectDataLoss(Parse(GgufWriter().Numbers<uint32_t>("a", 77, {1}).Build()).status(),
                 "the value of \"a\" has the unknown value type 77");
  ExpectDataLoss(Parse(GgufWriter().Raw("a", 8, LittleEndian(UINT64_MAX)).Build()).status(),
                 "the file ends inside the value of \"a\"");
  // A count that would wrap when multiplied by the element's size, and one that would allocate
  // terabytes.
  for (const uint64_t count : {uint64_t{1} << 62, uint64_t{1} << 40}) {
    const std::string payload = absl::StrCat(LittleEndian<uint32_t>(4), LittleEndian(count));
    ExpectDataLoss(Parse(GgufWriter().Raw("a", 9, payload).Build()).status(),
                   "the file ends inside the value of \"a\"");
  }
  std::string nested;
  for (int i = 0; i < 100; ++i) {
    nested += LittleEndian<uint32_t>(9) + LittleEndian<uint64_t>(1);
  }
  ExpectDataLoss(Parse(GgufWriter().Raw("a", 9, nested).Build()).status(),
                 "the value of \"a\" nests arrays deeper than 4 levels");
}

TEST(GgufTest, RefusesBadTensors) {
  const std::string data = BytesFor("d", 256);
  const auto tensor_error = [&data](uint32_t type, const std::vector<uint64_t>& dims) {
    return Parse(GgufWriter().Tensor("w", type, dims, data).Build()).status();
  };
  ExpectDataLoss(tensor_error(kF32, {1, 1, 1, 1, 1}), "tensor \"w\" has rank 5");
  ExpectDataLoss(tensor_error(kQ4_0, {33}), "rows that are no multiple of 32 elements");
  ExpectDataLoss(
      tensor_error(kQ6_K, {128, 2}),
      "tensor \"w\" of shape [2, 128] and type Q6_K has rows that are no multiple of 256");
  ExpectDataLoss(tensor_error(kF32, {uint64_t{1} << 63}), "the extent 9223372036854775808");
  ExpectDataLoss(tensor_error(kF32, {uint64_t{1} << 32, uint64_t{1} << 32}),
                 "has more bytes than can be counted");
  ExpectDataLoss(tensor_error(kF32, {uint64_t{1} << 62}), "has more bytes than can be counted");
  ExpectDataLoss(tensor_error(kF32, {65}),
                 "tensor \"w\" of 260 bytes at offset 0 runs past the file's 256 bytes of data");
  ExpectDataLoss(Parse(GgufWriter().TensorAt("w", kF32, {1}, uint64_t{0} - 32).Build()).status(),
                 "runs past the file's 0 bytes");
  ExpectDataLoss(
      Parse(GgufWriter().Tensor("w", kF32, {64}, data).Tensor("w", kF32, {64}, data).Build())
          .status(),
      "tensor \"w\" appears twice");
  ExpectDataLoss(
      Parse(GgufWriter().Tensor("w", kF32, {64}, data).TensorAt("v", kF32, {8}, 224).Build())
          .status(),
      "tensors \"w\" and \"v\" overlap");
  ExpectDataLoss(
      Parse(GgufWriter().Tensor("w", kF32, {64}, data).TensorAt("v", kF32, {1}, 4).Build())
          .status(),
      "tensor \"v\" is at offset 4, not a multiple of 32");
}

TEST(GgufTest, RefusesEveryTruncation) {
  const std::string file = GgufWriter()
                               .Str("general.architecture", "llama")
                               .Strings("tokens", {"a", "b"})
                               .Numbers<float>("scores", 6, {1.0f, 2.0f})
                               .Tensor("a", kF32, {3}, BytesFor("a", 12))
                               .Tensor("b", kQ4_0, {32}, BytesFor("b", 18))
                               .Build();
  ASSERT_TRUE(Parse(file).ok());
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_EQ(Parse(file.substr(0, bytes)).status().code(), absl::StatusCode::kDataLoss) << bytes;
  }
}

}  // namespace
}  // namespace quire
