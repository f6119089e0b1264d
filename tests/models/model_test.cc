#include "models/model.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/text.h"
#include "tests/models/model_files.h"

namespace quire {
namespace {

using testing::BuildFrom;
using ::testing::HasSubstr;
using testing::Stored;
using testing::TempDir;
using testing::TestTensor;
using testing::TinyLlamaConfig;
using testing::TinyLlamaTensors;
using testing::With;

std::string TextOfModel(const nlohmann::json& config, const std::vector<TestTensor>& tensors) {
  const absl::StatusOr<ModelDef> model = BuildFrom(config, tensors);
  return model.ok() ? Print(model->module) : model.status().ToString();
}

std::string ErrorOf(const absl::StatusOr<ModelDef>& model) {
  return model.ok() ? "no error" : std::string(model.status().message());
}

constexpr absl::string_view kTinyLlama = R"(func @step(%ids: i32[T], %pos: i32[T]) {
  %embed.w = weight {name="model.embed_tokens.weight"} : f32[10,16]
  %embed = embed %embed.w, %ids : f32[T,16]
  %l0.attn_norm.w = weight {name="model.layers.0.input_layernorm.weight"} : f32[16]
  %l0.attn_norm = rms_norm %embed, %l0.attn_norm.w {eps=0.00001} : f32[T,16]
  %l0.q.w = weight {name="model.layers.0.self_attn.q_proj.weight"} : f32[16,16]
  %l0.q = linear %l0.attn_norm, %l0.q.w : f32[T,16]
  %l0.qh = reshape %l0.q : f32[T,2,8]
  %l0.k.w = weight {name="model.layers.0.self_attn.k_proj.weight"} : f32[8,16]
  %l0.k = linear %l0.attn_norm, %l0.k.w : f32[T,8]
  %l0.kh = reshape %l0.k : f32[T,1,8]
  %l0.v.w = weight {name="model.layers.0.self_attn.v_proj.weight"} : f32[8,16]
  %l0.v = linear %l0.attn_norm, %l0.v.w : f32[T,8]
  %l0.vh = reshape %l0.v : f32[T,1,8]
  %l0.qr = rope %l0.qh, %pos {theta=10000} : f32[T,2,8]
  %l0.kr = rope %l0.kh, %pos {theta=10000} : f32[T,1,8]
  %l0.kx = expand_heads %l0.kr {group=2} : f32[T,2,8]
  %l0.vx = expand_heads %l0.vh {group=2} : f32[T,2,8]
  %l0.qt = transpose %l0.qr {perm=[1,0,2]} : f32[2,T,8]
  %l0.kt = transpose %l0.kx {perm=[1,0,2]} : f32[2,T,8]
  %l0.vt = transpose %l0.vx {perm=[1,0,2]} : f32[2,T,8]
  %l0.qk = matmul %l0.qt, %l0.kt {transpose_b=1} : f32[2,T,T]
  %l0.scaled = scale %l0.qk {factor=0.35355339059327373} : f32[2,T,T]
  %l0.masked = causal_mask %l0.scaled : f32[2,T,T]
  %l0.probs = softmax %l0.masked : f32[2,T,T]
  %l0.pv = matmul %l0.probs, %l0.vt : f32[2,T,8]
  %l0.heads = transpose %l0.pv {perm=[1,0,2]} : f32[T,2,8]
  %l0.attn = reshape %l0.heads : f32[T,16]
  %l0.o.w = weight {name="model.layers.0.self_attn.o_proj.weight"} : f32[16,16]
  %l0.o = linear %l0.attn, %l0.o.w : f32[T,16]
  %l0.x = add %embed, %l0.o : f32[T,16]
  %l0.mlp_norm.w = weight {name="model.layers.0.post_attention_layernorm.weight"} : f32[16]
  %l0.mlp_norm = rms_norm %l0.x, %l0.mlp_norm.w {eps=0.00001} : f32[T,16]
  %l0.gate.w = weight {name="model.layers.0.mlp.gate_proj.weight"} : f32[24,16]
  %l0.gate = linear %l0.mlp_norm, %l0.gate.w : f32[T,24]
  %l0.act = silu %l0.gate : f32[T,24]
  %l0.up.w = weight {name="model.layers.0.mlp.up_proj.weight"} : f32[24,16]
  %l0.up = linear %l0.mlp_norm, %l0.up.w : f32[T,24]
  %l0.gated = mul %l0.act, %l0.up : f32[T,24]
  %l0.down.w = weight {name="model.layers.0.mlp.down_proj.weight"} : f32[16,24]
  %l0.down = linear %l0.gated, %l0.down.w : f32[T,16]
  %l0.y = add %l0.x, %l0.down : f32[T,16]
  %norm.w = weight {name="model.norm.weight"} : f32[16]
  %norm = rms_norm %l0.y, %norm.w {eps=0.00001} : f32[T,16]
  %head.w = weight {name="lm_head.weight"} : f32[10,16]
  %logits = linear %norm, %head.w : f32[T,10]
  return %logits
}
)";

