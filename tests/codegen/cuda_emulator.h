// Runs the CUDA kernels' own source on the CPU: the functions of codegen/cuda/kernels/prelude.cuh
// again, over fibers. Include this, then a kernel's .cuh inside a namespace with its constants.
//
// Every thread of a block is a fiber; blocks run one after another. What a wrong kernel could get
// away with is made to fail: fibers run in a random order between synchronisations; an asynchronous
// copy lands at a random time, at once or as late as its group allows; shared memory begins as
// NaNs; what the prior grid writes may not be copied before WaitForPriorGrid. The tensor core is
// the exact model, so results have a GPU's bits. Of the special functions, Exp2 and Reciprocal do
// not.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_EMULATOR_H_
#define QUIRE_TESTS_CODEGEN_CUDA_EMULATOR_H_

#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "codegen/cuda/tensor_core_model.h"
#include "ir/dtype.h"
#include "tests/random.h"

#define QUIRE_PRELUDE_CUH_  // the kernels' own prelude stays out
#define DEVICE inline

namespace quire::emulated {

constexpr int kWarpThreads = 32;

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
using F32 = float;
struct alignas(8) Words2 {
  uint32_t x, y;
};
struct alignas(16) Words4 {
  uint32_t x, y, z, w;
};
struct Index {
  unsigned x = 0;
};

// Global memory that a kernel may touch by LoadGlobal and StoreGlobal.
struct Memory {
  const void* begin = nullptr;
  size_t bytes = 0;
  enum Use {
    kReadEarly,  // also before the prior grid is done
    kRead,
    kWrite,
  } use = kRead;
};

// A count that fibers wait for.
struct Counter {
  uint64_t value = 0;
};

// A barrier of hopper.cuh.
struct PhaseBarrier {
  int arrivals = 0, pending_arrivals = 0, pending_bytes = 0;
  Counter phases;
};

struct Copy {
  uint32_t to;
  const void* from;
  int bytes;
};

struct Fiber {
  static constexpr size_t kStackBytes = 128 * 1024;
  ucontext_t context;
  std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  int thread = 0;
  bool finished = false, prior_grid_done = false;
  const Counter* waits_for = nullptr;
  uint64_t waits_until = 0;
  uint64_t warp_operations = 0;
  std::deque<std::vector<Copy>> groups = {{}};  // late copies; the last group is open
  std::deque<std::vector<std::function<void()>>> products = {{}};  // of a warpgroup; likewise
};

// What the lanes of a warp bring to an operation of all 32; two, as a lane may be one ahead.
struct Warp {
  void* lanes[2][kWarpThreads] = {};
  Counter arrivals;
};

struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  std::map<int, Counter> barriers;
  std::map<uint32_t, PhaseBarrier> phase_barriers;  // by address
  std::vector<std::function<void()>> late;          // to happen at any time
  std::vector<uint8_t> memory;
  uint8_t* shared = nullptr;
  size_t shared_bytes = 0;
  Index block, grid;
  const uint8_t* prior_begin = nullptr;  // what the prior grid writes
  const uint8_t* prior_end = nullptr;
  const std::vector<Memory>* global = nullptr;
  testing::Random random{uint64_t{0}};
  ucontext_t scheduler;
  Fiber* current = nullptr;
  std::function<void()> kernel;
};

inline Block* block = nullptr;  // the one that runs

[[noreturn]] inline void Fail(const char* what) {
  std::fprintf(stderr, "emulated kernel: block %u thread %d: %s\n", block->block.x,
               block->current == nullptr ? -1 : block->current->thread, what);
  std::abort();
}

inline void WaitUntil(const Counter& counter, uint64_t value) {
  Fiber& fiber = *block->current;
  fiber.waits_for = &counter;
  fiber.waits_until = value;
  while (counter.value < value) swapcontext(&fiber.context, &block->scheduler);
  fiber.waits_for = nullptr;
}

inline void RunFiber() {
  block->kernel();
  block->current->finished = true;
  swapcontext(&block->current->context, &block->scheduler);
}

struct Launch {
  int grid = 1, threads = 32;
  size_t shared_bytes = 0;
  const void* prior_begin = nullptr;  // written by the prior grid
  size_t prior_bytes = 0;
  uint64_t seed = 0;
  std::vector<Memory> global = {};
};

