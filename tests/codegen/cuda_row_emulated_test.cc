// The row kernels' source, run on the CPU, beside the reference interpreter.
#include "tests/codegen/cuda_row_emulated.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/row.h"
#include "codegen/row_func.h"
#include "codegen/row_ops.h"
#include "gtest/gtest.h"
#include "ir/reference/interpreter.h"
#include "tests/codegen/cuda_row_cases.h"
#include "tests/codegen/kernel_testing.h"

namespace quire {
namespace {

using testing::CudaRowCases;

// Roundings to f32 between the operands and the result, each of at most one half ulp of the largest
// number of the row: a function's 4 ulp are 8 of them, times 1.2, the most that one of them
// steepens; a norm's sum is 8 steps and a tree; a norm of type layer loses log2(1/sqrt(eps)) bits
// at worst, where a mean is near all elements, of which random numbers lose two.
double Roundings(const Func& func) {
  double count = 2;
  for (const auto& op : func.ops()) {
    switch (op->kind) {
      case OpKind::kRmsNorm:
      case OpKind::kLayerNorm:
        count = (count + 8 + std::log2(static_cast<double>(op->type.extents.back().value()))) *
                    (op->Is(OpKind::kLayerNorm) ? 4 : 1) +
                8;
        break;
      case OpKind::kQuantize:
        // What is computed may fall to another number: a step, of which the greatest has 14.
        if (!op->operand(0)->Is(OpKind::kArg)) count += 0x1p24 / 14;
        count += 1;
        break;
      case OpKind::kRope:
        // 1.5e-7 of an angle's functions, and two products.
        count = count * 1.5 + 8;
        break;
      case OpKind::kAdd:
      case OpKind::kMul:
      case OpKind::kScale:
        count = 2 * count + 1;
        break;
      default:
        if (IsPointwise(op->kind)) count = 1.2 * count + 8;
        if (op->Is(OpKind::kEmbed)) count += 3;
    }
  }
  return count;
}

double ValueOf(DType dtype, const uint8_t* at) {
  uint32_t word = 0;
  std::memcpy(&word, at, static_cast<size_t>(InfoOf(dtype).block_bytes));
  if (dtype == DType::kF16) return F16ToF32(static_cast<uint16_t>(word));
  if (dtype == DType::kBF16) return BF16ToF32(static_cast<uint16_t>(word));
  if (dtype == DType::kF8E4M3) return F8E4M3ToF32(static_cast<uint8_t>(word));
  return std::bit_cast<float>(word);
}

class EmulatedRow {
 public:
  EmulatedRow(size_t number, int64_t rows)
      : number_(number), rows_(rows), spec_(CudaRowCases()[number]) {
    auto module = ParseRowFunc(spec_, "case");
    EXPECT_TRUE(module.ok()) << module.status();
    module_ = *std::move(module);
    auto kernel = MakeCudaRow(spec_, testing::kRowLimits);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    kernel_ = *std::move(kernel);
    for (const auto& arg : func().args()) MakeArgument(*arg);
    for (const Op* value : func().returns()) {
      row_bytes_.push_back(RowBytes(value->type.dtype, ElementsOf(*value)));
    }
    MakePool();
  }

  const Func& func() const { return *module_.funcs[0]; }
  // To emulate: of several warps a row.
  bool is_slow() const {
    return kernel_->entries()[0].block_threads > 128 || kernel_->Launches(1).launches[0].grid > 1;
  }

