#include "codegen/cuda/architecture.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"

namespace quire {
namespace {

struct Architecture {
  const char* name;
  CudaLimits limits;
};

// Shared memory that a block may opt in to (CUDA C++ programming guide, technical specifications
// for each compute capability). sm_90a, not sm_90: the suffix admits wgmma.
constexpr Architecture kArchitectures[] = {
    {"sm_80", {8, 0, 163 * 1024, 108}},    // A100
    {"sm_86", {8, 6, 99 * 1024, 84}},      // A40, A6000
    {"sm_87", {8, 7, 163 * 1024, 16}},     // Orin
    {"sm_89", {8, 9, 99 * 1024, 142}},     // L40
    {"sm_90a", {9, 0, 227 * 1024, 132}},   // H100, H200
    {"sm_100", {10, 0, 227 * 1024, 148}},  // B200
    {"sm_120", {12, 0, 99 * 1024, 170}},   // RTX 5090
};

}  // namespace

std::vector<std::string> CudaArchitectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

absl::StatusOr<CudaLimits> LimitsOfArchitecture(absl::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return architecture.limits;
  }
  return WithLine(absl::InvalidArgumentError(absl::StrCat(
                      "cuda: \"", name, "\" is not an architecture that kernels are built for")),
                  "allowed", absl::StrJoin(CudaArchitectures(), ", "));
}

std::string ArchitectureOf(int major, int minor) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.limits.major == major && architecture.limits.minor == minor) {
      return architecture.name;
    }
  }
  return absl::StrCat("sm_", major, minor);
}

}  // namespace quire
