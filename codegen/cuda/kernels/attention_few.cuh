// The attention entry for tiles of few rows.
//
// A block's units go to its teams of kShare warps in turn. A team walks its chunks through its own
// ring (attention_tiles.cuh); its warps read the same tiles, and have kWarpRows rows each. Products
// have tokens (of values: columns) in the place of rows and 8 query rows in that of columns, so
// that up to 8 rows cost what 8 do; p is turned in registers.
//
// Where there is no more than a chunk for each block, its warps share one instead: warp w scores
// every kWarps'th tile from tile w on, p and largest scores pass through shared memory, and each
// warp sums its columns of all tiles. More than 8 rows are gone through 8 at a time where groups
// have no more.
//
// Merge:   chunks of a pair that begins in the block are folded in order: each warp waits for the
//          one before its chunk, folds what that left in shared memory, and hands on. What a block
//          has of a pair that it does not have all of goes to memory (Partial): its chunks, each
//          alone, or, of the block that has the first, folded, in the last one's place. The block
//          whose arrival completes the pair folds that in order, last of all that the block does.
//          No block waits.
#ifndef QUIRE_ATTENTION_FEW_CUH_
#define QUIRE_ATTENTION_FEW_CUH_

#include "attention_warp.cuh"

// A team's warp: walks its own chunks.
struct WalkingWarp : FewWarp {
  // Tiles that are waited for at once.
  static constexpr int kAtOnce = kStages >= 6 ? 2 : 1;
  static constexpr int kRingBytes = kStages * kSlotBytes;
  TileFeed<false> feed;
  uint32_t slot;  // of the next tile to read

