#include "codegen/kernel_cache.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "codegen/cpu/kernel.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

class KernelCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/kernel_cache_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { fs::remove_all(dir_); }

  int Files() const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(dir_)) count += entry.is_regular_file() ? 1 : 0;
    return count;
  }

  std::string dir_;
};

constexpr char kSpec[] = "linear n=16 k=32 w=q8_0 x=f32 y=f32 bias=0 residual=0 layout=rows16";

TEST_F(KernelCacheTest, FindsWhatWasPublished) {
  const KernelCache cache(dir_ + "/made/on/demand");
  EXPECT_EQ(cache.Find("key"), std::nullopt);
  const std::string binary("a\0b", 3);
  ASSERT_TRUE(cache.Publish("key", binary).ok());
  EXPECT_EQ(cache.Find("key"), binary);
  EXPECT_EQ(cache.Find("another"), std::nullopt);
  EXPECT_EQ(KernelCache(cache.dir()).Find("key"), binary);
}

TEST_F(KernelCacheTest, EveryTruncationAndEveryFlippedByteIsAbsent) {
  const KernelCache cache(dir_);
  ASSERT_TRUE(cache.Publish("key", "some binary").ok());
  std::ifstream file(cache.PathOf("key"), std::ios::binary);
  const std::string entry((std::istreambuf_iterator<char>(file)), {});
  const auto put = [&](const std::string& bytes) {
    std::ofstream(cache.PathOf("key"), std::ios::binary | std::ios::trunc) << bytes;
  };
  for (size_t i = 0; i < entry.size(); ++i) {
    put(entry.substr(0, i));
    EXPECT_EQ(cache.Find("key"), std::nullopt) << "cut to " << i;
    std::string flipped = entry;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    put(flipped);
    EXPECT_EQ(cache.Find("key"), std::nullopt) << "byte " << i;
  }
  put(entry + "x");
  EXPECT_EQ(cache.Find("key"), std::nullopt);
  ASSERT_TRUE(cache.Publish("key", "some binary").ok());
  EXPECT_EQ(cache.Find("key"), "some binary");
}

TEST_F(KernelCacheTest, AnEntryOfAnotherKeyIsAbsent) {
  const KernelCache cache(dir_);
  ASSERT_TRUE(cache.Publish("key", "binary").ok());
  fs::copy(cache.PathOf("key"), cache.PathOf("other"));
  EXPECT_EQ(cache.Find("other"), std::nullopt);
}

TEST_F(KernelCacheTest, DirectoryFromTheEnvironment) {
  ASSERT_EQ(setenv("QUIRE_CACHE", "/some/where", 1), 0);
  EXPECT_EQ(KernelCache("").dir(), "/some/where");
  EXPECT_EQ(KernelCache("none").dir(), "");
  ASSERT_EQ(setenv("QUIRE_CACHE", "none", 1), 0);
  EXPECT_EQ(KernelCache("").dir(), "");
  unsetenv("QUIRE_CACHE");
  ASSERT_EQ(setenv("XDG_CACHE_HOME", "/xdg", 1), 0);
  EXPECT_EQ(KernelCache("").dir(), "/xdg/quire");
  unsetenv("XDG_CACHE_HOME");
}

TEST_F(KernelCacheTest, BuildsWithoutAPlaceToKeepKernels) {
  // A file stands where the directory should be: nothing can be made there, even by root.
  std::ofstream(dir_ + "/file") << "x";
  for (const std::string& dir : {std::string("none"), dir_ + "/file/cache", dir_ + "/file"}) {
    const auto builder = KernelBuilder::Create(*HostIsa(), KernelCache(dir));
    ASSERT_TRUE(builder.ok());
    EXPECT_TRUE((*builder)->Build(kSpec).ok()) << dir;
    EXPECT_EQ((*builder)->compiled(), 1);
  }
}

TEST_F(KernelCacheTest, KernelsComeFromTheCacheTheSecondTime) {
  for (int compiled : {1, 0}) {
    const auto builder = KernelBuilder::Create(*HostIsa(), KernelCache(dir_));
    ASSERT_TRUE(builder.ok());
    ASSERT_TRUE((*builder)->Build(kSpec).ok());
    EXPECT_EQ((*builder)->compiled(), compiled);
  }
  EXPECT_EQ(Files(), 1);
  // A torn entry is built and published again.
  for (const auto& entry : fs::directory_iterator(dir_)) fs::resize_file(entry.path(), 100);
  for (int compiled : {1, 0}) {
    const auto builder = KernelBuilder::Create(*HostIsa(), KernelCache(dir_));
    ASSERT_TRUE((*builder)->Build(kSpec).ok());
    EXPECT_EQ((*builder)->compiled(), compiled);
  }
}

TEST_F(KernelCacheTest, NothingIsCompiledWhereThatIsNotAllowed) {
  const auto never = KernelBuilder::Create(*HostIsa(), KernelCache(dir_), JitPolicy::kNever);
  ASSERT_TRUE(never.ok());
  const absl::Status status = (*never)->Build(kSpec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(kSpec), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("--jit=auto"), absl::string_view::npos) << status;
  const auto builder = KernelBuilder::Create(*HostIsa(), KernelCache(dir_));
  ASSERT_TRUE((*builder)->Build(kSpec).ok());
  EXPECT_TRUE((*never)->Build(kSpec).ok());
}

TEST_F(KernelCacheTest, ThreadsBuildASpecOnce) {
  const auto builder = KernelBuilder::Create(*HostIsa(), KernelCache(dir_));
  ASSERT_TRUE(builder.ok());
  const CpuKernel* kernels[4] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto kernel = (*builder)->Build(kSpec);
      if (kernel.ok()) kernels[i] = *kernel;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const CpuKernel* kernel : kernels) EXPECT_TRUE(kernel != nullptr && kernel == kernels[0]);
  EXPECT_EQ((*builder)->compiled(), 1);
}

TEST_F(KernelCacheTest, RacingProcessesPublishWholeEntries) {
  constexpr int kProcesses = 4, kKeys = 25;
  const auto binary_of = [](int key) { return std::string(20000, static_cast<char>('a' + key)); };
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // No gtest here: the exit status tells. A found entry is whole; a published one is found.
      const KernelCache cache(dir_);
      bool good = true;
      for (int round = 0; round < 8; ++round) {
        for (int key = 0; key < kKeys; ++key) {
          const auto found = cache.Find(absl::StrCat("key ", key));
          good = good && (!found.has_value() || *found == binary_of(key));
          good = good && cache.Publish(absl::StrCat("key ", key), binary_of(key)).ok();
          good = good && cache.Find(absl::StrCat("key ", key)) == binary_of(key);
        }
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(Files(), kKeys);  // no temporary file is left
}

}  // namespace
}  // namespace quire
