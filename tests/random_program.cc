#include "tests/random_program.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/builder.h"
#include "tests/random.h"
#include "tests/random_tensor.h"

namespace quire::testing {
namespace {

constexpr int64_t kPositions = 64;

const Extent kT = Extent::Letter('T');

// Every decision about one layer; drawn before anything is built, so that a seed gives the same
// model in every form.
struct LayerSpec {
  int64_t kv_heads, group, head, ffn_width;
  bool packed_qkv, qkv_bias, out_bias, qk_norm, rope, scale_on_q;
  bool gated, packed_ffn, ffn_bias, parallel, sandwich, cast;
  double softcap, alibi_max, theta, scale;
  int64_t window, rope_dims;
  bool rope_interleaved;
  std::string order, scaling, approximate;
  OpKind activation;
  DType cast_type;
};

struct ModelSpec {
  int64_t width, vocabulary;
  bool layer_norm, norm_weight, norm_bias, learned_positions, tied, final_cap;
  double weight_offset, embed_scale;
  std::vector<LayerSpec> layers;
};

LayerSpec DrawLayer(Random& random, const ModelSpec& model, const ProgramOptions& options) {
  LayerSpec s;
  s.kv_heads = random.Between(1, 3);
  s.group = random.OneOf<int64_t>({1, 1, 2, 3, 7});
  s.head = options.block_weights ? 32 : 8 * random.Between(1, 3);
  s.ffn_width = options.block_weights ? 256 : 8 * random.Between(1, 6);
  s.packed_qkv = random.Chance(2);
  s.qkv_bias = random.Chance(3);
  s.out_bias = random.Chance(3);
  s.qk_norm = random.Chance(3);
  s.rope = !model.learned_positions && !random.Chance(3);
  s.scale_on_q = random.Chance(4);
  s.gated = random.Chance(2);
  s.packed_ffn = random.Chance(3);
  s.ffn_bias = random.Chance(3);
  s.parallel = random.Chance(4);
  s.sandwich = random.Chance(4);
  s.cast = options.casts && random.Chance(2);
  s.softcap = random.Chance(4) ? 5 : 0;
  s.alibi_max = !s.rope && random.Chance(2) ? 8 : 0;
  s.theta = random.OneOf({1e4, 500.0, 1e6});
  s.scale = 1 / std::sqrt(static_cast<double>(s.head));
  s.window = random.Chance(3) ? random.Between(1, 6) : 0;
  s.rope_dims = random.Chance(4) ? s.head / 2 : 0;
  s.rope_interleaved = random.Chance(4);
  s.order = options.tiled_heads && random.Chance(2) ? "tile" : "interleave";
  s.scaling = random.OneOf<const char*>({"none", "none", "linear", "dynamic", "llama3", "yarn"});
  s.approximate = random.OneOf<const char*>({"none", "tanh", "quick"});
  s.activation = random.OneOf({OpKind::kSilu, OpKind::kGelu, OpKind::kRelu, OpKind::kTanh});
  s.cast_type = random.OneOf({DType::kF16, DType::kBF16});
  return s;
}

ModelSpec DrawModel(Random& random, const ProgramOptions& options) {
  ModelSpec s;
  s.width = options.block_weights ? 256 : 8 * random.Between(2, 6);
  s.vocabulary = random.Between(11, 97);
  s.layer_norm = random.Chance(3);
  s.norm_weight = !random.Chance(5);
  s.norm_bias = s.norm_weight && random.Chance(2);
  s.learned_positions = random.Chance(3);
  s.tied = random.Chance(2);
  s.final_cap = random.Chance(4);
  s.weight_offset = random.Chance(3) ? 1 : 0;
  s.embed_scale = random.Chance(3) ? 4 : 1;
  for (int64_t layer = random.Between(1, 2); layer > 0; --layer) {
    s.layers.push_back(DrawLayer(random, s, options));
  }
  return s;
}

class Writer {
 public:
  Writer(const ModelSpec& model, uint64_t seed, const ProgramOptions& options)
      : model_(model),
        options_(options),
        types_(seed ^ 0x7479706573u),
        func_(std::make_unique<Func>("step")),
        b_(func_.get()) {}