inline void RunBlock(const Launch& launch, int index, const std::function<void()>& kernel) {
  Block state;
  block = &state;
  state.kernel = kernel;
  state.block.x = static_cast<unsigned>(index);
  state.grid.x = static_cast<unsigned>(launch.grid);
  state.random = testing::Random(launch.seed * 1000003 + static_cast<uint64_t>(index));
  state.memory.assign(launch.shared_bytes + 1024, 0xff);
  state.shared = reinterpret_cast<uint8_t*>(
      (reinterpret_cast<uintptr_t>(state.memory.data()) + 1023) & ~uintptr_t{1023});
  state.shared_bytes = launch.shared_bytes;
  state.prior_begin = static_cast<const uint8_t*>(launch.prior_begin);
  state.prior_end = state.prior_begin + launch.prior_bytes;
  state.global = &launch.global;
  state.warps.resize(launch.threads / kWarpThreads);
  for (int i = 0; i < launch.threads; ++i) {
    state.fibers.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *state.fibers.back();
    fiber.thread = i;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = Fiber::kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, RunFiber, 0);
  }
  const int warp_count = launch.threads / kWarpThreads;
  int slow_warp = 0;
  std::vector<Fiber*> order;
  for (;;) {
    order.clear();
    bool all_finished = true;
    for (const auto& fiber : state.fibers) {
      all_finished &= fiber->finished;
      if (fiber->finished) continue;
      if (fiber->waits_for == nullptr || fiber->waits_for->value >= fiber->waits_until) {
        order.push_back(fiber.get());
      }
    }
    if (all_finished) {
      if (!state.late.empty()) Fail("copies are under way at the end");
      break;
    }
    state.current = nullptr;
    if (!state.late.empty() && (order.empty() || state.random.Chance(4))) {
      std::swap(state.late.back(), state.late[static_cast<size_t>(state.random.Below(
                                       static_cast<int64_t>(state.late.size())))]);
      const std::function<void()> action = std::move(state.late.back());
      state.late.pop_back();
      action();
      continue;
    }
    if (order.empty()) Fail("deadlock");
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1],
                order[static_cast<size_t>(state.random.Below(static_cast<int64_t>(i)))]);
    }
    // One warp, another now and then, runs only when no other can: the others get as far ahead of
    // it as synchronisation lets them.
    if (state.random.Chance(16)) slow_warp = static_cast<int>(state.random.Below(warp_count));
    bool any_fast = false;
    for (const Fiber* fiber : order) any_fast |= fiber->thread / kWarpThreads != slow_warp;
    for (Fiber* fiber : order) {
      if (any_fast && fiber->thread / kWarpThreads == slow_warp) continue;
      state.current = fiber;
      swapcontext(&state.scheduler, &fiber->context);
    }
  }
  block = nullptr;
}

// Runs `kernel` as a grid; blocks in a random order.
inline void RunGrid(const Launch& launch, const std::function<void()>& kernel) {
  std::vector<int> order;
  for (int i = 0; i < launch.grid; ++i) order.push_back(i);
  testing::Random random(launch.seed);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
  }
  for (int index : order) RunBlock(launch, index, kernel);
}

inline Index ThreadIndex() { return {static_cast<unsigned>(block->current->thread)}; }
#define threadIdx (::quire::emulated::ThreadIndex())
#define blockIdx (::quire::emulated::block->block)
#define gridDim (::quire::emulated::block->grid)

// Calls `compute` once, when all lanes of the warp have come, with their arguments in order of
// lane.
template <typename Lane, typename Compute>
void OfWarp(Lane& lane, Compute compute) {
  Fiber& fiber = *block->current;
  Warp& warp = block->warps[static_cast<size_t>(fiber.thread / kWarpThreads)];
  const uint64_t number = fiber.warp_operations++;
  void** lanes = warp.lanes[number % 2];
  lanes[fiber.thread % kWarpThreads] = &lane;
  if (++warp.arrivals.value == (number + 1) * kWarpThreads) {
    Lane* all[kWarpThreads];
    for (int i = 0; i < kWarpThreads; ++i) all[i] = static_cast<Lane*>(lanes[i]);
    compute(all);
  } else {
    WaitUntil(warp.arrivals, (number + 1) * kWarpThreads);
  }
}

