// Keys and values of E4m3 on their way to products of warpgroups, which read Elements: copies bring
// bytes to a ring of their own, and three warps write what they equal to the stages that products
// read.
//
// A stage of bytes has the keys of a step, then its values, rows of up to 128 columns, each
// [kStepTokens][128], swizzled as the copies are: chunk c of row r of 16 bytes lies at c ^ r % 8.
#ifndef QUIRE_ATTENTION_BYTES_CUH_
#define QUIRE_ATTENTION_BYTES_CUH_

#include "attention.cuh"
#include "hopper.cuh"

struct StageBytes {
  static constexpr int kBytes = kStepTokens * 128;  // of keys, or of values
  static constexpr int kWarps = 3;
  // Eights of rows, keys' and then values'.
  static constexpr int kEights = kStepTokens / 8, kAllEights = 2 * kEights;
  // A lane has a row's every fourth chunk. Eight lanes with the same have different banks.
  static constexpr int kChunks = kD / 16, kEach = DivideUp(kD, 64);
  using Chunks = Words4[kEach];

  static DEVICE bool HasChunk(int lane, int i) {
    return kChunks % 4 == 0 || lane / 8 + 4 * i < kChunks;
  }
  static DEVICE void Load(Chunks& chunks, const uint8_t* eight, int lane) {
    const int at = lane % 8 * 128 + (lane / 8 ^ lane % 8) * 16;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (HasChunk(lane, i)) chunks[i] = *reinterpret_cast<const Words4*>(eight + (at ^ i * 64));
    }
  }
  // To rows of Elements, in panels of 64 columns kPanelBytes apart.
  template <int kPanelBytes>
  static DEVICE void Widen(const Chunks& chunks, uint8_t* eight, int lane) {
    const int at = lane % 8 * 128 + (lane / 8 * 2 ^ lane % 8) * 16;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (!HasChunk(lane, i)) continue;
      Words4 words;
      WidenHalves<Element>(chunks[i].x, words.x, words.y);
      WidenHalves<Element>(chunks[i].y, words.z, words.w);
      *reinterpret_cast<Words4*>(eight + at + i * kPanelBytes) = words;
      WidenHalves<Element>(chunks[i].z, words.x, words.y);
      WidenHalves<Element>(chunks[i].w, words.z, words.w);
      *reinterpret_cast<Words4*>(eight + (at ^ 16) + i * kPanelBytes) = words;
    }
  }

  // One of the warps 0, 2 and 3 of a block: every third eight of all steps.
  template <typename Ring>
  static DEVICE void WidenSteps(const Ring& ring) {
    const int first = ring.warp == 0 ? 0 : ring.warp - 1;
    const auto place = [&](uint32_t address) { return SharedMemory() + address - ring.begin; };
    typename Ring::KeyTurn stage;
    typename Ring::CopiedTurn copied;
    for (typename Ring::TileTurn turn;; turn.Next()) {
      WaitForPhase(ring.tile_noted(turn.at), turn.parity);
      const typename Ring::TileNote& of = ring.note(turn.at);
      if (Uniform(of.head) < 0) return;
      const int steps = Uniform(Ring::StepEnd(of.tile) - of.tile.step_begin);
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const uint8_t* from = place(ring.bytes(copied.at));
        uint8_t* keys = place(ring.keys(stage.at));
        uint8_t* values = place(ring.values(stage.at));
        WaitForPhase(ring.bytes_full(copied.at), copied.parity);
        Chunks chunks, next;
        Load(next, from + first * 1024, ring.lane);
        WaitForPhase(ring.key_free(stage.at), stage.parity ^ 1);
#pragma unroll
        for (int i = 0; i < DivideUp(kAllEights, kWarps); ++i) {
          const int eight = first + i * kWarps;
          if (kAllEights % kWarps != 0 && eight >= kAllEights) break;
#pragma unroll
          for (int j = 0; j < kEach; ++j) chunks[j] = next[j];
          if (eight + kWarps < kAllEights) Load(next, from + (eight + kWarps) * 1024, ring.lane);
          Widen<Ring::kPanelBytes>(chunks,
                                   eight < kEights
                                       ? keys + eight * Ring::kGroupBytes
                                       : values + (eight - kEights) * Ring::kGroupBytes,
                                   ring.lane);
        }
        FenceShared();
        SyncWarp();
        ring.ArriveOnce(ring.bytes_free(copied.at));
        ring.ArriveOnce(ring.key_full(stage.at));
        copied.Next();
        stage.Next();
      }
    }
  }
};

#endif  // QUIRE_ATTENTION_BYTES_CUH_