  // The outputs' bytes and then the pool's, of a launch on the rows from `first` on.
  std::vector<std::vector<uint8_t>> Kernel(int64_t first, int64_t rows, uint64_t seed) {
    emulated::Launch launch;
    std::vector<uint8_t*> operands;
    const auto touch = [&](const void* begin, size_t bytes, emulated::Memory::Use use) {
      launch.global.push_back({begin, bytes, use});
    };
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const Type& type = func().args()[i]->type;
      const bool is_early = type.dtype == DType::kI32 || !HasRowExtent(type);
      touch(arguments_[i]->data(), arguments_[i]->size(),
            is_early ? emulated::Memory::kReadEarly : emulated::Memory::kRead);
      const bool moves = HasRowExtent(type) && type.extents[0].letter() == RowLetter(func());
      const int64_t bytes = RowBytes(type.dtype, CountOf(InnerExtents(type)));
      operands.push_back(arguments_[i]->data() + (moves ? first * bytes : 0));
    }
    Guarded<uint8_t> pool(pool_bytes_);
    std::fill_n(pool.data(), pool_bytes_, uint8_t{0xff});
    touch(pool.data(), pool_bytes_, emulated::Memory::kWrite);
    for (const auto& op : func().ops()) {
      if (op->Is(OpKind::kKvAppend)) operands.push_back(pool.data());
    }
    std::vector<std::unique_ptr<Guarded<uint8_t>>> outputs;
    for (int64_t bytes : row_bytes_) {
      outputs.push_back(std::make_unique<Guarded<uint8_t>>(static_cast<size_t>(rows * bytes)));
      std::fill_n(outputs.back()->data(), outputs.back()->size(), uint8_t{0xff});
      touch(outputs.back()->data(), outputs.back()->size(), emulated::Memory::kWrite);
      operands.push_back(outputs.back()->data());
    }
    touch(slots_.data(), slots_.size() * 4, emulated::Memory::kReadEarly);
    const emulated::StepHeader header = {static_cast<int>(step_rows_), 1, 1, 1};
    touch(&header, sizeof header, emulated::Memory::kReadEarly);

    const CudaLaunches launches = kernel_->Launches(rows);
    EXPECT_EQ(launches.launches.size(), 1u);
    std::vector<uint64_t> words;
    for (const CudaArgument& argument : launches.launches[0].arguments) {
      switch (argument.kind) {
        case CudaArgument::Kind::kOperand:
          words.push_back(
              reinterpret_cast<uintptr_t>(operands[static_cast<size_t>(argument.value)]));
          break;
        case CudaArgument::Kind::kTokenSlots:
          words.push_back(reinterpret_cast<uintptr_t>(slots_.data() + first));
          break;
        case CudaArgument::Kind::kHeader:
          words.push_back(reinterpret_cast<uintptr_t>(&header));
          break;
        default:
          words.push_back(static_cast<uint64_t>(argument.value));
      }
    }
    const CudaEntry& entry = kernel_->entries()[0];
    launch.grid = launches.launches[0].grid;
    launch.threads = entry.block_threads;
    launch.shared_bytes = static_cast<size_t>(entry.shared_bytes);
    launch.seed = seed;
    emulated::RunGrid(launch, [&] { emulated::kRowCalls[number_](words.data()); });
    std::vector<std::vector<uint8_t>> results;
    for (auto& output : outputs) {
      EXPECT_TRUE(output->GuardsHold());
      results.emplace_back(output->data(), output->data() + output->size());
    }
    EXPECT_TRUE(pool.GuardsHold());
    results.emplace_back(pool.data(), pool.data() + pool_bytes_);
    return results;
  }

  void ExpectMatches(const std::vector<std::vector<uint8_t>>& got) {
    reference::Inputs inputs;
    reference::KvState kv;
    inputs.kv = &kv;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      inputs.args[func().args()[i]->name] = tensors_[i];
    }
    const auto want = reference::Interpret(func(), inputs);
    ASSERT_TRUE(want.ok()) << want.status();
    for (size_t i = 0; i < want->size(); ++i) {
      const Type& type = func().returns()[i]->type;
      const int64_t bytes = InfoOf(type.dtype).block_bytes;
      for (int64_t j = 0; j < (*want)[i].elements(); ++j) {
        ExpectNear(ValueOf(type.dtype, &got[i][static_cast<size_t>(j * bytes)]), (*want)[i], j,
                   type.dtype, absl::StrCat("result ", i, " element ", j));
        if (::testing::Test::HasFailure()) return;
      }
    }
    ExpectPool(got.back(), kv);
  }

 private:
  int64_t Extent(const Extent& extent) const {
    if (!extent.is_letter()) return extent.value();
    return extent.letter() == RowLetter(func()) ? rows_ : 11;
  }

