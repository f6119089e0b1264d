// Runs a row kernel on random operands beside the reference interpreter.
#ifndef QUIRE_TESTS_CODEGEN_ROW_TESTING_H_
#define QUIRE_TESTS_CODEGEN_ROW_TESTING_H_

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/cpu/abi.h"
#include "ir/reference/interpreter.h"
#include "ir/text.h"
#include "tests/codegen/kernel_testing.h"

namespace quire {

struct RowCase {
  std::string func;
  std::map<char, int64_t> letters = {{'T', 5}, {'R', 3}};
  // Exclusive limit of the integers of an argument, by name; 1000 otherwise.
  std::map<std::string, int64_t> limits = {};
  float deviation = 1;
};

class RowRun {
 public:
  explicit RowRun(const RowCase& c) : c_(c) {
    auto parsed = Parse(c.func, "case");
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    if (parsed.ok()) module_ = *std::move(parsed);
    for (const auto& arg : func().args()) MakeArgument(*arg);
  }

  const Func& func() const { return *module_.funcs[0]; }
  int64_t rows() const { return c_.letters.at(func().returns()[0]->type.extents[0].letter()); }

  // Outputs, with rows computed in the given pieces.
  std::vector<std::vector<float>> Kernel(const Isa& isa, const std::vector<int64_t>& cuts = {}) {
    auto kernel = BuilderFor(isa).Build(absl::StrCat("row ", c_.func));
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (!kernel.ok()) return {};
    std::vector<void*> operands;
    for (auto& bytes : arguments_) operands.push_back(bytes->data());
    std::vector<std::unique_ptr<Guarded<float>>> outputs;
    for (const Op* value : func().returns()) {
      outputs.push_back(
          std::make_unique<Guarded<float>>(static_cast<size_t>(Elements(value->type))));
      operands.push_back(outputs.back()->data());
    }
    Guarded<uint8_t> scratch(static_cast<size_t>((*kernel)->scratch_bytes));
    std::vector<int64_t> edges = cuts;
    edges.insert(edges.begin(), 0);
    edges.push_back(rows());
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      reinterpret_cast<RowEntry>((*kernel)->main)(operands.data(), nullptr, scratch.data(),
                                                  edges[i], edges[i + 1]);
    }
    EXPECT_TRUE(scratch.GuardsHold());
    std::vector<std::vector<float>> values;
    for (auto& output : outputs) {
      EXPECT_TRUE(output->GuardsHold());
      values.emplace_back(output->data(), output->data() + output->size());
    }
    return values;
  }

  std::vector<reference::Tensor> Reference() {
    reference::Inputs inputs;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      inputs.args[func().args()[i]->name] = tensors_[i];
    }
    auto results = reference::Interpret(func(), inputs);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? *results : std::vector<reference::Tensor>();
  }

  // Every result within `ulps` f32 roundings (or the value's own dtype's) of the largest number
  // in its row or among the operands.
  void ExpectMatches(double ulps) {
    const auto got = Kernel(TestedIsas()[0]);
    const auto want = Reference();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].size(), want[i].values.size());
      const DType dtype = func().returns()[i]->type.dtype;
      const double epsilon = dtype == DType::kBF16  ? 0x1p-8
                             : dtype == DType::kF16 ? 0x1p-11
                                                    : 0x1p-24;
      const size_t width = got[i].size() / static_cast<size_t>(rows());
      for (size_t j = 0; j < got[i].size(); ++j) {
        double largest = largest_operand_;
        for (size_t k = j / width * width; k < (j / width + 1) * width; ++k) {
          largest = std::max(largest, std::fabs(want[i].values[k]));
        }
        ASSERT_NEAR(static_cast<double>(got[i][j]), want[i].values[j], ulps * epsilon * largest)
            << c_.func << "\nresult " << i << " element " << j;
      }
    }
  }

  void ExpectSameBits() {
    const auto whole = Kernel(TestedIsas()[0]);
    std::vector<int64_t> each;
    for (int64_t row = 1; row < rows(); ++row) each.push_back(row);
    EXPECT_EQ(Kernel(TestedIsas()[0], each), whole);
    EXPECT_EQ(Kernel(BaselineIsa()), whole);
  }

 private:
  int64_t Elements(const Type& type) const {
    int64_t count = 1;
    for (const Extent& extent : type.extents) {
      count *= extent.is_letter() ? c_.letters.at(extent.letter()) : extent.value();
    }
    return count;
  }

  void MakeArgument(const Op& arg) {
    const Type& type = arg.type;
    reference::Tensor tensor;
    for (const Extent& extent : type.extents) {
      tensor.extents.push_back(extent.is_letter() ? c_.letters.at(extent.letter())
                                                  : extent.value());
    }
    const int64_t count = Elements(type);
    const uint64_t seed = 100 + arguments_.size();
    std::vector<uint8_t> bytes;
    if (type.dtype == DType::kI32) {
      auto limit = c_.limits.find(arg.name);
      std::mt19937_64 random(seed);
      bytes.resize(static_cast<size_t>(count) * 4);
      for (int64_t i = 0; i < count; ++i) {
        // The last allowed number comes first.
        const int64_t most = limit == c_.limits.end() ? 1000 : limit->second;
        const int32_t value = static_cast<int32_t>(
            i == 0 ? most - 1 : static_cast<int64_t>(random() % static_cast<uint64_t>(most)));
        std::memcpy(&bytes[static_cast<size_t>(i) * 4], &value, 4);
        tensor.values.push_back(value);
      }
    } else {
      const int64_t n = type.rank() == 2 ? tensor.extents[0] : 1, k = count / n;
      bytes = IsFloat(type.dtype) ? RandomValues(type.dtype, count, seed)
                                  : RandomRows(type.dtype, n, k, seed);
      tensor.values.resize(static_cast<size_t>(count));
      EXPECT_TRUE(Dequantize(type.dtype, bytes, absl::MakeSpan(tensor.values)).ok());
      for (double value : tensor.values) {
        largest_operand_ = std::max(largest_operand_, std::fabs(value));
      }
      const bool is_packed = absl::StrContains(arg.name, ".rows16") || IsBlockType(type.dtype);
      if (is_packed) {
        std::vector<uint8_t> packed(
            static_cast<size_t>(PackedBytes(WeightLayout::kRows16, type.dtype, n, k)));
        EXPECT_TRUE(Pack(WeightLayout::kRows16, type.dtype, k, RowPointers(bytes, n),
                         absl::MakeSpan(packed))
                        .ok());
        bytes = packed;
      }
    }
    arguments_.push_back(std::make_unique<Guarded<uint8_t>>(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), arguments_.back()->data());
    tensors_.push_back(std::move(tensor));
  }

  std::vector<uint8_t> RandomValues(DType dtype, int64_t count, uint64_t seed) const {
    std::vector<uint8_t> bytes;
    for (float value : RandomFloats(static_cast<size_t>(count), seed, c_.deviation)) {
      const uint16_t narrow = dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
      const void* from = dtype == DType::kF32 ? static_cast<const void*>(&value) : &narrow;
      const auto* first = static_cast<const uint8_t*>(from);
      bytes.insert(bytes.end(), first, first + InfoOf(dtype).block_bytes);
    }
    return bytes;
  }

  const RowCase c_;
  Module module_;
  std::vector<std::unique_ptr<Guarded<uint8_t>>> arguments_;
  std::vector<reference::Tensor> tensors_;
  double largest_operand_ = 0;
};

}  // namespace quire

#endif  // QUIRE_TESTS_CODEGEN_ROW_TESTING_H_
