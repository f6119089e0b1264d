// Attention kernels as NVRTC compiles them.
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/source.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_attention_specs.h"
#include "tests/codegen/cuda_compile.h"

namespace quire {
namespace {

using attention_testing::kAda;
using attention_testing::kAmpere;
using attention_testing::kHopper;
using attention_testing::Make;
using attention_testing::Spec;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Case {
  const char* name;
  AttentionSpec spec;
  attention_testing::Device device;
};

std::vector<Case> Cases() {
  AttentionSpec windowed = Spec(32, 32, 80, DType::kF16, 1), wide = Spec(16, 8, 256),
                odd = Spec(71, 1, 64), full = Spec(16, 16, 192), small = Spec(12, 12, 64),
                biased = Spec(32, 8, 128, DType::kF16, 8), padded = Spec(32, 32, 96),
                narrow = Spec(8, 8, 40, DType::kF16, 32), uneven = Spec(32, 4, 120),
                halves = Spec(24, 8, 192), thirds = Spec(24, 8, 256),
                odd_wide = Spec(4, 1, 256, DType::kF16, 3);
  windowed.window = 1024, windowed.cap = 50;
  wide.sinks = true;
  odd.tree_words = 2, odd.page_tokens = 7;
  full.dv = 128, full.causal = false;
  biased.window = 1024, biased.cap = 50, biased.sinks = true, biased.bias_distances = 128;
  AttentionSpec bytes = Spec(32, 8, 128), small_bytes = Spec(12, 12, 64, DType::kF16, 1),
                wide_bytes = Spec(16, 8, 256), many_bytes = Spec(32, 1, 128);
  for (AttentionSpec* spec : {&bytes, &small_bytes, &wide_bytes, &many_bytes}) {
    spec->kv = DType::kF8E4M3, spec->k_scale = spec->v_scale = spec != &small_bytes;
  }
  return {{"Groups", Spec(32, 8, 128), kAmpere},
          {"Groups", Spec(32, 8, 128), kAda},
          {"Groups", Spec(32, 8, 128), kHopper},
          {"Windowed", windowed, kHopper},
          {"Windowed", windowed, kAda},
          {"Wide", wide, kHopper},
          {"Wide", wide, kAmpere},
          {"Odd", odd, kHopper},
          {"Full", full, kHopper},
          {"Small", small, kHopper},
          {"Biased", biased, kHopper},
          {"Padded", padded, kHopper},
          {"Narrow", narrow, kHopper},
          {"Uneven", uneven, kHopper},
          {"Halves", halves, kHopper},
          {"Thirds", thirds, kHopper},
          {"OddWide", odd_wide, kHopper},
          {"Bytes", bytes, kHopper},
          {"Bytes", bytes, kAda},
          {"Bytes", bytes, kAmpere},
          {"SmallBytes", small_bytes, kHopper},
          {"SmallBytes", small_bytes, kAmpere},
          {"WideBytes", wide_bytes, kHopper},
          {"WideBytes", wide_bytes, kAmpere},
          {"ManyBytes", many_bytes, kHopper}};
}

// ptxas 13.0 can assemble cp.async with a uniform register in its shared address (opcode 0xdae
// instead of 0xfae), which a GPU refuses where there is a cache policy: places of such in a cubin.
std::vector<size_t> UniformSharedCopies(const std::string& cubin) {
  const auto read = [&](size_t at, auto& value) {
    ASSERT_LE(at + sizeof value, cubin.size());
    std::memcpy(&value, cubin.data() + at, sizeof value);
  };
  std::vector<size_t> places;
  uint64_t sections = 0;
  uint16_t entry_bytes = 0, count = 0, names = 0;
  read(40, sections), read(58, entry_bytes), read(60, count), read(62, names);
  uint64_t names_at = 0;
  read(sections + names * entry_bytes + 24u, names_at);
  for (uint16_t i = 0; i < count; ++i) {
    const size_t section = sections + size_t{i} * entry_bytes;
    uint32_t name = 0;
    uint64_t begin = 0, bytes = 0;
    read(section, name), read(section + 24, begin), read(section + 32, bytes);
    if (std::string(cubin.c_str() + names_at + name).rfind(".text.", 0) != 0) continue;
    for (size_t at = begin; at < begin + bytes; at += 16) {
      uint16_t word = 0;
      read(at, word);
      if ((word & 0xfff) == 0xdae) places.push_back(at);
    }
  }
  return places;
}

// A case each, so that they compile beside each other.
class CudaAttentionCompileTest : public ::testing::TestWithParam<Case> {};

TEST_P(CudaAttentionCompileTest, CompilesWithoutSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  const auto& [name, spec, device] = GetParam();
  const auto kernel = Make(spec, device.limits);
  ASSERT_NE(kernel, nullptr);
  for (const CudaEntry& entry : kernel->entries()) {
    const absl::StatusOr<CudaBinary> binary = (*nvrtc)->Compile(
        entry.entry + ".cu", entry.source, device.architecture, CudaKernelHeaders());
    ASSERT_TRUE(binary.ok()) << binary.status();
    const std::vector<KernelResources> resources = ParseResources(binary->log);
    ASSERT_EQ(resources.size(), 1u);
    const std::string what = absl::StrCat(device.architecture, " ", entry.source, " registers ",
                                          resources[0].registers, "\n");
    EXPECT_EQ(resources[0].name, entry.entry);
    EXPECT_EQ(resources[0].stack_bytes, 0) << what;
    // Products of warpgroups that ptxas serialises: C7510, C7511, C7514, C7520.
    EXPECT_THAT(binary->log, Not(HasSubstr("C75"))) << what << binary->log;
    EXPECT_EQ(resources[0].spill_store_bytes, 0) << what;
    EXPECT_THAT(UniformSharedCopies(binary->cubin), IsEmpty()) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, CudaAttentionCompileTest, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& of) {
                           return absl::StrCat(of.param.name, "_", of.param.device.architecture);
                         });

TEST(CudaAttentionTextTest, AWrongShareOfSharedMemoryDoesNotCompile) {
  testing::ExpectSharedBytesAreChecked(Make(Spec(32, 8, 128), kHopper.limits)->entries()[0].source);
}

}  // namespace
}  // namespace quire
