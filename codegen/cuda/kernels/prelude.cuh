// What every kernel starts with: element types, and one function for each PTX instruction used.
//
// No toolkit header is included, so that a compilation stays short and the text is all there is.
// Arithmetic is written as PTX where its bits matter: the compiler's options (flush to zero, fused
// multiply-add) do not reach it.
//
// Architectures: sm_80 and later. Dependent launch exists from sm_90 and is nothing before it.
#ifndef QUIRE_PRELUDE_CUH_
#define QUIRE_PRELUDE_CUH_

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long;
using uint64_t = unsigned long;

#define DEVICE __device__ __forceinline__

constexpr int kWarpThreads = 32;

// ---- bits and f32 arithmetic, each rounded to nearest even, subnormals kept

DEVICE float FromBits(uint32_t bits) { return __uint_as_float(bits); }
DEVICE uint32_t Bits(float x) { return __float_as_uint(x); }

DEVICE float Add(float a, float b) {
  float sum;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
  return sum;
}
DEVICE float Mul(float a, float b) {
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
}
DEVICE float Fma(float a, float b, float c) {
  float sum;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}
// 2^x within 2 ulp; exact for an integer x that gives a normal number.
DEVICE float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
DEVICE float Divide(float a, float b) {
  float quotient;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}
DEVICE float Reciprocal(float x) {
  float inverse;
  asm("rcp.rn.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}
// Within 1 ulp, and subnormal numbers are zeros.
DEVICE float NearReciprocal(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}
DEVICE float SquareRoot(float x) {
  float root;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}
// To the nearest integer, ties to even.
DEVICE float Round(float x) {
  float integer;
  asm("cvt.rni.f32.f32 %0, %1;" : "=f"(integer) : "f"(x));
  return integer;
}

// ---- f64, for angles

DEVICE double Mul(double a, double b) {
  double product;
  asm("mul.rn.f64 %0, %1, %2;" : "=d"(product) : "d"(a), "d"(b));
  return product;
}
DEVICE double Fma(double a, double b, double c) {
  double sum;
  asm("fma.rn.f64 %0, %1, %2, %3;" : "=d"(sum) : "d"(a), "d"(b), "d"(c));
  return sum;
}
DEVICE double Round(double x) {
  double integer;
  asm("cvt.rni.f64.f64 %0, %1;" : "=d"(integer) : "d"(x));
  return integer;
}

// The larger; of a number and NaN the number.
DEVICE float Max(float a, float b) {
  float larger;
  asm("max.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
// The least integer that is not below.
DEVICE float Ceiling(float x) {
  float integer;
  asm("cvt.rpi.f32.f32 %0, %1;" : "=f"(integer) : "f"(x));
  return integer;
}
// 2^x for an integer x below 128, exact; 0 below the normal numbers.
DEVICE float PowerOfTwo(float x) {
  // 2^23 + 2^22 + x + 127: its low bits are the exponent, those above are shifted out.
  return FromBits(Bits(Add(Max(x, -127.0f), 12583039.0f)) << 23);
}

// (a & mask) | bits in one instruction, which the compiler does not make of two constants.
DEVICE uint32_t AndOr(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t word;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(word) : "r"(a), "r"(mask), "r"(bits));
  return word;
}
// Byte i of the result is the one that digit i of `selector` numbers, of a's (0 to 3) and b's.
DEVICE uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

// ---- 16-bit elements. A struct each, so that one is never taken for the other.

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
using F32 = float;

DEVICE float ToFloat(F32 x) { return x; }
DEVICE float ToFloat(Bf16 x) { return FromBits(static_cast<uint32_t>(x.bits) << 16); }
DEVICE float ToFloat(F16 x) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
}

// Two f32 rounded to nearest even into one word, `low` in its low half.
template <typename T>
DEVICE uint32_t Pack(float low, float high);
// The larger of each of two pairs.
template <typename T>
DEVICE uint32_t MaxOfPairs(uint32_t a, uint32_t b);

// `type`: the element's name in PTX.
#define QUIRE_PAIRS(element, type)                                               \
  template <>                                                                    \
  DEVICE uint32_t Pack<element>(float low, float high) {                         \
    uint32_t word;                                                               \
    asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low)); \
    return word;                                                                 \
  }                                                                              \
  template <>                                                                    \
  DEVICE uint32_t MaxOfPairs<element>(uint32_t a, uint32_t b) {                  \
    uint32_t larger;                                                             \
    asm("max." type "x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));           \
    return larger;                                                               \
  }
QUIRE_PAIRS(Bf16, "bf16")
QUIRE_PAIRS(F16, "f16")

// Each of two pairs times each of two others; subnormals kept.
template <typename T>
DEVICE uint32_t MulPairs(uint32_t a, uint32_t b);
template <>
DEVICE uint32_t MulPairs<Bf16>(uint32_t a, uint32_t b) {
  uint32_t product;  // less zero: before sm_90 there is no product alone
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}
template <>
DEVICE uint32_t MulPairs<F16>(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

template <typename T>
DEVICE T FromFloat(float x) {
  return T{static_cast<uint16_t>(Pack<T>(x, 0.0f))};
}
template <>
DEVICE F32 FromFloat<F32>(float x) {
  return x;
}

// ---- shared memory

// The dynamic shared memory of the block, 1024-byte aligned.
DEVICE uint8_t* SharedMemory() {
  extern __shared__ __align__(1024) uint8_t memory[];
  return memory;
}
DEVICE uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

struct alignas(8) Words2 {
  uint32_t x, y;
};
struct alignas(16) Words4 {
  uint32_t x, y, z, w;
};

// ---- global memory

template <typename T>
DEVICE T LoadGlobal(const T* from) {
  return *from;
}
template <typename T>
DEVICE void StoreGlobal(T* to, T value) {
  *to = value;
}

// ---- tensor cores

// d += a . b for one 16 x 8 tile and 16 k, the only step that kernels sum with: 16 k at once and
// two times 8 k give different bits. Lane 4g+t holds d rows g, g+8, columns 2t, 2t+1.
template <typename T>
DEVICE void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
#define QUIRE_MMA(element, type)                                                              \
  template <>                                                                                 \
  DEVICE void Mma<element>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { \
    asm volatile(                                                                             \
        "mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                        \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                     \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                      \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                      \
  }
QUIRE_MMA(Bf16, "bf16")
QUIRE_MMA(F16, "f16")

// Four 8 x 8 matrices of 16-bit elements: lane l gives the address of row l%8 of matrix l/8, and
// receives of each matrix row lane/4 the elements 2(lane%4) and the next.
DEVICE void LoadMatrices(uint32_t (&words)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}
DEVICE void LoadMatricesTransposed(uint32_t (&words)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}
// Two matrices, by the addresses of lanes 0 to 15.
DEVICE void LoadMatrices(uint32_t (&words)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(address)
               : "memory");
}
DEVICE void LoadMatricesTransposed(uint32_t (&words)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(address)
               : "memory");
}
// An 8 x 8 matrix of 16-bit elements, a word a lane as LoadMatrices gives, transposed.
DEVICE uint32_t TransposeMatrix(uint32_t word) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
}

// ---- asynchronous copies, complete in the order of their groups

// 16 bytes to shared memory through L2 only: `bytes` (0 or 16) from `from`, zeros for the rest.
// Without a cache policy: ptxas 13.0 assembles one together with a uniform shared address into an
// instruction that faults.
DEVICE void CopyAsync(uint32_t to, const void* from, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// A policy of copies: first to leave L2.
constexpr uint64_t kEvictFirst = 0x12f0000000000000;
// Of what hardly anybody reads again soon. `to` is no sum of a thread's and of what all have alike
// (UniformSharedCopies in cuda_attention_compile_test.cc).
DEVICE void CopyAsyncOnce(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, 16, %2;"
               :
               : "r"(to), "l"(from), "l"(kEvictFirst)
               : "memory");
}
DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `kPending` of this thread's newest groups are in flight.
template <int kPending>
DEVICE void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- words that blocks of one grid hand to each other

// Adds, and returns what was there. What the block wrote before its last barrier is visible to
// every block that counts later.
DEVICE uint32_t CountArrival(uint32_t* counter, uint32_t increment) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(increment)
               : "memory");
  return before;
}
DEVICE void PrefetchToL2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
// f32 from L2, where other blocks' stores are seen; aligned to all of them.
DEVICE void LoadFromL2(float (&values)[4], const float* from) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
               : "l"(from)
               : "memory");
}
DEVICE void LoadFromL2(float (&values)[2], const float* from) {
  asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];"
               : "=f"(values[0]), "=f"(values[1])
               : "l"(from)
               : "memory");
}
DEVICE void StoreToL2(float* to, const float (&values)[4]) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(values[0]),
               "f"(values[1]), "f"(values[2]), "f"(values[3])
               : "memory");
}