  std::unique_ptr<Func> Write() {
    Op* ids = func_->AddArg("ids", {DType::kI32, {kT}});
    pos_ = func_->AddArg("pos", {DType::kI32, {kT}});
    Op* table = Weight("embed.weight", {model_.vocabulary, model_.width});
    if (options_.encoder) memory_ = Encoder(table);
    Op* x = Embedding(table, ids);
    for (size_t i = 0; i < model_.layers.size(); ++i) x = Layer(x, static_cast<int64_t>(i));
    x = Norm(x, "norm");
    Op* head = model_.tied ? table : Weight("head.weight", {model_.vocabulary, model_.width});
    x = b_.Linear(x, head);
    if (model_.final_cap) x = b_.Unary(OpKind::kSoftcap, x, {{AttrKind::kCap, 3.0}});
    func_->set_returns({x});
    if (!b_.status().ok()) {
      fprintf(stderr, "RandomProgram: %s\n", std::string(b_.status().message()).c_str());
      std::abort();
    }
    return std::move(func_);
  }

 private:
  Op* Embedding(Op* table, Op* ids) {
    Op* x = b_.Embed(table, ids);
    if (model_.embed_scale != 1) x = b_.Scale(x, model_.embed_scale);
    if (model_.learned_positions) {
      // Offset 2 is what BART-style tables have.
      x = b_.Add(x, b_.Embed(Weight("positions.weight", {kPositions + 2, model_.width}), pos_, 2));
    }
    return x;
  }

  // One layer like the decoder's first, but that every row sees every other.
  Op* Encoder(Op* table) {
    Op* source = func_->AddArg("source", {DType::kI32, {Extent::Letter('S')}});
    Op* decoder_pos = pos_;
    pos_ = func_->AddArg("source_pos", {DType::kI32, {Extent::Letter('S')}});
    scope_ = "encoder.";
    Op* x = Embedding(table, source);
    const LayerSpec& s = model_.layers[0];
    x = b_.Add(x, Attention(Norm(x, "norm"), nullptr, s, 0, /*causal=*/false));
    x = b_.Add(x, FeedForward(Norm(x, "ffn_norm"), s));
    scope_ = "";
    pos_ = decoder_pos;
    return x;
  }

  // A matrix of a random type that its width allows.
  Op* Weight(absl::string_view name, Extents extents) {
    std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16};
    const int64_t last = extents.back().value();
    for (const DTypeInfo& info : AllDTypes()) {
      if (options_.block_weights && IsBlockType(info.dtype) && last % info.block_elements == 0) {
        types.push_back(info.dtype);
      }
    }
    return b_.Weight(absl::StrCat(scope_, name), {types_.OneOf(types), std::move(extents)});
  }

  Op* Vector(absl::string_view name, int64_t width) {
    return b_.Weight(absl::StrCat(scope_, name), {DType::kF32, {width}});
  }

  Op* Norm(Op* x, const std::string& name) {
    const int64_t width = x->type.extents.back().value();
    Op* w = model_.norm_weight ? Vector(name + ".weight", width) : nullptr;
    Op* bias = model_.norm_bias ? Vector(name + ".bias", width) : nullptr;
    std::vector<Op*> operands = {x};
    if (w != nullptr) operands.push_back(w);
    if (!model_.layer_norm) {
      return b_.Make(OpKind::kRmsNorm, std::move(operands),
                     {{AttrKind::kEps, 1e-5}, {AttrKind::kWeightOffset, model_.weight_offset}});
    }
    if (bias != nullptr) operands.push_back(bias);
    return b_.Make(OpKind::kLayerNorm, std::move(operands), {{AttrKind::kEps, 1e-5}});
  }

  Op* Project(Op* x, const std::string& name, int64_t columns, bool bias) {
    Op* w = Weight(name + ".weight", {columns, x->type.extents.back()});
    return b_.Linear(x, w, bias ? Vector(name + ".bias", columns) : nullptr);
  }

  Op* Heads(Op* x, int64_t heads, const LayerSpec& s) {
    return b_.Reshape(x, {x->type.extents[0], heads, s.head});
  }

  Op* Rope(Op* x, const LayerSpec& s) {
    Builder::AttrList attrs = {{AttrKind::kTheta, s.theta},
                               {AttrKind::kDims, s.rope_dims},
                               {AttrKind::kStyle, s.rope_interleaved ? "interleave" : "half"},
                               {AttrKind::kScaling, s.scaling}};
    if (s.scaling != "none") attrs.emplace_back(AttrKind::kScaleFactor, 4.0);
    if (s.scaling != "none" && s.scaling != "linear") {
      attrs.emplace_back(AttrKind::kOriginalTokens, int64_t{16});
    }
    if (s.scaling == "yarn") attrs.emplace_back(AttrKind::kMagnitude, 1.125);
    return b_.Named("rotated").Make(OpKind::kRope, {x, pos_}, std::move(attrs));
  }