  DEVICE int part() const { return kShare > 1 ? warp % kShare : 0; }
  DEVICE void SyncTeam() const {
    if constexpr (kShare > 1) {
      SyncThreads(1 + warp / kShare, kShare * kWarpThreads);
    } else {
      SyncWarp();
    }
  }
  DEVICE uint32_t Ring() const { return SharedAddress(shared) + warp / kShare * kRingBytes; }
  DEVICE uint32_t After(uint32_t at) const {
    return at + kSlotBytes == Ring() + kRingBytes ? Ring() : at + kSlotBytes;
  }
  // The slots of the team's next tiles, which have landed; those before them are filled.
  template <int kUnrolled>
  DEVICE void Next(int phase, uint32_t (&at)[kAtOnce]) {
    WaitForCopies<kStages - 2 * kAtOnce>();
    SyncTeam();
    uint32_t to = slot - kAtOnce * kSlotBytes;
    if (slot < Ring() + kAtOnce * kSlotBytes) to += kRingBytes;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      at[i] = slot;
      slot = After(slot);
    }
#pragma unroll(kUnrolled)
    for (int i = 0; i < kAtOnce; ++i) {
      feed.Issue((phase + i + kStages - kAtOnce) % feed.kPhases, to);
      to = After(to);
    }
  }

  // A chunk. Where most tiles have up to 8 rows, those of 16 have loops over a step's tiles: a
  // launch that has both waits for both texts. What a loop reads next comes first among the
  // registers that it goes through.
  template <int kBlocks>
  DEVICE void Walked(const Segment& segment) {
    constexpr int kUnrolled = kBlocks == 1 || kGroup > 8 ? kStepTiles : 1;
    const int first_row = part() * kWarpRows;
    const WholeSteps whole(segment.tile(operands.plan));
    RowInfo rows[kBlocks][2];
    LoadRows(rows, segment, first_row);
    uint32_t q[kSteps16][kBlocks][2];
    LoadQuery(q, segment, first_row);
    DownSums<kBlocks, kColumnTiles> chunk;
    chunk.Clear();
#pragma unroll 1
    for (int step = segment.step_begin; step < segment.step_end; ++step) {
      float s[kStepTiles][kBlocks][4];
#pragma unroll
      for (int i = 0; i < kStepTiles * kBlocks * 4; ++i) {
        s[i / 4 / kBlocks][i / 4 % kBlocks][i % 4] = 0;
      }
#pragma unroll(kUnrolled)
      for (int j = 0; j < kStepTiles; j += kAtOnce) {
        MoveUp<kAtOnce>(s);
        uint32_t keys[kAtOnce];
        Next<kUnrolled>(j, keys);
        Score<kBlocks, kAtOnce>(s + kStepTiles - kAtOnce, q, keys);
      }
      if (!kPlain || step < whole.begin || step >= whole.end) {
#pragma unroll
        for (int j = 0; j < kStepTiles; ++j) {
          Finish(s[j], rows, whole, step, step * kStepTokens + j * kTileTokens);
        }
      }
      float largest[kBlocks][2];
      LargestDown(s, largest);
      bool higher = false;
#pragma unroll
      for (int i = 0; i < kBlocks * 2; ++i) {
        const float m = chunk.m[i / 2][i % 2];
        higher |= RaiseMaximum(m, largest[i / 2][i % 2]) != m;
      }
      if (AnyLane(higher)) {
        OverLanes(largest);
#pragma unroll
        for (int i = 0; i < kBlocks * 2; ++i) {
          largest[i / 2][i % 2] = RaiseMaximum(chunk.m[i / 2][i % 2], largest[i / 2][i % 2]);
        }
        chunk.RaiseTo(largest);
      }
      uint32_t p[kStepTiles][kBlocks][2];
#pragma unroll
      for (int j = 0; j < kStepTiles; ++j) Weights(p[j], s[j], chunk.m);
#pragma unroll(kUnrolled)
      for (int j = 0; j < kStepTiles; j += kAtOnce) {
        uint32_t values[kAtOnce];
        Next<kUnrolled>(kStepTiles + j, values);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) SumOnes(chunk.l, p[i]);
#pragma unroll
        for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) Sum(chunk.o[c], p[i], values[i], c);
        }
        MoveUp<kAtOnce>(p);
      }
    }
    Close(chunk, segment, first_row);
  }

  // The warps whose chunks of pairs of this block follow each other meet two by two.
  static constexpr int kTurns = 8;  // the first barrier
  DEVICE int Turn(int team) const { return kTurns + part() * kTeams + team; }

  template <int kBlocks>
  DEVICE void Close(DownSums<kBlocks, kColumnTiles>& chunk, const Segment& segment,
                    int first_row) const {
    const BlockStart& start = Walk::Of(operands.plan);
    const int first_unit = segment.unit - segment.chunk;
    const bool is_first = part() == 0 && lane == 0;
    if (first_unit < start.unit) {  // the pair begins in another block
      if (segment.unit == start.unit && is_first) {
        const int left = segment.chunks - segment.chunk, units = start.unit_end - start.unit;
        Open(0) = {segment, left < units ? left : units, 0};
      }
    } else {
      // The first unit of such a pair has none to wait for.
      const int before = start.tile.unit * kHkv, chunks = start.tile.chunks();
      const int in_pair = (start.unit - before) % chunks;
      const int first_owned = in_pair == 0 ? start.unit : start.unit + chunks - in_pair;
      const int team = warp / kShare;
      if (segment.unit != first_owned) SyncThreads(Turn(team), 2 * kWarpThreads);
      const bool ends = segment.unit + 1 == start.unit_end;
      const SumWords<kBlocks> words{reinterpret_cast<Words4*>(shared + kSumsAt) +
                                    part() * kSumVectors * kWarpThreads + lane};
      if (segment.chunk != 0) words.FoldInto(chunk);
      if (!segment.last() && !ends) words.Keep(chunk);
      if (!ends) ArriveAtThreads(Turn((team + 1) % kTeams), 2 * kWarpThreads);
      if (segment.last()) Write(chunk, segment, first_row, 0, 1);
      if (segment.last() || !ends) return;
      if (is_first) Open(1) = {segment, segment.chunk + 1, segment.chunk + 1};
    }
    Publish(chunk, segment, first_row, 0, 1);
  }

  DEVICE void Run() {
    const int team = warp / kShare;
    feed.Start(team, kStages - kAtOnce, Ring());
    slot = Ring();
    Walk walk;
    walk.Start(operands.plan, team);
    Segment segment;
    while (walk.Next(operands.plan, segment)) {
      if (kWarpRows > 8 && (kGroup > 8 || segment.tile(operands.plan).rows > 8)) {
        Walked<kWarpRows / 8>(segment);
      } else {
        Walked<1>(segment);
      }
    }
  }
};

