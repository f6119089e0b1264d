// Where the libraries of a CUDA toolkit are looked for.
#ifndef QUIRE_CODEGEN_CUDA_TOOLKIT_H_
#define QUIRE_CODEGEN_CUDA_TOOLKIT_H_

#include <string>
#include <vector>

namespace quire {

// In this order: "" for the loader's path, otherwise a folder with a '/'.
std::vector<std::string> CudaToolkitFolders();

// The major versions that are known, the newest first.
inline constexpr const char* kCudaToolkitVersions[] = {"13", "12"};

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_TOOLKIT_H_