  void MakeArgument(const Op& arg) {
    const Type& type = arg.type;
    reference::Tensor tensor;
    for (const auto& extent : type.extents) tensor.extents.push_back(Extent(extent));
    int64_t count = 1;
    for (int64_t extent : tensor.extents) count *= extent;
    const uint64_t seed = 1000 * number_ + arguments_.size();
    std::vector<uint8_t> bytes;
    if (type.dtype == DType::kI32) {
      const int64_t limit = LimitOf(arg);
      std::mt19937_64 random(seed);
      for (int64_t i = 0; i < count; ++i) {
        // The last allowed number comes first, the first last, as a padding row has it.
        const int32_t value = i == 0 ? static_cast<int32_t>(limit - 1)
                              : i == count - 1
                                  ? 0
                                  : static_cast<int32_t>(random() % static_cast<uint64_t>(limit));
        const auto* first = reinterpret_cast<const uint8_t*>(&value);
        bytes.insert(bytes.end(), first, first + 4);
        tensor.values.push_back(value);
      }
    } else {
      tensor.values.resize(static_cast<size_t>(count));
      if (IsFloat(type.dtype)) {
        for (float value : RandomFloats(static_cast<size_t>(count), seed, 0.7f)) {
          if (IsScale(arg)) value = std::fabs(value) / 4 + 0x1p-6f;
          uint32_t word = std::bit_cast<uint32_t>(value);
          if (type.dtype == DType::kF16) word = F32ToF16(value);
          if (type.dtype == DType::kBF16) word = F32ToBF16(value);
          const auto* first = reinterpret_cast<const uint8_t*>(&word);
          bytes.insert(bytes.end(), first, first + InfoOf(type.dtype).block_bytes);
        }
      } else {
        bytes = RandomRows(type.dtype, tensor.extents[0], tensor.extents[1], seed);
      }
      EXPECT_TRUE(Dequantize(type.dtype, bytes, absl::MakeSpan(tensor.values)).ok());
      for (double value : tensor.values) largest_ = std::max(largest_, std::fabs(value));
    }
    arguments_.push_back(std::make_unique<Guarded<uint8_t>>(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), arguments_.back()->data());
    tensors_.push_back(std::move(tensor));
  }

  bool IsScale(const Op& arg) const {
    return std::any_of(func().ops().begin(), func().ops().end(), [&](const auto& op) {
      return op->Is(OpKind::kKvAppend) && op->num_operands() > 1 && op->operand(1) == &arg;
    });
  }
  // By which an append keeps a head's numbers.
  double ScaleOf(const Op& append, int64_t head) const {
    for (size_t i = 0; append.num_operands() > 1 && i < tensors_.size(); ++i) {
      if (func().args()[i].get() == append.operand(1)) {
        return tensors_[i].values[static_cast<size_t>(head)];
      }
    }
    return 1;
  }

  // Exclusive, of the numbers in an i32 argument.
  int64_t LimitOf(const Op& arg) const {
    for (const auto& op : func().ops()) {
      if (op->num_operands() < 2 || op->operand(1) != &arg) continue;
      if (op->Is(OpKind::kTake)) return step_rows_;
      if (op->Is(OpKind::kEmbed)) {
        return op->operand(0)->type.extents[0].value() - op->Int(AttrKind::kOffset);
      }
    }
    return 1000000;  // positions
  }

  void MakePool() {
    slots_.assign(static_cast<size_t>(rows_), -1);
    if (spec_.page_tokens == 0) return;
    for (const auto& op : func().ops()) {
      if (!op->Is(OpKind::kKvAppend)) continue;
      layer_bytes_ += RowBytes(op->type.dtype, ElementsOf(*op->operand(0)));
    }
    const int64_t pages = rows_ / spec_.page_tokens + 2;
    pool_bytes_ = static_cast<size_t>(pages * spec_.page_tokens * layer_bytes_);
    std::vector<int32_t> places;
    for (int32_t i = 0; i < pages * spec_.page_tokens; ++i) places.push_back(i);
    std::shuffle(places.begin(), places.end(), std::mt19937_64(number_));
    // The last row is one of padding, if there are several.
    for (size_t row = 0; row < slots_.size(); ++row) {
      if (row == 0 || row + 1 < slots_.size()) slots_[row] = places[row];
    }
  }

