// The kernel that finds greatest logits: its source run on the CPU, and built by NVRTC.
#include <cmath>
#include <limits>
#include <vector>

#include "codegen/cuda/greatest.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/source.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_emulator.h"

namespace quire::emulated {

#define QUIRE_GREATEST(name, columns) \
  namespace name {                    \
  constexpr int kColumns = columns;   \
  }

QUIRE_GREATEST(fours, 600)
namespace fours {
#include <greatest.cuh>
}
#undef QUIRE_GREATEST_CUH_
QUIRE_GREATEST(odd, 203)
namespace odd {
#include <greatest.cuh>
}
#undef QUIRE_GREATEST_CUH_
QUIRE_GREATEST(tiny, 3)
namespace tiny {
#include <greatest.cuh>
}

}  // namespace quire::emulated

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename Body, typename Greatest>
std::vector<Greatest> Run(const std::vector<float>& logits, int columns) {
  std::vector<Greatest> out(logits.size() / static_cast<size_t>(columns));
  emulated::Launch launch;
  launch.grid = static_cast<int>(out.size());
  launch.threads = 64;
  launch.shared_bytes = Body::kSharedBytes;
  emulated::RunGrid(launch, [&] { Body::Run(logits.data(), out.data()); });
  return out;
}

// Rows that differ in what makes them hard.
std::vector<float> Rows(int columns) {
  std::vector<float> logits;
  testing::Random random(uint64_t{5});
  for (int row = 0; row < 8; ++row) {
    for (int i = 0; i < columns; ++i) {
      logits.push_back(static_cast<float>(random.Below(9)) - 4);  // many equal ones
    }
  }
  const auto at = [&](int row, int column) -> float& { return logits[row * columns + column]; };
  at(1, columns - 1) = 100;
  at(2, 0) = 100;
  at(3, columns / 2) = kInfinity;
  at(4, columns / 3) = std::nanf("");
  for (int i = 0; i < columns; ++i) at(5, i) = -kInfinity;
  for (int i = 0; i < columns; ++i) at(6, i) = -kInfinity;
  at(6, columns / 2) = -std::numeric_limits<float>::max();
  for (int i = 0; i < columns; ++i) at(7, i) = i % 2 == 0 ? -0.0f : 0.0f;
  return logits;
}

template <typename Body, typename Greatest>
void ExpectGreatest(int columns) {
  const std::vector<float> logits = Rows(columns);
  const std::vector<Greatest> found = Run<Body, Greatest>(logits, columns);
  for (size_t row = 0; row < found.size(); ++row) {
    const float* begin = logits.data() + row * static_cast<size_t>(columns);
    bool is_sound = true;
    for (int i = 0; i < columns; ++i) is_sound &= !std::isnan(begin[i]) && begin[i] != kInfinity;
    EXPECT_EQ(found[row].is_sound, is_sound ? 1 : 0) << row;
    if (!is_sound) continue;
    int id = 0;
    for (int i = 1; i < columns; ++i) id = begin[i] > begin[id] ? i : id;
    EXPECT_EQ(found[row].id, id) << row;
    EXPECT_EQ(found[row].logit, begin[id]) << row;
  }
}

TEST(CudaGreatestTest, IsTheLowestIdOfTheGreatest) {
  ExpectGreatest<emulated::fours::GreatestOfRows<64>, emulated::fours::Greatest>(600);
  ExpectGreatest<emulated::odd::GreatestOfRows<64>, emulated::odd::Greatest>(203);
  ExpectGreatest<emulated::tiny::GreatestOfRows<64>, emulated::tiny::Greatest>(3);
}

TEST(CudaGreatestTest, CompilesWithoutSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  for (const int columns : {32000, 50257}) {
    const std::unique_ptr<CudaKernel> kernel = MakeCudaGreatest(columns);
    const CudaEntry& entry = kernel->entries()[0];
    for (const char* architecture : {"sm_80", "sm_89", "sm_90a"}) {
      const auto binary =
          (*nvrtc)->Compile("greatest.cu", entry.source, architecture, CudaKernelHeaders());
      ASSERT_TRUE(binary.ok()) << binary.status();
      const auto resources = ParseResources(binary->log);
      ASSERT_EQ(resources.size(), 1u);
      EXPECT_EQ(resources[0].name, entry.entry);
      EXPECT_EQ(resources[0].spill_store_bytes, 0);
      EXPECT_LE(resources[0].registers * entry.block_threads, 65536);
    }
  }
}

}  // namespace
}  // namespace quire
