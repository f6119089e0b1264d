// What the emulator makes of products of warpgroups, and of copies of boxes, that a GPU would not
// forgive.
#include "tests/codegen/cuda_hopper_emulator.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace quire::emulated {
namespace {

constexpr int kColumns = 8;

enum class Mistake { kNone, kNoFence, kFewerWarps, kOtherOperand, kFewerProducts };

// a . b^T for rows r of a that are all r % 4 and rows of b that are all ones, 16 k.
void Multiply(std::vector<float>* y, Mistake mistake) {
  const auto thread = static_cast<int>(ThreadIndex().x);
  const auto put = [](uint32_t to, int row, float value) {
    for (uint32_t k = 0; k < 16; k += 8) {
      const uint32_t address = to + static_cast<uint32_t>(row) * 128 + k * 2;
      auto* unit = reinterpret_cast<Bf16*>(At(Swizzled(address)));
      for (int i = 0; i < 8; ++i) unit[i] = FromFloat<Bf16>(value);
    }
  };
  constexpr uint32_t kA = kSharedBegin, kB = kSharedBegin + 64 * 128;
  if (thread < 64) put(kA, thread, static_cast<float>(thread % 4));
  if (thread < kColumns) put(kB, thread, 1);
  if (mistake != Mistake::kNoFence) FenceShared();
  SyncBlock();
  float sums[kColumns / 2];
  const bool differs = thread >= 96;
  if (mistake != Mistake::kFewerWarps || !differs) {
    BeginProducts();
    const uint32_t b = mistake == Mistake::kOtherOperand && differs ? kA : kB;
    WarpgroupProduct<Bf16, kColumns>::Run(sums, OperandAt(kA), OperandAt(b), false);
    if (mistake != Mistake::kFewerProducts || !differs) {
      WarpgroupProduct<Bf16, kColumns>::Run(sums, OperandAt(kA), OperandAt(kB), true);
    }
    CommitProducts();
    WaitForProducts<0>();
  }
  for (int i = 0; i < kColumns / 2; ++i) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 * 8;
    (*y)[static_cast<size_t>(row * kColumns + thread % 4 * 2 + i % 2)] = sums[i];
  }
}

std::vector<float> Sums(Mistake mistake) {
  std::vector<float> y(size_t{64} * kColumns);
  Launch launch;
  launch.threads = kWarpgroupThreads;
  launch.shared_bytes = (64 + kColumns) * 128;
  RunGrid(launch, [&] { Multiply(&y, mistake); });
  return y;
}

TEST(CudaHopperEmulatorTest, ProductsReadWhatIsFenced) {
  const std::vector<float> fenced = Sums(Mistake::kNone), stale = Sums(Mistake::kNoFence);
  for (size_t i = 0; i < fenced.size(); ++i) {
    EXPECT_EQ(fenced[i], static_cast<float>(2 * 16 * (i / kColumns % 4)));
    EXPECT_TRUE(std::isnan(stale[i])) << "shared memory begins as NaNs";
  }
}

TEST(CudaHopperEmulatorTest, AllThreadsOfAWarpgroupRunTheSame) {
  EXPECT_DEATH(Sums(Mistake::kFewerWarps), "others of its warpgroup ran further products");
  EXPECT_DEATH(Sums(Mistake::kOtherOperand), "threads of a warpgroup run different products");
  EXPECT_DEATH(Sums(Mistake::kFewerProducts), "threads of a warpgroup run different products");
}

// A thread writes to where a box of one row then comes.
float Brought(bool fenced) {
  std::vector<Bf16> row(64, FromFloat<Bf16>(3));
  float y = 0;
  Launch launch;
  launch.shared_bytes = 2048;
  RunGrid(launch, [&] {
    constexpr uint32_t kTo = kSharedBegin, kBarrier = kSharedBegin + 1024;
    if (ThreadIndex().x == 0) InitBarrier(kBarrier, 1);
    auto& first = *reinterpret_cast<Bf16*>(SharedMemory());
    if (ThreadIndex().x == 1) {
      first = FromFloat<Bf16>(2);
      if (fenced) FenceShared();
    }
    SyncWarp();
    if (ThreadIndex().x == 0) {
      ArriveExpecting(kBarrier, 128);
      CopyBox(kTo, {row.data(), 1, 64, 1}, 0, 0, kBarrier);
      WaitForPhase(kBarrier, 0);
      y = ToFloat(first);
    }
  });
  return y;
}

TEST(CudaHopperEmulatorTest, ABoxComesAfterWhatIsFenced) {
  EXPECT_EQ(Brought(true), 3);
  EXPECT_DEATH(Brought(false), "a box comes to what was written and not fenced");
}

}  // namespace
}  // namespace quire::emulated
