// What CUDA kernels mean, for FakeGpu: each launch is computed from its spec, which stands in the
// comment that its source begins with, by the reference interpreter, over the pointers that it was
// given. A wrong pointer, a wrong order of arguments or of launches shows in the results.
#ifndef QUIRE_TESTS_RUNTIME_FAKE_KERNELS_H_
#define QUIRE_TESTS_RUNTIME_FAKE_KERNELS_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "codegen/cuda/kernels/step.cuh"
#include "codegen/cuda/linear_rope.h"
#include "codegen/cuda/linear_rows.h"
#include "codegen/relative_bias.h"
#include "codegen/spec.h"
#include "gtest/gtest.h"
#include "ir/dtype.h"
#include "ir/reference/dequantize.h"
#include "ir/reference/interpreter.h"
#include "ir/text.h"
#include "runtime/greatest_logit.h"
#include "tests/runtime/fake_gpu.h"
#include "tests/runtime/fake_rope.h"

namespace quire::testing {

// Parameters of the source's kernel.
inline int ArgumentsOf(const std::string& source) {
  const size_t body = source.find('{', source.find("__global__"));
  const auto parameters = source.begin() + static_cast<ptrdiff_t>(source.rfind('(', body));
  return 1 + static_cast<int>(
                 std::count(parameters, source.begin() + static_cast<ptrdiff_t>(body), ','));
}

class FakeKernels {
 public:
  using Tensor = reference::Tensor;

  static void Run(const FakeLaunch& launch) { FakeKernels(launch).Dispatch(); }

 private:
  explicit FakeKernels(const FakeLaunch& launch) : launch_(launch) {}

  template <typename T = uint8_t>
  T* Pointer(size_t i) const {
    return reinterpret_cast<T*>(launch_.arguments.at(i));
  }
  int64_t Int(size_t i) const { return static_cast<int32_t>(launch_.arguments.at(i)); }

  static std::string SpecOf(const std::string& source) {
    std::vector<std::string> lines;
    for (absl::string_view line : absl::StrSplit(source, '\n')) {
      if (!absl::ConsumePrefix(&line, "// ")) break;
      lines.push_back(std::string(line));
    }
    return absl::StrJoin(lines, "\n");
  }

  void Dispatch() {
    if (launch_.function->entry == "greatest") return Greatest();
    if (launch_.function->entry == "attention_plan") return Plan();
    if (launch_.function->entry == "linear_turns") return Turns();
    if (launch_.function->entry == "linear_finish") return Finish();
    std::string text = SpecOf(launch_.function->source);
    const bool is_of_any = text.find("n=any") != std::string::npos;
    if (is_of_any) {
      text = absl::StrReplaceAll(
          text, {{"n=any", absl::StrCat("n=", Int(8))},
                 {"k=any", absl::StrCat("k=", Int(9))},
                 {"residual=any", absl::StrCat("residual=", Pointer(3) == nullptr ? 0 : 1)}});
    }
    absl::StatusOr<KernelSpec> spec = ParseSpec(text);
    ASSERT_TRUE(spec.ok()) << text << "\n" << spec.status();
    if (auto* linear = std::get_if<LinearSpec>(&*spec)) {
      if (is_of_any && Int(10) != 0) linear->y = DType::kF32;
      return Linear(*linear);
    }
    if (const auto* attention = std::get_if<AttentionSpec>(&*spec)) return Attention(*attention);
    Row(std::get<RowSpec>(*spec));
  }

  static Tensor Read(const void* from, DType dtype, std::vector<int64_t> extents) {
    Tensor tensor = *Tensor::Zeros(std::move(extents));
    if (dtype == DType::kI32) {
      const auto* ids = static_cast<const int32_t*>(from);
      std::copy(ids, ids + tensor.elements(), tensor.values.begin());
      return tensor;
    }
    const auto bytes = static_cast<size_t>(RowBytes(dtype, tensor.elements()));
    const absl::Status read = Dequantize(dtype, {static_cast<const uint8_t*>(from), bytes},
                                         absl::MakeSpan(tensor.values));
    EXPECT_TRUE(read.ok()) << read;
    return tensor;
  }