TEST(ModelTest, WholeTextOfATinyLlama) {
  EXPECT_EQ(TextOfModel(TinyLlamaConfig(), TinyLlamaTensors()), std::string(kTinyLlama));
}

TEST(ModelTest, Facts) {
  const absl::StatusOr<ModelDef> model = BuildFrom(TinyLlamaConfig(), TinyLlamaTensors());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->architecture, "llama");
  EXPECT_EQ(model->vocab_size, 10);
  EXPECT_EQ(model->max_positions, 64);
  // Embedding and head, q and o, k and v, MLP, norms.
  EXPECT_EQ(model->parameter_count, 2 * 160 + 2 * 256 + 2 * 128 + 3 * 384 + 3 * 16);
}

TEST(ModelTest, ATiedHeadReadsTheEmbeddingAndIsCountedOnce) {
  std::vector<TestTensor> tensors = TinyLlamaTensors();
  tensors.pop_back();
  const absl::StatusOr<ModelDef> model =
      BuildFrom(With(TinyLlamaConfig(), R"({"tie_word_embeddings": true})"), tensors);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Print(model->module), HasSubstr("%logits = linear %norm, %embed.w : f32[T,10]"));
  EXPECT_EQ(model->parameter_count, 160 + 2 * 256 + 2 * 128 + 3 * 384 + 3 * 16);
}

TEST(ModelTest, NamesWithoutTheFamilysPrefixAndOtherTypesAreKept) {
  const std::string text = TextOfModel(TinyLlamaConfig(), TinyLlamaTensors("", "BF16"));
  EXPECT_THAT(text, HasSubstr("%l0.q.w = weight {name=\"layers.0.self_attn.q_proj.weight\"} : "
                              "bf16[16,16]\n"));
  EXPECT_THAT(text, HasSubstr("%l0.q = linear %l0.attn_norm, %l0.q.w : f32[T,16]\n"));
}

TEST(ModelTest, AMissingTensorIsNamedWithItsOriginAndTheNearestName) {
  std::vector<TestTensor> tensors = TinyLlamaTensors();
  tensors[2].name = "model.layers.0.self_attn.q_prj.weight";
  const absl::StatusOr<ModelDef> model = BuildFrom(TinyLlamaConfig(), tensors);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(ErrorOf(model),
              HasSubstr("tensor model.layers.0.self_attn.q_proj.weight [16, 16] is missing"));
  EXPECT_THAT(ErrorOf(model), HasSubstr("config.json num_attention_heads=2, hidden_size / "
                                        "num_attention_heads=8, hidden_size=16"));
  EXPECT_THAT(ErrorOf(model),
              HasSubstr("\n  fix: the nearest name is model.layers.0.self_attn.q_prj.weight"));
}

TEST(ModelTest, WrongExtentsAreShownBesideTheWantedOnes) {
  std::vector<TestTensor> tensors = TinyLlamaTensors();
  tensors[9] = Stored("model.layers.0.mlp.down_proj.weight", {24, 16});
  const absl::StatusOr<ModelDef> model = BuildFrom(TinyLlamaConfig(), tensors);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(ErrorOf(model),
              HasSubstr("tensor model.layers.0.mlp.down_proj.weight has extents [24, 16]\n"));
  EXPECT_THAT(ErrorOf(model), HasSubstr("intermediate_size=24, hidden_size=16"));
  EXPECT_THAT(ErrorOf(model), HasSubstr("\n  allowed: [16, 24]"));
}

