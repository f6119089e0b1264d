#include "tests/codegen/cuda_row_cases.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "ir/dtype.h"

namespace quire::testing {
namespace {

constexpr uint64_t kRandomCases = 60;

class Cases {
 public:
  template <typename... A>
  void Add(const char* text, const A&... arguments) {
    specs_.push_back({absl::Substitute(text, arguments...), 0});
  }
  template <typename... A>
  void AddPaged(int page_tokens, const char* text, const A&... arguments) {
    specs_.push_back({absl::Substitute(text, arguments...), page_tokens});
  }
  std::vector<RowSpec> Take() { return std::move(specs_); }

 private:
  std::vector<RowSpec> specs_;
};

// Every pointwise op, in chains, over widths of every vector length.
void AddPointwise(Cases& cases) {
  for (const char* width : {"1", "7", "62", "80", "3,24"}) {
    cases.Add(
        "func @row(%0: f32[T,$0], %1: f32[T,$0]) {\n"
        "  %v0 = silu %0 : f32[T,$0]\n"
        "  %v1 = mul %v0, %1 : f32[T,$0]\n"
        "  %v2 = gelu %0 : f32[T,$0]\n"
        "  %v3 = gelu %1 {approximate=tanh} : f32[T,$0]\n"
        "  %v4 = gelu %1 {approximate=quick} : f32[T,$0]\n"
        "  %v5 = add %v2, %v3 : f32[T,$0]\n"
        "  %v6 = add %v5, %v4 : f32[T,$0]\n"
        "  %v7 = tanh %1 : f32[T,$0]\n"
        "  %v8 = sigmoid %0 : f32[T,$0]\n"
        "  %v9 = relu %0 : f32[T,$0]\n"
        "  %v10 = scale %v9 {factor=-0.37} : f32[T,$0]\n"
        "  %v11 = softcap %1 {cap=1.5} : f32[T,$0]\n"
        "  %v12 = softcap %0 {cap=0} : f32[T,$0]\n"
        "  return %v1, %v6, %v7, %v8, %v10, %v11, %v12\n}\n",
        width);
  }
  // As the compiler writes it for bf16 and f16: casts around.
  for (const char* dtype : {"bf16", "f16"}) {
    cases.Add(
        "func @row(%0: $0[T,1408]) {\n"
        "  %v0 = cast %0 : f32[T,1408]\n"
        "  %v1 = slice %v0 {axis=1, begin=0, end=704} : f32[T,704]\n"
        "  %v2 = slice %v0 {axis=1, begin=704, end=1408} : f32[T,704]\n"
        "  %v3 = silu %v1 : f32[T,704]\n"
        "  %v4 = mul %v3, %v2 : f32[T,704]\n"
        "  %v5 = cast %v4 : $0[T,704]\n"
        "  return %v5\n}\n",
        dtype);
  }
  cases.Add(
      "func @row(%0: f32[T,3,20], %1: f16[T,3,20], %2: f16[20], %3: bf16[3,20], %4: f32[]) {\n"
      "  %v0 = cast %1 : f32[T,3,20]\n"
      "  %v1 = add %0, %v0 : f32[T,3,20]\n"
      "  %v2 = mul %v1, %2 : f32[T,3,20]\n"
      "  %v3 = add %v2, %3 : f32[T,3,20]\n"
      "  %v4 = mul %v3, %4 : f32[T,3,20]\n"
      "  return %v4, %v1\n}\n");
  cases.Add(
      "func @row(%0: f32[T,40], %1: bf16[40]) {\n"
      "  %v0 = cast %0 : bf16[T,40]\n"
      "  %v1 = mul %v0, %1 : bf16[T,40]\n"
      "  %v2 = cast %v1 : f32[T,40]\n"
      "  %v3 = cast %v2 : f16[T,40]\n"
      "  return %v0, %v2, %v3\n}\n");
}

void AddQuantize(Cases& cases) {
  for (const char* rest : {"", " {most=1.5}", " {columns=128}"}) {
    for (const int width : {128, 640, 8192}) {
      cases.Add(
          "func @row(%0: bf16[T,$0], %1: f32[$0]) {\n"
          "  %v0 = cast %0 : f32[T,$0]\n"
          "  %v1 = rms_norm %v0, %1 {eps=0.00001} : f32[T,$0]\n"
          "  %v2 = cast %v1 : bf16[T,$0]\n"
          "  %v3 = cast %v2 : f32[T,$0]\n"
          "  %v4 = quantize %v3$1 : f32[T,$0]\n"
          "  %v5 = cast %v4 : bf16[T,$0]\n"
          "  return %v5, %v4\n}\n",
          width, rest);
    }
  }
  cases.Add(
      "func @row(%0: f32[T,100], %1: f32[1]) {\n"
      "  %v0 = quantize %0, %1 : f32[T,100]\n"
      "  %v1 = quantize %0 : f32[T,100]\n"
      "  return %v0, %v1\n}\n");
}

void AddNorms(Cases& cases) {
  // Chunks of a warp, of several, ragged ones.
  for (int n : {1, 8, 15, 64, 576, 1000, 1024, 1032, 2050, 4095, 4096, 9000}) {
    cases.Add(
        "func @row(%0: f32[T,$0], %1: bf16[$0]) {\n"
        "  %v0 = rms_norm %0, %1 {eps=0.00001} : f32[T,$0]\n"
        "  return %v0\n}\n",
        n);
  }
  // More than registers hold, in more groups than lanes.
  cases.Add(
      "func @row(%0: f32[T,33000], %1: f32[33000]) {\n"
      "  %v0 = layer_norm %0, %1 {eps=0.01} : f32[T,33000]\n"
      "  return %v0\n}\n");
  for (int n : {24, 80, 576, 4096}) {
    // The residual stream: its sum is needed twice; norms in chains.
    cases.Add(
        "func @row(%0: bf16[T,$0], %1: bf16[T,$0], %2: f32[$0], %3: f16[$0], %4: f32[$0]) {\n"
        "  %v0 = cast %0 : f32[T,$0]\n"
        "  %v1 = cast %1 : f32[T,$0]\n"
        "  %v2 = rms_norm %v1, %2 {eps=0.001, weight_offset=1} : f32[T,$0]\n"
        "  %v3 = add %v0, %v2 : f32[T,$0]\n"
        "  %v4 = layer_norm %v3, %3, %4 {eps=0.01} : f32[T,$0]\n"
        "  %v5 = cast %v3 : bf16[T,$0]\n"
        "  %v6 = cast %v4 : bf16[T,$0]\n"
        "  return %v5, %v6, %v4\n}\n",
        n);
  }
  cases.Add(
      "func @row(%0: f32[T,3,24], %1: f32[24]) {\n"
      "  %v0 = layer_norm %0, %1 {eps=0.01} : f32[T,3,24]\n"
      "  %v1 = layer_norm %0 {eps=0.01} : f32[T,3,24]\n"
      "  %v2 = rms_norm %v1 {eps=0.01} : f32[T,3,24]\n"
      "  return %v0, %v1, %v2\n}\n");
  for (const char* shape : {"5,7", "3,80", "2,1000", "3,2056"}) {
    cases.Add(
        "func @row(%0: f32[T,$0]) {\n"
        "  %v0 = rms_norm %0 {eps=0.01} : f32[T,$0]\n"
        "  return %v0\n}\n",
        shape);
  }
  // A norm over heads that is read elsewhere: in another order of heads, and over the row.
  for (int n : {2, 96}) {
    cases.Add(
        "func @row(%0: f32[T,$0,16], %1: f32[16]) {\n"
        "  %v0 = rms_norm %0, %1 {eps=0.01} : f32[T,$0,16]\n"
        "  %v1 = slice %v0 {axis=2, begin=4, end=12} : f32[T,$0,8]\n"
        "  %v2 = reshape %v0 : f32[T,$1]\n"
        "  %v3 = rms_norm %v2 {eps=0.01} : f32[T,$1]\n"
        "  return %v1, %v3\n}\n",
        n, 16 * n);
  }
}

void AddRopes(Cases& cases) {
  const auto add = [&](const char* heads, const char* attrs, const char* factors = "") {
    cases.Add(
        "func @row(%0: f32[T,$0], %1: i32[T]$3) {\n"
        "  %v0 = rope %0, %1$2 {$1} : f32[T,$0]\n  return %v0\n}\n",
        heads, attrs, *factors == 0 ? "" : ", %2",
        *factors == 0 ? "" : absl::StrCat(", %2: ", factors));
  };
  add("9,64", "theta=100000");
  add("2,8", "theta=10000");
  add("3,6", "theta=10000");
  add("3,80", "theta=10000, dims=32");
  add("3,24", "theta=10000, dims=10, style=interleave");
  add("3,7", "theta=10000, dims=6, style=interleave");
  add("5,7", "theta=10000, dims=6");
  add("2,128", "theta=500000, style=interleave");
  add("2,1024", "theta=500000");
  add("2,64", "theta=500000, scaling=llama3, scale_factor=8, original_tokens=8192");
  add("2,64", "theta=10000, scaling=linear, scale_factor=4");
  add("2,64", "theta=10000, scaling=dynamic, scale_factor=2, original_tokens=2048");
  add("2,96",
      "theta=10000, scaling=yarn, scale_factor=16, original_tokens=4096, "
      "magnitude=1.2772588722239782");
  add("2,96",
      "theta=10000, scaling=yarn, scale_factor=4, original_tokens=4096, beta_fast=16, "
      "beta_slow=2, truncate=0");
  add("2,64", "theta=10000, dims=48", "f32[24]");
}

// A layer's queries, keys and values, cut from one projection.
void AddAppends(Cases& cases) {
  struct Layer {
    int hq, hkv, d, page;
    const char *dtype, *kept = dtype;
    bool has_scales = false;
  };
  for (const Layer& l :
       {Layer{32, 8, 128, 16, "bf16"}, Layer{9, 3, 64, 1, "f16"}, Layer{4, 1, 80, 3, "bf16"},
        Layer{4, 2, 256, 16, "bf16"}, Layer{5, 1, 24, 16, "f32"}, Layer{7, 7, 12, 5, "f16"},
        Layer{9, 3, 64, 16, "bf16", "f8e4m3"}, Layer{6, 3, 18, 5, "f16", "f8e4m3", true},
        Layer{32, 8, 128, 16, "bf16", "f8e4m3", true}}) {
    const int q = l.hq * l.d, k = l.hkv * l.d;
    for (bool normed : {false, true}) {
      std::string text = absl::Substitute("func @row(%0: $0[T,$1], %1: i32[T]", l.dtype, q + 2 * k);
      if (normed) absl::SubstituteAndAppend(&text, ", %2: bf16[$0], %3: f32[$0]", l.d);
      const int first_scale = normed ? 4 : 2;
      if (l.has_scales) {
        absl::SubstituteAndAppend(&text, ", %$0: f32[$2], %$1: f32[$2]", first_scale,
                                  first_scale + 1, l.hkv);
      }
      absl::StrAppend(&text, ") {\n");
      int next = 0;
      const auto op = [&](const std::string& call, const std::string& type) {
        absl::StrAppend(&text, "  %v", next, " = ", call, " : ", type, "\n");
        return absl::StrCat("%v", next++);
      };
      const auto heads = [&](int count) { return absl::Substitute("f32[T,$0,$1]", count, l.d); };
      const std::string x = op("cast %0", absl::Substitute("f32[T,$0]", q + 2 * k));
      const auto part = [&](int begin, int count) {
        const std::string flat = op(
            absl::Substitute("slice $0 {axis=1, begin=$1, end=$2}", x, begin, begin + count * l.d),
            absl::Substitute("f32[T,$0]", count * l.d));
        return op("reshape " + flat, heads(count));
      };
      std::string queries = part(0, l.hq), keys = part(q, l.hkv);
      const std::string values = part(q + k, l.hkv);
      if (normed) {
        queries = op("rms_norm " + queries + ", %2 {eps=0.001}", heads(l.hq));
        keys = op("rms_norm " + keys + ", %3 {eps=0.001}", heads(l.hkv));
      }
      queries = op("rope " + queries + ", %1 {theta=10000}", heads(l.hq));
      keys = op("rope " + keys + ", %1 {theta=10000}", heads(l.hkv));
      const std::string pool = absl::Substitute("$0[C,$1,$2]", l.kept, l.hkv, l.d);
      const auto scale = [&](int i) {
        return l.has_scales ? absl::StrCat(", %", first_scale + i) : "";
      };
      op("kv_append " + keys + scale(0) + " {layer=0, slot=k}", pool);
      op("kv_append " + values + scale(1) + " {layer=0, slot=v}", pool);
      const std::string result =
          op("cast " + queries, absl::Substitute("$0[T,$1,$2]", l.dtype, l.hq, l.d));
      absl::StrAppend(&text, "  return ", result, "\n}\n");
      cases.AddPaged(l.page, "$0", text);
    }
  }
}

void AddShapes(Cases& cases) {
  for (int begin : {3, 8}) {
    cases.Add(
        "func @row(%0: f32[T,120]) {\n"
        "  %v0 = reshape %0 : f32[T,5,24]\n"
        "  %v1 = slice %v0 {axis=2, begin=$0, end=$1} : f32[T,5,$3]\n"
        "  %v2 = slice %v1 {axis=1, begin=1, end=4} : f32[T,3,$3]\n"
        "  %v3 = reshape %v2 : f32[T,$4]\n"
        "  %v4 = slice %0 {axis=1, begin=$0, end=$1} : f32[T,$3]\n"
        "  %v5 = concat %v3, %v4, %v3 {axis=1} : f32[T,$5]\n"
        "  %v6 = silu %v2 : f32[T,3,$3]\n"
        "  %v7 = expand_heads %v2 {group=2} : f32[T,6,$3]\n"
        "  %v8 = expand_heads %v6 {group=3, order=tile} : f32[T,9,$3]\n"
        "  %v9 = concat %v7, %v8 {axis=1} : f32[T,15,$3]\n"
        "  %v10 = concat %v6, %v2 {axis=2} : f32[T,3,$6]\n"
        "  return %v5, %v6, %v9, %v10, %v2, %0, %v6\n}\n",
        begin, begin + 16, "", 16, 48, 112, 32);
  }
  cases.Add(
      "func @row(%0: bf16[T,72], %1: i32[R], %2: f32[72]) {\n"
      "  %v0 = take %0, %1 : bf16[R,72]\n"
      "  %v1 = cast %v0 : f32[R,72]\n"
      "  %v2 = rms_norm %v1, %2 {eps=0.00001} : f32[R,72]\n"
      "  return %v2, %v0\n}\n");
}

void AddTables(Cases& cases) {
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.dtype == DType::kI32 || info.dtype == DType::kF8E4M3) continue;
    const int width = IsBlockType(info.dtype) ? 3 * info.block_elements : 70;
    cases.Add(
        "func @row(%0: i32[T], %1: $0[37,$1]) {\n"
        "  %v0 = embed %1, %0 : f32[T,$1]\n"
        "  return %v0\n}\n",
        info.text, width);
  }
  // Token and position, scaled, normed.
  cases.Add(
      "func @row(%0: i32[T], %1: i32[T], %2: q8_0[37,64], %3: f32[10,64], %4: bf16[64]) {\n"
      "  %v0 = embed %2, %0 : f32[T,64]\n"
      "  %v1 = scale %v0 {factor=8} : f32[T,64]\n"
      "  %v2 = embed %3, %1 {offset=2} : f32[T,64]\n"
      "  %v3 = add %v1, %v2 : f32[T,64]\n"
      "  %v4 = layer_norm %v3, %4 {eps=0.00001} : f32[T,64]\n"
      "  %v5 = cast %v3 : bf16[T,64]\n"
      "  %v6 = cast %v4 : bf16[T,64]\n"
      "  return %v5, %v6\n}\n");
}

