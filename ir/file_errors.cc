#include "ir/file_errors.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/file.h"
#include "ir/status.h"

namespace quire {
namespace {

std::string ErrnoText(int error) { return std::generic_category().message(error); }

// "." for a bare name.
std::string FolderOrHere(absl::string_view path) {
  const std::string folder = FolderOf(path);
  return folder.empty() ? "." : folder;
}

absl::string_view LastName(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

// Some of `names`, those of `wanted`'s suffix if there are any: "a.qplan, b.qplan, ... (7 in all)".
std::string SomeOf(const std::vector<std::string>& names, absl::string_view wanted) {
  const size_t dot = wanted.rfind('.');
  const absl::string_view suffix = dot == wanted.npos ? "" : wanted.substr(dot);
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (absl::EndsWith(name, suffix)) shown.push_back(name);
  }
  if (shown.empty()) shown = names;
  constexpr size_t kShown = 5;
  const size_t all = shown.size();
  if (all <= kShown) return absl::StrJoin(shown, ", ");
  shown.resize(kShown);
  return absl::StrCat(absl::StrJoin(shown, ", "), ", ... (", all, " in all)");
}

// Of a path that is not there, what its folder has; of a folder that is not there, what that one's
// has.
std::string FixOfMissing(absl::string_view path) {
  while (path.size() > 1 && absl::EndsWith(path, "/")) path.remove_suffix(1);
  if (path.empty()) return "a name";
  std::error_code no_link;
  const std::filesystem::path target = std::filesystem::read_symlink(std::string(path), no_link);
  if (!no_link) return absl::StrCat("it is a link to ", target.string(), ", which is not there");
  std::string missing;
  std::string folder = FolderOrHere(path);
  while (KindOfPath(folder) == PathKind::kMissing && FolderOrHere(folder) != folder) {
    missing = folder;
    folder = FolderOrHere(missing);
  }
  const std::string intro =
      missing.empty() ? "" : absl::StrCat("there is no folder ", missing, ": ");
  if (KindOfPath(folder) == PathKind::kFile) {
    return absl::StrCat(intro, folder, " is a file, not a folder");
  }
  const absl::string_view wanted = LastName(missing.empty() ? path : missing);
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(folder);
  if (!names.ok()) return absl::StrCat(intro, "a folder that can be listed");
  const std::string near = Nearest(wanted, *names);
  if (!near.empty()) {
    return absl::StrCat(intro, "did you mean ", folder == "." ? near : JoinPath(folder, near), "?");
  }
  const std::string place = folder == "." ? "this folder" : folder;
  if (names->empty()) return absl::StrCat(intro, place, " is empty");
  return absl::StrCat(intro, place, " has ", SomeOf(*names, wanted));
}

// The first folder on the way to `path` that this user may not enter; "" if none is.
std::string ClosedFolder(absl::string_view path) {
  for (size_t slash = path.find('/', 1); slash != path.npos; slash = path.find('/', slash + 1)) {
    const std::string folder(path.substr(0, slash));
    if (access(folder.c_str(), X_OK) != 0 && errno == EACCES) return folder;
  }
  return "";
}

std::string FixOfDenied(absl::string_view path) {
  const std::string closed = ClosedFolder(path);
  if (!closed.empty()) return absl::StrCat("let this user enter ", closed, ": chmod +x ", closed);
  return KindOfPath(path) == PathKind::kDirectory
             ? absl::StrCat("let this user list and enter it: chmod +rx ", path)
             : absl::StrCat("let this user read it: chmod +r ", path);
}

}  // namespace

absl::Status CannotRead(absl::string_view path, int error) {
  const std::string fix = error == EACCES                      ? FixOfDenied(path)
                          : error == EMFILE || error == ENFILE ? "allow more open files: ulimit -n"
                          : error == ENAMETOOLONG              ? "a shorter name"
                                                               : FixOfMissing(path);
  return WithLine(
      absl::InvalidArgumentError(absl::StrCat(path, ": cannot open: ", ErrnoText(error))), "fix",
      fix);
}

absl::Status CannotWrite(absl::string_view path, absl::string_view action, int error) {
  const std::string message = absl::StrCat(path, ": cannot ", action, ": ", ErrnoText(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return WithLine(absl::ResourceExhaustedError(message), "fix",
                    "make room there, or write elsewhere");
  }
  const absl::Status status = absl::InvalidArgumentError(message);
  if (error == ENOTDIR && KindOfPath(path) == PathKind::kFile) {
    return WithLine(status, "fix", "the name of a folder: that is a file");
  }
  if (error == ENOENT || error == ENOTDIR) return WithLine(status, "fix", FixOfMissing(path));
  if (error == EACCES || error == EPERM || error == EROFS) {
    const std::string closed = ClosedFolder(path);
    return WithLine(
        status, "fix",
        absl::StrCat("let this user write to ", closed.empty() ? FolderOrHere(path) : closed,
                     ", or write elsewhere"));
  }
  return WithLine(status, "fix", "write elsewhere");
}

}  // namespace quire
