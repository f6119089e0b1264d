#include "codegen/cuda/architecture.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"

namespace quire {
namespace {

struct Architecture {
  const char* name;
  int major, minor;
  int shared_bytes;
  std::vector<int> multiprocessors;  // of its devices, the most usual one first
};

// Shared memory that a block may opt in to (CUDA C++ programming guide, technical specifications
// for each compute capability). sm_90a, not sm_90: the suffix admits wgmma.
const std::vector<Architecture>& Architectures() {
  static const auto& architectures = *new std::vector<Architecture>{
      {"sm_80", 8, 0, 163 * 1024, {108, 56}},          // A100, A30
      {"sm_86", 8, 6, 99 * 1024, {84, 72, 82, 68}},    // A40 and RTX A6000, A10, RTX 3090, 3080
      {"sm_87", 8, 7, 163 * 1024, {16, 8}},            // Orin
      {"sm_89", 8, 9, 99 * 1024, {142, 58, 128, 76}},  // L40, L4, RTX 4090, 4080
      {"sm_90a", 9, 0, 227 * 1024, {132, 114, 78}},    // H100 and H200, H100 PCIe, H20
      {"sm_100", 10, 0, 227 * 1024, {148}},            // B200
      {"sm_120", 12, 0, 99 * 1024, {170, 188, 84}},    // RTX 5090, RTX PRO 6000, RTX 5080
  };
  return architectures;
}

}  // namespace

std::vector<std::string> CudaArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : Architectures()) names.push_back(architecture.name);
  return names;
}

absl::StatusOr<std::vector<CudaLimits>> DevicesOfArchitecture(absl::string_view name) {
  for (const Architecture& architecture : Architectures()) {
    if (name != architecture.name) continue;
    std::vector<CudaLimits> devices;
    for (const int multiprocessors : architecture.multiprocessors) {
      devices.push_back(
          {architecture.major, architecture.minor, architecture.shared_bytes, multiprocessors});
    }
    return devices;
  }
  return WithLine(absl::InvalidArgumentError(absl::StrCat(
                      "cuda: \"", name, "\" is not an architecture that kernels are built for")),
                  "allowed", absl::StrJoin(CudaArchitectures(), ", "));
}

absl::StatusOr<CudaLimits> LimitsOfArchitecture(absl::string_view name) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<CudaLimits> devices, DevicesOfArchitecture(name));
  return devices[0];
}

std::string ArchitectureOf(int major, int minor) {
  for (const Architecture& architecture : Architectures()) {
    if (architecture.major == major && architecture.minor == minor) return architecture.name;
  }
  return absl::StrCat("sm_", major, minor);
}

}  // namespace quire
