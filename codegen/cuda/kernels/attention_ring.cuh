// The shared memory of a block of attention_warpgroup.cuh or attention_wide.cuh: tiles, their q, and
// rings of steps' keys and of their values, brought by warpgroup 0 (attention_bring.cuh) for the
// others.
//
// Barriers: of each stage full and free (a step's keys and values have the same, but of wide
//           heads); of each tile noted (which it is), full (its q), free; of
//           wide heads' weights full and free; of each stage of bytes full and free.
//
// Rows lie in panels of 64 columns, 128 bytes, swizzled, the last filled up with zeros.
//
// Shared memory, in bytes:
//   0             q of kTiles tiles: [2][kPanels][64 rows][128]
//   kRingAt       steps' keys [kKeyStages], then values [kValueStages], each
//                 [kStepTokens / 8][kPanels][8][128] where a row's panels are whole (kGrouped),
//                 else [kPanels][kStepTokens][128]
//   kBytesAt      of E4m3: StageBytes' keys and values [kBytesStages]
//   kSharedAt     of wide heads: SharedWeights [2]
//   kOnesAt       1024 of ones
//   kBarriersAt   of 8 each: stages full, stages free, tiles noted, full, free, of wide heads
//                 weights full, weights free, and of E4m3 bytes full, bytes free
//   kNotesAt      TileNote [kTiles]
#ifndef QUIRE_ATTENTION_RING_CUH_
#define QUIRE_ATTENTION_RING_CUH_

#include "attention_bytes.cuh"
#include "hopper.cuh"

struct AttentionRing {
  static constexpr int kConsumers = 2, kGroupRows = 64, kWarpgroupWarps = 4;
  // Of wide heads the warpgroups have the same rows.
  static constexpr int kRowGroups = kWide ? 1 : kConsumers;
  static constexpr int kTiles = kWide ? 1 : 2;  // q of so many
  static constexpr bool kQueryBoxes = kGroupRows % kGroup == 0;
  static constexpr int kPanels = DivideUp(kD, 64);  // of a row
  static constexpr int kRowBytes = kPanels * 128;
  static constexpr bool kGrouped = kD % 64 == 0;
  // Between keys' or values' eights of rows, and between their panels.
  static constexpr int kGroupBytes = kGrouped ? 8 * kRowBytes : 1024;
  static constexpr int kPanelBytes = kGrouped ? 1024 : kStepTokens * 128;
  static constexpr int kRunTokens = CommonDivisor(kStepTokens, kPageTokens);
  static constexpr int kRuns = kStepTokens / kRunTokens;
  static_assert(kD == kDv && kRunTokens % 8 == 0 && kRuns <= kWarpThreads);
  static_assert(!kNarrow || !kWide, "stages of bytes have rows of up to 128");
  static_assert(kManyRows == kRowGroups * kGroupRows);
  static_assert(kThreads == (1 + kConsumers) * kWarpgroupThreads);
  // Of SyncThreads, between warps 0 and 1: copies of a tile's steps have begun; which tile it is, of
  // each of kTiles, has been read, where the former is not waited for each time.
  static constexpr int kCopiedBarrier = 5, kReadBarrier = 6;
  static constexpr bool kTellsRead = kQueryBoxes && !kNarrow;

  // kStages counts pairs of keys and values, or, of wide heads, either.
  static constexpr int kKeyStages = kWide ? (kStages + 1) / 2 : kStages;
  static constexpr int kValueStages = kWide ? kStages / 2 : kStages;
  static_assert(kWide ? kValueStages >= 2 : kStages >= 3, "what is read at once");

  struct SharedWeights {
    uint8_t p[kGroupRows * 128];  // of a step, swizzled
    float m[kGroupRows];          // that they are relative to
    uint8_t padding[1024 - kGroupRows * 4];
  };
  struct alignas(16) TileNote {
    Tile tile;
    int head;  // -1: there is no more
    int padding[3];
    int rows[8];  // where the first step's keys begin in the layer, by run
  };
  static_assert(kRuns <= 8);

