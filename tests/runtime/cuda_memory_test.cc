// Context, memory, pages and weights of the CUDA device, on a GPU of host memory.
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_pages.h"
#include "runtime/cuda/cuda_weights.h"
#include "tests/runtime/fake_blas.h"
#include "tests/runtime/fake_gpu.h"

namespace quire {
namespace {

using testing::FakeGpu;
using ::testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

std::unique_ptr<CudaContext> NewContext(const FakeGpu& gpu) {
  auto context = CudaContext::Create(gpu.driver());
  EXPECT_TRUE(context.ok()) << context.status();
  return std::move(context).value();
}

TEST(CudaContextTest, EveryFailureIsUnavailableWithAdviceAndLeavesNothing) {
  for (const char* function :
       {"DeviceGet", "DeviceGetAttribute", "DeviceGetName", "DevicePrimaryCtxRetain",
        "CtxSetCurrent", "MemGetInfo", "StreamCreate"}) {
    FakeGpu gpu;
    gpu.failures[function] = {0, 999};
    const auto context = CudaContext::Create(gpu.driver());
    EXPECT_EQ(context.status().code(), absl::StatusCode::kUnavailable) << function;
    EXPECT_THAT(Text(context.status()), HasSubstr("fix: ")) << function;
    EXPECT_EQ(gpu.Living(), "") << function;
  }
}

TEST(CudaDeviceTest, SaysWhatItIs) {
  FakeGpu gpu;
  gpu.total_bytes = size_t{139} << 30;
  {
    const auto device = CudaDevice::Create(gpu.driver(), {}, &testing::FakeBlas::Open);
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ((*device)->Description(), "cuda: Fake H200, sm_90a, 132 multiprocessors, 139 GiB");
  }
  EXPECT_EQ(gpu.Living(), "");
}

TEST(CudaMemoryTest, IsClearedAndFreed) {
  FakeGpu gpu;
  const auto context = NewContext(gpu);
  {
    auto memory = CudaMemory::Allocate(*context, 100, "a test");
    ASSERT_TRUE(memory.ok()) << memory.status();
    ASSERT_TRUE(context->Synchronize().ok());
    for (int i = 0; i < 100; ++i) EXPECT_EQ(reinterpret_cast<uint8_t*>(memory->at())[i], 0);
    CudaMemory other = std::move(memory).value();
    EXPECT_EQ(gpu.used_bytes(), 100u);
  }
  EXPECT_EQ(gpu.used_bytes(), 0u);
}

TEST(CudaMemoryTest, TooMuchSaysWhatIsFree) {
  FakeGpu gpu;
  gpu.total_bytes = 1000;
  const auto context = NewContext(gpu);
  const auto first = CudaMemory::Allocate(*context, 600, "a test");
  const auto second = CudaMemory::Allocate(*context, 401, "another test");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(second.status()), HasSubstr("no memory for another test: 401 bytes"));
  EXPECT_THAT(Text(second.status()), HasSubstr("free: 400 of 1000 bytes"));
}

plan::TargetT TwoLayers() {
  plan::TargetT target;
  target.page_tokens = 4;
  for (const int heads : {3, 1}) {
    auto layer = std::make_unique<plan::KvLayerT>();
    layer->heads = heads;
    layer->k_dim = 8;
    layer->v_dim = 16;
    layer->dtype = "bf16";
    target.kv_layers.push_back(std::move(layer));
  }
  return target;
}

TEST(CudaPagesTest, LayersLieOneAfterAnotherAndPagesAreCopiedInEach) {
  FakeGpu gpu;
  const auto context = NewContext(gpu);
  const auto layout = CudaPageLayout::Create(TwoLayers(), plan::KvCache::Self);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->page_bytes, 4 * (3 + 1) * (8 + 16) * 2);
  auto pool = CudaPagePool::Create(*context, *layout, 5);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ((*pool)->page_bytes(), layout->page_bytes);
  const int64_t bytes[] = {4 * 3 * 24 * 2, 4 * 24 * 2};
  EXPECT_EQ((*pool)->layer(1) - (*pool)->layer(0),
            3072u);  // 5 * 576 = 2880, from a multiple of 256
  for (int layer : {0, 1}) {
    auto* page = reinterpret_cast<uint8_t*>((*pool)->layer(layer)) + 3 * bytes[layer];
    EXPECT_EQ(page[0], 0);
    std::memset(page, 7 + layer, static_cast<size_t>(bytes[layer]));
  }
  ASSERT_TRUE((*pool)->CopyPage(3, 1).ok());
  ASSERT_TRUE(context->Synchronize().ok());
  for (int layer : {0, 1}) {
    const auto* pages = reinterpret_cast<const uint8_t*>((*pool)->layer(layer));
    for (int64_t i = 0; i < 5 * bytes[layer]; ++i) {
      const int64_t page = i / bytes[layer];
      ASSERT_EQ(pages[i], page == 1 || page == 3 ? 7 + layer : 0) << layer << " " << i;
    }
  }
  EXPECT_EQ((*pool)->CopyPage(0, 5).code(), absl::StatusCode::kInvalidArgument);
  pool->reset();
  EXPECT_EQ(gpu.used_bytes(), 0u);
}