// ---- the prelude's functions

inline float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
inline uint32_t AndOr(uint32_t a, uint32_t mask, uint32_t bits) { return (a & mask) | bits; }
inline float Add(float a, float b) { return a + b; }
inline float Mul(float a, float b) { return a * b; }
inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float Exp2(float x) { return std::exp2(x); }
inline float Reciprocal(float x) { return 1 / x; }
inline float Max(float a, float b) { return std::fmax(a, b); }
inline float Ceiling(float x) { return std::ceil(x); }
inline float PowerOfTwo(float x) { return x < -126 ? 0 : std::exp2(x); }
inline float SquareRoot(float x) { return std::sqrt(x); }
inline float Round(float x) { return std::nearbyint(x); }

inline float ToFloat(F32 x) { return x; }
inline float ToFloat(Bf16 x) { return BF16ToF32(x.bits); }
inline float ToFloat(F16 x) { return F16ToF32(x.bits); }

template <typename T>
T FromFloat(float x);
template <>
inline F32 FromFloat<F32>(float x) {
  return x;
}
template <>
inline Bf16 FromFloat<Bf16>(float x) {
  return {std::isnan(x) ? uint16_t{0x7fff} : F32ToBF16(x)};
}
template <>
inline F16 FromFloat<F16>(float x) {
  return {std::isnan(x) ? uint16_t{0x7fff} : F32ToF16(x)};
}
template <typename T>
uint32_t Pack(float low, float high) {
  return FromFloat<T>(low).bits | static_cast<uint32_t>(FromFloat<T>(high).bits) << 16;
}

constexpr uint32_t kSharedBegin = 0x400;
inline uint8_t* SharedMemory() { return block->shared; }
inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(static_cast<const uint8_t*>(p) - block->shared) + kSharedBegin;
}
// 16 bytes of shared memory.
inline uint8_t* At(uint32_t address) {
  const size_t offset = address - kSharedBegin;
  if (address % 16 != 0) Fail("shared address is no multiple of 16");
  if (offset + 16 > block->shared_bytes) Fail("shared address out of bounds");
  return block->shared + offset;
}

template <typename T>
void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Lane {
    float* d;
    const uint32_t* a;
    uint32_t b[2];
  } lane{d, a, {b0, b1}};
  OfWarp(lane, [](Lane** lanes) {
    uint16_t a_rows[16][16], b_rows[8][16];
    for (int l = 0; l < kWarpThreads; ++l) {
      const int row = l / 4, column = l % 4 * 2;
      for (int i = 0; i < 2; ++i) {
        for (int quarter = 0; quarter < 4; ++quarter) {
          a_rows[row + quarter % 2 * 8][column + quarter / 2 * 8 + i] =
              static_cast<uint16_t>(lanes[l]->a[quarter] >> (16 * i));
        }
        for (int half = 0; half < 2; ++half) {
          b_rows[row][column + half * 8 + i] = static_cast<uint16_t>(lanes[l]->b[half] >> (16 * i));
        }
      }
    }
    constexpr DType kType = std::is_same_v<T, F16> ? DType::kF16 : DType::kBF16;
    for (int l = 0; l < kWarpThreads; ++l) {
      for (int i = 0; i < 4; ++i) {
        float& element = lanes[l]->d[i];
        element =
            TensorCoreStep(kType, a_rows[l / 4 + i / 2 * 8], b_rows[l % 4 * 2 + i % 2], element);
      }
    }
  });
}

inline void LoadMatrices(uint32_t (&words)[4], uint32_t address, bool transposed = false) {
  struct Lane {
    uint32_t* words;
    uint32_t address;
  } lane{words, address};
  OfWarp(lane, [transposed](Lane** lanes) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t rows[8][8];
      for (int row = 0; row < 8; ++row) {
        std::memcpy(rows[row], At(lanes[8 * matrix + row]->address), 16);
      }
      for (int l = 0; l < kWarpThreads; ++l) {
        const int row = l / 4, column = l % 4 * 2;
        const uint32_t low = transposed ? rows[column][row] : rows[row][column];
        const uint32_t high = transposed ? rows[column + 1][row] : rows[row][column + 1];
        lanes[l]->words[matrix] = low | high << 16;
      }
    }
  });
}
inline void LoadMatricesTransposed(uint32_t (&words)[4], uint32_t address) {
  LoadMatrices(words, address, true);
}

