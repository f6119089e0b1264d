// What kernels for sm_90a use beside prelude.cuh: barriers in shared memory that count bytes,
// copies of boxes of a tensor, and products of a warpgroup.
#ifndef QUIRE_HOPPER_CUH_
#define QUIRE_HOPPER_CUH_

#include "prelude.cuh"

constexpr int kWarpgroupThreads = 128;

// ---- barriers: 8 bytes of shared memory each. A phase ends when all arrivals and all expected
// bytes have come.

DEVICE void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes the barriers of this thread known to copies and, after SyncBlock, to the block.
DEVICE void FenceBarriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and has the phase wait for `bytes` more.
DEVICE void ArriveExpecting(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Waits for the end of the phase of parity `parity`; phases are numbered from 0.
DEVICE void WaitForPhase(uint32_t barrier, int parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}
// Whether it has ended.
DEVICE bool PhaseHasEnded(uint32_t barrier, int parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// ---- tensor copies

// A tensor in device memory and the box that one copy takes, as the driver encodes them: a
// __grid_constant__ parameter of the kernel.
struct alignas(64) TensorMap {
  uint64_t words[16];
};
DEVICE void PrefetchMap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// The box of a matrix that begins at `column`, `row`; what lies outside the matrix is zeros, and
// counts among the bytes. kOnce: nobody reads it again soon, so that L2 need not keep it.
template <bool kOnce = false>
DEVICE void CopyBox(uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier) {
  if constexpr (kOnce) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(column), "r"(row), "r"(barrier), "l"(kEvictFirst)
        : "memory");
    return;
  }
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// A box of some rows of each of some blocks of rows, of a map that has such (`block_rows`): from
// `row` of block `block` on.
DEVICE void CopyBlocks(uint32_t to, const TensorMap& map, int column, int row, int block,
                       uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(block), "r"(barrier)
      : "memory");
}

// A box of whole rows from `row` on, a multiple of 8, of a map that is `grouped`: groups of eight
// rows, each in panels of 64 columns, each [8][128 bytes], swizzled. Rows before the matrix are
// zeros.
DEVICE void CopyRowGroups(uint32_t to, const TensorMap& map, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %2, %2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(0), "r"(row / 8), "r"(barrier)
      : "memory");
}
// The box of a map that is `paired`, from `row` on, a multiple of 16: eight rows of the first half
// of the matrix, the same eight of the second, and so on, as CopyBox() lays rows.
template <bool kOnce = false>
DEVICE void CopyRowPairs(uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier) {
  if constexpr (kOnce) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(&map), "r"(column), "r"(0), "r"(row / 16), "r"(barrier), "l"(kEvictFirst)
        : "memory");
    return;
  }
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(column), "r"(0), "r"(row / 16), "r"(barrier)
      : "memory");
}
// What this thread wrote to shared memory before is there for copies and products that begin
// after the barrier behind this.
DEVICE void FenceShared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- warpgroup products. All 128 threads take part; they run until waited for.

// An operand in shared memory. + moves it by units of 16 bytes.
struct Operand {
  uint32_t low, high;