  static constexpr int kGroupQueryBytes = kGroupRows * kRowBytes;
  static constexpr int kQueryBytes = kRowGroups * kGroupQueryBytes;
  static constexpr int kStageBytes = kStepTokens * kRowBytes;
  static constexpr int kRingAt = kTiles * kQueryBytes;
  static constexpr int kBytesAt = kRingAt + (kKeyStages + kValueStages) * kStageBytes;
  static constexpr int kBytesStages = kNarrow ? (kStages + 1) / 2 : 0;
  static constexpr int kSharedAt = kBytesAt + kBytesStages * 2 * StageBytes::kBytes;
  static constexpr int kWeights = kWide ? kConsumers : 0;
  static constexpr int kOnesAt = kSharedAt + kWeights * static_cast<int>(sizeof(SharedWeights));
  static constexpr int kBarriersAt = kOnesAt + 1024;
  static constexpr int kBarriers = 2 * (kKeyStages + kValueStages) + 3 * kTiles + 2 * kWeights +
                                   2 * kBytesStages;
  // The warps that bring q where copies of boxes do not.
  static constexpr int kQueryWarps = kNarrow ? 1 : kWarpgroupWarps - 1;
  static constexpr int kNotesAt = DivideUp(kBarriersAt + 8 * kBarriers, 16) * 16;
  static_assert(kSharedBytes >= kNotesAt + kTiles * static_cast<int>(sizeof(TileNote)),
                "the launch rule's bytes");

  // One of `kCount` places that are used in turn, and the parity of its phase.
  template <int kCount>
  struct Turn {
    int at = 0, parity = 0;

    DEVICE void Next() {
      if (++at == kCount) {
        at = 0;
        parity ^= 1;
      }
    }
  };
  using KeyTurn = Turn<kKeyStages>;
  using CopiedTurn = Turn<kNarrow ? kBytesStages : kKeyStages>;  // of what copies bring
  using ValueTurn = Turn<kValueStages>;
  using TileTurn = Turn<kTiles>;

  const AttentionOperands& operands;
  const int warp, lane;
  const uint32_t begin;  // shared addresses from here on

  DEVICE uint32_t query(int tile, int group) const {
    return begin + tile * kQueryBytes + group * kGroupQueryBytes;
  }
  DEVICE uint32_t keys(int stage) const { return begin + kRingAt + stage * kStageBytes; }
  DEVICE uint32_t values(int stage) const { return keys(kKeyStages + stage); }
  DEVICE uint32_t weights(int consumer) const {
    return begin + kSharedAt + consumer * static_cast<int>(sizeof(SharedWeights));
  }
  DEVICE SharedWeights& shared_weights(int consumer) const {
    return reinterpret_cast<SharedWeights*>(SharedMemory() + kSharedAt)[consumer];
  }
  DEVICE uint32_t ones() const { return begin + kOnesAt; }
  DEVICE uint32_t bytes(int stage) const {
    return begin + kBytesAt + stage * 2 * StageBytes::kBytes;
  }

  // Values of a stage but its tokens from `keep_begin` to `keep_end` become zeros: they may be NaN,
  // which times zero is no zero. By a warpgroup, which meets before it reads them; both write the
  // same.
  DEVICE void KeepValues(int stage, int keep_begin, int keep_end) const {
    uint8_t* to = SharedMemory() + values(stage) - begin;
    constexpr int kRowUnits = kRowBytes / 16;
    for (int at = threadIdx.x % kWarpgroupThreads; at < kStepTokens * kRowUnits;
         at += kWarpgroupThreads) {
      const int row = at / kRowUnits, unit = at % kRowUnits;
      if (row >= keep_begin && row < keep_end) continue;
      *reinterpret_cast<Words4*>(to + row / 8 * kGroupBytes + unit / 8 * kPanelBytes +
                                 row % 8 * 128 + unit % 8 * 16) = Words4{};
    }
    FenceShared();
  }