  // Of rows x over rows `memory`, or over x where it is null.
  Op* Attention(Op* x, Op* memory, const LayerSpec& s, int64_t layer, bool causal) {
    const int64_t heads = s.kv_heads * s.group;
    const int64_t q_columns = heads * s.head, kv_columns = s.kv_heads * s.head;
    const bool is_cross = memory != nullptr;
    if (!is_cross) memory = x;
    Op *q, *k, *v;
    if (s.packed_qkv) {
      Op* of_x = Project(x, "qkv", q_columns + 2 * kv_columns, s.qkv_bias);
      Op* of_memory = of_x;
      if (is_cross) {
        std::vector<Op*> operands = of_x->operands;
        operands[0] = memory;
        of_memory = b_.Make(OpKind::kLinear, std::move(operands));
      }
      q = b_.Slice(of_x, 1, 0, q_columns);
      k = b_.Slice(of_memory, 1, q_columns, q_columns + kv_columns);
      v = b_.Slice(of_memory, 1, q_columns + kv_columns, q_columns + 2 * kv_columns);
    } else {
      q = Project(x, "q", q_columns, s.qkv_bias);
      k = Project(memory, "k", kv_columns, s.qkv_bias);
      v = Project(memory, "v", kv_columns, s.qkv_bias);
    }
    q = Heads(q, heads, s);
    k = Heads(k, s.kv_heads, s);
    v = Heads(v, s.kv_heads, s);
    if (s.qk_norm) {
      q = Norm(q, "q_norm");
      k = Norm(k, "k_norm");
    }
    if (s.rope && !is_cross) {
      q = Rope(q, s);
      k = Rope(k, s);
    }
    Op* out = options_.form == ProgramForm::kDefinition ? Definition(q, k, v, s, causal)
                                                        : Raised(q, k, v, s, layer);
    return Project(b_.Reshape(out, {x->type.extents[0], q_columns}), "out", model_.width,
                   s.out_bias);
  }

  Op* Expand(Op* x, const LayerSpec& s) {
    return s.group == 1 ? x : b_.ExpandHeads(x, s.group, s.order);
  }

  Op* Definition(Op* q, Op* k, Op* v, const LayerSpec& s, bool causal) {
    if (s.scale_on_q) q = b_.Scale(q, s.scale);
    q = b_.Transpose(q, {1, 0, 2});
    k = b_.Transpose(Expand(k, s), {1, 0, 2});
    v = b_.Transpose(Expand(v, s), {1, 0, 2});
    Op* scores = b_.Named("scores").MatMul(q, k, /*transpose_b=*/true);
    if (!s.scale_on_q) scores = b_.Scale(scores, s.scale);
    if (s.softcap != 0) scores = b_.Unary(OpKind::kSoftcap, scores, {{AttrKind::kCap, s.softcap}});
    if (s.alibi_max != 0 && causal) {
      scores = b_.Unary(OpKind::kAlibi, scores, {{AttrKind::kAlibiMax, s.alibi_max}});
    }
    if (causal) scores = b_.Unary(OpKind::kCausalMask, scores, {{AttrKind::kWindow, s.window}});
    Op* out = b_.MatMul(b_.Softmax(scores), v, /*transpose_b=*/false);
    return b_.Transpose(out, {1, 0, 2});
  }

  Op* Raised(Op* q, Op* k, Op* v, const LayerSpec& s, int64_t layer) {
    if (s.order == "tile") {
      k = Expand(k, s);
      v = Expand(v, s);
    }
    if (options_.form == ProgramForm::kCached) {
      k = Append(k, "k", layer);
      v = Append(v, "v", layer);
    }
    return b_.Make(OpKind::kAttention, {q, k, v},
                   {{AttrKind::kScale, s.scale},
                    {AttrKind::kMask, "causal"},
                    {AttrKind::kWindow, s.window},
                    {AttrKind::kCap, s.softcap},
                    {AttrKind::kAlibiMax, s.alibi_max}});
  }

  Op* Append(Op* x, const std::string& slot, int64_t layer) {
    Type type{options_.kv_dtype, x->type.extents};
    type.extents[0] = Extent::Letter('C');
    return b_.Make(OpKind::kKvAppend, {x}, {{AttrKind::kLayer, layer}, {AttrKind::kSlot, slot}},
                   type);
  }

