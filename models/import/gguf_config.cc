#include "models/import/gguf_config.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "models/import/gguf_arch_keys.h"

namespace quire {
namespace {

using nlohmann::json;

// What a family's translation works on.
struct Context {
  const Checkpoint& checkpoint;
  GgufArchKeys& keys;
  GgufConfig& out;

  bool HasTensor(absl::string_view name) const { return checkpoint.Find(name) != nullptr; }
  json& operator[](const char* key) const { return out.config[key]; }
};

// The vocabulary is what the embedding has rows for; the key is optional and must agree.
void TranslateVocab(const Context& c) {
  const absl::StatusOr<const TensorInfo*> table = c.checkpoint.Require("token_embd.weight");
  if (!table.ok()) return c.keys.Fail(table.status());
  if ((*table)->extents.size() != 2) {
    return c.keys.Fail(absl::InvalidArgumentError(absl::StrCat("token_embd.weight has extents ",
                                                               ExtentsText((*table)->extents),
                                                               ", not [vocabulary, width]")));
  }
  const int64_t rows = (*table)->extents[0];
  if (c.keys.SizeOr("vocab_size", rows) != rows) {
    c.keys.Unsupported("vocab_size", "is not the number of rows of token_embd.weight",
                       absl::StrCat(rows));
  }
  c["vocab_size"] = rows;
  c["tie_word_embeddings"] = !c.HasTensor("output.weight");
}

// Tokens that begin and end texts. A chat model ends its turn with another token than a text.
void TranslateTokens(const Context& c) {
  const GgufMetadata& metadata = c.checkpoint.metadata();
  const auto token = [&](absl::string_view key) {
    const absl::StatusOr<int64_t> id = metadata.GetIntOr(key, -1);
    if (!id.ok()) c.keys.Fail(id.status());
    return id.value_or(-1);
  };
  const int64_t bos = token("tokenizer.ggml.bos_token_id");
  if (bos >= 0) c["bos_token_id"] = bos;
  std::vector<int64_t> ends;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const int64_t id = token(key);
    if (id >= 0 && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  if (ends.size() == 1) c["eos_token_id"] = ends[0];
  if (ends.size() > 1) c["eos_token_id"] = ends;
}

void TranslateRopeScaling(const Context& c, int64_t context_tokens) {
  GgufArchKeys& keys = c.keys;
  // The oldest files have only this key.
  const double oldest = keys.NumberOr("rope.scale_linear", 1);
  const double factor = keys.NumberOr("rope.scaling.factor", oldest);
  // Without a type, a factor means linear.
  const std::string type = keys.TextOr("rope.scaling.type", "linear");
  if (type == "linear") {
    // 0 is written for no scaling.
    if (factor != 1 && factor != 0) c["rope_scaling"] = {{"rope_type", type}, {"factor", factor}};
  } else if (type == "yarn") {
    const int64_t original = keys.SizeOr("rope.scaling.original_context_length", context_tokens);
    c["rope_scaling"] = {{"rope_type", type},
                         {"factor", factor},
                         {"original_max_position_embeddings", original},
                         {"beta_fast", keys.NumberOr("rope.scaling.yarn_beta_fast", 32)},
                         {"beta_slow", keys.NumberOr("rope.scaling.yarn_beta_slow", 1)}};
    // Readers of the format disagree on whether these replace or multiply what follows from the
    // factor.
    for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
                            "rope.scaling.yarn_ext_factor"}) {
      keys.OnlyNumber(key, 1);
    }
  } else if (type != "none") {
    keys.Unsupported("rope.scaling.type", "is not a supported rope type", "none, linear, yarn");
  }
}

// Llama, Qwen and Gemma 3.
void TranslateRotary(const Context& c, double default_theta) {
  GgufArchKeys& keys = c.keys;
  const int64_t width = keys.Size("embedding_length");
  const int64_t heads = keys.Size("attention.head_count");
  const int64_t context_tokens = keys.Size("context_length");
  c["hidden_size"] = width;
  c["intermediate_size"] = keys.Size("feed_forward_length");
  c["num_hidden_layers"] = keys.Size("block_count");
  c["num_attention_heads"] = heads;
  c["num_key_value_heads"] = keys.SizeOr("attention.head_count_kv", heads);
  c["max_position_embeddings"] = context_tokens;
  c["rms_norm_eps"] = keys.Number("attention.layer_norm_rms_epsilon");
  if (!keys.Has("attention.key_length") && width % heads != 0) {
    keys.Unsupported("attention.head_count", absl::StrCat("does not divide the width ", width),
                     "a divisor of it, or attention.key_length");
  }
  const int64_t head_dim = keys.SizeOr("attention.key_length", width / heads);
  c["head_dim"] = head_dim;
  keys.OnlySize("attention.value_length", head_dim);
  keys.OnlySize("rope.dimension_count", head_dim);
  c["rope_theta"] = keys.NumberOr("rope.freq_base", default_theta);
  TranslateRopeScaling(c, context_tokens);
  c.out.rope_factors = c.HasTensor("rope_freqs.weight");
}

// A Mistral with a window has the architecture llama too.
void TranslateLlama(const Context& c) {
  TranslateRotary(c, 10000);
  c["hidden_act"] = "silu";
  c.out.rope_interleaved = true;
  const int64_t window = c.keys.SizeOrNone("attention.sliding_window");
  if (window != 0) {
    c["model_type"] = "mistral";
    c["sliding_window"] = window;
    return;
  }
  c["model_type"] = "llama";
  const bool qkv_bias = c.HasTensor("blk.0.attn_q.bias");
  if (qkv_bias != c.HasTensor("blk.0.attn_output.bias")) {
    c.keys.Fail(absl::UnimplementedError(
        absl::StrCat(c.checkpoint.path(), ": only one of blk.0.attn_q.bias and ",
                     "blk.0.attn_output.bias is there; a llama has both or neither")));
  }
  c["attention_bias"] = qkv_bias;
  c["mlp_bias"] = c.HasTensor("blk.0.ffn_gate.bias");
}

void TranslateQwen2(const Context& c) {
  TranslateRotary(c, 10000);
  c["model_type"] = "qwen2";
  c["hidden_act"] = "silu";
  c["use_sliding_window"] = false;
}

void TranslateQwen3(const Context& c) {
  TranslateRotary(c, 10000);
  c["model_type"] = "qwen3";
  c["hidden_act"] = "silu";
  c["use_sliding_window"] = false;
  c["attention_bias"] = c.HasTensor("blk.0.attn_q.bias");
}

void TranslateGemma3(const Context& c) {
  GgufArchKeys& keys = c.keys;
  TranslateRotary(c, 1000000);
  c["model_type"] = "gemma3_text";
  c["hidden_activation"] = "gelu_pytorch_tanh";
  c.out.norm_weights_include_one = true;
  c["rope_local_base_freq"] = keys.NumberOr("rope.freq_base_swa", 10000);
  const double softcap = keys.NumberOr("final_logit_softcapping", 0);
  if (softcap != 0) c["final_logit_softcapping"] = softcap;

  const int64_t layers = keys.Size("block_count");
  const int64_t window = keys.SizeOrNone("attention.sliding_window");
  const int64_t period = keys.SizeOr("attention.sliding_window_pattern", 6);
  if (window != 0) c["sliding_window"] = window;
  c["sliding_window_pattern"] = window == 0 ? 1 : period;

  // The scale is not in the file. The 27B model, known by its layers, is the one that does not
  // scale by its head size.
  const int64_t width_of_head = keys.Size("embedding_length") / keys.Size("attention.head_count");
  c["query_pre_attn_scalar"] = layers == 62 ? json(width_of_head) : c["head_dim"];
}

// GPT-2, GPT-BigCode and BLOOM.
void TranslateAbsolute(const Context& c) {
  GgufArchKeys& keys = c.keys;
  c["n_layer"] = keys.Size("block_count");
  c["n_head"] = keys.Size("attention.head_count");
  c["layer_norm_epsilon"] = keys.Number("attention.layer_norm_epsilon");
}

void TranslateGpt2(const Context& c) {
  TranslateAbsolute(c);
  c["model_type"] = "gpt2";
  c["n_positions"] = c.keys.Size("context_length");
  c["n_embd"] = c.keys.Size("embedding_length");
  c["n_inner"] = c.keys.Size("feed_forward_length");
  c["activation_function"] = "gelu_new";
  c.keys.OnlySize("attention.head_count_kv", c.keys.Size("attention.head_count"));
  c.out.linear_untransposed = true;
}

void TranslateStarcoder(const Context& c) {
  TranslateAbsolute(c);
  c["model_type"] = "gpt_bigcode";
  c["n_positions"] = c.keys.Size("context_length");
  c["n_embd"] = c.keys.Size("embedding_length");
  c["n_inner"] = c.keys.Size("feed_forward_length");
  c["activation_function"] = "gelu_pytorch_tanh";
  const int64_t heads = c.keys.Size("attention.head_count");
  const bool multi_query = c.keys.SizeOr("attention.head_count_kv", heads) == 1;
  if (!multi_query) c.keys.OnlySize("attention.head_count_kv", heads);
  c["multi_query"] = multi_query;
  c.out.qkv_in_blocks = true;
}

void TranslateBloom(const Context& c) {
  TranslateAbsolute(c);
  const int64_t width = c.keys.Size("embedding_length");
  c["model_type"] = "bloom";
  c["hidden_size"] = width;
  c["seq_length"] = c.keys.Size("context_length");
  c.keys.OnlySize("feed_forward_length", 4 * width);
  c.keys.OnlySize("attention.head_count_kv", c.keys.Size("attention.head_count"));
  c.keys.OnlyNumber("attention.max_alibi_bias", 8);
  c.out.qkv_in_blocks = true;
}

struct Architecture {
  absl::string_view name;
  void (*translate)(const Context&);
};

constexpr Architecture kArchitectures[] = {
    {"bloom", TranslateBloom},         {"gemma3", TranslateGemma3}, {"gpt2", TranslateGpt2},
    {"llama", TranslateLlama},         {"qwen2", TranslateQwen2},   {"qwen3", TranslateQwen3},
    {"starcoder", TranslateStarcoder},
};

absl::StatusOr<const Architecture*> FindArchitecture(const GgufMetadata& metadata) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, metadata.GetStringOr("general.type", "model"));
  if (type != "model") {
    return absl::UnimplementedError(
        metadata.Refuse("general.type", "is not supported", "model").message());
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string name, metadata.GetString("general.architecture"));
  std::vector<absl::string_view> known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
    known.push_back(architecture.name);
  }
  return absl::UnimplementedError(
      metadata.Refuse("general.architecture", "is not supported", absl::StrJoin(known, ", "))
          .message());
}

}  // namespace

absl::StatusOr<GgufConfig> ConfigFromGguf(const Checkpoint& checkpoint,
                                          absl::Span<const std::string> allowed_keys) {
  QUIRE_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(checkpoint.metadata()));
  GgufConfig out;
  out.config = json::object();
  GgufArchKeys keys(checkpoint.metadata(), architecture->name);
  const Context context{checkpoint, keys, out};
  TranslateVocab(context);
  TranslateTokens(context);
  architecture->translate(context);
  keys.OnlyBool("attention.causal", true);
  QUIRE_RETURN_IF_ERROR(keys.Finish(allowed_keys));
  return out;
}

}  // namespace quire