TEST(ModelTest, WeightsOfIntegersAreRefused) {
  std::vector<TestTensor> tensors = TinyLlamaTensors();
  tensors[1] = Stored("model.layers.0.input_layernorm.weight", {16}, "I32");
  const absl::StatusOr<ModelDef> model = BuildFrom(TinyLlamaConfig(), tensors);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(ErrorOf(model), HasSubstr("input_layernorm.weight has elements of i32"));
}

TEST(ModelTest, AnUnknownArchitectureListsTheKnownOnes) {
  const absl::StatusOr<ModelDef> model =
      BuildFrom(With(TinyLlamaConfig(), R"({"model_type": "qwen4"})"), TinyLlamaTensors());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(ErrorOf(model), HasSubstr("model_type=\"qwen4\" is not a known architecture"));
  EXPECT_THAT(ErrorOf(model),
              HasSubstr("allowed: bart, bloom, gemma3_text, gpt2, gpt_bigcode, "
                        "llama, mbart, mistral, mllama_text_model, mt5, qwen2, qwen3, t5"));
  EXPECT_THAT(ErrorOf(model), HasSubstr("the nearest is qwen2"));
}

TEST(ModelTest, UnknownKeysAreRefusedUnlessAllowed) {
  const nlohmann::json config = With(TinyLlamaConfig(), R"({"residual_multiplier": 0.2})");
  const absl::StatusOr<ModelDef> refused = BuildFrom(config, TinyLlamaTensors());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("config.json key residual_multiplier is not known; it "
                                          "may change the mathematics\n"));
  EXPECT_THAT(ErrorOf(refused), HasSubstr("residual_multiplier=0.2"));
  EXPECT_THAT(ErrorOf(refused), HasSubstr("--allow-config-key=residual_multiplier"));
  const absl::StatusOr<ModelDef> allowed =
      BuildFrom(config, TinyLlamaTensors(), {{"residual_multiplier"}});
  EXPECT_TRUE(allowed.ok()) << allowed.status();
}

TEST(ModelTest, KeysThatChangeNothingAreAccepted) {
  const absl::StatusOr<ModelDef> model = BuildFrom(
      With(TinyLlamaConfig(), R"({"transformers_version": "4.40.0", "torch_dtype": "bfloat16",
             "use_cache": true, "pretraining_tp": 1, "is_encoder_decoder": false,
             "attention_dropout": 0.1, "rope_interleaved": false, "eos_token_id": [1, 2]})"),
      TinyLlamaTensors());
  EXPECT_TRUE(model.ok()) << model.status();
}

// A user's own architecture: the same text, with weights by other names.
class QirModelTest : public ::testing::Test {
 protected:
  absl::StatusOr<ModelDef> Load(absl::string_view text, absl::string_view map) {
    directory_.Write("config.json", TinyLlamaConfig().dump());
    directory_.Write("model.safetensors", SafetensorsFile(TinyLlamaTensors()));
    absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(directory_.path());
    if (!checkpoint.ok()) return checkpoint.status();
    const std::string map_path = map.empty() ? "" : directory_.Write("map.json", map);
    return LoadQirModel(directory_.Write("own.qir", text), map_path, *checkpoint);
  }
  TempDir directory_;
};

constexpr absl::string_view kOwn = R"(func @step(%ids: i32[T], %pos: i32[T]) {
  %table = weight {name="emb"} : f32[10,16]
  %x = embed %table, %ids : f32[T,16]
  %w = weight {name="lm_head.weight"} : f32[10,16]
  %y = linear %x, %w : f32[T,10]
  return %y
}
)";

