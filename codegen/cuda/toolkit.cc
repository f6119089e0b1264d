#include "codegen/cuda/toolkit.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace quire {

std::vector<std::string> CudaToolkitFolders() {
  const char* home = std::getenv("CUDA_HOME");
  std::vector<std::string> folders = {"", "/usr/local/cuda/lib64/"};
  if (home != nullptr) folders.insert(folders.begin() + 1, absl::StrCat(home, "/lib64/"));
  return folders;
}

}  // namespace quire
