// Steps that a GPU ran, run again on the CPU: every launch by its kernel's own text and the exact
// model of the tensor core, on what the GPU's launches before it left; and then equal bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "codegen/weights.h"
#include "ir/plan_check.h"
#include "runtime/cuda/cuda_weights.h"
#include "runtime/cuda/step_block.h"
#include "runtime/greatest_logit.h"
#include "runtime/step_check.h"
#include "runtime/weights.h"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_hopper_emulator.h"
#include "tests/replay/emulated_kernels.h"
#include "tests/replay/recorded_program.h"

namespace quire::testing {
namespace {

using emulated::Memory;
using Kind = CudaArgument::Kind;

constexpr size_t kAlignment = 256;

// Memory as a device gives it.
class Bytes {
 public:
  Bytes() = default;
  Bytes(int64_t bytes, uint8_t fill)
      : memory_(static_cast<size_t>(bytes) + kAlignment, fill), bytes_(bytes) {}
  uint8_t* data() {
    const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (kAlignment - begin % kAlignment) % kAlignment;
  }
  size_t size() const { return static_cast<size_t>(bytes_); }

 private:
  std::vector<uint8_t> memory_;
  int64_t bytes_ = 0;
};

void (*KernelOf(const std::string& source))(const uint64_t*) {
  for (const auto* kernel = emulated::kEmulatedKernels; kernel->source != nullptr; ++kernel) {
    if (kernel->source == source) return kernel->call;
  }
  ADD_FAILURE() << "the build has not written this kernel:\n" << source;
  return nullptr;
}

// The program on the CPU's memory, step after step.
class Emulation {
 public:
  Emulation(const RecordedProgram& recorded, const std::string& weights_dir)
      : recorded_(recorded), files_(*recorded.plan, "", weights_dir) {
    int64_t pages = 0;
    for (const auto& step : recorded.record->steps) {
      for (const int32_t page : step->pages) pages = std::max<int64_t>(pages, page + 1);
    }
    for (const auto& layer : target().kv_layers) {
      layers_.emplace_back(pages * target().page_tokens * RowBytesOf(*layer), uint8_t{0});
    }
  }

  // Launches of the step that differ from the record.
  void Run(const record::StepT& step) {
    step_ = &step;
    T_ = BucketOf(static_cast<int64_t>(step.ids.size()));
    R_ = BucketOf(static_cast<int64_t>(step.logit_rows.size()));
    arena_ = Bytes(Evaluate(*program().arena, T_, R_), 0xff);
    greatest_ = Bytes(R_ * int64_t{sizeof(GreatestLogit)}, 0xff);
    WriteBlock();
    for (const KernelLaunch& launch : PreparingLaunches(recorded_, step)) {
      plans_[launch.kernel] = Bytes(
          kernel(launch).Prepare(T_, 1, static_cast<int64_t>(step.pages.size())).plan_bytes, 0);
      Launch(launch, FirstOf(launch.kernel));
    }
    const size_t count = program().launches.size();
    ASSERT_EQ(step.launches.size(), count);
    for (size_t i = 0; i <= count; ++i) {
      const plan::LaunchT* bound = i < count ? program().launches[i].get() : nullptr;
      if (bound == nullptr && step.greatest.empty()) continue;
      for (const KernelLaunch& launch : LaunchesOf(recorded_, step, i)) Launch(launch, bound);
      Compare(i);
    }
  }

 private:
  const plan::TargetT& target() const { return *recorded_.target; }
  const plan::ProgramT& program() const { return *recorded_.program; }
  const CudaKernel& kernel(const KernelLaunch& launch) const {
    return *recorded_.kernels[launch.kernel];
  }

  // Of K and V of a token.
  static int64_t RowBytesOf(const plan::KvLayerT& layer) {
    return int64_t{layer.heads} * (layer.k_dim + layer.v_dim) *
           InfoOf(*ParseDType(layer.dtype)).block_bytes;
  }

  void WriteBlock() {
    std::vector<SequenceRows> sequences(1);
    sequences[0].rows = static_cast<int32_t>(step_->ids.size());
    sequences[0].context_tokens = step_->context_tokens;
    sequences[0].pages = step_->pages;
    const StepLayout layout(T_, R_);
    block_ = Bytes(layout.pages + static_cast<int64_t>(step_->pages.size() * sizeof(int32_t)), 0);
    WriteStepBlock({step_->ids, step_->positions, step_->logit_rows, sequences}, T_, R_,
                   target().page_tokens, StepCaches::kOwn, block_.data());
  }

