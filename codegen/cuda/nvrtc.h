// NVRTC, opened at run time: CUDA C++ text to a cubin, without a toolkit, a host compiler or a GPU.
//
// Sources include no file: the kernels' headers (codegen/cuda/kernels/*.cuh) are embedded in the
// binary and handed over in memory. NVRTC 12 and 13 are accepted.
//
// Errors:  UNAVAILABLE without the library; INTERNAL when a text does not compile, with NVRTC's
// log. Threads: compilations may run at once.
#ifndef QUIRE_CODEGEN_CUDA_NVRTC_H_
#define QUIRE_CODEGEN_CUDA_NVRTC_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

struct CudaBinary {
  std::string cubin;
  std::string ptx;
  std::string log;  // of ptxas -v: registers, spills, shared memory of each kernel
};

// What ptxas reported of one kernel.
struct KernelResources {
  std::string name;
  int registers = 0;
  int stack_bytes = 0;
  int spill_store_bytes = 0, spill_load_bytes = 0;
  int static_shared_bytes = 0;
};
std::vector<KernelResources> ParseResources(absl::string_view log);

class Nvrtc {
 public:
  // The library of this machine, opened at the first call: libnvrtc.so.13 or .12 from the loader's
  // path, from $CUDA_HOME, or from /usr/local/cuda.
  static absl::StatusOr<const Nvrtc*> Get();

  // "13.0"
  std::string version() const;

  // What every compilation is asked for, beside the architecture.
  static const std::vector<std::string>& Options();
  // What this version may be asked for, too, which changes no binary.
  static std::vector<std::string> VersionOptions(int major, int minor);

  // Compiles `source` for `architecture` ("sm_90a"); `name` is for messages. `headers` are (name,
  // text).
  absl::StatusOr<CudaBinary> Compile(
      const std::string& name, const std::string& source, absl::string_view architecture,
      const std::vector<std::pair<std::string, std::string>>& headers) const;

 private:
  struct Functions;
  static absl::StatusOr<Nvrtc> Open();
  const Functions* functions_ = nullptr;
  int major_ = 0, minor_ = 0;
};

}  // namespace quire

#endif  // QUIRE_CODEGEN_CUDA_NVRTC_H_
