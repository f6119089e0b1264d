// The functions of codegen/cuda/kernels/hopper.cuh on the CPU. Include this after cuda_emulator.h.
//
// As late as synchronisation allows: a box lands at a random time, a product runs when it is waited
// for and reads its operands then.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_HOPPER_EMULATOR_H_
#define QUIRE_TESTS_CODEGEN_CUDA_HOPPER_EMULATOR_H_

#include "tests/codegen/cuda_emulator.h"

#define QUIRE_HOPPER_CUH_  // the kernels' own stays out

namespace quire::emulated {

constexpr int kWarpgroupThreads = 128;

inline void EndPhases(PhaseBarrier& barrier) {
  if (barrier.pending_arrivals != 0 || barrier.pending_bytes != 0) return;
  barrier.pending_arrivals = barrier.arrivals;
  ++barrier.phases.value;
}
inline PhaseBarrier& BarrierAt(uint32_t address) {
  const auto found = block->phase_barriers.find(address);
  if (found == block->phase_barriers.end()) Fail("no barrier there");
  return found->second;
}
inline void InitBarrier(uint32_t address, int arrivals) {
  if (address % 8 != 0) Fail("barrier is not aligned");
  block->phase_barriers[address] = {arrivals, arrivals, 0, {}};
}
inline void FenceBarriers() {}
inline void Arrive(uint32_t address) {
  PhaseBarrier& barrier = BarrierAt(address);
  if (barrier.pending_arrivals-- == 0) Fail("more arrivals than the barrier counts");
  EndPhases(barrier);
}
inline void ArriveExpecting(uint32_t address, int bytes) {
  BarrierAt(address).pending_bytes += bytes;
  Arrive(address);
}
inline void WaitForPhase(uint32_t address, int parity) {
  Counter& phases = BarrierAt(address).phases;
  if (static_cast<int>(phases.value % 2) == parity) WaitUntil(phases, phases.value + 1);
}

// A matrix of 16-bit elements, rows of `columns` one after another, and a box of 64 columns.
struct TensorMap {
  const void* base;
  int64_t rows, columns;
  int box_rows;
};
inline void PrefetchMap(const TensorMap&) {}
inline void CopyBox(uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier) {
  const auto* base = static_cast<const uint8_t*>(map.base);
  if (base >= block->prior_begin && base < block->prior_end && !block->current->prior_grid_done) {
    Fail("copies what the prior grid may not have written yet");
  }
  if (to % 1024 != 0) Fail("box is not aligned");
  block->late.push_back([=] {
    for (int r = 0; r < map.box_rows; ++r) {
      for (int c = 0; c < 64; ++c) {
        uint16_t element = 0;
        if (row + r < map.rows && column + c < map.columns) {
          std::memcpy(&element, base + ((row + r) * map.columns + column + c) * 2, 2);
        }
        std::memcpy(At(to + r * 128 + ((c / 8 ^ r) & 7) * 16) + c % 8 * 2, &element, 2);
      }
    }
    PhaseBarrier& landed = BarrierAt(barrier);
    landed.pending_bytes -= map.box_rows * 128;
    EndPhases(landed);
  });
}

inline uint64_t OperandAt(uint32_t address) {
  if (address % 1024 != 0) Fail("operand is not aligned");
  return address / 16;
}
inline void BeginProducts() {}
inline void CommitProducts() { block->current->products.emplace_back(); }
template <int kPending>
void WaitForProducts() {
  auto& groups = block->current->products;
  while (groups.size() > kPending + 1) {
    for (const auto& run : groups.front()) run();
    groups.pop_front();
  }
}
template <int kCount>
void HoldProducts(float (&)[kCount]) {}

template <typename T, int kColumns>
struct WarpgroupProduct {
  // Each thread computes its own elements: a warpgroup's threads need not meet for that.
  static void Run(float (&d)[kColumns / 2], uint64_t a, uint64_t b, bool accumulate) {
    const int thread = block->current->thread % kWarpgroupThreads;
    float* sums = d;
    block->current->products.back().push_back([=] {
      // 16 elements of a row; the operand's 16 k lie in two chunks.
      const auto row = [](uint64_t operand, int r, uint16_t* elements) {
        const uint32_t begin = static_cast<uint32_t>(operand / 64 * 1024);
        const int chunk = static_cast<int>(operand % 64);
        for (int i = 0; i < 2; ++i) {
          std::memcpy(elements + 8 * i,
                      At(begin + static_cast<uint32_t>(r * 128 + ((chunk + i) ^ r % 8) * 16)), 16);
        }
      };
      constexpr DType kType = std::is_same_v<T, F16> ? DType::kF16 : DType::kBF16;
      uint16_t a_rows[2][16], b_row[16];
      for (int half = 0; half < 2; ++half) {
        row(a, thread / 32 * 16 + thread % 32 / 4 + 8 * half, a_rows[half]);
      }
      for (int i = 0; i < kColumns / 2; ++i) {
        row(b, i / 4 * 8 + thread % 4 * 2 + i % 2, b_row);
        sums[i] = TensorCoreStep(kType, a_rows[i / 2 % 2], b_row, accumulate ? sums[i] : 0.0f);
      }
    });
  }
};

template <int kCount>
void TakeRegisters() {}
template <int kCount>
void GiveRegisters() {}

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_CODEGEN_CUDA_HOPPER_EMULATOR_H_
