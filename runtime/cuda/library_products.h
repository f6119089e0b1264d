// Products of cuBLASLt in place of a linear's own body for many rows, where they have its bits.
//
// A row's bits may not depend on the rows that travel with it, and few rows are never the
// library's. So an algorithm is used only if, over random operands of the product's own shape,
// every sum equals what the kernel's own body makes of them. Architectures, versions of the library
// and its choices need not be known for that.
//
// Errors:  none where there is no library, no memory for the check, or no algorithm that agrees:
//          the own body stays.
// Threads: as of the context.
#ifndef QUIRE_RUNTIME_CUDA_LIBRARY_PRODUCTS_H_
#define QUIRE_RUNTIME_CUDA_LIBRARY_PRODUCTS_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codegen/cuda/kernel.h"
#include "runtime/cuda/blas.h"
#include "runtime/cuda/context.h"

namespace quire {

class LibraryProducts {
 public:
  // `open` is called at the first question. The context must outlive this.
  using Opener = absl::StatusOr<const CudaBlas*> (*)();
  LibraryProducts(const CudaContext& context, Opener open) : context_(context), open_(open) {}
  ~LibraryProducts();
  LibraryProducts(const LibraryProducts&) = delete;

  // Computes the sums at the third pointer of x and the weight at the first two by the kernel's own
  // body: enqueues CudaLibraryCheck::launch.
  using OwnBody =
      absl::FunctionRef<absl::Status(CuDevicePtr x, CuDevicePtr weight, CuDevicePtr sums)>;
  // Whether some algorithm has the own body's bits; found out once for each shape.
  absl::StatusOr<bool> Agrees(const CudaProduct& product, OwnBody own);

  // REQUIRES: Agrees on a product of this shape.
  absl::Status Enqueue(const CudaProduct& product, CuDevicePtr x, CuDevicePtr weight,
                       CuDevicePtr sums) const;

 private:
  // The product of one part of k.
  struct Part {
    int64_t begin = 0;
    CuBlasLayout weight = nullptr, x = nullptr;
    std::vector<CuBlasHeuristic> algorithms;
  };
  struct Plan {
    CuBlasLayout sums = nullptr;
    std::vector<Part> parts;
    size_t algorithm = 0;  // of those of each part
    bool agrees = false;
  };
  using Key = std::tuple<DType, int64_t, int64_t, int64_t, std::vector<int64_t>>;
  static Key KeyOf(const CudaProduct& product) {
    return {product.element, product.rows, product.n, product.k, product.parts};
  }

  absl::Status Open();
  absl::Status MakePlan(const CudaProduct& product, Plan* plan) const;
  absl::Status Check(const CudaProduct& product, OwnBody own, Plan* plan) const;
  absl::Status Multiply(const CudaProduct& product, const Plan& plan, CuDevicePtr x,
                        CuDevicePtr weight, CuDevicePtr sums) const;

  const CudaContext& context_;
  const Opener open_;
  bool was_opened_ = false;
  absl::Status opened_;
  const CudaBlas* blas_ = nullptr;
  CuBlasHandle handle_ = nullptr;
  CuBlasDesc desc_ = nullptr;
  CuBlasPreference preference_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_LIBRARY_PRODUCTS_H_
