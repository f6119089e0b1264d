// The text of codegen/cuda/kernels/*.cuh, embedded in the binary by the build.
#ifndef QUIRE_CODEGEN_CUDA_SOURCE_H_
#define QUIRE_CODEGEN_CUDA_SOURCE_H_

#include <string>
#include <utility>
#include <vector>

namespace quire {

// (file name, text) of every kernel header, in order of name: what Nvrtc::Compile takes.
const std::vector<std::pair<std::string, std::string>>& CudaKernelHeaders();

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_SOURCE_H_
