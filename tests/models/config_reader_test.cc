#include "models/import/config_reader.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/import/json.h"

namespace quire {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

json Parse(absl::string_view text) {
  absl::StatusOr<json> value = ParseJsonObject(text, "config.json");
  EXPECT_TRUE(value.ok()) << value.status();
  return value.value_or(json());
}

TEST(ConfigReaderTest, ReadsEachType) {
  const json value = Parse(R"({"i": -3, "u": 7, "f": 0.5, "whole": 10000, "b": true, "s": "x",
                               "ints": [1, 2], "floats": [1, 2.5], "strings": ["a"]})");
  const ConfigReader config(value, "config.json");
  EXPECT_EQ(*config.GetInt("i"), -3);
  EXPECT_EQ(*config.GetInt("u"), 7);
  EXPECT_EQ(*config.GetFloat("f"), 0.5);
  EXPECT_EQ(*config.GetFloat("whole"), 10000.0);
  EXPECT_EQ(*config.GetBool("b"), true);
  EXPECT_EQ(*config.GetString("s"), "x");
  EXPECT_THAT(*config.GetInts("ints"), ElementsAre(1, 2));
  EXPECT_THAT(*config.GetFloats("floats"), ElementsAre(1.0, 2.5));
  EXPECT_THAT(*config.GetStrings("strings"), ElementsAre("a"));
  EXPECT_THAT(config.UnreadKeys(), IsEmpty());
}

TEST(ConfigReaderTest, FallsBackWhereAKeyIsAbsentOrNull) {
  const json value = Parse(R"({"n": null, "i": 2})");
  const ConfigReader config(value, "config.json");
  EXPECT_FALSE(config.Has("n"));
  EXPECT_FALSE(config.Has("none"));
  EXPECT_TRUE(config.Has("i"));
  EXPECT_EQ(*config.GetIntOr("n", 5), 5);
  EXPECT_EQ(*config.GetIntOr("i", 5), 2);
  EXPECT_EQ(*config.GetFloatOr("none", 1.5), 1.5);
  EXPECT_EQ(*config.GetBoolOr("none", true), true);
  EXPECT_EQ(*config.GetStringOr("none", "silu"), "silu");
}

TEST(ConfigReaderTest, ErrorsGiveKeyValueWantedTypeAndFile) {
  const json value =
      Parse(R"({"heads": "8", "width": 4.5, "act": 3, "tied": 1, "big": 9223372036854775808,
                               "eps": [1], "list": [1, "x"], "hidden_size": 4})");
  const ConfigReader config(value, "dir/config.json");
  EXPECT_EQ(config.GetInt("heads").status(),
            absl::InvalidArgumentError("heads=\"8\" is a string\n  from: dir/config.json\n"
                                       "  allowed: an integer"));
  EXPECT_EQ(config.GetIntOr("width", 1).status(),
            absl::InvalidArgumentError("width=4.5 is a fraction\n  from: dir/config.json\n"
                                       "  allowed: an integer"));
  EXPECT_EQ(config.GetString("act").status(),
            absl::InvalidArgumentError("act=3 is an integer\n  from: dir/config.json\n"
                                       "  allowed: a string"));
  EXPECT_EQ(config.GetBool("tied").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(config.GetInt("big").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(config.GetFloat("eps").status(),
            absl::InvalidArgumentError("eps=[1] is an array\n  from: dir/config.json\n"
                                       "  allowed: a number"));
  EXPECT_EQ(config.GetInts("list").status(),
            absl::InvalidArgumentError("list=[1, \"x\"] holds \"x\"\n  from: dir/config.json\n"
                                       "  allowed: an array of integers"));
  EXPECT_EQ(config.GetInt("hiden_size").status(),
            absl::InvalidArgumentError("hiden_size: the key is missing\n  from: dir/config.json\n"
                                       "  fix: did you mean hidden_size?"));
}

TEST(ConfigReaderTest, NestedObjectsCarryTheirPath) {
  const json value = Parse(R"({"rope_scaling": {"factor": "8", "rope_type": "linear"}, "x": 1})");
  const ConfigReader config(value, "config.json");
  const auto rope = config.GetObject("rope_scaling");
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->GetFloat("factor").status(),
            absl::InvalidArgumentError("rope_scaling.factor=\"8\" is a string\n"
                                       "  from: config.json\n  allowed: a number"));
  EXPECT_EQ(config.GetObject("x").status(),
            absl::InvalidArgumentError("x=1 is an integer\n  from: config.json\n"
                                       "  allowed: an object"));
}

TEST(ConfigReaderTest, UnreadKeysAreReportedWithTheirPath) {
  const json value =
      Parse(R"({"a": 1, "b": null, "c": {"x": 1, "y": 2}, "d": {"z": 1}, "e": 1, "f": 1})");
  const ConfigReader config(value, "config.json");
  EXPECT_THAT(config.UnreadKeys(), ElementsAre("a", "b", "c", "d", "e", "f"));
  ASSERT_TRUE(config.GetInt("a").ok());
  ASSERT_TRUE(config.GetObject("c")->GetInt("x").ok());
  config.Ignore({"f"});
  EXPECT_TRUE(config.Has("e"));
  EXPECT_THAT(config.UnreadKeys(), ElementsAre("b", "c.y", "d", "e"));
}

TEST(ConfigReaderTest, RefuseIsForValuesOutOfRange) {
  const json value = Parse(R"({"hidden_act": "tanhexp"})");
  const ConfigReader config(value, "config.json");
  EXPECT_EQ(config.Refuse("hidden_act", "is not known", "silu, gelu"),
            absl::InvalidArgumentError("hidden_act=\"tanhexp\" is not known\n"
                                       "  from: config.json\n  allowed: silu, gelu"));
}

TEST(JsonTest, ErrorsHaveAPosition) {
  EXPECT_EQ(
      ParseJsonObject("{\"a\": 1,\n  \"b\" 2}", "f.json").status(),
      absl::DataLossError("f.json:2:7: not JSON\n  fix: correct the file there, or get it again"));
  EXPECT_EQ(ParseJsonObject("[]", "f.json").status(),
            absl::DataLossError("f.json: the file is not a JSON object\n"
                                "  fix: correct the file there, or get it again"));
  EXPECT_EQ(ParseJsonObject("{\"a\": {\"b\": 1, \"b\": 2}}", "f.json").status(),
            absl::DataLossError("f.json: key \"b\" appears twice in one object\n"
                                "  fix: correct the file there, or get it again"));
  EXPECT_FALSE(ParseJsonObject("", "f.json").ok());
  EXPECT_FALSE(ParseJsonObject("{\"a\": 1e999}", "f.json").ok());
}

}  // namespace
}  // namespace quire
