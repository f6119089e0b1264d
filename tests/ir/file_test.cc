#include "ir/file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/checkpoint_files.h"

namespace quire {
namespace {

using ::quire::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string OpenError(const std::string& path) {
  const auto file = MappedFile::Open(path);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(file.status().message());
}

TEST(MappedFileTest, MapsContents) {
  const TempDir dir;
  auto file = MappedFile::Open(dir.Write("f", "hello"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->file_bytes(), 5u);
  EXPECT_EQ(file->text(), "hello");
  EXPECT_EQ(file->path(), dir.File("f"));
}

TEST(MappedFileTest, EmptyFileIsAnEmptySpan) {
  const TempDir dir;
  const auto file = MappedFile::Open(dir.Write("f", ""));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFileTest, MovesItsMapping) {
  const TempDir dir;
  auto a = MappedFile::Open(dir.Write("a", "first"));
  auto b = MappedFile::Open(dir.Write("b", "second"));
  ASSERT_TRUE(a.ok() && b.ok());
  const MappedFile moved = *std::move(a);
  *b = MappedFile::Open(dir.File("a")).value();
  EXPECT_EQ(moved.text(), "first");
  EXPECT_EQ(b->text(), "first");
}

TEST(MappedFileTest, ErrorsNamePathAndReason) {
  const TempDir dir;
  EXPECT_EQ(OpenError(dir.File("none")),
            dir.File("none") + ": cannot open: No such file or directory\n  fix: " + dir.path() +
                " is empty");
  dir.Write("notes.txt", "x");
  dir.Write("a.qplan", "x");
  EXPECT_THAT(OpenError(dir.File("note.txt")),
              HasSubstr("\n  fix: did you mean " + dir.File("notes.txt") + "?"));
  EXPECT_THAT(OpenError(dir.File("something")),
              HasSubstr("\n  fix: " + dir.path() + " has a.qplan, notes.txt"));
  EXPECT_THAT(OpenError(dir.File("something.qplan")),
              HasSubstr("\n  fix: " + dir.path() + " has a.qplan"));
  EXPECT_THAT(OpenError(dir.File("none/at/all")),
              HasSubstr("\n  fix: there is no folder " + dir.File("none") + ": " + dir.path() +
                        " has a.qplan, notes.txt"));
  EXPECT_THAT(OpenError(dir.File("a.qplan/at")),
              HasSubstr("\n  fix: " + dir.File("a.qplan") + " is a file, not a folder"));
  EXPECT_THAT(OpenError(""), HasSubstr("\n  fix: a name"));
  ASSERT_EQ(symlink("/none/at/all", dir.File("link").c_str()), 0);
  EXPECT_THAT(OpenError(dir.File("link")),
              HasSubstr("\n  fix: it is a link to /none/at/all, which is not there"));
  for (int i = 0; i < 9; ++i) dir.Write("w" + std::to_string(i) + ".gguf", "x");
  EXPECT_THAT(OpenError(dir.File("something.gguf")),
              HasSubstr(" has w0.gguf, w1.gguf, w2.gguf, w3.gguf, w4.gguf, ... (9 in all)"));
  EXPECT_THAT(OpenError(dir.path()),
              HasSubstr(dir.path() + ": is a directory, not a file\n  fix: "));
  ASSERT_EQ(mkfifo(dir.File("pipe").c_str(), 0600), 0);
  EXPECT_THAT(OpenError(dir.File("pipe")), HasSubstr("is not a regular file"));
}

TEST(WriteFileTest, ReplacesOrLeavesWhatIsThere) {
  const TempDir dir;
  const std::string path = dir.File("f");
  for (const std::string text : {"first", "second"}) {
    ASSERT_TRUE(WriteFile(path, text).ok());
    EXPECT_EQ(MappedFile::Open(path)->text(), text);
  }
  EXPECT_THAT(*NamesIn(dir.path()), ElementsAre("f"));
  const absl::Status missing = WriteFile(dir.File("none/f"), "x");
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("fix: there is no folder"));
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status full = WriteFile(path, std::string(10000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr(path + ": cannot write: "));
  EXPECT_EQ(MappedFile::Open(path)->text(), "second");
  EXPECT_THAT(*NamesIn(dir.path()), ElementsAre("f"));
}

TEST(PathTest, KindsAndJoins) {
  const TempDir dir;
  EXPECT_EQ(KindOfPath(dir.path()), PathKind::kDirectory);
  EXPECT_EQ(KindOfPath(dir.Write("f", "x")), PathKind::kFile);
  EXPECT_EQ(KindOfPath(dir.File("none")), PathKind::kMissing);
  EXPECT_EQ(KindOfPath("/dev/null"), PathKind::kOther);
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
}

}  // namespace
}  // namespace quire