TEST_F(QirModelTest, WeightsGoByTheMapOrByTheirOwnName) {
  const absl::StatusOr<ModelDef> model = Load(kOwn, R"({"emb": "model.embed_tokens.weight"})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->vocab_size, 10);
  EXPECT_EQ(model->architecture, "qir");
  EXPECT_EQ(model->parameter_count, 320);
  EXPECT_THAT(Print(model->module),
              HasSubstr("%table = weight {name=\"model.embed_tokens.weight\"}"));
}

TEST_F(QirModelTest, AWeightThatIsNowhereIsNamed) {
  EXPECT_THAT(ErrorOf(Load(kOwn, "")), HasSubstr("own.qir: @step: %table: weight: emb: the tensor"
                                                 " is missing"));
}

TEST_F(QirModelTest, AMapEntryThatIsNoNameIsRefused) {
  EXPECT_THAT(ErrorOf(Load(kOwn, R"({"emb": 3})")), HasSubstr("\"emb\" is not mapped to a name"));
}

TEST_F(QirModelTest, AMapEntryForNoWeightIsRefused) {
  EXPECT_THAT(ErrorOf(Load(kOwn, R"({"emb": "model.embed_tokens.weight", "enb": "x"})")),
              HasSubstr("map.json: \"enb\" names no weight"));
}

TEST_F(QirModelTest, ATypeThatTheCheckpointContradictsIsRefused) {
  const absl::StatusOr<ModelDef> model = Load(kOwn, R"({"emb": "model.norm.weight"})");
  EXPECT_THAT(ErrorOf(model), HasSubstr("model.norm.weight is f32[16], not f32[10,16]"));
}

TEST_F(QirModelTest, AnotherSignatureIsRefused) {
  EXPECT_THAT(ErrorOf(Load("func @step(%ids: i32[T]) {\n  return %ids\n}\n", "")),
              HasSubstr("own.qir: @step has other arguments"));
  EXPECT_THAT(ErrorOf(Load("func @step(%ids: i32[T], %pos: i32[T]) {\n  return %pos\n}\n", "")),
              HasSubstr("own.qir: @step returns i32[T]"));
  EXPECT_THAT(ErrorOf(Load("func @f(%ids: i32[T]) {\n  return %ids\n}\n", "")),
              HasSubstr("own.qir: @step is missing"));
}

// The sum of embeddings, each given as the text of `embed`'s operands and attributes, as logits.
std::string Embeddings(const std::vector<std::string>& embeddings, absl::string_view more_args) {
  std::string text = absl::StrCat("func @step(%ids: i32[T], %pos: i32[T]", more_args, R"() {
  %t10 = weight {name="lm_head.weight"} : f32[10,16]
  %t16 = weight {name="model.layers.0.self_attn.q_proj.weight"} : f32[16,16]
  %t24 = weight {name="model.layers.0.mlp.gate_proj.weight"} : f32[24,16]
  %x = embed %t10, %ids : f32[T,16]
)");
  for (size_t i = 0; i < embeddings.size(); ++i) {
    absl::StrAppend(&text, "  %e", i, " = embed ", embeddings[i], "\n");
  }
  return text + "  %y = linear %x, %t10 : f32[T,10]\n  return %y\n}\n";
}

TEST_F(QirModelTest, TablesOfPositionsBoundTheLength) {
  const auto longest = [&](const std::vector<std::string>& embeddings) {
    const absl::StatusOr<ModelDef> model =
        Load(Embeddings(embeddings, ", %source: i32[S], %source_pos: i32[S]"), "");
    return model.ok() ? absl::StrCat(model->max_positions, " ", model->max_source)
                      : std::string(model.status().message());
  };
  EXPECT_EQ(longest({}), "0 0");
  EXPECT_EQ(longest({"%t24, %pos : f32[T,16]"}), "24 0");
  EXPECT_EQ(longest({"%t24, %pos {offset=2} : f32[T,16]", "%t16, %source_pos : f32[S,16]"}),
            "22 16");
  EXPECT_EQ(longest({"%t16, %pos {offset=1} : f32[T,16]", "%t24, %pos : f32[T,16]",
                     "%t16, %pos : f32[T,16]"}),
            "15 0");
  EXPECT_THAT(
      longest({"%t10, %pos {offset=10} : f32[T,16]"}),
      HasSubstr("own.qir: @step: %e0: a table of 10 rows with offset=10 has none for %pos"));
}

TEST_F(QirModelTest, ATableOfFewerRowsThanTheVocabularyIsRefused) {
  const auto error = [&](const std::string& embedding) {
    return ErrorOf(Load(Embeddings({embedding}, ", %source: i32[S], %source_pos: i32[S]"), ""));
  };
  EXPECT_EQ(error("%t16, %ids {offset=6} : f32[T,16]"), "no error");
  EXPECT_THAT(error("%t16, %ids {offset=7} : f32[T,16]"),
              HasSubstr("own.qir: @step: %e0: a table of 16 rows with offset=7 is too small for "
                        "%ids: the logits are of 10 ids\n  allowed: 17 rows or more"));
  EXPECT_THAT(error("%t10, %source {offset=1} : f32[S,16]"), HasSubstr("too small for %source"));
}

}  // namespace
}  // namespace quire
