// Runs the CUDA kernels' own source on the CPU: the functions of codegen/cuda/kernels/prelude.cuh
// again, over fibers. Include this, then a kernel's .cuh inside a namespace with its constants.
//
// Every thread of a block is a fiber; blocks run one after another. What a wrong kernel could get
// away with is made to fail: fibers run in a random order between synchronisations; an asynchronous
// copy lands at a random time, at once or as late as its group allows; shared memory begins as
// NaNs; what the prior grid writes may not be copied before WaitForPriorGrid; products of
// warpgroups read shared memory as it was when last fenced, and all threads of a warpgroup have to
// run the same ones. The tensor core and the special functions are the exact models, so results
// have a GPU's bits.
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
constexpr int kWarpgroupThreads = 128;

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
  size_t warpgroup_operations = 0;
  std::deque<std::vector<Copy>> groups = {{}};  // late copies; the last group is open
  std::deque<std::vector<std::function<void()>>> products = {{}};  // of a warpgroup; likewise
};

// What the lanes of a warp bring to an operation of all 32; two, as a lane may be one ahead.
struct Warp {
  void* lanes[2][kWarpThreads] = {};
  Counter arrivals;
};

// The products that its threads begin, commit and wait for, in order: what the first thread to come
// to each did.
struct Warpgroup {
  std::vector<std::vector<uint64_t>> operations;
};

struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  std::map<int, Counter> barriers;
  std::map<uint32_t, PhaseBarrier> phase_barriers;  // by address
  std::vector<std::function<void()>> late;          // to happen at any time
  std::vector<uint8_t> memory;
  uint8_t* shared = nullptr;
  size_t shared_bytes = 0;
  std::vector<uint8_t> fenced;  // shared memory as products of warpgroups see it
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
  state.fenced.assign(launch.shared_bytes, 0xff);
  state.prior_begin = static_cast<const uint8_t*>(launch.prior_begin);
  state.prior_end = state.prior_begin + launch.prior_bytes;
  state.global = &launch.global;
  state.warps.resize(launch.threads / kWarpThreads);
  state.warpgroups.resize((launch.threads + kWarpgroupThreads - 1) / kWarpgroupThreads);
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
      for (const auto& fiber : state.fibers) {
        const Warpgroup& group = state.warpgroups[fiber->thread / kWarpgroupThreads];
        if (fiber->warpgroup_operations == group.operations.size()) continue;
        state.current = fiber.get();
        Fail("others of its warpgroup ran further products");
      }
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

}  // namespace quire::emulated

#include "tests/codegen/cuda_emulated_memory.h"
#include "tests/codegen/cuda_emulated_prelude.h"

#endif  // QUIRE_TESTS_CODEGEN_CUDA_EMULATOR_H_