  // Called for a row's elements in order.
  void ExpectNear(double got, const reference::Tensor& want, int64_t element, DType dtype,
                  const std::string& what) {
    const auto width = want.elements() / want.extents[0];
    if (element % width == 0) {
      largest_of_row_ = largest_;
      for (int64_t i = element; i < element + width; ++i) {
        largest_of_row_ = std::max(largest_of_row_, std::fabs(want.values[static_cast<size_t>(i)]));
      }
    }
    const double value = want.values[static_cast<size_t>(element)];
    // Two numbers on both sides of a rounding boundary are one step of the narrow type apart.
    const double step = dtype == DType::kBF16     ? 0x1p-7
                        : dtype == DType::kF16    ? 0x1p-10
                        : dtype == DType::kF8E4M3 ? 0x1p-3
                                                  : 0;
    const double bound = Roundings(func()) * 0x1p-24 * largest_of_row_ + step * std::fabs(value) +
                         (dtype == DType::kF16      ? 0x1p-24
                          : dtype == DType::kF8E4M3 ? 0x1p-9
                                                    : 0);
    EXPECT_NEAR(got, value, bound) << spec_.func << what << " of " << rows_ << " rows";
  }

  // Everything appended is where the page says, and nothing else was written.
  void ExpectPool(const std::vector<uint8_t>& pool, const reference::KvState& kv) {
    std::vector<bool> written(pool.size());
    int64_t keys = 0;
    for (const auto& op : func().ops()) {
      if (!op->Is(OpKind::kKvAppend)) continue;
      const DType dtype = op->type.dtype;
      const int64_t bytes = InfoOf(dtype).block_bytes;
      const int64_t heads = op->type.extents[1].value(), width = op->type.extents[2].value();
      const std::string& slot = op->Text(AttrKind::kSlot);
      const reference::Tensor& rows = kv.rows.at({0, slot});
      if (slot == "k") keys = heads * width * spec_.page_tokens * bytes;
      for (size_t row = 0; row < slots_.size(); ++row) {
        if (slots_[row] < 0) continue;
        const int64_t page = slots_[row] / spec_.page_tokens,
                      token = slots_[row] % spec_.page_tokens;
        for (int64_t i = 0; i < heads * width; ++i) {
          const auto at = static_cast<size_t>(
              page * spec_.page_tokens * layer_bytes_ + (slot == "k" ? 0 : keys) +
              ((i / width * spec_.page_tokens + token) * width + i % width) * bytes);
          std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(at), bytes, true);
          ExpectNear(ValueOf(dtype, &pool[at]) * ScaleOf(*op, i / width), rows,
                     static_cast<int64_t>(row) * heads * width + i, dtype,
                     absl::StrCat("appended ", slot, " row ", row, " element ", i));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
    for (size_t i = 0; i < pool.size(); ++i) {
      ASSERT_TRUE(written[i] || pool[i] == 0xff) << "byte " << i << " of the pool";
    }
  }

  const size_t number_;
  const int64_t rows_, step_rows_ = 11;
  const RowSpec& spec_;
  Module module_;
  std::unique_ptr<CudaKernel> kernel_;
  std::vector<std::unique_ptr<Guarded<uint8_t>>> arguments_;
  std::vector<reference::Tensor> tensors_;
  std::vector<int64_t> row_bytes_;  // of the returns
  std::vector<int32_t> slots_;
  size_t pool_bytes_ = 0;
  int64_t layer_bytes_ = 0;    // of one token
  double largest_ = 0;         // of the operands
  double largest_of_row_ = 0;  // and of the result's row that is being compared
};

class CudaRowEmulatedTest : public ::testing::TestWithParam<size_t> {};

TEST_P(CudaRowEmulatedTest, ComputesWhatTheInterpreterDoes) {
  for (int64_t rows : {1, 3, 70}) {
    EmulatedRow run(GetParam(), rows);
    if (rows == 70 && run.is_slow()) return;
    run.ExpectMatches(run.Kernel(0, rows, static_cast<uint64_t>(rows)));
    if (HasFailure()) return;
  }
}

// One by one, or all at once: the same bits.
TEST_P(CudaRowEmulatedTest, RowsDoNotDependOnEachOther) {
  constexpr int64_t kRows = 3;
  EmulatedRow run(GetParam(), kRows);
  const auto all = run.Kernel(0, kRows, 1);
  for (int64_t row = 0; row < kRows; ++row) {
    const auto one = run.Kernel(row, 1, 2);
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      const size_t bytes = one[i].size(), begin = static_cast<size_t>(row) * bytes;
      EXPECT_TRUE(std::equal(one[i].begin(), one[i].end(),
                             all[i].begin() + static_cast<std::ptrdiff_t>(begin)))
          << CudaRowCases()[GetParam()].func << "result " << i << " row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaRowEmulatedTest,
                         ::testing::Range<size_t>(0, CudaRowCases().size()));

}  // namespace
}  // namespace quire
