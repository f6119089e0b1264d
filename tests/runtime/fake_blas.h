// A cuBLASLt for FakeGpu, on the memory of this process: products of parts of k, added up.
//
// FakeKernels' linears round an exact sum once. So do these, where `rounds_parts` is not set: they
// remember the exact sums behind what they wrote. Products run when they are enqueued.
#ifndef QUIRE_TESTS_RUNTIME_FAKE_BLAS_H_
#define QUIRE_TESTS_RUNTIME_FAKE_BLAS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/dtype.h"
#include "runtime/cuda/blas.h"

namespace quire::testing {

class FakeBlas {
 public:
  FakeBlas() { current_ = this; }
  ~FakeBlas() { current_ = nullptr; }
  FakeBlas(const FakeBlas&) = delete;

  // As LibraryProducts opens it.
  static absl::StatusOr<const CudaBlas*> Open() {
    if (current_ == nullptr) return absl::UnavailableError("no cuBLASLt");
    return &Table();
  }

  bool rounds_parts = false;  // in its second algorithm, too
  int products = 0;           // that were computed
  int living = 0;             // objects that exist
  // Enqueued work of the GPU, which products have to follow.
  std::function<void()> wait = [] {};

 private:
  struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t leading;
  };

  template <typename Handle>
  static CuBlasResult New(Handle* handle) {
    ++current_->living;
    *handle = reinterpret_cast<Handle>(new Layout());
    return 0;
  }
  template <typename Handle>
  static CuBlasResult Delete(Handle handle) {
    --current_->living;
    delete reinterpret_cast<Layout*>(handle);
    return 0;
  }
  static double ElementAt(const Layout& layout, CuDevicePtr at, uint64_t k, uint64_t column) {
    const uint16_t bits =
        reinterpret_cast<const uint16_t*>(at)[static_cast<uint64_t>(layout.leading) * column + k];
    return layout.type == kCuBlasF16 ? F16ToF32(bits) : BF16ToF32(bits);
  }

  CuBlasResult Multiply(const Layout& a, CuDevicePtr a_at, const Layout& b, CuDevicePtr b_at,
                        bool adds, const Layout& d, CuDevicePtr d_at, const CuBlasAlgo& algo) {
    wait();
    ++products;
    std::vector<double>& exact = sums_[d_at];
    if (!adds) exact.assign(d.rows * d.columns, 0);
    auto* sums = reinterpret_cast<float*>(d_at);
    for (uint64_t row = 0; row < d.columns; ++row) {
      for (uint64_t n = 0; n < d.rows; ++n) {
        double sum = 0;
        for (uint64_t k = 0; k < a.rows; ++k) {
          sum += ElementAt(a, a_at, k, n) * ElementAt(b, b_at, k, row);
        }
        const uint64_t at = static_cast<uint64_t>(d.leading) * row + n;
        // The first algorithm is never right.
        const bool rounds = rounds_parts || algo.data[0] == 0;
        exact[at] = rounds ? sums[at] * (adds ? 1 : 0) + static_cast<float>(sum) : exact[at] + sum;
        sums[at] = static_cast<float>(exact[at]);
      }
    }
    return 0;
  }

  static const CudaBlas& Table();

  static inline FakeBlas* current_ = nullptr;
  std::map<CuDevicePtr, std::vector<double>> sums_;  // exact, of each matrix
};

inline const CudaBlas& FakeBlas::Table() {
  static const CudaBlas& table = *new CudaBlas([] {
    CudaBlas blas;
    blas.Create = &New<CuBlasHandle>;
    blas.Destroy = &Delete<CuBlasHandle>;
    blas.MatmulDescCreate = [](CuBlasDesc* desc, int compute, int scale) -> CuBlasResult {
      return compute == kCuBlasCompute32F && scale == kCuBlasF32 ? New(desc) : 1;
    };
    blas.MatmulDescDestroy = &Delete<CuBlasDesc>;
    blas.MatmulDescSetAttribute = [](CuBlasDesc, int attribute, const void* value,
                                     size_t bytes) -> CuBlasResult {
      return attribute == kCuBlasDescTransA && bytes == 4 &&
                     *static_cast<const int32_t*>(value) == kCuBlasTransposed
                 ? 0
                 : 1;
    };
    blas.MatrixLayoutCreate = [](CuBlasLayout* layout, int type, uint64_t rows, uint64_t columns,
                                 int64_t leading) -> CuBlasResult {
      New(layout);
      *reinterpret_cast<Layout*>(*layout) = {type, rows, columns, leading};
      return 0;
    };
    blas.MatrixLayoutDestroy = &Delete<CuBlasLayout>;
    blas.PreferenceCreate = &New<CuBlasPreference>;
    blas.PreferenceDestroy = &Delete<CuBlasPreference>;
    blas.PreferenceSetAttribute = [](CuBlasPreference, int, const void*, size_t) -> CuBlasResult {
      return 0;
    };
    blas.AlgoGetHeuristic = [](CuBlasHandle, CuBlasDesc, CuBlasLayout, CuBlasLayout, CuBlasLayout,
                               CuBlasLayout, CuBlasPreference, int most, CuBlasHeuristic* found,
                               int* count) -> CuBlasResult {
      *count = 2;
      if (most < 2) return 1;
      for (int i = 0; i < *count; ++i) found[i] = {{{static_cast<uint64_t>(i)}}, 0, 0, 1, {}};
      return 0;
    };
    blas.Matmul = [](CuBlasHandle, CuBlasDesc, const void*, CuDevicePtr a, CuBlasLayout a_layout,
                     CuDevicePtr b, CuBlasLayout b_layout, const void* beta, CuDevicePtr c,
                     CuBlasLayout, CuDevicePtr d, CuBlasLayout d_layout, const CuBlasAlgo* algo,
                     void*, size_t, CuStream) -> CuBlasResult {
      if (c != d) return 1;
      return current_->Multiply(
          *reinterpret_cast<Layout*>(a_layout), a, *reinterpret_cast<Layout*>(b_layout), b,
          *static_cast<const float*>(beta) != 0, *reinterpret_cast<Layout*>(d_layout), d, *algo);
    };
    return blas;
  }());
  return table;
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RUNTIME_FAKE_BLAS_H_