inline uint32_t TransposeMatrix(uint32_t word) {
  struct Lane {
    uint32_t word, transposed;
  } lane{word, 0};
  OfWarp(lane, [](Lane** lanes) {
    for (int l = 0; l < kWarpThreads; ++l) {
      const int row = l / 4, column = l % 4 * 2;
      const auto at = [&](int from_row) {
        return lanes[from_row * 4 + row / 2]->word >> (row % 2 * 16) & 0xffff;
      };
      lanes[l]->transposed = at(column) | at(column + 1) << 16;
    }
  });
  return lane.transposed;
}

inline void Land(const Copy& copy) {
  uint8_t* to = At(copy.to);
  std::memset(to, 0, 16);
  if (copy.bytes > 0) std::memcpy(to, copy.from, static_cast<size_t>(copy.bytes));
}
inline void CopyAsync(uint32_t to, const void* from, int bytes = 16) {
  Fiber& fiber = *block->current;
  const auto* at = static_cast<const uint8_t*>(from);
  if (bytes > 0 && at >= block->prior_begin && at < block->prior_end && !fiber.prior_grid_done) {
    Fail("copies what the prior grid may not have written yet");
  }
  if (bytes > 0 && reinterpret_cast<uintptr_t>(from) % 16 != 0) Fail("copy is not aligned");
  const Copy copy{to, from, bytes};
  if (block->random.Chance(2)) {
    Land(copy);
  } else {
    fiber.groups.back().push_back(copy);
  }
}
inline void CommitCopies() { block->current->groups.emplace_back(); }
template <int kPending>
void WaitForCopies() {
  auto& groups = block->current->groups;
  while (groups.size() > kPending + 1) {
    for (const Copy& copy : groups.front()) Land(copy);
    groups.pop_front();
  }
}

inline void FenceDevice() {}
inline void WaitForPriorGrid() { block->current->prior_grid_done = true; }
inline void AllowNextGrid() {}

inline void SyncThreads(int id, int threads) {
  Counter& counter = block->barriers[id];
  const uint64_t count = static_cast<uint64_t>(threads);
  const uint64_t full = (counter.value / count + 1) * count;
  ++counter.value;
  WaitUntil(counter, full);
}
inline void ArriveAtThreads(int id, int) { ++block->barriers[id].value; }
inline void SyncBlock() { SyncThreads(0, static_cast<int>(block->fibers.size())); }
inline void SyncWarp() {
  int none = 0;
  OfWarp(none, [](int**) {});
}
inline float ShuffleXor(float x, int mask) {
  struct Lane {
    float x;
    int mask;
    float got;
  } lane{x, mask, 0};
  OfWarp(lane, [](Lane** lanes) {
    for (int l = 0; l < kWarpThreads; ++l) lanes[l]->got = lanes[l ^ lanes[l]->mask]->x;
  });
  return lane.got;
}
inline bool AnyLane(bool x) {
  struct Lane {
    bool x, any;
  } lane{x, false};
  OfWarp(lane, [](Lane** lanes) {
    bool any = false;
    for (int l = 0; l < kWarpThreads; ++l) any |= lanes[l]->x;
    for (int l = 0; l < kWarpThreads; ++l) lanes[l]->any = any;
  });
  return lane.any;
}
inline uint32_t Shuffle(uint32_t x, int from) {
  struct Lane {
    uint32_t x;
    int from;
    uint32_t got;
  } lane{x, from, 0};
  OfWarp(lane, [](Lane** lanes) {
    for (int l = 0; l < kWarpThreads; ++l) lanes[l]->got = lanes[lanes[l]->from % kWarpThreads]->x;
  });
  return lane.got;
}

inline int Uniform(int x) {
  const int first = static_cast<int>(Shuffle(static_cast<uint32_t>(x), 0));
  if (x != first) Fail("not the same for all lanes");
  return first;
}

}  // namespace quire::emulated

#include "tests/codegen/cuda_emulated_memory.h"

#endif  // QUIRE_TESTS_CODEGEN_CUDA_EMULATOR_H_
