// The functions of codegen/cuda/kernels/hopper.cuh on the CPU. Include this after cuda_emulator.h.
//
// As late as synchronisation allows: a box lands at a random time, a product runs when it is waited
// for and reads its operands then. What threads wrote to shared memory, or copied there without
// boxes, products see only once it was fenced, and no box may come there before; by which thread,
// is not checked.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_HOPPER_EMULATOR_H_
#define QUIRE_TESTS_CODEGEN_CUDA_HOPPER_EMULATOR_H_

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tests/codegen/cuda_emulator.h"

#define QUIRE_HOPPER_CUH_  // the kernels' own stays out

namespace quire::emulated {

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
inline bool PhaseHasEnded(uint32_t address, int parity) {
  return static_cast<int>(BarrierAt(address).phases.value % 2) != parity;
}

// A matrix of 16-bit elements, rows of `columns` one after another, and a box of 64 columns, or of
// groups of whole rows.
struct TensorMap {
  const void* base;
  int64_t rows, columns;
  int box_rows;
  int64_t block_rows = 0;
  int box_block_rows = 0;
};
inline void PrefetchMap(const TensorMap&) {}
// Where a byte of operands and boxes lies: chunks of 16 bytes are swizzled by the 128 they are in.
inline uint32_t Swizzled(uint32_t address) { return address ^ (address / 128 % 8 * 16); }
// 16 bytes of a box, that begin at `to`: of the matrix at `column`, `row`, or zeros.
struct Chunk {
  uint32_t to;
  int64_t column, row;
};
inline uint8_t* ChunkAt(const Chunk& chunk) { return At(Swizzled(chunk.to)); }
inline uint8_t* Fenced(const uint8_t* shared) {
  return block->fenced.data() + (shared - block->shared);
}
// What threads wrote to where a box comes may come after it, unless it was fenced before.
inline void CheckFenced(const Chunk& chunk) {
  const uint8_t* at = ChunkAt(chunk);
  if (std::memcmp(at, Fenced(at), 16) != 0) Fail("a box comes to what was written and not fenced");
}
inline void LandChunk(const Chunk& chunk, const TensorMap& map) {
  CheckFenced(chunk);
  uint8_t* to = ChunkAt(chunk);
  for (int i = 0; i < 8; ++i) {
    const int64_t column = chunk.column + i;
    const bool there = chunk.row >= 0 && chunk.row < map.rows && column < map.columns;
    std::memset(to + 2 * i, 0, 2);
    if (!there) continue;
    const int64_t from = (chunk.row * map.columns + column) * 2;
    std::memcpy(to + 2 * i, static_cast<const uint8_t*>(map.base) + from, 2);
  }
  std::memcpy(Fenced(to), to, 16);
}
inline void LandBytes(uint32_t address, size_t bytes) {
  PhaseBarrier& barrier = BarrierAt(address);
  barrier.pending_bytes -= static_cast<int>(bytes);
  EndPhases(barrier);
}
inline void CopyChunks(const TensorMap& map, const std::vector<Chunk>& chunks, uint32_t barrier) {
  const auto* base = static_cast<const uint8_t*>(map.base);
  if (base >= block->prior_begin && base < block->prior_end && !block->current->prior_grid_done) {
    Fail("copies what the prior grid may not have written yet");
  }
  if (chunks.at(0).to % 1024 != 0) Fail("box is not aligned");
  for (const Chunk& chunk : chunks) CheckFenced(chunk);
  block->late.push_back([=] {
    for (const Chunk& chunk : chunks) LandChunk(chunk, map);
    LandBytes(barrier, chunks.size() * 16);
  });
}
// Of a box of 64 columns whose rows are row_at(r) of the matrix.
template <typename RowAt>
std::vector<Chunk> BoxOf(uint32_t to, const TensorMap& map, int column, RowAt row_at) {
  std::vector<Chunk> chunks;
  for (int r = 0; r < map.box_rows; ++r) {
    for (int c = 0; c < 64; c += 8) {
      chunks.push_back({to + static_cast<uint32_t>(r * 128 + c * 2), column + c, row_at(r)});
    }
  }
  return chunks;
}
template <bool kOnce = false>
inline void CopyBox(uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier) {
  CopyChunks(map, BoxOf(to, map, column, [&](int r) { return int64_t{row} + r; }), barrier);
}
inline void CopyBlocks(uint32_t to, const TensorMap& map, int column, int row, int block_at,
                       uint32_t barrier) {
  const auto row_at = [&](int r) {
    const int in_block = row + r % map.box_block_rows;
    const int64_t from = (block_at + r / map.box_block_rows) * map.block_rows + in_block;
    return in_block < map.block_rows ? from : -1;
  };
  CopyChunks(map, BoxOf(to, map, column, row_at), barrier);
}
inline void CopyRowGroups(uint32_t to, const TensorMap& map, int row, uint32_t barrier) {
  if (row % 8 != 0 || map.box_rows % 8 != 0 || map.columns % 64 != 0) Fail("not a box of groups");
  std::vector<Chunk> chunks;
  for (int r = 0; r < map.box_rows; ++r) {
    for (int64_t c = 0; c < map.columns; c += 8) {
      const int64_t at = r / 8 * 8 * map.columns * 2 + c / 64 * 1024 + r % 8 * 128 + c % 64 * 2;
      chunks.push_back({to + static_cast<uint32_t>(at), c, int64_t{row} + r});
    }
  }
  CopyChunks(map, chunks, barrier);
}
template <bool kOnce = false>
inline void CopyRowPairs(uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier) {
  if (row % 16 != 0 || map.box_rows % 16 != 0 || map.rows % 16 != 0) Fail("not a box of pairs");
  const auto row_at = [&](int r) {
    const int64_t in_half = (row + r) / 16 * 8 + r % 8;
    return in_half < map.rows / 2 ? r / 8 % 2 * (map.rows / 2) + in_half : -1;
  };
  CopyChunks(map, BoxOf(to, map, column, row_at), barrier);
}
inline void FenceShared() { std::memcpy(block->fenced.data(), block->shared, block->shared_bytes); }

// The address, the bytes of a group and of a panel, each in units of 16, at bits 0, 16 and 32.
using Operand = uint64_t;
inline Operand OperandAt(uint32_t address, int group_bytes = 1024, int panel_bytes = 16) {
  if (address % 1024 != 0) Fail("operand is not aligned");
  return address / 16 | static_cast<uint64_t>(group_bytes / 16) << 16 |
         static_cast<uint64_t>(panel_bytes / 16) << 32;
}
// An element of an operand, `row` of groups of eight, from the operand's first column on.
inline uint16_t OperandElement(Operand operand, int row, int column) {
  const auto field = [&](int bits) { return static_cast<uint32_t>(operand >> bits & 0xffff) * 16; };
  const uint32_t address = Swizzled(field(0) + static_cast<uint32_t>(row / 8) * field(16) +
                                    static_cast<uint32_t>(column / 64) * field(32) +
                                    static_cast<uint32_t>(row % 8 * 128 + column % 64 * 2));
  uint16_t element;
  std::memcpy(&element, Fenced(At(address & ~15u)) + address % 16, 2);
  return element;
}
// What the thread does is what all of its warpgroup have to do.
inline void OfWarpgroup(std::vector<uint64_t> operation) {
  Fiber& fiber = *block->current;
  Warpgroup& group = block->warpgroups[static_cast<size_t>(fiber.thread / kWarpgroupThreads)];
  const size_t number = fiber.warpgroup_operations++;
  if (number == group.operations.size()) {
    group.operations.push_back(std::move(operation));
  } else if (group.operations[number] != operation) {
    Fail("threads of a warpgroup run different products");
  }
}
enum WarpgroupOperation : uint64_t { kBegin, kCommit, kWait, kProduct, kRowProduct };
inline void BeginProducts() { OfWarpgroup({kBegin}); }
inline void CommitProducts() {
  OfWarpgroup({kCommit});
  block->current->products.emplace_back();
}
template <int kPending>
void WaitForProducts() {
  OfWarpgroup({kWait, kPending});
  auto& groups = block->current->products;
  while (groups.size() > kPending + 1) {
    for (const auto& run : groups.front()) run();
    groups.pop_front();
  }
  SyncWarp();  // a warp waits as one
}
template <typename Sums>
void HoldProducts(Sums&) {}
template <typename Elements>
void HoldElements(Elements&) {}

template <typename T>
constexpr DType kTypeOf = std::is_same_v<T, F16> ? DType::kF16 : DType::kBF16;

struct E4m3Pair {
  uint16_t bits;
};
// One step of 16 elements, or pairs of numbers of f8e4m3.
template <typename T>
float Step(const uint16_t* a, const uint16_t* b, float c) {
  if constexpr (std::is_same_v<T, E4m3Pair>) {
    return TensorCoreE4m3Step(reinterpret_cast<const uint8_t*>(a),
                              reinterpret_cast<const uint8_t*>(b), c);
  } else {
    return TensorCoreStep(kTypeOf<T>, a, b, c);
  }
}

// Each thread computes its own elements.
template <typename T, int kColumns, int kTransposed = 0>
struct WarpgroupProduct {
  static void Run(float* sums, Operand a, Operand b, bool accumulate) {
    OfWarpgroup({kProduct, kColumns, kTransposed, a, b, accumulate});
    const int thread = block->current->thread % kWarpgroupThreads;
    block->current->products.back().push_back([=] {
      const auto row = [](Operand operand, int r, uint16_t* elements) {
        for (int k = 0; k < 16; ++k) elements[k] = OperandElement(operand, r, k);
      };
      uint16_t a_rows[2][16], b_row[16];
      for (int half = 0; half < 2; ++half) {
        row(a, thread / 32 * 16 + thread % 32 / 4 + 8 * half, a_rows[half]);
      }
      for (int i = 0; i < kColumns / 2; ++i) {
        const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
          b_row[k] = kTransposed == 1 ? OperandElement(b, k, column) : OperandElement(b, column, k);
        }
        sums[i] = Step<T>(a_rows[i / 2 % 2], b_row, accumulate ? sums[i] : 0.0f);
      }
    });
  }
};
template <typename T, int kColumns, int kTransposed>
struct WarpgroupRowProduct {
  static void Run(float* sums, const uint32_t (&a)[4], Operand b, bool accumulate) {
    OfWarpgroup({kRowProduct, kColumns, kTransposed, b, accumulate});
    struct Lane {
      const uint32_t* a;
      uint16_t rows[2][16];  // of all four lanes that share them
    } lane{a, {}};
    OfWarp(lane, [](Lane** lanes) {
      for (int l = 0; l < kWarpThreads; ++l) {
        for (int i = 0; i < 32; ++i) {
          const int k = i % 16;
          const uint32_t word = lanes[l / 4 * 4 + k % 8 / 2]->a[i / 16 + k / 8 * 2];
          lanes[l]->rows[i / 16][k] = static_cast<uint16_t>(word >> (k % 2 * 16));
        }
      }
    });
    const std::array<uint32_t, 4> words = {a[0], a[1], a[2], a[3]};
    const uint32_t* registers = a;
    const int thread = block->current->thread % 4;
    block->current->products.back().push_back([=] {
      if (!std::equal(words.begin(), words.end(), registers)) {
        Fail("registers of a product that runs have changed");
      }
      for (int i = 0; i < kColumns / 2; ++i) {
        uint16_t column[16];
        const int n = i / 4 * 8 + thread * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
          column[k] = kTransposed == 1 ? OperandElement(b, k, n) : OperandElement(b, n, k);
        }
        sums[i] =
            TensorCoreStep(kTypeOf<T>, lane.rows[i / 2 % 2], column, accumulate ? sums[i] : 0.0f);
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
