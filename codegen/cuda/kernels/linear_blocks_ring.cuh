// The rings of linear_narrow.cuh where the weight is block-quantised: its bytes become the first
// operand of warpgroups' products in registers, which are multiplied with rows of x in shared
// memory.
//
// x:       [kTokens rows x 64 k] a stage, boxes that one thread of warpgroup 0 asks for.
// Weight:  each warp that multiplies copies its own 16 rows, kCopyK k a stage: 256, or 128 or 64
//          where parts are no multiples of it. A row's bytes of a stage keep their place in 16
//          bytes, as rows may begin at any multiple of 2.
// While the products of 64 k run, the next 64 k of kCopyK become elements.
// Shared memory, in bytes from `begin`, a multiple of 1024:
//   0              [kStages][kTokens x 128], rows swizzled
//   kXRingBytes    barriers: full and free, [2][kStages] of 8
//   kPackedAt      [4 kConsumers warps][kCopies][16 rows x kPitch], an odd number of 16 bytes a
//                  row, so that eight rows lie in different banks
#ifndef QUIRE_LINEAR_BLOCKS_RING_CUH_
#define QUIRE_LINEAR_BLOCKS_RING_CUH_

#include "hopper.cuh"
#include "linear_fours.cuh"
#include "linear_units.cuh"

template <typename Fours, int kTokens, int kTileRows, int kStages, int kCopyK>
struct LinearBlocksRing {
  static_assert(kWholeStages, "boxes do not end with a part");
  static_assert(kGrain == Fours::kElements);
  using Units = LinearUnits<kTokens, kTileRows>;
  using Cursor = typename Units::Cursor;
  static constexpr int kConsumers = (kTileRows + 63) / 64, kWarps = 4 * kConsumers;
  static constexpr int kXBytes = kTokens * kStageRowBytes, kXRingBytes = kStages * kXBytes;

  static constexpr int kWarpRows = 16, kCopies = 2 + 256 / kCopyK;
  static_assert(kCopyK % Fours::kElements == 0 && kCopyK % kStageK == 0);
  static constexpr int kCopyData = kCopyK / Fours::kElements * Fours::kBytes;  // of a row
  static constexpr int kChunks = (kCopyData + 14 + 15) / 16;
  static constexpr int kPitch = (kChunks | 1) * 16;
  static constexpr int kCopyBytes = kWarpRows * kPitch;
  static constexpr int kBuffers = kCopyK > kStageK ? 2 : 1;  // of elements
  static constexpr int kPackedAt = (kXRingBytes + 16 * kStages + 15) / 16 * 16;
  static constexpr int kBytes = kPackedAt + kWarps * kCopies * kCopyBytes;

  // Of a thread that multiplies; of 168, 128 or 96 at launch.
  static constexpr int kRegisters =
      kConsumers == 1 ? 0 : kConsumers == 2 ? 240 : kConsumers == 3 ? 160 : 112;

  uint32_t begin;  // shared address

  DEVICE uint32_t x(int stage) const { return begin + stage * kXBytes; }
  DEVICE uint32_t full(int stage) const { return begin + kXRingBytes + 8 * stage; }
  DEVICE uint32_t free(int stage) const { return full(stage) + 8 * kStages; }