// What this thread wrote before is there for all of the device.
DEVICE void FenceDevice() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// ---- programmatic dependent launch

#if __CUDA_ARCH__ >= 900
constexpr bool kGridsOverlap = true;
#else
constexpr bool kGridsOverlap = false;
#endif
// Before this, only memory that no kernel of the stream writes may be read, and none written.
DEVICE void WaitForPriorGrid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void AllowNextGrid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- warps and blocks

DEVICE void SyncWarp() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
DEVICE void SyncBlock() { asm volatile("barrier.sync 0;" ::: "memory"); }
// `threads` of the block, whole warps, meet at barrier `id` of 1 to 15.
DEVICE void SyncThreads(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Counts at a barrier that others wait at.
DEVICE void ArriveAtThreads(int id, int threads) {
  asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
DEVICE float ShuffleXor(float x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
DEVICE bool AnyLane(bool x) { return __any_sync(~0u, x); }
// The first lane that has x, or kWarpThreads.
DEVICE int FirstLane(bool x) {
  const uint32_t lanes = __ballot_sync(~0u, x);
  return lanes == 0 ? kWarpThreads : __ffs(static_cast<int>(lanes)) - 1;
}
DEVICE uint32_t Shuffle(uint32_t x, int lane) { return __shfl_sync(~0u, x, lane); }
// x, which is the same for all lanes, and which the compiler then knows to be.
DEVICE int Uniform(int x) { return static_cast<int>(Shuffle(static_cast<uint32_t>(x), 0)); }

#endif  // QUIRE_PRELUDE_CUH_