TEST(CudaPagesTest, TooManySayHowManyFit) {
  FakeGpu gpu;
  gpu.total_bytes = 10000;
  const auto context = NewContext(gpu);
  const auto layout = CudaPageLayout::Create(TwoLayers(), plan::KvCache::Self);
  const auto pool = CudaPagePool::Create(*context, *layout, 100);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(pool.status()), HasSubstr("allowed: up to 13 pages, 52 tokens, 9984 bytes"));
  EXPECT_EQ(CudaPagePool::Create(*context, *layout, 1 << 30).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Slots by name.
class FakeWeights : public WeightSource {
 public:
  absl::StatusOr<SlotBytes> Load(const plan::WeightSlotT& slot) const override {
    SlotBytes loaded;
    loaded.bytes = slots.at(slot.name);
    return loaded;
  }
  // The first bytes, a third if it is not said how many, then the rest.
  absl::StatusOr<SlotSpans> LoadPieces(const plan::WeightSlotT& slot) const override {
    const absl::Span<const uint8_t> bytes = slots.at(slot.name);
    const size_t first = first_bytes > 0 ? first_bytes : bytes.size() / 3 / 4 * 4;
    return SlotSpans{{bytes.first(first), bytes.subspan(first)}, nullptr};
  }
  // Only kernels come from there.
  const PlanFile& plan() const override { std::abort(); }
  std::map<std::string, std::vector<uint8_t>> slots;
  size_t first_bytes = 0;
};

void AddSlot(const std::string& name, DType dtype, std::vector<int64_t> extents,
             std::vector<uint8_t> bytes, plan::TargetT* target, FakeWeights* weights) {
  auto slot = std::make_unique<plan::WeightSlotT>();
  slot->name = name;
  slot->dtype = std::string(DTypeText(dtype));
  slot->extents = std::move(extents);
  target->weights.push_back(std::move(slot));
  weights->slots[name] = std::move(bytes);
}

TEST(CudaWeightsTest, LargeOnesComeInPiecesAndOrder) {
  FakeGpu gpu;
  const auto context = NewContext(gpu);
  plan::TargetT target;
  FakeWeights source;
  CudaWeights weights;
  CudaWeights::Uploaded uploaded;
  // More bytes than all stages hold: the device copies late, so a stage that is filled too early
  // shows.
  constexpr int64_t kRows = 9000, kColumns = 1100;
  for (int i = 0; i < 3; ++i) {
    std::vector<uint8_t> bytes(kRows * kColumns * 2);
    for (size_t at = 0; at < bytes.size(); at += 3) bytes[at] = static_cast<uint8_t>(at * 7 + i);
    AddSlot(absl::StrCat(i), DType::kBF16, {kRows, kColumns}, std::move(bytes), &target, &source);
    ASSERT_TRUE(weights.Want(target, static_cast<uint32_t>(i), {DType::kBF16}).ok());
  }
  const absl::Status status = weights.Upload(*context, target, source, 3, &uploaded);
  ASSERT_TRUE(status.ok()) << status;
  for (uint32_t i = 0; i < 3; ++i) {
    const auto& bytes = source.slots.at(absl::StrCat(i));
    EXPECT_EQ(weights.Find(i, {DType::kBF16}) % 16, 0u);
    EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(weights.Find(i, {DType::kBF16})), bytes.data(),
                          bytes.size()),
              0);
  }
  EXPECT_EQ(gpu.Living(), "context 1, memory 1, stream 1");
}