  DEVICE void Init() const {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(full(i), 1);
      InitBarrier(free(i), kWarps);
    }
    FenceBarriers();
  }

  // One thread: keeps the ring of x full.
  DEVICE void Produce(const LinearOperands& operands, const TensorMap& x_map) const {
    AllowNextGrid();
    WaitForPriorGrid();
    Cursor at;
    at.Begin(operands);
    const int box_bytes = Units::BoxBytes(operands);
    int stage = 0, round = 0;
    for (; !at.done(); at.NextStage(operands)) {
      if (round > 0) WaitForPhase(free(stage), (round - 1) & 1);
      ArriveExpecting(full(stage), box_bytes);
      CopyBox(x(stage), x_map, at.k, at.token_begin, full(stage));
      if (++stage == kStages) {
        stage = 0;
        ++round;
      }
    }
  }

  // A warp that multiplies, and its place in the rings.
  struct Reader {
    const LinearBlocksRing& ring;
    int in_tile;    // its first row
    uint8_t* packed;
    Cursor ahead;   // what it copies next
    int copied = 0, read = 0;      // stages of its own ring
    int stage = 0, parity = 0;     // of x

    // Begins to copy: the weight is not written by the grid before.
    DEVICE Reader(const LinearBlocksRing& of, const LinearOperands& operands, int consumer)
        : ring(of) {
      const int warp = consumer * 4 + threadIdx.x % kWarpgroupThreads / kWarpThreads;
      in_tile = warp * kWarpRows;
      packed = SharedMemory() + kPackedAt + warp * kCopies * kCopyBytes;
      ahead.Begin(operands);
#pragma unroll 1
      for (int i = 0; i < kCopies - 1; ++i) Copy(operands);
    }

    // Of the 16 rows from `first` of the weight as tiles have it: its row `r`, and whether there is
    // one.
    static DEVICE int WeightRow(const LinearOperands& operands, int first, int r) {
      return kGated ? first / 2 + r % 8 + r / 8 * (operands.n / 2) : first + r;
    }
    static DEVICE bool HasRow(const LinearOperands& operands, int first, int r) {
      return kGated ? first / 2 + r % 8 < operands.n / 2 : first + r < operands.n;
    }
    static DEVICE int ByteOf(int k) { return k / Fours::kElements * Fours::kBytes; }

    DEVICE void Copy(const LinearOperands& operands) {
      if (in_tile < kTileRows && !ahead.done()) {
        const int lane = threadIdx.x % kWarpThreads;
        const auto* weight = reinterpret_cast<const uint8_t*>(operands.weight);
        const int row_bytes = ByteOf(operands.k), left = ahead.part_end - ahead.k;
        const int data = left < kCopyK ? ByteOf(left) : kCopyData;
        const int64_t all = int64_t{operands.n} * row_bytes;
#pragma unroll
        for (int i = 0; i < (kWarpRows * kChunks + 31) / 32; ++i) {
          const int at = i * kWarpThreads + lane, r = at / kChunks, chunk = at % kChunks;
          // What lies behind the weight's last row is left as it is: no row reaches another.
          const int first = ahead.row_begin + in_tile;
          if (r >= kWarpRows || !HasRow(operands, first, r)) continue;
          const int64_t from =
              int64_t{WeightRow(operands, first, r)} * row_bytes + ByteOf(ahead.k);
          const int shift = static_cast<int>(from & 15);
          if (chunk * 16 >= shift + data) continue;
          const int64_t begin = from - shift + chunk * 16;
          const int in_ring = copied * kCopyBytes + r * kPitch + chunk * 16;
          if (begin + 16 > all) {
            // The weight's last bytes, not beyond them; the warp meets before it reads.
#pragma unroll 1
            for (int j = 0; j < static_cast<int>(all - begin); ++j) {
              packed[in_ring + j] = weight[begin + j];
            }
            continue;
          }
          CopyAsync(SharedAddress(packed) + in_ring, weight + begin);
        }
      }
      if (!ahead.done()) {
        ahead.k += kCopyK;
        ahead.SkipEmptyParts(operands);
      }
      CommitCopies();
      copied = copied + 1 == kCopies ? 0 : copied + 1;
    }

    // The stage before this one.
    DEVICE void GiveUpLast() const {
      const int last = stage == 0 ? kStages - 1 : stage - 1;
      if (threadIdx.x % kWarpThreads == 0) Arrive(ring.free(last));
    }

    // The products of part `part` of a tile that begins at row `row_begin`, from zero.
    DEVICE void Multiply(const LinearOperands& operands, int row_begin, int part,
                         float (&sum)[kTokens / 2]) {
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) sum[i] = 0;
      const int part_begin = PartBegin(operands.k, part);
      const int part_end = PartBegin(operands.k, part + 1);
      if (part_begin == part_end) return;
      const int lane = threadIdx.x % kWarpThreads;
      const auto row_bytes = static_cast<uint32_t>(ByteOf(operands.k));
      uint32_t shift[2];  // of this lane's rows, of byte 0
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = WeightRow(operands, row_begin + in_tile, lane / 4 + 8 * i);
        shift[i] = static_cast<uint32_t>(row) * row_bytes;
      }
      for (int k = part_begin; k < part_end; k += kCopyK) {
        WaitForCopies<kCopies - 2>();
        SyncWarp();
        Copy(operands);  // into the stage that the round before this one read
        const uint8_t* rows[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          rows[i] = packed + read * kCopyBytes + (lane / 4 + 8 * i) * kPitch +
                    ((shift[i] + static_cast<uint32_t>(ByteOf(k))) & 15);
        }
        read = read + 1 == kCopies ? 0 : read + 1;
        Fours fours[2];
        uint32_t a[kBuffers][kStageK / kStepK][4];
        // No branches: products would run one after another.
#pragma unroll
        for (int begin = 0; begin < kCopyK; begin += kStageK) {
          auto& elements = a[begin / kStageK % kBuffers];
#pragma unroll
          for (int step = 0; step < kStageK / kStepK; ++step) {
            const int at = begin + step * kStepK;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              if (at % Fours::kSpan == 0) {
                fours[i].Load(rows[i] + ByteOf(at), at % Fours::kElements / Fours::kSpan, lane % 4);
              }
              float values[4];
              fours[i].Four(at % Fours::kSpan / kStepK, values);
              elements[step][i] = Pack<Element>(values[0], values[1]);
              elements[step][2 + i] = Pack<Element>(values[2], values[3]);
            }
          }
          WaitForPhase(ring.full(stage), parity);
          const Operand x = OperandAt(ring.x(stage));
          HoldElements(elements);
          BeginProducts();
#pragma unroll
          for (int step = 0; step < kStageK / kStepK; ++step) {
            WarpgroupRowProduct<Element, kTokens, 0>::Run(
                sum, elements[step], x + 2 * step, step > 0 || begin > 0 || k > part_begin);
          }
          CommitProducts();
          WaitForProducts<kBuffers - 1>();
          if (kBuffers == 2 && (begin > 0 || k > part_begin)) GiveUpLast();
          if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
          }
          if (kBuffers == 1) GiveUpLast();
        }
      }
      WaitForProducts<0>();
      HoldProducts(sum);
      if (kBuffers == 2) GiveUpLast();
    }
  };
};

#endif  // QUIRE_LINEAR_BLOCKS_RING_CUH_