// A warp of a block that shares a chunk, the block's only one.
struct SharingWarp : FewWarp {
  using Feed = TileFeed<true>;
  static constexpr int kPhases = Feed::kPhases;
  static constexpr int kSlots = kStages / kShare < kPhases ? kStages / kShare : kPhases;
  static constexpr int kStepWarps = kWarps / kStepTiles;
  static constexpr int kOwnTiles = DivideUp(kColumnTiles, kWarps);
  // Rows at once. Few tiles have more than 8 where groups have not.
  static constexpr int kRows = kGroup > 8 ? kFewRows : 8, kBlocks = kRows / 8;
  using Scores = float[kTilesEach][kBlocks][4];
  Feed feed;

  DEVICE uint32_t Ring() const { return SharedAddress(shared) + warp * kSlots * kSlotBytes; }
  DEVICE uint8_t* AllWeights() const { return shared + kSumsAt; }
  // The largest scores of a tile of the chunk, of this lane's rows of eight.
  struct alignas(8) Two {
    float of[2];
  };
  DEVICE Two& LargestOf(int tile, int eight) const {
    const int at = tile * (kFewRows / 2) + eight * 4 + lane % 4;
    return reinterpret_cast<Two*>(shared + kLargestAt)[at];
  }

  // The warp's tiles' scores, and for all warps their largest.
  DEVICE void ScoreTiles(Scores& s, const Segment& segment, int first_row, int first_step) {
    const WholeSteps whole(segment.tile(operands.plan));
    RowInfo rows[kBlocks][2];
    LoadRows(rows, segment, first_row);
    uint32_t q[kSteps16][kBlocks][2];
    LoadQuery(q, segment, first_row);
    WaitForCopies<kMayShareChunk ? kSlots - kTilesEach : 0>();
    SyncWarp();
    uint32_t keys[kTilesEach];
#pragma unroll
    for (int i = 0; i < kTilesEach; ++i) keys[i] = Ring() + i * kSlotBytes;
    Score<kBlocks, kTilesEach>(s, q, keys);
    SyncWarp();
#pragma unroll 1
    for (int i = kSlots; i < kPhases; ++i) feed.Issue(i, Ring() + (i - kSlots) * kSlotBytes);
#pragma unroll
    for (int i = 0; i < kTilesEach; ++i) {
      const int tile = warp + i * kWarps;  // of the chunk
      Finish(s[i], rows, whole, first_step + tile / kStepTiles,
             first_step * kStepTokens + tile * kTileTokens);
      float largest[kBlocks][2];
#pragma unroll
      for (int r = 0; r < kBlocks * 2; ++r) {
        largest[r / 2][r % 2] = Max(s[i][r / 2][r % 2], s[i][r / 2][r % 2 + 2]);
      }
      OverLanes(largest);
      if (lane < 4) {
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          LargestOf(tile, b) = {{largest[b][0], largest[b][1]}};
        }
      }
    }
  }
  // The largest scores of step `j` of the chunk.
  DEVICE void StepLargest(float (&largest)[kBlocks][2], int j) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      Two x = LargestOf(j * kStepTiles, b);
