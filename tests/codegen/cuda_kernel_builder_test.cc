#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/architecture.h"
#include "codegen/cuda/kernel_builder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

bool HasNvrtc() {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  EXPECT_TRUE(nvrtc.ok() || absl::IsUnavailable(nvrtc.status())) << nvrtc.status();
  return nvrtc.ok();
}

CudaEntry Entry(int number) {
  CudaEntry entry;
  entry.entry = "times";
  entry.source = absl::StrCat("// times ", number, "\n#include \"prelude.cuh\"\n",
                              "extern \"C\" __global__ void times(float* x) {\n",
                              "  *x *= ", number, ";\n}\n");
  return entry;
}

class CudaKernelBuilderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/cuda_builder_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }

  static CudaKernelBuilder::Options With(JitPolicy jit, std::string architecture = "sm_90a") {
    CudaKernelBuilder::Options options;
    options.architecture = std::move(architecture);
    options.jit = jit;
    options.threads = 2;
    return options;
  }
  // Puts an entry of another version of NVRTC where one of this key would be looked for.
  void PublishAs(const CudaEntry& entry, const std::string& version, const std::string& cubin) {
    const KernelCache cache(dir_);
    ASSERT_TRUE(cache
                    .Publish(absl::StrCat("nvrtc ", version, "\n", CudaBinaryKey(entry, "sm_90a")),
                             std::string(8, '\0') + cubin)
                    .ok());
    ASSERT_TRUE(cache.Publish("cuda: versions of nvrtc, the last first", "9.9 " + version).ok());
  }
  int Files() const {
    int count = 0;
    for (const auto& file : fs::directory_iterator(dir_)) count += file.is_regular_file() ? 1 : 0;
    return count;
  }

  const CudaEntry two_ = Entry(2), three_ = Entry(3);
  std::string dir_;
};

TEST_F(CudaKernelBuilderTest, AKeyHoldsSourceArchitectureAndWhatIsIncluded) {
  const std::string key = CudaBinaryKey(two_, "sm_90a");
  EXPECT_EQ(key, CudaBinaryKey(Entry(2), "sm_90a"));
  EXPECT_NE(key, CudaBinaryKey(three_, "sm_90a"));
  EXPECT_NE(key, CudaBinaryKey(two_, "sm_80"));
  EXPECT_THAT(key, HasSubstr(two_.source.substr(two_.source.find('\n') + 1)));
  EXPECT_THAT(key, HasSubstr("--use_fast_math"));
  EXPECT_EQ(CudaBinaryName(key).size(), 32u);
  EXPECT_NE(CudaBinaryName(key), CudaBinaryName(CudaBinaryKey(three_, "sm_90a")));

  // The comment that it begins with is no code, whatever its lines.
  CudaEntry other = two_;
  other.source = absl::StrCat("// twice\n//\n", two_.source.substr(two_.source.find('\n') + 1));
  EXPECT_EQ(CudaBinaryKey(other, "sm_90a"), key);
  other.source = "// twice";
  EXPECT_NE(CudaBinaryKey(other, "sm_90a"), key);

  // linear_few.cuh includes linear.cuh, which includes what prelude.cuh is: the line of hashes
  // differs from that of one header alone.
  const auto headers = [](const std::string& source) {
    CudaEntry entry;
    entry.source = source;
    const std::string text = CudaBinaryKey(entry, "sm_90a");
    return text.substr(text.find("\nheaders "), 42);
  };
  EXPECT_EQ(headers("#include \"prelude.cuh\"\n"), headers("int x;\n#include \"prelude.cuh\"\n"));
  EXPECT_NE(headers("#include \"prelude.cuh\"\n"), headers(""));
  EXPECT_NE(headers("#include \"linear_few.cuh\"\n"), headers("#include \"linear.cuh\"\n"));
  EXPECT_EQ(headers("#include \"linear_few.cuh\"\n"),
            headers("#include \"linear_few.cuh\"\n#include \"linear.cuh\"\n"));
}

