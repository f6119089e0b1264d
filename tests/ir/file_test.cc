#include "ir/file.h"

#include <sys/stat.h>

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/models/checkpoint_files.h"

namespace quire {
namespace {

using ::quire::testing::TempDir;
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
            dir.File("none") +
                ": cannot open: No such file or directory\n  fix: the name of what "
                "is there");
  dir.Write("notes.txt", "x");
  EXPECT_THAT(OpenError(dir.File("note.txt")),
              HasSubstr("\n  fix: did you mean " + dir.File("notes.txt") + "?"));
  EXPECT_THAT(OpenError(dir.File("none/at/all")), HasSubstr("\n  fix: the name of what is there"));
  EXPECT_THAT(OpenError(dir.path()),
              HasSubstr(dir.path() + ": is a directory, not a file\n  fix: "));
  ASSERT_EQ(mkfifo(dir.File("pipe").c_str(), 0600), 0);
  EXPECT_THAT(OpenError(dir.File("pipe")), HasSubstr("is not a regular file"));
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