  static void WriteOne(double value, DType dtype, uint8_t* to) {
    const auto single = static_cast<float>(value);
    const uint16_t half = dtype == DType::kF16 ? F32ToF16(single) : F32ToBF16(single);
    dtype == DType::kF32 ? std::memcpy(to, &single, 4) : std::memcpy(to, &half, 2);
  }
  static void Write(const Tensor& tensor, DType dtype, uint8_t* to) {
    for (const double value : tensor.values) {
      WriteOne(value, dtype, to);
      to += InfoOf(dtype).block_bytes;
    }
  }

  // As memory has it.
  static Tensor Stored(const Tensor& tensor, DType dtype) {
    std::vector<uint8_t> bytes(static_cast<size_t>(RowBytes(dtype, tensor.elements())));
    Write(tensor, dtype, bytes.data());
    return Read(bytes.data(), dtype, tensor.extents);
  }

  static std::string TypeText(const Tensor& tensor) {
    return absl::StrCat("f32[", absl::StrJoin(tensor.extents, ","), "]");
  }

  static std::vector<Tensor> Interpret(const std::string& text, const reference::Inputs& inputs) {
    const absl::StatusOr<Module> module = Parse(text);
    EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
    if (!module.ok()) return {};
    auto results = reference::Interpret(*module->funcs[0], inputs);
    EXPECT_TRUE(results.ok()) << results.status() << "\n" << text;
    return results.ok() ? *std::move(results) : std::vector<Tensor>();
  }

  void Greatest() {
    const auto& source = launch_.function->source;
    const int64_t columns = std::atoll(source.c_str() + source.find("columns=") + 8);
    for (unsigned row = 0; row < launch_.grid; ++row) {
      Pointer<GreatestLogit>(1)[row] =
          GreatestOf({Pointer<const float>(0) + row * columns, static_cast<size_t>(columns)});
    }
  }

  // Arguments: x, weight, bias, residual, y, workspace, rows, whole tiles or first row; n, k and 1
  // for y in f32 if the text is of any (and a residual then if its pointer is not null), or weight
  // and bias of a norm.
  void Linear(const LinearSpec& spec) {
    const int64_t rows = Int(6);
    reference::Inputs inputs;
    std::vector<std::string> args;
    const auto add = [&](const char* name, Tensor value) {
      args.push_back(absl::StrCat("%", name, ": ", TypeText(value)));
      inputs.args[name] = std::move(value);
    };
    Tensor x = Read(Pointer(0), spec.x, {rows, spec.k});
    if (spec.norm.has_value()) {
      reference::Inputs own;
      own.args["x"] = std::move(x);
      const NormSpec& norm = *spec.norm;
      if (norm.weight.has_value()) own.args["w"] = Read(Pointer(8), *norm.weight, {spec.k});
      if (norm.bias.has_value()) own.args["b"] = Read(Pointer(9), *norm.bias, {spec.k});
      x = Stored(Interpret(CudaLinearHeadRows(spec).func, own)[0], spec.x);
    }
    add("x", std::move(x));
    add("w", Read(Pointer(1), spec.weight, {spec.weight_rows(), spec.k}));
    // As the checkpoint has its rows.
    const Tensor ordered = inputs.args["w"];
    const CudaRowOrder order = CudaLinearRowOrder(spec);
    for (int64_t at = 0; at < spec.weight_rows(); ++at) {
      std::copy_n(ordered.values.begin() + at * spec.k, spec.k,
                  inputs.args["w"].values.begin() + order.RowAt(at) * spec.k);
    }
    if (spec.bias) add("b", Read(Pointer(2), DType::kF32, {spec.weight_rows()}));
    if (spec.residual) add("r", Read(Pointer(3), spec.y, {rows, spec.n}));
    const std::string type = absl::StrCat("f32[", rows, ",", spec.weight_rows(), "]");
    auto results = Interpret(
        absl::StrCat("func @f(", absl::StrJoin(args, ", "), ") {\n  %y = linear %x, %w",
                     spec.bias ? ", %b" : "", " : ", type, "\n",
                     spec.residual ? absl::StrCat("  %z = add %y, %r : ", type, "\n") : "",
                     "  return ", spec.residual ? "%z" : "%y", "\n}\n"),
        inputs);
    if (spec.act != LinearAct::kNone && !results.empty()) {
      reference::Inputs own;
      own.args["x"] = Stored(results[0], spec.y);
      results = Interpret(CudaLinearActRows(spec).func, own);
    }
    if (results.empty()) return;
    const size_t last = launch_.arguments.size();
    if (spec.rope.has_value()) {
      results[0] = Stored(results[0], spec.y);
      FakeTurnHeads(spec, Pointer<const float>(last - 1), &results[0]);
    }
    if (spec.append.has_value()) {
      const size_t layer = last - (spec.rope.has_value() ? 3 : 2);
      return AppendColumns(spec, results[0], Pointer(4), Pointer<const int32_t>(layer - 1),
                           Pointer(layer), Pointer(layer + 1) - Pointer(layer));
    }
    Write(results[0], spec.y, Pointer(4));
  }