  // Operands that prepare a kernel, all of its launches have in common.
  const plan::LaunchT* FirstOf(size_t kernel) const {
    for (const auto& launch : program().launches) {
      if (launch->kernel == kernel) return launch.get();
    }
    return nullptr;
  }

  // A weight as the kernel of `launch` reads its input `i`.
  Bytes& WeightOf(const plan::LaunchT& launch, size_t i) {
    const uint32_t index = launch.inputs[i].index();
    const plan::WeightSlotT& slot = *target().weights[index];
    const DType stored = *ParseDType(slot.dtype);
    const WeightForm form =
        FormRead(*ParseSpec(target().kernels[launch.kernel]->spec), false, i, stored);
    Bytes& weight = weights_[{index, form}];
    if (weight.size() > 0) return weight;
    auto rows = RowsOfSlot(slot, recorded_.plan->tensors, files_);
    EXPECT_TRUE(rows.ok()) << rows.status();
    std::vector<uint8_t> ordered;
    const auto row_bytes = static_cast<int64_t>(rows->bytes.size()) / slot.extents[0];
    for (const auto& piece : Ordered({rows->bytes}, row_bytes, form.order)) {
      ordered.insert(ordered.end(), piece.begin(), piece.end());
    }
    if (IsBlockType(stored)) {
      weight = Bytes(static_cast<int64_t>(ordered.size()), 0);
      std::memcpy(weight.data(), ordered.data(), ordered.size());
      return weight;
    }
    const int64_t elements = static_cast<int64_t>(ordered.size()) / InfoOf(stored).block_bytes;
    weight = Bytes(elements * InfoOf(form.dtype).block_bytes, 0);
    ConvertFloats(stored, ordered.data(), form.dtype, weight.data(), elements);
    return weight;
  }

  struct Place {
    uint8_t* at = nullptr;
    size_t bytes = 0;
    Memory::Use use = Memory::kRead;
  };
  // Operand `i` of a launch of the plan, inputs and then outputs; of none, of the greatest logit.
  Place PlaceOf(const plan::LaunchT* launch, size_t i) {
    if (launch == nullptr) {
      if (i == 1) return {greatest_.data(), greatest_.size(), Memory::kWrite};
      return BufferAt(program().results[0].index(), Memory::kRead);
    }
    const bool is_input = i < launch->inputs.size();
    const plan::Operand& operand =
        is_input ? launch->inputs[i] : launch->outputs[i - launch->inputs.size()];
    switch (operand.kind()) {
      case plan::OperandKind::Weight: {
        Bytes& weight = WeightOf(*launch, i);
        return {weight.data(), weight.size(), Memory::kReadEarly};
      }
      case plan::OperandKind::Argument: {
        const StepLayout layout(T_, R_);
        const auto named = StepArgumentNamed(program().arguments[operand.index()]->name);
        EXPECT_TRUE(named.ok()) << named.status();
        const bool is_rows = *named == StepArgument::kLogitRows;
        const int64_t at = is_rows                              ? layout.logit_rows
                           : *named == StepArgument::kPositions ? layout.positions
                                                                : layout.ids;
        return {block_.data() + at, static_cast<size_t>(is_rows ? R_ : T_) * sizeof(int32_t),
                Memory::kReadEarly};
      }
      case plan::OperandKind::KvLayer: {
        Bytes& layer = layers_[operand.index()];
        return {layer.data(), layer.size(),
                AppendedLayer(target(), *launch).has_value() ? Memory::kWrite : Memory::kRead};
      }
      case plan::OperandKind::Buffer:
        return BufferAt(operand.index(), is_input ? Memory::kRead : Memory::kWrite);
      case plan::OperandKind::None:
        break;
    }
    return {};
  }
  Place BufferAt(uint32_t index, Memory::Use use) {
    const plan::ValueT& buffer = *program().buffers[index];
    return {arena_.data() + Evaluate(*buffer.offset, T_, R_),
            static_cast<size_t>(Evaluate(*buffer.bytes, T_, R_)), use};
  }