TEST_F(CudaKernelBuilderTest, BuildsOnceAndFindsTheSecondTime) {
  if (!HasNvrtc()) GTEST_SKIP() << "UNAVAILABLE: no NVRTC here";
  std::string cubin;
  for (int compiled : {2, 0}) {
    CudaKernelBuilder builder(With(JitPolicy::kAuto), KernelCache(dir_));
    const CudaEntry again = two_;
    const auto built = builder.Build({&two_, &three_, &again});
    ASSERT_TRUE(built.ok()) << built.status();
    ASSERT_EQ(built->size(), 3u);
    EXPECT_EQ((*built)[0].cubin.substr(1, 3), "ELF");
    EXPECT_EQ((*built)[0].cubin, (*built)[2].cubin);
    EXPECT_NE((*built)[0].cubin, (*built)[1].cubin);
    const std::vector<KernelResources> resources = ParseResources((*built)[0].log);
    ASSERT_EQ(resources.size(), 1u);
    EXPECT_GT(resources[0].registers, 0);
    EXPECT_EQ(builder.counters().compiled, compiled);
    EXPECT_EQ(builder.counters().in_cache, 2 - compiled);
    EXPECT_GT(builder.counters().ms, 0);
    EXPECT_TRUE(cubin.empty() || (*built)[0].cubin == cubin);
    cubin = (*built)[0].cubin;
  }
  EXPECT_EQ(Files(), 3);  // two binaries, and the list of versions
  // What was compiled here is found without a compiler.
  CudaKernelBuilder builder(With(JitPolicy::kNever), KernelCache(dir_));
  const auto built = builder.Build({&two_});
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ((*built)[0].cubin, cubin);
}