  DEVICE uint32_t barrier(int number) const { return begin + kBarriersAt + 8 * number; }
  DEVICE uint32_t key_full(int stage) const { return barrier(stage); }
  DEVICE uint32_t value_full(int stage) const { return barrier(kKeyStages + stage); }
  DEVICE uint32_t key_free(int stage) const { return value_full(kValueStages + stage); }
  DEVICE uint32_t value_free(int stage) const { return key_free(kKeyStages + stage); }
  DEVICE uint32_t tile_noted(int tile) const { return value_free(kValueStages + tile); }
  DEVICE uint32_t tile_full(int tile) const { return tile_noted(kTiles + tile); }
  DEVICE uint32_t tile_free(int tile) const { return tile_noted(2 * kTiles + tile); }
  DEVICE uint32_t weights_full(int consumer) const { return tile_noted(3 * kTiles + consumer); }
  DEVICE uint32_t weights_free(int consumer) const { return weights_full(kWeights + consumer); }
  DEVICE uint32_t bytes_full(int stage) const { return weights_full(2 * kWeights + stage); }
  DEVICE uint32_t bytes_free(int stage) const { return bytes_full(kBytesStages + stage); }

  DEVICE void Init() const {
    constexpr int kAllWarps = kConsumers * kWarpgroupWarps;
    for (int i = 0; i < kKeyStages; ++i) {
      InitBarrier(key_full(i), kNarrow ? StageBytes::kWarps : 1);
      InitBarrier(key_free(i), kWide ? kWarpgroupWarps : kAllWarps);
    }
    for (int i = 0; i < kValueStages; ++i) {
      InitBarrier(value_full(i), 1);
      InitBarrier(value_free(i), kAllWarps);
    }
    for (int i = 0; i < kTiles; ++i) {
      InitBarrier(tile_noted(i), 1);
      InitBarrier(tile_full(i), kQueryBoxes ? 1 : kQueryWarps);
      InitBarrier(tile_free(i), kAllWarps);
    }
    for (int i = 0; i < kWeights; ++i) {
      InitBarrier(weights_full(i), kWarpgroupWarps * kWarpThreads);
      InitBarrier(weights_free(i), kAllWarps);
    }
    for (int i = 0; i < kBytesStages; ++i) {
      InitBarrier(bytes_full(i), 1);
      InitBarrier(bytes_free(i), StageBytes::kWarps);
    }
    FenceBarriers();
  }
  DEVICE TileNote& note(int tile) const {
    return reinterpret_cast<TileNote*>(SharedMemory() + kNotesAt)[tile];
  }

  // For the warp.
  DEVICE void ArriveOnce(uint32_t barrier) const {
    if (lane == 0) Arrive(barrier);
  }
  // A tile that all lanes have alike.
  static DEVICE Tile UniformTile(const Tile& from) {
    Tile tile = {};
    tile.first_row = Uniform(from.first_row);
    tile.tokens = Uniform(from.tokens);
    tile.context = Uniform(from.context);
    tile.pages_begin = Uniform(from.pages_begin);
    tile.row = Uniform(from.row);
    tile.rows = Uniform(from.rows);
    tile.step_begin = Uniform(from.step_begin);
    tile.step_end = Uniform(from.step_end);
    return tile;
  }
  // One step at least: the rows of a tile that sees nothing are written, too.
  static DEVICE int StepEnd(const Tile& tile) {
    return tile.step_end > tile.step_begin ? tile.step_end : tile.step_begin + 1;
  }
  // The first token that some row of a tile sees: pages before it may have gone.
  static DEVICE int FirstRead(const Tile& tile) {
    return kWindow > 0 ? tile.context - tile.tokens + tile.row / kGroup - kWindow + 1 : 0;
  }
};

#endif  // QUIRE_ATTENTION_RING_CUH_