  DEVICE Operand operator+(int units) const { return {low + static_cast<uint32_t>(units), high}; }
  DEVICE uint64_t word() const {
    uint64_t both;
    asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "r"(low), "r"(high));
    return both;
  }
};
// Of rows of 128 bytes, chunks of 16 swizzled (the chunk's number xor the row's), `address` a
// multiple of 1024; every eight rows begin group_bytes after those before.
//   Rows are its rows, k are contiguous: 16 k further: + 2.
//   Or rows are k (of a transposed operand), with columns in panels of 64, panel_bytes apart: 16 k
//   further: + 2 group_bytes / 16.
DEVICE Operand OperandAt(uint32_t address, int group_bytes = 1024, int panel_bytes = 16) {
  return {(address & 0x3ffff) >> 4 | static_cast<uint32_t>(panel_bytes / 16) << 16,
          static_cast<uint32_t>(group_bytes / 16) | 1u << 30};
}
DEVICE void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void CommitProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `kPending` newest groups are running.
template <int kPending>
DEVICE void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// After the wait: no element is read before it.
template <int kCount>
DEVICE void HoldProducts(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kTiles>
DEVICE void HoldProducts(float (&d)[kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) HoldProducts(d[i]);
}

// Before BeginProducts(): elements that products read are in their registers.
template <int kCount>
DEVICE void HoldElements(uint32_t (&a)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < 4 * kCount; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// d (+)= a . b^T for 64 x kColumns and 16 k, or a . b if kTransposed is 1: rows of b in memory are
// k. Thread 4g + t of warp w holds rows 16w + g and + 8, of each 8 columns 2t and 2t + 1, as Mma
// does.
template <typename T, int kColumns, int kTransposed = 0>
struct WarpgroupProduct;

#define QUIRE_NUMBERS_4 "%0, %1, %2, %3"
#define QUIRE_NUMBERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define QUIRE_NUMBERS_16 QUIRE_NUMBERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define QUIRE_NUMBERS_32 \
  QUIRE_NUMBERS_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QUIRE_NUMBERS_48                                                                    \
  QUIRE_NUMBERS_32                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define QUIRE_NUMBERS_64                                                                    \
  QUIRE_NUMBERS_32                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QUIRE_NUMBERS_96                                                                         \
  QUIRE_NUMBERS_64                                                                               \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define QUIRE_NUMBERS_112                                                                        \
  QUIRE_NUMBERS_96                                                                               \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "     \
  "%111"
#define QUIRE_NUMBERS_128                                                                        \
  QUIRE_NUMBERS_112                                                                              \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "       \
  "%126, %127"
#define QUIRE_SUMS_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define QUIRE_SUMS_FROM(i) \
  QUIRE_SUMS_FOUR(i), QUIRE_SUMS_FOUR(i + 4), QUIRE_SUMS_FOUR(i + 8), QUIRE_SUMS_FOUR(i + 12)
#define QUIRE_SUMS_4 QUIRE_SUMS_FOUR(0)
#define QUIRE_SUMS_8 QUIRE_SUMS_4, QUIRE_SUMS_FOUR(4)
#define QUIRE_SUMS_16 QUIRE_SUMS_FROM(0)
#define QUIRE_SUMS_32 QUIRE_SUMS_16, QUIRE_SUMS_FROM(16)
#define QUIRE_SUMS_48 QUIRE_SUMS_32, QUIRE_SUMS_FROM(32)
#define QUIRE_SUMS_64 QUIRE_SUMS_32, QUIRE_SUMS_FROM(32), QUIRE_SUMS_FROM(48)
#define QUIRE_SUMS_96 QUIRE_SUMS_64, QUIRE_SUMS_FROM(64), QUIRE_SUMS_FROM(80)
#define QUIRE_SUMS_112 QUIRE_SUMS_96, QUIRE_SUMS_FROM(96)
#define QUIRE_SUMS_128 QUIRE_SUMS_112, QUIRE_SUMS_FROM(112)

// `a` is the text of the first operand, and `flags` of what follows the scales; the numbers are
// those of the operands after the sums.
#define QUIRE_WARPGROUP_TEXT(type, columns, count, a, b_number, c_number, flags)            \
  "{\n"                                                                                     \
  ".reg .pred p;\n"                                                                         \
  "setp.ne.b32 p, %" c_number ", 0;\n"                                                      \
  "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type                     \
  " {" QUIRE_NUMBERS_##count "}, " a ", %" b_number ", p, 1, 1, " flags ";\n"               \
  "}"
#define QUIRE_WARPGROUP_PRODUCT(element, type, columns, transposed, count, a_number, b_number, \
                                c_number)                                                      \
  template <>                                                                                  \
  struct WarpgroupProduct<element, columns, transposed> {                                      \
    static DEVICE void Run(float* d, Operand a, Operand b, bool accumulate) {                  \
      asm volatile(QUIRE_WARPGROUP_TEXT(type, columns, count, "%" a_number, b_number, c_number, \
                                        "0, " #transposed)                                     \
                   : QUIRE_SUMS_##count                                                        \
                   : "l"(a.word()), "l"(b.word()), "r"(static_cast<int>(accumulate)));         \
    }                                                                                          \
  };
#define QUIRE_WARPGROUP_PRODUCTS(...)                \
  QUIRE_WARPGROUP_PRODUCT(Bf16, "bf16", __VA_ARGS__) \
  QUIRE_WARPGROUP_PRODUCT(F16, "f16", __VA_ARGS__)
QUIRE_WARPGROUP_PRODUCTS(16, 0, 8, "8", "9", "10")
QUIRE_WARPGROUP_PRODUCTS(32, 0, 16, "16", "17", "18")
QUIRE_WARPGROUP_PRODUCTS(64, 0, 32, "32", "33", "34")
QUIRE_WARPGROUP_PRODUCTS(96, 0, 48, "48", "49", "50")
QUIRE_WARPGROUP_PRODUCTS(128, 0, 64, "64", "65", "66")
QUIRE_WARPGROUP_PRODUCTS(192, 0, 96, "96", "97", "98")
QUIRE_WARPGROUP_PRODUCTS(224, 0, 112, "112", "113", "114")
QUIRE_WARPGROUP_PRODUCTS(256, 0, 128, "128", "129", "130")
QUIRE_WARPGROUP_PRODUCTS(8, 1, 4, "4", "5", "6")
QUIRE_WARPGROUP_PRODUCTS(32, 1, 16, "16", "17", "18")
QUIRE_WARPGROUP_PRODUCTS(64, 1, 32, "32", "33", "34")
QUIRE_WARPGROUP_PRODUCTS(128, 1, 64, "64", "65", "66")

// Two numbers of f8e4m3, side by side as elements are: 16 pairs are 32 k of one product, whose sum
// the tensor core keeps to fewer bits than that of 16-bit elements.
struct E4m3Pair {
  uint16_t bits;
};
#define QUIRE_WARPGROUP_E4M3(columns, count, a_number, b_number, c_number)              \
  template <>                                                                           \
  struct WarpgroupProduct<E4m3Pair, columns, 0> {                                       \
    static DEVICE void Run(float* d, Operand a, Operand b, bool accumulate) {           \
      asm volatile(                                                                     \
          "{\n"                                                                         \
          ".reg .pred p;\n"                                                             \
          "setp.ne.b32 p, %" c_number ", 0;\n"                                          \
          "wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32.e4m3.e4m3"              \
          " {" QUIRE_NUMBERS_##count "}, %" a_number ", %" b_number ", p, 1, 1;\n"      \
          "}"                                                                           \
          : QUIRE_SUMS_##count                                                          \
          : "l"(a.word()), "l"(b.word()), "r"(static_cast<int>(accumulate)));           \
    }                                                                                   \
  };
QUIRE_WARPGROUP_E4M3(16, 8, "8", "9", "10")
QUIRE_WARPGROUP_E4M3(32, 16, "16", "17", "18")
QUIRE_WARPGROUP_E4M3(64, 32, "32", "33", "34")
QUIRE_WARPGROUP_E4M3(128, 64, "64", "65", "66")
QUIRE_WARPGROUP_E4M3(192, 96, "96", "97", "98")

// d (+)= a . b with `a` in registers, as Mma takes it, which may not change before the product is
// waited for. Rows of b in memory are k if kTransposed is 1, and its columns if it is 0.
template <typename T, int kColumns, int kTransposed>
struct WarpgroupRowProduct;
#define QUIRE_WARPGROUP_ROW_PRODUCT(element, type, columns, transposed, count, a0, a1, a2, a3, \
                                    b_number, c_number)                                        \
  template <>                                                                                  \
  struct WarpgroupRowProduct<element, columns, transposed> {                                   \
    static DEVICE void Run(float* d, const uint32_t (&a)[4], Operand b, bool accumulate) {     \
      asm volatile(QUIRE_WARPGROUP_TEXT(type, columns, count,                                  \
                                        "{%" a0 ", %" a1 ", %" a2 ", %" a3 "}", b_number,      \
                                        c_number, #transposed)                                 \
                   : QUIRE_SUMS_##count                                                        \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.word()),                \
                     "r"(static_cast<int>(accumulate)));                                       \
    }                                                                                          \
  };
#define QUIRE_WARPGROUP_ROW_PRODUCTS(...)                \
  QUIRE_WARPGROUP_ROW_PRODUCT(Bf16, "bf16", __VA_ARGS__) \
  QUIRE_WARPGROUP_ROW_PRODUCT(F16, "f16", __VA_ARGS__)
QUIRE_WARPGROUP_ROW_PRODUCTS(8, 1, 4, "4", "5", "6", "7", "8", "9")
QUIRE_WARPGROUP_ROW_PRODUCTS(16, 1, 8, "8", "9", "10", "11", "12", "13")
QUIRE_WARPGROUP_ROW_PRODUCTS(32, 1, 16, "16", "17", "18", "19", "20", "21")
QUIRE_WARPGROUP_ROW_PRODUCTS(64, 1, 32, "32", "33", "34", "35", "36", "37")
QUIRE_WARPGROUP_ROW_PRODUCTS(64, 0, 32, "32", "33", "34", "35", "36", "37")
QUIRE_WARPGROUP_ROW_PRODUCTS(128, 0, 64, "64", "65", "66", "67", "68", "69")
QUIRE_WARPGROUP_ROW_PRODUCTS(128, 1, 64, "64", "65", "66", "67", "68", "69")

// Registers of each thread of this warpgroup from here on; the block's must not exceed its
// launch's.
template <int kCount>
DEVICE void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
DEVICE void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

#endif  // QUIRE_HOPPER_CUH_