TEST_F(CudaKernelBuilderTest, APlansBinaryComesFirstWhateverMadeIt) {
  PublishAs(two_, "12.3", "cached");
  const std::string bytes = "in plan";
  CudaKernelBuilder builder(With(JitPolicy::kNever), KernelCache(dir_));
  builder.AddPlanBinary(CudaBinaryName(CudaBinaryKey(two_, "sm_90a")),
                        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  const auto built = builder.Build({&two_});
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ((*built)[0].cubin, "in plan");
  EXPECT_EQ(builder.counters().in_plan, 1);
  EXPECT_EQ(builder.counters().in_cache, 0);
}

TEST_F(CudaKernelBuilderTest, SaysWhereABinaryWouldComeFrom) {
  using Origin = CudaKernelBuilder::Origin;
  const std::string bytes = "in plan";
  PublishAs(three_, "12.3", "of 12.3");
  CudaKernelBuilder builder(With(JitPolicy::kNever), KernelCache(dir_));
  EXPECT_EQ(builder.OriginOf(three_), Origin::kCache);
  EXPECT_EQ(builder.OriginOf(two_), Origin::kCompiler);
  EXPECT_TRUE(builder.CanBuild(three_));
  EXPECT_FALSE(builder.CanBuild(two_));
  builder.AddPlanBinary(CudaBinaryName(CudaBinaryKey(two_, "sm_90a")),
                        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  EXPECT_EQ(builder.OriginOf(two_), Origin::kPlan);
  EXPECT_TRUE(builder.CanBuild(two_));
  EXPECT_EQ(builder.counters().compiled, 0);
  const CudaKernelBuilder compiling(With(JitPolicy::kAuto), KernelCache("none"));
  EXPECT_EQ(compiling.CanBuild(two_), HasNvrtc());
}

TEST_F(CudaKernelBuilderTest, ABinaryForAnotherArchitectureIsNotTaken) {
  const std::string bytes = "in plan";
  CudaKernelBuilder builder(With(JitPolicy::kNever, "sm_80"), KernelCache(dir_));
  builder.AddPlanBinary(CudaBinaryName(CudaBinaryKey(two_, "sm_90a")),
                        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  EXPECT_EQ(builder.Build({&two_}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CudaKernelBuilderTest, WithoutACompilerAnyVersionsEntryWillDo) {
  PublishAs(two_, "12.3", "of 12.3");
  CudaKernelBuilder builder(With(JitPolicy::kNever), KernelCache(dir_));
  const auto built = builder.Build({&two_});
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ((*built)[0].cubin, "of 12.3");
  EXPECT_EQ(builder.counters().in_cache, 1);
}

TEST_F(CudaKernelBuilderTest, ACompilersOwnVersionIsWanted) {
  if (!HasNvrtc()) GTEST_SKIP() << "UNAVAILABLE: no NVRTC here";
  PublishAs(two_, "12.3", "of 12.3");
  CudaKernelBuilder builder(With(JitPolicy::kAuto), KernelCache(dir_));
  const auto built = builder.Build({&two_});
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(builder.counters().compiled, 1);
  // And is preferred from then on, as the last that compiled.
  CudaKernelBuilder never(With(JitPolicy::kNever), KernelCache(dir_));
  const auto found = never.Build({&two_});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)[0].cubin, (*built)[0].cubin);
}

TEST_F(CudaKernelBuilderTest, NeverNamesWhatWouldBeCompiledAndTheFix) {
  CudaKernelBuilder builder(With(JitPolicy::kNever), KernelCache(dir_));
  const absl::Status status = builder.Build({&two_, &three_}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "cuda: --jit=never, and 2 of 2 kernels would have to be compiled for sm_90a, the first "
            "for times 2\n"
            "  fix: quire compile --target=cuda:sm_90a where NVRTC is puts the kernels into the "
            "plan; or --jit=auto");
  EXPECT_EQ(builder.counters().missing, 2);
}

TEST_F(CudaKernelBuilderTest, ACompilationAfterLoadingIsACountedError) {
  PublishAs(three_, "12.3", "of 12.3");
  CudaKernelBuilder builder(With(JitPolicy::kNever), KernelCache(dir_));
  builder.Seal();
  EXPECT_TRUE(builder.Build({&three_}).ok());
  EXPECT_EQ(builder.counters().late, 0);
  const absl::Status status = builder.Build({&two_}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("times 2"));
  EXPECT_EQ(builder.counters().late, 1);
  EXPECT_EQ(builder.counters().compiled, 0);
}

TEST_F(CudaKernelBuilderTest, ATextThatDoesNotCompileIsReportedWithTheCompilersWords) {
  if (!HasNvrtc()) GTEST_SKIP() << "UNAVAILABLE: no NVRTC here";
  CudaEntry bad = two_;
  bad.source += "int f() { return undefined_name; }\n";
  CudaKernelBuilder builder(With(JitPolicy::kAuto), KernelCache(dir_));
  const absl::Status status = builder.Build({&two_, &bad}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("undefined_name"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("would have to")));
}

TEST_F(CudaKernelBuilderTest, TornEntriesAreBuiltAgain) {
  if (!HasNvrtc()) GTEST_SKIP() << "UNAVAILABLE: no NVRTC here";
  const auto compiled = [&] {
    CudaKernelBuilder builder(With(JitPolicy::kAuto), KernelCache(dir_));
    EXPECT_TRUE(builder.Build({&two_}).ok());
    return builder.counters().compiled;
  };
  EXPECT_EQ(compiled(), 1);
  for (const auto& entry : fs::directory_iterator(dir_)) fs::resize_file(entry.path(), 30);
  EXPECT_EQ(compiled(), 1);
  EXPECT_EQ(compiled(), 0);
}

TEST_F(CudaKernelBuilderTest, BuildsWithoutAPlaceToKeepKernels) {
  if (!HasNvrtc()) GTEST_SKIP() << "UNAVAILABLE: no NVRTC here";
  // A file stands where the directory should be: nothing can be made there, even by root.
  std::ofstream(dir_ + "/file") << "x";
  for (const std::string& dir : {std::string("none"), dir_ + "/file/cache"}) {
    CudaKernelBuilder builder(With(JitPolicy::kAuto), KernelCache(dir));
    EXPECT_TRUE(builder.Build({&two_}).ok()) << dir;
    EXPECT_EQ(builder.counters().compiled, 1);
  }
}

TEST_F(CudaKernelBuilderTest, RacingProcessesBuildTheSame) {
  if (!HasNvrtc()) GTEST_SKIP() << "UNAVAILABLE: no NVRTC here";
  std::vector<pid_t> children;
  for (int process = 0; process < 3; ++process) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // No gtest here: the exit status tells.
      CudaKernelBuilder builder(With(JitPolicy::kAuto), KernelCache(dir_));
      const auto built = builder.Build({&two_, &three_});
      CudaKernelBuilder second(With(JitPolicy::kNever), KernelCache(dir_));
      const auto found = second.Build({&two_, &three_});
      _exit(built.ok() && found.ok() && (*built)[0].cubin == (*found)[0].cubin &&
                    (*built)[1].cubin == (*found)[1].cubin
                ? 0
                : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(Files(), 3);  // no temporary file is left
}

TEST(CudaArchitectureTest, TableAndNames) {
  EXPECT_EQ(LimitsOfArchitecture("sm_90a")->shared_bytes, 232448);
  EXPECT_EQ(LimitsOfArchitecture("sm_89")->minor, 9);
  EXPECT_EQ(DevicesOfArchitecture("sm_90a")->at(1).multiprocessors, 114);
  EXPECT_EQ(ArchitectureOf(9, 0), "sm_90a");
  EXPECT_EQ(ArchitectureOf(8, 6), "sm_86");
  EXPECT_EQ(ArchitectureOf(12, 1), "sm_121");
  for (const std::string& name : CudaArchitectures()) {
    const absl::StatusOr<CudaLimits> limits = LimitsOfArchitecture(name);
    ASSERT_TRUE(limits.ok());
    EXPECT_EQ(ArchitectureOf(limits->major, limits->minor), name);
  }
  const absl::Status status = LimitsOfArchitecture("sm_90").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "cuda: \"sm_90\" is not an architecture that kernels are built for\n"
            "  allowed: sm_80, sm_86, sm_87, sm_89, sm_90a, sm_100, sm_120");
}

}  // namespace
}  // namespace quire