  // Arguments: header, positions, factors, cosines and sines.
  void Turns() {
    const auto spec = std::get<LinearSpec>(*ParseSpec(SpecOf(launch_.function->source)));
    const int64_t rows = Pointer<const StepHeader>(0)->rows;
    std::optional<Tensor> factors;
    if (spec.rope->factors.has_value()) {
      factors = Read(Pointer(2), *spec.rope->factors, {spec.append->d / 2});
    }
    const std::vector<float> turns =
        FakeTurns(spec, Read(Pointer(1), DType::kI32, {rows}), factors);
    std::copy(turns.begin(), turns.end(), Pointer<float>(3));
  }

  // Arguments: sums, as the weight's rows are ordered, bias, y, rows, slots, page 0, turns.
  void Finish() {
    const auto spec = std::get<LinearSpec>(*ParseSpec(SpecOf(launch_.function->source)));
    const int64_t rows = Int(3);
    const CudaRowOrder order = CudaLinearRowOrder(spec);
    Tensor product = *Tensor::Zeros({rows, spec.n});
    for (int64_t i = 0; i < rows * spec.n; ++i) {
      const int64_t column = order.RowAt(i % spec.n);
      const float bias = spec.bias ? Pointer<const float>(1)[column] : 0;
      product.values[static_cast<size_t>(i - i % spec.n + column)] =
          double{Pointer<const float>(0)[i]} + double{bias};
    }
    product = Stored(product, spec.y);
    FakeTurnHeads(spec, Pointer<const float>(6), &product);
    AppendColumns(spec, product, Pointer(2), Pointer<const int32_t>(4), Pointer(5), 0);
  }

  // Of a product: its first columns to y, the others to pages, of layers so many bytes apart.
  static void AppendColumns(const LinearSpec& spec, const Tensor& product, uint8_t* y,
                            const int32_t* slots, uint8_t* pages, int64_t distance) {
    const AppendSpec& append = *spec.append;
    const int64_t y_columns = spec.y_columns();
    const int64_t keys = append.heads * append.d, columns = append.heads * (append.d + append.dv);
    for (int64_t i = 0; i < product.elements(); ++i) {
      const int64_t row = i / spec.n, appended = i % spec.n - y_columns;
      const double value = product.values[static_cast<size_t>(i)];
      if (appended < 0) {
        WriteOne(value, spec.y, y + (row * y_columns + i % spec.n) * 2);
        continue;
      }
      if (slots[row] < 0) continue;
      const int64_t page = slots[row] / append.page_tokens, token = slots[row] % append.page_tokens;
      const bool is_v = appended % columns >= keys;
      const int64_t dim = is_v ? append.dv : append.d;
      const int64_t column = appended % columns - (is_v ? keys : 0);
      const int64_t at = (page * columns + (is_v ? keys : 0)) * append.page_tokens +
                         (column / dim * append.page_tokens + token) * dim + column % dim;
      WriteOne(value, spec.y, pages + appended / columns * distance + at * 2);
    }
  }

