// Checkpoints of well-known geometries without their weights: a configuration, and the header of a
// safetensors file whose data has no blocks on disk. Compiling reads no more.
#ifndef QUIRE_TESTS_COMPILER_GEOMETRIES_H_
#define QUIRE_TESTS_COMPILER_GEOMETRIES_H_

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace quire::testing {

struct Geometry {
  const char* name;
  const char* model_type;
  int64_t E, F, V, heads, kv_heads, head_dim;
  bool has_bias = false;  // of q, k and v
  bool is_gemma = false;  // norms of q and k, and after attention and feed-forward; tied head
  const char* more = "";  // further keys of the configuration
};

// One layer of each kind: a model's other layers have the same kernels.
inline constexpr Geometry kGeometries[] = {
    {"llama-7b", "llama", 4096, 11008, 32000, 32, 32, 128},
    {"llama-8b", "llama", 4096, 14336, 128256, 32, 8, 128, false, false,
     R"(,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,)"
     R"("high_freq_factor":4.0,"original_max_position_embeddings":8192})"},
    {"mistral-7b", "mistral", 4096, 14336, 32000, 32, 8, 128, false, false,
     R"(,"sliding_window":4096)"},
    {"qwen2-7b", "qwen2", 3584, 18944, 152064, 28, 4, 128, true, false},
    {"gemma3-4b", "gemma3_text", 2560, 10240, 262144, 8, 4, 256, false, true,
     R"(,"sliding_window":1024,"layer_types":["sliding_attention","full_attention"],)"
     R"("query_pre_attn_scalar":256,"rope_local_base_freq":10000.0)"},
};

inline std::string ConfigOf(const Geometry& g) {
  return absl::StrCat(
      R"({"model_type":")", g.model_type, R"(","hidden_size":)", g.E, R"(,"intermediate_size":)",
      g.F, R"(,"vocab_size":)", g.V, R"(,"num_hidden_layers":)", g.is_gemma ? 2 : 1,
      R"(,"num_attention_heads":)", g.heads, R"(,"num_key_value_heads":)", g.kv_heads,
      R"(,"head_dim":)", g.head_dim, R"(,"max_position_embeddings":32768,"rms_norm_eps":1e-6,)",
      R"("rope_theta":1000000.0,"tie_word_embeddings":)", g.is_gemma ? "true" : "false",
      g.is_gemma ? R"(,"hidden_activation":"gelu_pytorch_tanh")" : R"(,"hidden_act":"silu")",
      g.more, "}");
}

inline std::vector<std::pair<std::string, std::vector<int64_t>>> TensorsOf(const Geometry& g) {
  const int64_t q = g.heads * g.head_dim, kv = g.kv_heads * g.head_dim;
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
      {"model.embed_tokens.weight", {g.V, g.E}}, {"model.norm.weight", {g.E}}};
  if (!g.is_gemma) tensors.push_back({"lm_head.weight", {g.V, g.E}});
  for (int layer = 0; layer < (g.is_gemma ? 2 : 1); ++layer) {
    const auto add = [&](const char* name, std::vector<int64_t> extents) {
      tensors.push_back({absl::StrCat("model.layers.", layer, ".", name), std::move(extents)});
    };
    add("input_layernorm.weight", {g.E});
    add("post_attention_layernorm.weight", {g.E});
    add("self_attn.q_proj.weight", {q, g.E});
    add("self_attn.k_proj.weight", {kv, g.E});
    add("self_attn.v_proj.weight", {kv, g.E});
    add("self_attn.o_proj.weight", {g.E, q});
    add("mlp.gate_proj.weight", {g.F, g.E});
    add("mlp.up_proj.weight", {g.F, g.E});
    add("mlp.down_proj.weight", {g.E, g.F});
    if (g.has_bias) {
      add("self_attn.q_proj.bias", {q});
      add("self_attn.k_proj.bias", {kv});
      add("self_attn.v_proj.bias", {kv});
    }
    if (g.is_gemma) {
      add("self_attn.q_norm.weight", {g.head_dim});
      add("self_attn.k_norm.weight", {g.head_dim});
      add("pre_feedforward_layernorm.weight", {g.E});
      add("post_feedforward_layernorm.weight", {g.E});
    }
  }
  return tensors;
}

// Writes the checkpoint into `folder`, which exists; its weights are of `dtype`, "BF16" or "F16".
inline void WriteGeometry(const Geometry& g, const std::string& folder, const char* dtype) {
  std::ofstream(folder + "/config.json") << ConfigOf(g);
  std::vector<std::string> entries;
  int64_t end = 0;
  for (const auto& [name, extents] : TensorsOf(g)) {
    int64_t bytes = 2;
    for (const int64_t extent : extents) bytes *= extent;
    entries.push_back(absl::StrCat("\"", name, R"(":{"dtype":")", dtype, R"(","shape":[)",
                                   absl::StrJoin(extents, ","), R"(],"data_offsets":[)", end, ",",
                                   end + bytes, "]}"));
    end += bytes;
  }
  const std::string header = absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  const uint64_t header_bytes = header.size();
  const std::string path = folder + "/model.safetensors";
  {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
    file << header;
  }
  std::filesystem::resize_file(path,
                               sizeof(header_bytes) + header_bytes + static_cast<uint64_t>(end));
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_COMPILER_GEOMETRIES_H_
