// Small model directories for tests of definitions: a configuration, and tensors whose bytes nobody
// reads.
#ifndef QUIRE_TESTS_MODELS_MODEL_FILES_H_
#define QUIRE_TESTS_MODELS_MODEL_FILES_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/text.h"
#include "models/model.h"
#include "nlohmann/json.hpp"
#include "tests/models/checkpoint_files.h"
#include "tests/testdata.h"

namespace quire::testing {

// A tensor of f32 unless said otherwise.
inline TestTensor Stored(absl::string_view name, std::vector<int64_t> extents,
                         absl::string_view type = "F32") {
  size_t bytes = type == "F32" || type == "I32" ? 4 : 2;
  for (const int64_t extent : extents) bytes *= static_cast<size_t>(extent);
  return {std::string(name), std::string(type), std::move(extents), BytesFor(name, bytes)};
}

// One layer: E = 16, F = 24, Hq = 2, Hkv = 1, D = 8, V = 10.
inline nlohmann::json TinyLlamaConfig() {
  return nlohmann::json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 10,
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false})",
                               nullptr, false);
}

inline std::vector<TestTensor> TinyLlamaTensors(absl::string_view prefix = "model.",
                                                absl::string_view type = "F32") {
  std::vector<TestTensor> tensors;
  const auto add = [&](absl::string_view name, std::vector<int64_t> extents) {
    tensors.push_back(Stored(absl::StrCat(prefix, name, ".weight"), std::move(extents), type));
  };
  add("embed_tokens", {10, 16});
  add("layers.0.input_layernorm", {16});
  add("layers.0.self_attn.q_proj", {16, 16});
  add("layers.0.self_attn.k_proj", {8, 16});
  add("layers.0.self_attn.v_proj", {8, 16});
  add("layers.0.self_attn.o_proj", {16, 16});
  add("layers.0.post_attention_layernorm", {16});
  add("layers.0.mlp.gate_proj", {24, 16});
  add("layers.0.mlp.up_proj", {24, 16});
  add("layers.0.mlp.down_proj", {16, 24});
  add("norm", {16});
  tensors.push_back(Stored("lm_head.weight", {10, 16}, type));
  return tensors;
}

// Writes the directory, opens it and builds the definition.
inline absl::StatusOr<ModelDef> BuildFrom(const nlohmann::json& config,
                                          const std::vector<TestTensor>& tensors,
                                          const ModelOptions& options = {}) {
  const TempDir directory;
  directory.Write("config.json", config.dump());
  directory.Write("model.safetensors", SafetensorsFile(tensors));
  absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(directory.path());
  if (!checkpoint.ok()) return checkpoint.status();
  return BuildModel(*checkpoint, options);
}

// The configuration with some keys set; null removes one.
inline nlohmann::json With(nlohmann::json config, absl::string_view changes) {
  config.merge_patch(nlohmann::json::parse(std::string(changes), nullptr, false));
  return config;
}

inline std::string FixtureFolder(absl::string_view name) {
  return TestData(absl::StrCat("parity/fixtures/", name));
}

// The model of a parity fixture with other configurations.
class ReconfiguredFixture {
 public:
  explicit ReconfiguredFixture(absl::string_view fixture) {
    std::filesystem::create_symlink(FixtureFolder(fixture) + "/model.safetensors",
                                    directory_.File("model.safetensors"));
  }

  absl::StatusOr<ModelDef> Build(const nlohmann::json& config) const {
    // Anew each time: truncating a file that was just written makes some file systems write it out.
    std::filesystem::remove(directory_.File("config.json"));
    directory_.Write("config.json", config.dump());
    const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(directory_.path());
    if (!checkpoint.ok()) return checkpoint.status();
    return BuildModel(*checkpoint);
  }

 private:
  TempDir directory_;
};

inline nlohmann::json FixtureConfig(absl::string_view fixture) {
  const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(FixtureFolder(fixture));
  return checkpoint.ok() ? checkpoint->config() : nlohmann::json();
}

// Its text with some keys changed, or its error.
inline std::string TextOf(absl::string_view fixture, absl::string_view changes) {
  const absl::StatusOr<ModelDef> model =
      ReconfiguredFixture(fixture).Build(With(FixtureConfig(fixture), changes));
  return model.ok() ? Print(model->module) : model.status().ToString();
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_MODELS_MODEL_FILES_H_