  uint64_t WordOf(const CudaArgument& argument, const KernelLaunch& launch,
                  const plan::LaunchT* bound) {
    const StepLayout layout(T_, R_);
    const auto word = [](const uint8_t* at, int64_t offset) {
      return reinterpret_cast<uint64_t>(at + offset);
    };
    switch (argument.kind) {
      case Kind::kOperand:
        if (argument.value < 0) return 0;
        return word(PlaceOf(bound, static_cast<size_t>(argument.value)).at, 0);
      case Kind::kWorkspace:
        return word(workspace_.data(), argument.value);
      case Kind::kPlan:
        return word(plans_[launch.kernel].data(), argument.value);
      case Kind::kHeader:
        return word(block_.data(), layout.header);
      case Kind::kSequences:
        return word(block_.data(), layout.own.sequences);
      case Kind::kPages:
        return word(block_.data(), layout.pages);
      case Kind::kTokenSlots:
        return word(block_.data(), layout.own.token_slots);
      case Kind::kInt32:
      case Kind::kTensorMap:
        break;
    }
    return static_cast<uint64_t>(argument.value);
  }

  void Launch(const KernelLaunch& launch, const plan::LaunchT* bound) {
    const CudaEntry& entry = kernel(launch).entries()[launch.launch.entry];
    // What launches leave there is nobody's; counters are zero again.
    if (workspace_.size() == 0) workspace_ = Bytes(kWorkspaceBytes, 0);
    emulated::Launch grid{
        launch.launch.grid, entry.block_threads, static_cast<size_t>(entry.shared_bytes),
        arena_.data(),      arena_.size(),       ++seed_};
    const size_t operands = bound == nullptr ? 2 : bound->inputs.size() + bound->outputs.size();
    for (size_t i = operands; i-- > 0;) {
      const Place place = PlaceOf(bound, i);
      grid.global.push_back({place.at, place.bytes, place.use});
    }
    grid.global.push_back({block_.data(), block_.size(), Memory::kReadEarly});
    grid.global.push_back({workspace_.data(), workspace_.size(), Memory::kWrite});
    std::vector<uint64_t> words;
    std::vector<std::unique_ptr<emulated::TensorMap>> maps;
    for (const CudaArgument& argument : launch.launch.arguments) {
      if (argument.kind != Kind::kTensorMap) {
        words.push_back(WordOf(argument, launch, bound));
        continue;
      }
      const CudaTensorMap& map = launch.launch.tensor_maps[static_cast<size_t>(argument.value)];
      const auto* base = reinterpret_cast<const void*>(WordOf(map.base, launch, bound));
      maps.push_back(std::make_unique<emulated::TensorMap>(emulated::TensorMap{
          base, map.rows, map.columns, map.box_rows, map.block_rows, map.box_block_rows}));
      words.push_back(reinterpret_cast<uint64_t>(maps.back().get()));
    }
    const auto call = KernelOf(entry.source);
    if (call == nullptr) return;
    emulated::RunGrid(grid, [&] { call(words.data()); });
    for (int i = 0; i < kCudaZeroBytes; ++i) {
      ASSERT_EQ(workspace_.data()[i], 0) << entry.entry << " leaves counters";
    }
  }

  // What launch `index` left, which becomes what the record has.
  void Compare(size_t index) {
    if (index == program().launches.size()) {
      CompareRows("the greatest logits", greatest_.data(), step_->greatest, sizeof(GreatestLogit),
                  4);
      return;
    }
    const plan::LaunchT& launch = *program().launches[index];
    const record::LaunchT& recorded = *step_->launches[index];
    const auto layer = AppendedLayer(target(), launch);
    ASSERT_EQ(recorded.outputs.size(), launch.outputs.size() + (layer.has_value() ? 1 : 0));
    const std::string name = absl::StrCat("launch ", index, ", %", launch.name, ", of ",
                                          target().kernels[launch.kernel]->spec);
    for (size_t i = 0; i < launch.outputs.size(); ++i) {
      const std::vector<uint8_t>& bytes = recorded.outputs[i]->bytes;
      const plan::ValueT& buffer = *program().buffers[launch.outputs[i].index()];
      const size_t rows = buffer.extents[0] == "R" ? step_->logit_rows.size() : step_->ids.size();
      CompareRows(name, PlaceOf(&launch, launch.inputs.size() + i).at, bytes, bytes.size() / rows,
                  static_cast<size_t>(InfoOf(*ParseDType(buffer.dtype)).block_bytes));
    }
    if (layer.has_value()) CompareLayer(name, *layer, recorded.outputs.back()->bytes);
  }

