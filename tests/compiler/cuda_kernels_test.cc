// The kernels of every committed configuration, lowered for CUDA, compile for every architecture
// without spills.
//
// Of linear and row kernels whose texts differ in numbers alone (widths, lengths) one is compiled,
// that of the largest model: bodies and flags, which decide on registers, are words of the text.
// The small models of the fixtures are compiled for one architecture. With QUIRE_ALL_CUDA_KERNELS=1
// in the environment everything is, for all. Binaries are kept in the build folder
// by content, so that a second run compiles what has changed since.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/cuda/architecture.h"
#include "codegen/cuda/target_kernels.h"
#include "compiler/compile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/import/checkpoint.h"
#include "models/model.h"
#include "tests/compiler/compile_helpers.h"
#include "tests/compiler/geometries.h"
#include "tests/models/checkpoint_files.h"
#include "tests/parity/fixture.h"
#include "tests/testdata.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<plan::TargetT> LoweredForCuda(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(path));
  QUIRE_ASSIGN_OR_RETURN(const ModelDef model, BuildModel(checkpoint));
  const TensorTable tensors = testing::TensorsOf(model.module);
  QUIRE_ASSIGN_OR_RETURN(
      CompiledTarget compiled,
      CompileTarget(model.module, TargetFor("cuda", tensors), CompileOptions{}, tensors));
  return std::move(compiled.target);
}

// Large models first, so that theirs are the kernels that stand for others.
std::vector<std::pair<std::string, absl::StatusOr<plan::TargetT>>> Lowered(bool has_fixtures) {
  std::vector<std::pair<std::string, absl::StatusOr<plan::TargetT>>> targets;
  for (const char* dtype : {"BF16", "F16"}) {
    for (const testing::Geometry& geometry : testing::kGeometries) {
      const testing::TempDir folder;
      testing::WriteGeometry(geometry, folder.path(), dtype);
      targets.emplace_back(absl::StrCat(geometry.name, " ", dtype), LoweredForCuda(folder.path()));
    }
  }
  targets.emplace_back("story", LoweredForCuda(TestData("../models/demo/story")));
  if (!has_fixtures) return targets;
  for (const std::string& name : testing::FixtureNames()) {
    targets.emplace_back(name, LoweredForCuda(testing::FixturePath(name)));
  }
  return targets;
}

// The text with every number but 0 the same, and but head sizes, which are registers.
std::string WithoutNumbers(const std::string& source) {
  std::string text;
  for (size_t i = 0; i < source.size();) {
    size_t end = i;
    while (end < source.size() && absl::ascii_isdigit(static_cast<unsigned char>(source[end]))) {
      ++end;
    }
    if (end == i) {
      text.push_back(source[i++]);
      continue;
    }
    const bool is_kept = source.substr(i, end - i) == "0" || absl::EndsWith(text, " kD = ") ||
                         absl::EndsWith(text, " kDv = ");
    text.append(is_kept ? source.substr(i, end - i) : "#");
    i = end;
  }
  return text;
}

class CudaKernelsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaKernelsTest, OfEveryConfigurationCompileWithoutSpills) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  const std::string architecture = GetParam();
  const CudaLimits limits = *LimitsOfArchitecture(architecture);
  const bool all = std::getenv("QUIRE_ALL_CUDA_KERNELS") != nullptr;
  std::vector<CudaKernels> owned;
  std::vector<const CudaEntry*> entries;
  absl::flat_hash_set<std::string> seen;
  for (const auto& [name, target] : Lowered(all || architecture == "sm_90a")) {
    ASSERT_TRUE(target.ok()) << name << ": " << target.status();
    absl::StatusOr<CudaKernels> kernels = MakeCudaKernels(*target, limits);
    ASSERT_TRUE(kernels.ok()) << name << ": " << kernels.status();
    for (const auto& kernel : *kernels) {
      for (const CudaEntry& entry : kernel->entries()) {
        EXPECT_LE(entry.shared_bytes, limits.shared_bytes) << name << "\n" << entry.source;
        if (seen.insert(all ? entry.source : WithoutNumbers(entry.source)).second) {
          entries.push_back(&entry);
        }
      }
    }
    owned.push_back(*std::move(kernels));
  }
  CudaKernelBuilder::Options options;
  options.architecture = architecture;
  CudaKernelBuilder builder(options, KernelCache(QUIRE_TEST_KERNEL_CACHE));
  const absl::StatusOr<std::vector<BuiltEntry>> built = builder.Build(entries);
  ASSERT_TRUE(built.ok()) << built.status();
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& log = (*built)[i].log;
    SCOPED_TRACE(absl::StrCat(architecture, "\n", entries[i]->source, log));
    const std::vector<KernelResources> resources = ParseResources(log);
    ASSERT_EQ(resources.size(), 1u);
    EXPECT_EQ(resources[0].name, entries[i]->entry);
    EXPECT_EQ(resources[0].spill_store_bytes, 0);
    EXPECT_EQ(resources[0].spill_load_bytes, 0);
    EXPECT_EQ(resources[0].stack_bytes, 0);
    EXPECT_LE(resources[0].registers * entries[i]->block_threads, 65536);
    EXPECT_LE(resources[0].static_shared_bytes + entries[i]->shared_bytes, limits.shared_bytes);
    EXPECT_THAT(log, Not(HasSubstr("(C75")));  // instructions that had to wait for each other
  }
  std::printf("%s: %d kernels of %d configurations, %d compiled, %.1f s\n", architecture.c_str(),
              static_cast<int>(entries.size()), static_cast<int>(owned.size()),
              builder.counters().compiled, builder.counters().ms / 1e3);
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaKernelsTest,
                         ::testing::Values("sm_80", "sm_89", "sm_90a"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace quire