  // Arguments: those of the function, a layer for each append, the results; then the rows' slots if
  // it appends, the header if it takes, and the number of rows.
  void Row(const RowSpec& spec) {
    const Module module = std::move(Parse(spec.func)).value();
    const Func& func = *module.funcs[0];
    std::vector<const Op*> appends;
    bool takes = false;
    for (const auto& op : func.ops()) {
      if (op->Is(OpKind::kKvAppend)) appends.push_back(op.get());
      takes |= op->Is(OpKind::kTake);
    }
    const size_t layers = func.args().size(), outputs = layers + appends.size();
    size_t next = outputs + func.returns().size();
    const auto* slots = appends.empty() ? nullptr : Pointer<const int32_t>(next++);
    const auto* header = takes ? Pointer<const StepHeader>(next++) : nullptr;
    const int64_t rows = Int(next);
    reference::Inputs inputs;
    for (size_t i = 0; i < layers; ++i) {
      const Op& arg = *func.args()[i];
      std::vector<int64_t> extents;
      for (const Extent& extent : arg.type.extents) {
        const bool is_t = takes && extent == Extent::Letter('T');
        extents.push_back(extent.is_letter() ? (is_t ? header->rows : rows) : extent.value());
      }
      inputs.args[arg.name] = Read(Pointer(i), arg.type.dtype, std::move(extents));
    }
    reference::KvState kv, cross;
    inputs.kv = &kv;
    inputs.cross = &cross;
    // The interpreter keeps nothing of what lasts for one run.
    const auto results =
        Interpret(absl::StrReplaceAll(spec.func, {{"cache=encoder", "cache=cross"}}), inputs);
    for (size_t i = 0; i < results.size(); ++i) {
      Write(results[i], func.returns()[i]->type.dtype, Pointer(outputs + i));
    }
    for (size_t i = 0; i < appends.size(); ++i) {
      Append(*appends[i], appends, spec.page_tokens, slots, rows,
             appends[i]->Text(AttrKind::kCache) == "self" ? kv : cross, Pointer(layers + i));
    }
  }

  static void Append(const Op& append, const std::vector<const Op*>& appends, int64_t page_tokens,
                     const int32_t* slots, int64_t rows, const reference::KvState& kv,
                     uint8_t* layer) {
    const auto dim_of = [&](const char* slot) {
      for (const Op* op : appends) {
        if (op->Text(AttrKind::kSlot) == slot &&
            op->Int(AttrKind::kLayer) == append.Int(AttrKind::kLayer)) {
          return op->type.extents[2].value();
        }
      }
      return int64_t{0};
    };
    const bool is_v = append.Text(AttrKind::kSlot) == "v";
    const int64_t heads = append.type.extents[1].value(), k_dim = dim_of("k"), v_dim = dim_of("v");
    const int64_t dim = is_v ? v_dim : k_dim, element = InfoOf(append.type.dtype).block_bytes;
    const Tensor& values =
        kv.rows.at({append.Int(AttrKind::kLayer), std::string(append.Text(AttrKind::kSlot))});
    for (int64_t row = 0; row < rows; ++row) {
      if (slots[row] < 0) continue;
      const int64_t page = slots[row] / page_tokens, token = slots[row] % page_tokens;
      for (int64_t head = 0; head < heads; ++head) {
        for (int64_t i = 0; i < dim; ++i) {
          const int64_t at = page * heads * page_tokens * (k_dim + v_dim) +
                             (is_v ? heads * page_tokens * k_dim : 0) +
                             (head * page_tokens + token) * dim + i;
          WriteOne(values.values[static_cast<size_t>((row * heads + head) * dim + i)],
                   append.type.dtype, layer + at * element);
        }
      }
    }
  }

  // The kernel's own memory, as this fake uses it.
  struct PlanMemory {
    const StepHeader* header;
    const StepSequence* sequences;
  };
  void Plan() {
    *Pointer<PlanMemory>(2) = {Pointer<const StepHeader>(0), Pointer<const StepSequence>(1)};
  }

  // The entry that has a sequence's rows.
  static const char* EntryOf(const AttentionSpec& spec, const StepSequence& sequence) {
    if (sequence.rows * spec.hq / spec.hkv > 32) return "attention_many";
    const bool is_wide = std::max(spec.d, spec.dv) > 128;
    return is_wide || sequence.context > 64 ? "attention_few" : "attention_short";
  }