  static void CompareRows(const std::string& name, uint8_t* got,
                          const std::vector<uint8_t>& expected, size_t row_bytes,
                          size_t element_bytes) {
    size_t different = 0;
    std::string first;
    for (size_t at = 0; at < expected.size(); at += element_bytes) {
      if (std::memcmp(got + at, &expected[at], element_bytes) == 0) continue;
      if (different++ > 0) continue;
      uint32_t words[2] = {};
      std::memcpy(&words[0], got + at, element_bytes);
      std::memcpy(&words[1], &expected[at], element_bytes);
      first = absl::StrFormat("row %d, column %d: %x, the GPU's %x", at / row_bytes,
                              at % row_bytes / element_bytes, words[0], words[1]);
    }
    EXPECT_EQ(different, 0u) << name << ": of " << expected.size() / element_bytes
                             << " elements, first " << first;
    std::memcpy(got, expected.data(), expected.size());
  }

  void CompareLayer(const std::string& name, uint32_t index, const std::vector<uint8_t>& expected) {
    const plan::KvLayerT& layer = *target().kv_layers[index];
    const int64_t element = InfoOf(*ParseDType(layer.dtype)).block_bytes;
    const int64_t page_tokens = target().page_tokens;
    const auto rows = static_cast<int64_t>(step_->ids.size());
    size_t at = 0;
    for (const bool is_v : {false, true}) {
      const int64_t row_bytes = (is_v ? layer.v_dim : layer.k_dim) * element;
      for (int64_t token = step_->context_tokens - rows; token < step_->context_tokens; ++token) {
        const int64_t page = step_->pages[static_cast<size_t>(token / page_tokens)];
        for (int64_t head = 0; head < layer.heads; ++head) {
          const int64_t in_page = (is_v ? layer.heads * page_tokens * layer.k_dim * element : 0) +
                                  (head * page_tokens + token % page_tokens) * row_bytes;
          CompareRows(
              absl::StrCat(name, ", ", is_v ? "V" : "K", " of token ", token, ", head ", head),
              layers_[index].data() + page * page_tokens * RowBytesOf(layer) + in_page,
              {expected.begin() + static_cast<ptrdiff_t>(at),
               expected.begin() + static_cast<ptrdiff_t>(at) + row_bytes},
              static_cast<size_t>(row_bytes), static_cast<size_t>(element));
          at += static_cast<size_t>(row_bytes);
        }
      }
    }
    EXPECT_EQ(at, expected.size()) << name;
  }

  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  const RecordedProgram& recorded_;
  const TensorFiles files_;
  std::map<std::pair<uint32_t, WeightForm>, Bytes> weights_;
  std::vector<Bytes> layers_;
  std::map<size_t, Bytes> plans_;  // by kernel
  Bytes arena_, greatest_, block_, workspace_;
  const record::StepT* step_ = nullptr;
  int64_t T_ = 0, R_ = 0;
  uint64_t seed_ = 0;
};

TEST(CudaStepTest, HasTheBitsOfTheGpuThatItWasRecordedOn) {
  for (const RecordPath& path : RecordPaths()) {
    const auto record = ReadStepRecord(path.path);
    ASSERT_TRUE(record.ok()) << record.status();
    for (const CudaLimits& limits : LimitsOf(**record)) {
      SCOPED_TRACE(absl::StrCat(path.path, ", recorded on ", (*record)->device, ", kernels of sm_",
                                limits.major, limits.minor));
      const auto program = OpenRecord(path.path, limits);
      ASSERT_TRUE(program.ok()) << program.status();
      Emulation emulation(*program, path.weights_dir);
      ASSERT_GE((*record)->steps.size(), 2u);
      for (const auto& step : (*record)->steps) {
        SCOPED_TRACE(absl::StrCat("step of ", step->ids.size(), " rows"));
        emulation.Run(*step);
      }
    }
  }
}

TEST(CudaStepTest, ACorruptRecordIsDataLoss) {
  const std::string path = RecordPaths()[0].path;
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  const std::string copy = ::testing::TempDir() + "/corrupt.steps";
  std::ofstream(copy, std::ios::binary) << bytes;
  EXPECT_TRUE(absl::IsDataLoss(ReadStepRecord(copy).status()));
  std::ofstream(copy, std::ios::binary) << bytes.substr(0, 5);
  EXPECT_TRUE(absl::IsDataLoss(ReadStepRecord(copy).status()));
}

}  // namespace
}  // namespace quire::testing