TEST(CudaWeightsTest, OneSlotInSeveralTypes) {
  FakeGpu gpu;
  const auto context = NewContext(gpu);
  plan::TargetT target;
  FakeWeights source;
  const std::vector<uint16_t> halves = {0x3c00, 0xc000, 0x0001};  // 1, -2, 2^-24
  std::vector<uint8_t> bytes(6);
  std::memcpy(bytes.data(), halves.data(), 6);
  AddSlot("w", DType::kF16, {3, 1}, bytes, &target, &source);
  CudaWeights weights;
  CudaWeights::Uploaded uploaded;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF16}) {
    ASSERT_TRUE(weights.Want(target, 0, {dtype}).ok());
  }
  ASSERT_TRUE(weights.Upload(*context, target, source, 1, &uploaded).ok());
  EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(weights.Find(0, {DType::kF16})), halves.data(), 6),
            0);
  const auto* floats = reinterpret_cast<const float*>(weights.Find(0, {DType::kF32}));
  const auto* bits = reinterpret_cast<const uint16_t*>(weights.Find(0, {DType::kBF16}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(floats[i], F16ToF32(halves[i]));
    EXPECT_EQ(bits[i], F32ToBF16(F16ToF32(halves[i])));
  }
}

// Eights of a head's halves in turn, of parts that end within eights and of more than a stage
// takes; beside it the same slot as it is.
TEST(CudaWeightsTest, RowsComeInTheOrderInWhichKernelsReadThem) {
  FakeGpu gpu;
  const auto context = NewContext(gpu);
  plan::TargetT target;
  FakeWeights source;
  constexpr int64_t kRows = 3 * 32 + 7, kColumns = 30000;
  std::vector<uint16_t> halves(kRows * kColumns);
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = F32ToF16(static_cast<float>(i / kColumns * 16 + i % 13));
  }
  std::vector<uint8_t> bytes(halves.size() * 2);
  std::memcpy(bytes.data(), halves.data(), bytes.size());
  AddSlot("w", DType::kF16, {kRows, kColumns}, bytes, &target, &source);
  source.first_bytes = 11 * kColumns * 2;
  const CudaRowOrder order = {3, 32};
  CudaWeights weights;
  CudaWeights::Uploaded uploaded;
  for (const WeightForm& form :
       {WeightForm{DType::kF16, order}, WeightForm{DType::kF32, order}, WeightForm{DType::kF16}}) {
    ASSERT_TRUE(weights.Want(target, 0, form).ok());
  }
  ASSERT_TRUE(weights.Upload(*context, target, source, 1, &uploaded).ok());
  const auto* ordered = reinterpret_cast<const uint16_t*>(weights.Find(0, {DType::kF16, order}));
  const auto* floats = reinterpret_cast<const float*>(weights.Find(0, {DType::kF32, order}));
  for (int64_t at = 0; at < kRows; ++at) {
    const uint16_t* row = &halves[static_cast<size_t>(order.RowAt(at) * kColumns)];
    ASSERT_EQ(std::memcmp(ordered + at * kColumns, row, kColumns * 2), 0) << at;
    for (int64_t i = 0; i < kColumns; ++i) {
      ASSERT_EQ(floats[at * kColumns + i], F16ToF32(row[i])) << at;
    }
  }
  EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(weights.Find(0, {DType::kF16})), bytes.data(),
                        bytes.size()),
            0);
}

TEST(CudaWeightsTest, RefusesWhatItCannotConvertAndWrongSizes) {
  FakeGpu gpu;
  const auto context = NewContext(gpu);
  plan::TargetT target;
  FakeWeights source;
  AddSlot("blocks", DType::kQ4_0, {1, 32}, std::vector<uint8_t>(18), &target, &source);
  AddSlot("short", DType::kF32, {2, 2}, std::vector<uint8_t>(12), &target, &source);
  CudaWeights weights;
  CudaWeights::Uploaded uploaded;
  EXPECT_EQ(weights.Want(target, 0, {DType::kBF16}).code(), absl::StatusCode::kInvalidArgument);
  CudaWeights others;
  ASSERT_TRUE(others.Want(target, 1, {DType::kF32}).ok());
  EXPECT_EQ(others.Upload(*context, target, source, 1, &uploaded).code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace quire
