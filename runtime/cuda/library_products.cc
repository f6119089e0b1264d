#include "runtime/cuda/library_products.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/philox.h"

namespace quire {
namespace {

constexpr int kMostAlgorithms = 8;
constexpr int64_t kPatternRows = 256;

int TypeOf(DType element) { return element == DType::kF16 ? kCuBlasF16 : kCuBlasBF16; }

// Values in (-2, 2) with magnitudes down to 2^-7 of that, so that orders of sums show.
std::vector<uint16_t> RandomElements(DType element, int64_t count, uint32_t seed) {
  std::vector<uint16_t> elements(static_cast<size_t>(count));
  for (size_t i = 0; i < elements.size(); ++i) {
    const PhiloxBlock block =
        Philox4x32({seed, 0}, {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0});
    const float unit = static_cast<float>(static_cast<int32_t>(block[0])) * 0x1p-31f;
    const float value = 2 * unit / static_cast<float>(1 << (block[1] & 7));
    elements[i] = element == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
  }
  return elements;
}

// Random rows, repeated.
absl::StatusOr<CudaMemory> RandomMatrix(const CudaContext& context, DType element, int64_t rows,
                                        int64_t k, uint32_t seed) {
  const int64_t bytes = rows * k * 2;
  QUIRE_ASSIGN_OR_RETURN(CudaMemory memory,
                         CudaMemory::Allocate(context, bytes, "the check of a product"));
  const std::vector<uint16_t> pattern =
      RandomElements(element, std::min(rows, kPatternRows) * k, seed);
  auto done = static_cast<int64_t>(pattern.size() * sizeof(uint16_t));
  QUIRE_RETURN_IF_ERROR(
      context.Check(context.driver().MemcpyHtoDAsync(memory.at(), pattern.data(),
                                                     static_cast<size_t>(done), context.stream()),
                    "copying operands of a check"));
  // `pattern` is free again.
  QUIRE_RETURN_IF_ERROR(context.Synchronize());
  while (done < bytes) {
    const int64_t more = std::min(done, bytes - done);
    QUIRE_RETURN_IF_ERROR(context.Check(
        context.driver().MemcpyDtoDAsync(memory.at() + static_cast<uint64_t>(done), memory.at(),
                                         static_cast<size_t>(more), context.stream()),
        "copying operands of a check"));
    done += more;
  }
  return memory;
}

absl::Status Fetch(const CudaContext& context, const CudaMemory& from, std::vector<float>* to) {
  QUIRE_RETURN_IF_ERROR(
      context.Check(context.driver().MemcpyDtoHAsync(to->data(), from.at(),
                                                     to->size() * sizeof(float), context.stream()),
                    "copying sums of a check"));
  return context.Synchronize();
}

absl::Status Refused(CuBlasResult result) {
  return result == 0 ? absl::OkStatus() : absl::UnavailableError("cuda: cuBLASLt refuses");
}

}  // namespace

LibraryProducts::~LibraryProducts() {
  if (blas_ == nullptr || !context_.MakeCurrent().ok()) return;
  for (const auto& [key, plan] : plans_) {
    for (const Part& part : plan.parts) {
      if (part.weight != nullptr) blas_->MatrixLayoutDestroy(part.weight);
      if (part.x != nullptr) blas_->MatrixLayoutDestroy(part.x);
    }
    if (plan.sums != nullptr) blas_->MatrixLayoutDestroy(plan.sums);
  }
  if (preference_ != nullptr) blas_->PreferenceDestroy(preference_);
  if (desc_ != nullptr) blas_->MatmulDescDestroy(desc_);
  if (handle_ != nullptr) blas_->Destroy(handle_);
}

absl::Status LibraryProducts::Open() {
  QUIRE_ASSIGN_OR_RETURN(blas_, open_());
  QUIRE_RETURN_IF_ERROR(Refused(blas_->Create(&handle_)));
  QUIRE_RETURN_IF_ERROR(Refused(blas_->MatmulDescCreate(&desc_, kCuBlasCompute32F, kCuBlasF32)));
  QUIRE_RETURN_IF_ERROR(Refused(blas_->MatmulDescSetAttribute(
      desc_, kCuBlasDescTransA, &kCuBlasTransposed, sizeof kCuBlasTransposed)));
  QUIRE_RETURN_IF_ERROR(Refused(blas_->PreferenceCreate(&preference_)));
  const uint64_t workspace = 0;
  const uint32_t unsplit = 0;  // CUBLASLT_REDUCTION_SCHEME_NONE
  QUIRE_RETURN_IF_ERROR(Refused(blas_->PreferenceSetAttribute(preference_, kCuBlasMaxWorkspaceBytes,
                                                              &workspace, sizeof workspace)));
  return Refused(blas_->PreferenceSetAttribute(preference_, kCuBlasReductionSchemeMask, &unsplit,
                                               sizeof unsplit));
}

// The library's matrices have columns one after another: sums^T[n, rows] = (weight^T)^T x^T.
absl::Status LibraryProducts::MakePlan(const CudaProduct& product, Plan* plan) const {
  const int type = TypeOf(product.element);
  const auto n = static_cast<uint64_t>(product.n), rows = static_cast<uint64_t>(product.rows);
  QUIRE_RETURN_IF_ERROR(
      Refused(blas_->MatrixLayoutCreate(&plan->sums, kCuBlasF32, n, rows, product.n)));
  for (size_t i = 0; i + 1 < product.parts.size(); ++i) {
    Part& part = plan->parts.emplace_back();
    part.begin = product.parts[i];
    const auto length = static_cast<uint64_t>(product.parts[i + 1] - part.begin);
    QUIRE_RETURN_IF_ERROR(
        Refused(blas_->MatrixLayoutCreate(&part.weight, type, length, n, product.k)));
    QUIRE_RETURN_IF_ERROR(
        Refused(blas_->MatrixLayoutCreate(&part.x, type, length, rows, product.k)));
    part.algorithms.resize(kMostAlgorithms);
    int found = 0;
    QUIRE_RETURN_IF_ERROR(Refused(
        blas_->AlgoGetHeuristic(handle_, desc_, part.weight, part.x, plan->sums, plan->sums,
                                preference_, kMostAlgorithms, part.algorithms.data(), &found)));
    part.algorithms.resize(static_cast<size_t>(found));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LibraryProducts::Agrees(const CudaProduct& product, OwnBody own) {
  const auto [found, is_new] = plans_.try_emplace(KeyOf(product));
  Plan& plan = found->second;
  if (!is_new) return plan.agrees;
  QUIRE_RETURN_IF_ERROR(context_.MakeCurrent());
  if (!was_opened_) {
    was_opened_ = true;
    opened_ = Open();
  }
  if (!opened_.ok() || !MakePlan(product, &plan).ok()) return false;
  const absl::Status checked = Check(product, own, &plan);
  if (!checked.ok() && !absl::IsResourceExhausted(checked)) return checked;
  return plan.agrees;
}

absl::Status LibraryProducts::Check(const CudaProduct& product, OwnBody own, Plan* plan) const {
  QUIRE_ASSIGN_OR_RETURN(const CudaMemory x,
                         RandomMatrix(context_, product.element, product.rows, product.k, 1));
  QUIRE_ASSIGN_OR_RETURN(const CudaMemory weight,
                         RandomMatrix(context_, product.element, product.n, product.k, 2));
  QUIRE_ASSIGN_OR_RETURN(
      const CudaMemory sums,
      CudaMemory::Allocate(context_, product.rows * product.n * 4, "the check of a product"));
  std::vector<float> expected(static_cast<size_t>(product.rows * product.n));
  QUIRE_RETURN_IF_ERROR(own(x.at(), weight.at(), sums.at()));
  QUIRE_RETURN_IF_ERROR(Fetch(context_, sums, &expected));
  std::vector<float> found(expected.size());
  for (plan->algorithm = 0; plan->algorithm < kMostAlgorithms; ++plan->algorithm) {
    for (const Part& part : plan->parts) {
      if (plan->algorithm >= part.algorithms.size()) return absl::OkStatus();
    }
    if (!Multiply(product, *plan, x.at(), weight.at(), sums.at()).ok()) continue;
    QUIRE_RETURN_IF_ERROR(Fetch(context_, sums, &found));
    plan->agrees = std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0;
    if (plan->agrees) return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status LibraryProducts::Multiply(const CudaProduct& product, const Plan& plan, CuDevicePtr x,
                                       CuDevicePtr weight, CuDevicePtr sums) const {
  const float one = 1, zero = 0;
  for (const Part& part : plan.parts) {
    const uint64_t begin = static_cast<uint64_t>(part.begin) * 2;
    const float* added = part.begin == 0 ? &zero : &one;
    const CuBlasResult result =
        blas_->Matmul(handle_, desc_, &one, weight + begin, part.weight, x + begin, part.x, added,
                      sums, plan.sums, sums, plan.sums, &part.algorithms[plan.algorithm].algo,
                      nullptr, 0, context_.stream());
    if (result != 0) {
      return absl::InternalError(absl::StrCat("cuda: cuBLASLt, ", product.rows, " x ", product.n,
                                              " x ", product.k, ": status ", result));
    }
  }
  return absl::OkStatus();
}

absl::Status LibraryProducts::Enqueue(const CudaProduct& product, CuDevicePtr x, CuDevicePtr weight,
                                      CuDevicePtr sums) const {
  return Multiply(product, plans_.at(KeyOf(product)), x, weight, sums);
}

}  // namespace quire