  Op* Activate(Op* x, const LayerSpec& s) {
    Builder::AttrList attrs;
    if (s.activation == OpKind::kGelu) attrs.emplace_back(AttrKind::kApproximate, s.approximate);
    return b_.Unary(s.activation, x, std::move(attrs));
  }

  Op* FeedForward(Op* x, const LayerSpec& s) {
    Op* y;
    if (!s.gated) {
      y = Activate(Project(x, "up", s.ffn_width, s.ffn_bias), s);
    } else if (s.packed_ffn) {
      Op* both = Project(x, "gate_up", 2 * s.ffn_width, s.ffn_bias);
      Op* gate = b_.Slice(both, 1, 0, s.ffn_width);
      y = b_.Mul(Activate(gate, s), b_.Slice(both, 1, s.ffn_width, 2 * s.ffn_width));
    } else {
      Op* gate = Activate(Project(x, "gate", s.ffn_width, s.ffn_bias), s);
      y = b_.Mul(gate, Project(x, "up", s.ffn_width, s.ffn_bias));
    }
    return Project(y, "down", model_.width, s.ffn_bias);
  }

  Op* Layer(Op* x, int64_t layer) {
    const LayerSpec& s = model_.layers[static_cast<size_t>(layer)];
    scope_ = absl::StrCat("layers.", layer, ".");
    Op* normed = Norm(x, "attention_norm");
    Op* attended = Attention(normed, nullptr, s, layer, /*causal=*/true);
    if (s.sandwich) attended = Norm(attended, "after_attention_norm");
    Op* middle = b_.Add(x, attended);
    if (memory_ != nullptr) {
      Op* queries = Norm(middle, "cross_norm");
      scope_ = absl::StrCat("layers.", layer, ".cross.");
      Op* read = Attention(queries, memory_, s, layer, /*causal=*/false);
      scope_ = absl::StrCat("layers.", layer, ".");
      middle = b_.Add(middle, read);
    }
    if (s.cast) middle = Cast(Cast(middle, s.cast_type), DType::kF32);
    Op* fed = FeedForward(s.parallel ? normed : Norm(middle, "ffn_norm"), s);
    if (s.sandwich) fed = Norm(fed, "after_ffn_norm");
    scope_ = "";
    return b_.Add(middle, fed);
  }

  Op* Cast(Op* x, DType type) {
    return b_.Make(OpKind::kCast, {x}, {}, Type{type, x->type.extents});
  }

  const ModelSpec& model_;
  const ProgramOptions& options_;
  Random types_;
  std::unique_ptr<Func> func_;
  Builder b_;
  Op* pos_ = nullptr;
  Op* memory_ = nullptr;  // the encoder's output
  std::string scope_;
};

}  // namespace

std::unique_ptr<Func> RandomProgram(uint64_t seed, const ProgramOptions& options) {
  Random random(seed);
  const ModelSpec model = DrawModel(random, options);
  return Writer(model, seed, options).Write();
}

reference::Inputs RandomInputs(const Func& func, uint64_t seed, const Bindings& bindings,
                               int64_t first_position) {
  reference::Inputs inputs;
  inputs.bindings = bindings;
  inputs.weights = RandomWeights();
  for (const auto& arg : func.args()) {
    const std::vector<int64_t> extents = *Bind(arg->type.extents, bindings);
    const std::string name = absl::StrCat(arg->name, "#", seed);
    if (arg->type.dtype != DType::kI32) {
      inputs.args[arg->name] = RandomNormal(name, extents);
      continue;
    }
    const int64_t count = *Product(extents);
    if (arg->name == "pos") {
      inputs.args[arg->name] = Positions(first_position, count);
      continue;
    }
    // Rows of the smallest table that the ids look up.
    int64_t below = 1 << 20;
    for (const auto& op : func.ops()) {
      if (op->num_operands() < 2 || op->operand(1) != arg.get()) continue;
      if (!op->Is(OpKind::kEmbed) && !op->Is(OpKind::kTake)) continue;
      const int64_t rows = (*Bind(op->operand(0)->type.extents, bindings))[0];
      below = std::min(below, rows - (op->Is(OpKind::kEmbed) ? op->Int(AttrKind::kOffset) : 0));
    }
    inputs.args[arg->name] = RandomIds(name, count, std::max<int64_t>(below, 1));
    inputs.args[arg->name].extents = extents;
  }
  return inputs;
}

}  // namespace quire::testing
