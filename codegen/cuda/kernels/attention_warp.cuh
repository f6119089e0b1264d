// What warps of the attention entry for few rows do to tiles and to sums, whoever has them.
#ifndef QUIRE_ATTENTION_WARP_CUH_
#define QUIRE_ATTENTION_WARP_CUH_

#include "attention_sums.cuh"

struct FewWarp {
  const AttentionOperands& operands;
  uint8_t* const shared;
  int warp, lane;

  DEVICE OpenPair& Open(int at) const { return reinterpret_cast<OpenPair*>(shared + kOpenAt)[at]; }
  template <int kBlocks>
  DEVICE void LoadQuery(uint32_t (&q)[kSteps16][kBlocks][2], const Segment& segment,
                        int first_row) const {
    const Tile& tile = segment.tile(operands.plan);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int row = first_row + 8 * b + lane / 4;
      const int in_sequence = tile.row + (row < tile.rows ? row : 0);
      const int64_t token = tile.first_row + in_sequence / kGroup;
      const Element* from =
          operands.q + (token * kHq + segment.head * kGroup + in_sequence % kGroup) * kD;
      if constexpr (kNarrow) {  // as WidenHalves gives keys
#pragma unroll
        for (int k = 0; k < kSteps16; ++k) {
          Words2 pair = {};
          if (row < tile.rows) {
            pair = *reinterpret_cast<const Words2*>(from + 16 * k + lane % 4 * 4);
          }
          q[k][b][0] = pair.x;
          q[k][b][1] = pair.y;
        }
        continue;
      }
#pragma unroll
      for (int k = 0; k < 2 * kSteps16; ++k) {
        const bool there = row < tile.rows && 8 * k < kD;
        q[k / 2][b][k % 2] =
            there ? *reinterpret_cast<const uint32_t*>(from + 8 * k + lane % 4 * 2) : 0;
      }
    }
  }
  // Scores of kTiles tiles of keys.
  template <int kBlocks, int kTiles>
  DEVICE void Score(float (*s)[kBlocks][4], const uint32_t (&q)[kSteps16][kBlocks][2],
                    const uint32_t (&keys)[kTiles]) const {
    const uint32_t first = KeyRows::Offset(lane % 16, kNarrow ? 0 : lane / 16);
#pragma unroll
    for (int i = 0; i < kTiles * kBlocks * 4; ++i) s[i / 4 / kBlocks][i / 4 % kBlocks][i % 4] = 0;
#pragma unroll
    for (int k = 0; k < kSteps16; ++k) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        uint32_t words[4];
        if constexpr (kNarrow) {
          uint32_t bytes[2];
          LoadMatrices(bytes, KeyRows::Along(keys[j] + first, k));
          WidenHalves<Element>(bytes[0], words[0], words[2]);
          WidenHalves<Element>(bytes[1], words[1], words[3]);
        } else {
          LoadMatrices(words, KeyRows::Along(keys[j] + first, 2 * k));
        }
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) Mma<Element>(s[j][b], words, q[k][b][0], q[k][b][1]);
      }
    }
  }
  // o += v^T p of a tile.
  template <int kBlocks>
  DEVICE void Sum(float (&o)[kBlocks][4], const uint32_t (&p)[kBlocks][2], uint32_t values,
                  int column_tile) const {
    uint32_t words[4];
    if constexpr (kNarrow) {
      // Rows are the tile's columns 0, 2, 4, ... and then those between.
      uint32_t bytes[2];
      const uint32_t first = values + ValueRows::Offset(lane % 16, 0);
      LoadMatricesTransposed(bytes, ValueRows::Along(first, column_tile));
      WidenInTurn<Element>(bytes[0], words[0], words[1]);
      WidenInTurn<Element>(bytes[1], words[2], words[3]);
    } else {
      const uint32_t first = values + ValueRows::Offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
      LoadMatricesTransposed(words, ValueRows::Along(first, 2 * column_tile));
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) Mma<Element>(o[b], words, p[b][0], p[b][1]);
  }
  template <int kBlocks>
  DEVICE void SumOnes(float (&l)[kBlocks][4], const uint32_t (&p)[kBlocks][2]) const {
    const uint32_t ones[4] = {Ones(), Ones(), Ones(), Ones()};
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) Mma<Element>(l[b], ones, p[b][0], p[b][1]);
  }
  // Weights of a tile's tokens, turned.
  template <int kBlocks>
  DEVICE void Weights(uint32_t (&p)[kBlocks][2], const float (&s)[kBlocks][4],
                      const float (&m)[kBlocks][2]) const {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        p[b][half] = TransposeMatrix(
            Pack<Element>(Weight(s[b][2 * half], m[b][0]), Weight(s[b][2 * half + 1], m[b][1])));
      }
    }
  }
  template <int kBlocks>
  DEVICE void LoadRows(RowInfo (&rows)[kBlocks][2], const Segment& segment, int first_row) const {
#pragma unroll
    for (int i = 0; i < kBlocks * 2; ++i) {
      rows[i / 2][i % 2].Load(operands, segment.tile(operands.plan), segment.head,
                              first_row + i / 2 * 8 + lane % 4 * 2 + i % 2);
    }
  }
  // Of a tile whose first token is `token`, in step `step`.
  template <int kBlocks>
  DEVICE void Finish(float (&s)[kBlocks][4], const RowInfo (&rows)[kBlocks][2],
                     const WholeSteps& whole, int step, int token) const {
    const bool masked = step < whole.begin || step >= whole.end;
    if (kPlain && !masked) return;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        FinishScore(operands, s[b][i], rows[b][i % 2], token + lane / 4 + i / 2 * 8, masked);
      }
    }
  }

  // What sums hold goes out: their tile c is the columns' tile first + c stride.
  template <int kBlocks, int kTiles>
  DEVICE void Write(const DownSums<kBlocks, kTiles>& sums, const Segment& segment, int first_row,
                    int first_tile, int tile_stride) const {
    const Tile tile = segment.tile(operands.plan);  // a copy, as y may not be told from it
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      float scale[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = first_row + 8 * b + lane % 4 * 2 + i;
        scale[i] =
            FinalScale(operands, QueryHead(tile, segment.head, row), sums.m[b][i], sums.l[b][i]);
      }
      const int row = first_row + 8 * b + lane / 4;
      Element* y = OutputRow(operands, tile, segment.head, row < tile.rows ? row : 0);
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        uint32_t words[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          words[half] = TransposeMatrix(Pack<Element>(Mul(sums.o[c][b][2 * half], scale[0]),
                                                      Mul(sums.o[c][b][2 * half + 1], scale[1])));
        }
        const int column_tile = (first_tile + c * tile_stride) * 16;
        if constexpr (kNarrow) {
          const int column = column_tile + lane % 4 * 4;
          if (row < tile.rows && column < kDv) {
            *reinterpret_cast<Words2*>(y + column) = {PermuteBytes(words[0], words[1], 0x5410),
                                                      PermuteBytes(words[0], words[1], 0x7632)};
          }
          continue;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = column_tile + half * 8 + lane % 4 * 2;
          if (row < tile.rows && column < kDv) {
            *reinterpret_cast<uint32_t*>(y + column) = words[half];
          }
        }
      }
    }
  }
  DEVICE const PlanHeader& Header() const { return Walk::Of(operands.plan).header; }
  DEVICE Partial* PartialOf(int unit) const {
    return reinterpret_cast<Partial*>(operands.plan + Header().partials_at) + unit;
  }
  template <int kBlocks, int kTiles>
  DEVICE void Publish(const DownSums<kBlocks, kTiles>& sums, const Segment& segment, int first_row,
                      int first_tile, int tile_stride) const {
    Partial* partial = PartialOf(segment.unit);
    const int rows = segment.tile(operands.plan).rows;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = first_row + 8 * b + lane % 4 * 2 + i;
        if (row >= rows) continue;
#pragma unroll
        for (int c = 0; c < kTiles; ++c) {
          const int column_tile = first_tile + c * tile_stride;
          if (column_tile >= kColumnTiles) continue;
          float* to = &partial->o[row][column_tile * 16 + lane / 4 * (kNarrow ? 2 : 1)];
          to[0] = sums.o[c][b][i];
          to[kNarrow ? 1 : 8] = sums.o[c][b][i + 2];
        }
        if (first_tile == 0 && lane < 4) {
          // All of it, as whole vectors are read.
          *reinterpret_cast<Words4*>(partial->statistics[row]) = {Bits(sums.m[b][i]),
                                                                  Bits(sums.l[b][i]), 0, 0};
        }
      }
    }
  }

  // All of the block's partials of an open pair are written. It stays if that completes it.
  DEVICE void Arrive(OpenPair& open) const {
    auto* arrivals =
        reinterpret_cast<uint32_t*>(operands.plan + Header().arrivals_at) + open.segment.pair;
    uint32_t count = static_cast<uint32_t>(open.units | open.folded << kFoldedShift);
    count += CountArrival(arrivals, count);
    constexpr uint32_t kUnits = (1u << kFoldedShift) - 1;
    if ((count & kUnits) == static_cast<uint32_t>(open.segment.chunks)) {
      *arrivals = 0;
      open.folded = static_cast<int>(count >> kFoldedShift);
    } else {
      open.units = 0;
    }
  }

  // ---- a complete pair's partials, folded by the block where the rings were

  // What folding a chunk multiplies a row's sums with, and adds to l; the maximum after it.
  struct alignas(16) FoldStep {
    float own, more, l, m;
  };
  static constexpr int kRowVectors = Partial::kColumns / 4;
  // Of the memory, FoldSteps have a third, and vectors of four columns the rest: kBatches times
  // kBatch for each thread, a batch a group of copies.
  static constexpr int kFoldSteps = kSumsAt / 3 / static_cast<int>(sizeof(FoldStep));
  static constexpr int kVectorsAt = kFoldSteps * static_cast<int>(sizeof(FoldStep));
  static constexpr int kRoom = (kSumsAt - kVectorsAt) / (kThreads * 16);
  static constexpr int kBatch = kRoom >= 16 ? 4 : 1;
  static constexpr int kBatches = kRoom / kBatch < 8 ? kRoom / kBatch : 8;
  static_assert(kFoldSteps >= kFewRows && kBatches >= 1);

  // Statistics (m, l) of `chunks` chunks of a row, which are where its FoldSteps go, become those,
  // by a warp. `m`: the maximum before them; after them it is returned.
  DEVICE float Scan(FoldStep* steps, int chunks, float m) const {
    for (int begin = 0; begin < chunks; begin += kWarpThreads) {
      const int at = begin + lane;
      FoldStep statistics = {kLowest, 0, 0, 0};
      if (at < chunks) statistics = steps[at];
      const float more_m = statistics.own;
      float before = m, after = m;
      // Few chunks raise the maximum.
      for (int from = 0;;) {
        const int raising = FirstLane(lane >= from && Raised(m, more_m) != m);
        if (raising == kWarpThreads) break;
        m = FromBits(Shuffle(Bits(more_m), raising));
        if (lane >= raising) after = m;
        if (lane > raising) before = m;
        from = raising + 1;
      }
      const float more = PowerOfTwo(Add(more_m, -after));
      if (at < chunks) {
        steps[at] = {PowerOfTwo(Add(before, -after)), more, Mul(statistics.more, more), after};
      }
    }
    return m;
  }

  // A thread's vectors of `chunks` chunks, one of its items after the other, on their way to shared
  // memory: a batch a group of copies, kBatches of them ahead.
  struct MergeFeed {
    const Partial* partials;  // of the first chunk
    int chunks, all, item_end;
    uint32_t ring;            // shared address of the thread's vectors, kThreads apart
    int item, chunk = 0, slot = 0;
    const float* from = nullptr;  // of `chunk` and `item`

    DEVICE void Enter() {
      const int at = threadIdx.x + item * kThreads;
      chunk = item < item_end && at < all ? 0 : chunks;
      if (chunk == 0) from = partials->o[at / kRowVectors] + at % kRowVectors * 4;
    }
    DEVICE void Issue() {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (chunk + i < chunks) {
          CopyAsync(ring + (slot + i) * kThreads * 16,
                    reinterpret_cast<const uint8_t*>(from) + i * sizeof(Partial));
        }
      }
      CommitCopies();
      slot = slot + kBatch == kBatches * kBatch ? 0 : slot + kBatch;
      chunk += kBatch;
      from = reinterpret_cast<const float*>(reinterpret_cast<const uint8_t*>(from) +
                                            kBatch * sizeof(Partial));
      if (chunk >= chunks) {
        ++item;
        Enter();
      }
    }
  };

  // A thread has four columns of every few rows, and goes through each vector's chunks in order.
  // The partial of the chunks that were folded lies where the last of them would.
  DEVICE void Merge(const OpenPair& open) const {
    const Segment& segment = open.segment;
    const Tile tile = segment.tile(operands.plan);
    const Partial* partials = PartialOf(segment.unit - segment.chunk + open.folded - 1);
    const int count = segment.chunks - open.folded + 1, all = tile.rows * kRowVectors;
    const int items = DivideUp(all, kThreads);
    // Chunks whose FoldSteps there is room for. If that is not for all, a vector at a time goes
    // through all of them.
    const int room = kFoldSteps / tile.rows, span = count < room ? count : room;
    const int pass_items = span == count ? items : 1;
    auto* steps = reinterpret_cast<FoldStep*>(shared);
    const auto* vectors = reinterpret_cast<const Words4*>(shared + kVectorsAt) + threadIdx.x;
    const uint32_t to = SharedAddress(shared);
    for (int item_begin = 0; item_begin < items; item_begin += pass_items) {
      float carried = kLowest;  // of row warp + kWarps lane
      float l = 0, o[4] = {};
      for (int begin = 0; begin < count; begin += span) {
        const int chunks = count - begin < span ? count - begin : span;
        // A warp brings its rows' statistics itself.
        for (int row = warp; row < tile.rows; row += kWarps) {
          for (int i = lane; i < chunks; i += kWarpThreads) {
            CopyAsync(to + (row * span + i) * 16, partials[begin + i].statistics[row]);
          }
        }
        CommitCopies();
        MergeFeed feed{partials + begin, chunks, all, item_begin + pass_items,
                       to + kVectorsAt + threadIdx.x * 16, item_begin};
        feed.Enter();
#pragma unroll 1
        for (int i = 0; i < kBatches; ++i) feed.Issue();
        WaitForCopies<kBatches>();
        SyncWarp();
        for (int i = 0; i * kWarps + warp < tile.rows; ++i) {
          const float m =
              Scan(steps + (i * kWarps + warp) * span, chunks, FromBits(Shuffle(Bits(carried), i)));
          if (lane == i) carried = m;
        }
        SyncBlock();
        int slot = 0;
        for (int item = item_begin; item < item_begin + pass_items; ++item) {
          const int at = threadIdx.x + item * kThreads;
          const int row = at < all ? at / kRowVectors : 0, column = at % kRowVectors * 4;
          const FoldStep* step = steps + row * span;
          const auto fold = [&](int i) {
            const Words4 more = vectors[(slot + i) * kThreads];
            const FoldStep by = step[i];
            l = Fma(l, by.own, by.l);
            o[0] = Fma(o[0], by.own, Mul(FromBits(more.x), by.more));
            o[1] = Fma(o[1], by.own, Mul(FromBits(more.y), by.more));
            o[2] = Fma(o[2], by.own, Mul(FromBits(more.z), by.more));
            o[3] = Fma(o[3], by.own, Mul(FromBits(more.w), by.more));
          };
#pragma unroll 1
          for (int left = chunks; left > 0; left -= kBatch) {
            WaitForCopies<kBatches - 1>();
            if (left >= kBatch) {
#pragma unroll
              for (int i = 0; i < kBatch; ++i) fold(i);
            } else {
#pragma unroll 1
              for (int i = 0; i < left; ++i) fold(i);
            }
            step += kBatch;
            slot = slot + kBatch == kBatches * kBatch ? 0 : slot + kBatch;
            feed.Issue();
          }
          if (begin + chunks < count) continue;
          const float m = steps[row * span + chunks - 1].m;
          const float scale = FinalScale(operands, QueryHead(tile, segment.head, row), m, l);
          if (at < all && column < kDv) {
            auto* y =
                reinterpret_cast<uint32_t*>(OutputRow(operands, tile, segment.head, row) + column);
            y[0] = Pack<Element>(Mul(o[0], scale), Mul(o[1], scale));
            y[1] = Pack<Element>(Mul(o[2], scale), Mul(o[3], scale));
          }
          l = o[0] = o[1] = o[2] = o[3] = 0;
        }
        WaitForCopies<0>();
        SyncBlock();  // all is free
      }
    }
  }
};

#endif  // QUIRE_ATTENTION_WARP_CUH_
