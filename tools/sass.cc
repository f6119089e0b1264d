#include "tools/sass.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ir/status.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::string FindTool(absl::string_view name) {
  std::vector<std::string> folders;
  if (const char* path = std::getenv("PATH")) folders = absl::StrSplit(path, ':');
  if (const char* home = std::getenv("CUDA_HOME")) folders.push_back(absl::StrCat(home, "/bin"));
  folders.push_back("/usr/local/cuda/bin");
  for (const std::string& folder : folders) {
    const std::string tool = absl::StrCat(folder, "/", name);
    if (access(tool.c_str(), X_OK) == 0) return tool;
  }
  return "";
}

absl::Status Failed(absl::string_view what) {
  return absl::InternalError(absl::StrCat("sass: ", what, ": ", std::strerror(errno)));
}

// What a program prints on stdout.
absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Failed("pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char chunk[1 << 16];
  ssize_t count = 0;
  while (error == 0 &&
         ((count = read(ends[0], chunk, sizeof(chunk))) > 0 || (count < 0 && errno == EINTR))) {
    if (count > 0) output.append(chunk, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  if (error == 0 && waitpid(child, &status, 0) == child && status == 0) return output;
  return absl::InternalError(absl::StrCat("sass: ", command[0], " failed"));
}

}  // namespace

absl::StatusOr<std::string> Disassemble(absl::string_view cubin) {
  std::vector<std::string> command = {FindTool("nvdisasm"), "-c"};
  if (command[0].empty()) command = {FindTool("cuobjdump"), "-sass"};
  if (command[0].empty()) {
    return WithLine(absl::UnavailableError("sass: neither nvdisasm nor cuobjdump is here"), "fix",
                    "put them on PATH or set CUDA_HOME (they come with CUDA's toolkit); or "
                    "--emit=ptx, which needs NVRTC alone");
  }
  std::error_code ignored;
  std::string file = (fs::temp_directory_path(ignored) / "quire_XXXXXX").string();
  const int fd = mkstemp(file.data());
  if (fd < 0) return Failed(absl::StrCat("cannot create ", file));
  const bool is_written =
      write(fd, cubin.data(), cubin.size()) == static_cast<ssize_t>(cubin.size());
  close(fd);
  command.push_back(file);
  absl::StatusOr<std::string> text =
      is_written ? OutputOf(command) : Failed(absl::StrCat("cannot write ", file));
  unlink(file.c_str());
  return text;
}

}  // namespace quire