// A norm of a part of the row, of heads of the result, and angles shared by two ropes.
void AddGroup(Cases& cases) {
  cases.Add(
      "func @row(%0: f32[T,960], %1: i32[T], %2: f32[T,192], %3: f32[576], %4: f32[64]) {\n"
      "  %v0 = slice %0 {axis=1, begin=0, end=576} : f32[T,576]\n"
      "  %v1 = rms_norm %v0, %3 {eps=0.00001} : f32[T,576]\n"
      "  %v2 = reshape %v1 : f32[T,9,64]\n"
      "  %v3 = rms_norm %v2, %4 {eps=0.00001} : f32[T,9,64]\n"
      "  %v4 = rope %v3, %1 {theta=100000} : f32[T,9,64]\n"
      "  %v5 = slice %0 {axis=1, begin=576, end=768} : f32[T,192]\n"
      "  %v6 = reshape %v5 : f32[T,3,64]\n"
      "  %v7 = rope %v6, %1 {theta=100000} : f32[T,3,64]\n"
      "  %v8 = silu %2 : f32[T,192]\n"
      "  %v9 = mul %v8, %v5 : f32[T,192]\n"
      "  %v10 = add %v9, %2 : f32[T,192]\n"
      "  return %v4, %v7, %v10\n}\n");
}

}  // namespace

const std::vector<RowSpec>& CudaRowCases() {
  static const auto& specs = *new std::vector<RowSpec>([] {
    Cases cases;
    AddPointwise(cases);
    AddNorms(cases);
    AddQuantize(cases);
    AddRopes(cases);
    AddAppends(cases);
    AddShapes(cases);
    AddTables(cases);
    AddGroup(cases);
    std::vector<RowSpec> all = cases.Take();
    for (uint64_t seed = 0; seed < kRandomCases; ++seed) all.push_back(RandomRowCase(seed));
    return all;
  }());
  return specs;
}

}  // namespace quire::testing