#pragma unroll
      for (int i = 1; i < kStepTiles; ++i) {
        const Two more = LargestOf(j * kStepTiles + i, b);
        x = {{Max(x.of[0], more.of[0]), Max(x.of[1], more.of[1])}};
      }
      largest[b][0] = x.of[0];
      largest[b][1] = x.of[1];
    }
  }
  // For all warps the warp's tiles' weights; the maxima after each step.
  DEVICE void WeighTiles(const Scores& s, float (&maxima)[kChunkSteps][kBlocks][2]) const {
#pragma unroll
    for (int j = 0; j < kChunkSteps; ++j) {
      float(&m)[kBlocks][2] = maxima[j];
      StepLargest(m, j);
#pragma unroll
      for (int r = 0; r < kBlocks * 2; ++r) {
        m[r / 2][r % 2] =
            RaiseMaximum(j > 0 ? maxima[j - 1][r / 2][r % 2] : kLowest, m[r / 2][r % 2]);
      }
      // Of kStepWarps steps together the warp has one tile.
      if (kStepWarps > 1 && warp / kStepTiles != j % kStepWarps) continue;
      const int tile = warp + j / kStepWarps * kWarps;
      uint32_t p[kBlocks][2];
      Weights(p, s[j / kStepWarps], m);
#pragma unroll
      for (int r = 0; r < kBlocks * 2; ++r) {
        *reinterpret_cast<uint32_t*>(
            AllWeights() + ChunkWeightRows::Offset(r / 2 * 8 + lane / 4, 2 * tile + r % 2) +
            lane % 4 * 4) = p[r / 2][r % 2];
      }
    }
  }
  // The warp's columns of all tiles of step `j`.
  DEVICE void SumStep(DownSums<kBlocks, kOwnTiles>& sums, int j) const {
#pragma unroll
    for (int w = 0; w < kStepTiles; w += 2) {
      const int tile = j * kStepTiles + w;
      // Values of tile t, where warp t % kWarps brought them.
      const uint32_t values =
          SharedAddress(shared) +
          (tile % kWarps * kSlots + (kTilesEach + tile / kWarps) % kSlots) * kSlotBytes;
      uint32_t words[kBlocks][4];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        LoadMatrices(words[b], SharedAddress(AllWeights()) +
                                   ChunkWeightRows::Offset(b * 8 + lane % 8, 2 * tile + lane / 8));
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t p[kBlocks][2];
#pragma unroll
        for (int i = 0; i < kBlocks * 2; ++i) p[i / 2][i % 2] = words[i / 2][2 * half + i % 2];
        SumOnes(sums.l, p);
#pragma unroll
        for (int c = 0; c < kOwnTiles; ++c) {
          const int column_tile = warp + c * kWarps;
          if (kColumnTiles % kWarps != 0 && column_tile >= kColumnTiles) continue;
          Sum(sums.o[c], p, values + half * kSlots * kSlotBytes, column_tile);
        }
      }
    }
  }

  // The block's chunk for kRows rows.
  DEVICE void Shared(const Segment& segment, int first_row) {
    const int first_step = segment.step_begin / kChunkSteps * kChunkSteps;
    Scores s;
    ScoreTiles(s, segment, first_row, first_step);
    SyncBlock();
    float maxima[kChunkSteps][kBlocks][2];
    WeighTiles(s, maxima);
    WaitForCopies<0>();
    SyncBlock();
    DownSums<kBlocks, kOwnTiles> sums;
    sums.Clear();
#pragma unroll
    for (int j = 0; j < kChunkSteps; ++j) {
      if (first_step + j < segment.step_begin || first_step + j >= segment.step_end) continue;
      sums.RaiseTo(maxima[j]);
      SumStep(sums, j);
    }
    if (segment.chunks == 1) {
      Write(sums, segment, first_row, warp, kWarps);
    } else {
      Publish(sums, segment, first_row, warp, kWarps);
    }
  }

  DEVICE void Run() {
    Walk walk;
    walk.Start(operands.plan, 0);
    Segment segment;
    const bool there = walk.Next(operands.plan, segment);
#pragma unroll 1
    for (int first_row = 0;;) {
      // Without a chunk, too: the prior grid is waited for.
      feed.Start(0, kSlots, Ring());
      if (!there) return;
      Shared(segment, first_row);
      first_row += kRows;
      if (kRows == kFewRows || first_row >= segment.tile(operands.plan).rows) break;
      SyncBlock();  // all is free
    }
    if (segment.chunks > 1 && threadIdx.x == 0) Open(0) = {segment, 1, segment.chunk == 0};
  }
};

struct Attention {
  static DEVICE void Attend(const AttentionOperands& operands) {
    const int warp = threadIdx.x / kWarpThreads, lane = threadIdx.x % kWarpThreads;
    const FewWarp self{operands, SharedMemory(), warp, lane};
    const BlockStart& start = Walk::Of(operands.plan);
    if (start.unit == start.unit_end) return;
    if (threadIdx.x < 2) self.Open(threadIdx.x).units = 0;
    SyncBlock();
    if (kMayShareChunk && start.together != 0) {
      if constexpr (kMayShareChunk) SharingWarp{{self}, {operands, lane, warp}}.Run();
    } else {
      WalkingWarp{{self}, {operands, lane, warp % kShare}}.Run();
    }
    SyncBlock();
    if (self.Open(0).units + self.Open(1).units == 0) return;
    SyncBlock();
    if (lane == 0 && warp < 2 && self.Open(warp).units != 0) self.Arrive(self.Open(warp));
    SyncBlock();
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      if (self.Open(i).units != 0) self.Merge(self.Open(i));
    }
  }
  static DEVICE void Run(const AttentionOperands& operands) {
    AllowNextGrid();
    Attend(operands);
    // One block waits for the prior grid in any case, so that those behind this one do.
    if (blockIdx.x == 0) WaitForPriorGrid();
  }
};

#endif  // QUIRE_ATTENTION_FEW_CUH_