  // Arguments: q, layer, biases where there are some, y, pages, plan.
  void Attention(const AttentionSpec& spec) {
    const size_t y_at = spec.buckets > 0 ? 3 : 2;
    const auto* pages = Pointer<const int32_t>(y_at + 1);
    const PlanMemory& plan = *Pointer<const PlanMemory>(y_at + 2);
    for (int32_t s = 0; s < plan.header->sequences; ++s) {
      const StepSequence& sequence = plan.sequences[s];
      if (launch_.function->entry != EntryOf(spec, sequence)) continue;
      const int64_t q_bytes = spec.hq * spec.d * InfoOf(spec.x).block_bytes;
      const int64_t y_bytes = spec.hq * spec.dv * InfoOf(spec.x).block_bytes;
      uint8_t* y = Pointer(y_at) + sequence.first_row * y_bytes;
      if (sequence.context == 0) {
        std::memset(y, 0, static_cast<size_t>(sequence.rows * y_bytes));
        continue;
      }
      reference::Inputs inputs;
      inputs.args["q"] =
          Read(Pointer(0) + sequence.first_row * q_bytes, spec.x, {sequence.rows, spec.hq, spec.d});
      for (const bool is_v : {false, true}) {
        inputs.args[is_v ? "v" : "k"] =
            ReadCache(spec, pages + sequence.pages_begin, sequence.context, is_v);
      }
      if (spec.buckets > 0) inputs.args["table"] = Table(spec, Pointer<const float>(2));
      std::string args;
      for (const char* name : {"q", "k", "v", "table"}) {
        const auto found = inputs.args.find(name);
        if (found == inputs.args.end()) continue;
        absl::StrAppend(&args, args.empty() ? "%" : ", %", name, ": ", TypeText(found->second));
      }
      const auto number = [](double x) { return AttrText(DefOf(AttrKind::kScale), AttrValue(x)); };
      const auto results = Interpret(
          absl::StrCat(
              "func @f(", args, ") {\n  %y = attention %q, %k, %v",
              spec.buckets > 0 ? ", %table" : "", " {mask=", spec.causal ? "causal" : "none",
              ", window=", spec.window, ", scale=", number(spec.scale), ", cap=", number(spec.cap),
              ", alibi_max=", number(spec.alibi_max),
              spec.buckets > 0 ? absl::StrCat(", max_distance=", spec.max_distance, ", direction=",
                                              spec.both_directions ? "both" : "back")
                               : "",
              "} : f32[", sequence.rows, ",", spec.hq, ",", spec.dv, "]\n  return %y\n}\n"),
          inputs);
      if (!results.empty()) Write(results[0], spec.x, y);
    }
  }

  // The table of buckets that biases by distance were unrolled from.
  static Tensor Table(const AttentionSpec& spec, const float* biases) {
    Tensor table = *Tensor::Zeros({spec.buckets, spec.hq});
    const int64_t distances = BiasDistances(spec);
    for (int64_t head = 0; head < spec.hq; ++head) {
      for (int64_t i = 0; i < distances; ++i) {
        const int64_t bucket = BucketOfDistance(spec, (spec.causal ? 0 : distances / 2) - i);
        table.values[static_cast<size_t>(bucket * spec.hq + head)] = biases[head * distances + i];
      }
    }
    return table;
  }

  // [context, hkv, d or dv]
  Tensor ReadCache(const AttentionSpec& spec, const int32_t* pages, int64_t context,
                   bool is_v) const {
    const int64_t dim = is_v ? spec.dv : spec.d, tokens = spec.page_tokens;
    const int64_t element = InfoOf(spec.kv).block_bytes;
    Tensor cache = *Tensor::Zeros({context, spec.hkv, dim});
    for (int64_t i = 0; i < context; ++i) {
      for (int64_t head = 0; head < spec.hkv; ++head) {
        const int64_t at = pages[i / tokens] * spec.hkv * tokens * (spec.d + spec.dv) +
                           (is_v ? spec.hkv * tokens * spec.d : 0) +
                           (head * tokens + i % tokens) * dim;
        const Tensor row = Read(Pointer(1) + at * element, spec.kv, {dim});
        std::copy(row.values.begin(), row.values.end(),
                  cache.values.begin() + (i * spec.hkv + head) * dim);
      }
    }
    return cache;
  }

  const FakeLaunch& launch_;
};

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RUNTIME_FAKE_KERNELS_H_
