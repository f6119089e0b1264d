// A block's share of the attention kernels' work, and the stream of keys and values that it reads.
//
// Shared memory of an attention entry, in bytes:
//   0              of tiles of few rows: q of each stage's first step, p, largest scores, a word;
//                  of many rows: q
//   kQueryBytes    kStages stages: keys [kStepTokens], then values [kStepTokens], as SharedRows
//   kNotesAt       StepNote [kNotes], BlockNote, then places of keys' pages [kPlaceTables], and of
//                  values' where kDv differs
#ifndef QUIRE_ATTENTION_FEED_CUH_
#define QUIRE_ATTENTION_FEED_CUH_

#include "attention.cuh"

DEVICE constexpr int Larger(int a, int b) { return a > b ? a : b; }

constexpr int kFewQueryBytes = kFewRows * KeyRows::kRowBytes;
constexpr int kFewWeightsAt = kStages * kFewQueryBytes;
constexpr int kFewLargestAt = kFewWeightsAt + kFewRows * WeightRows::kRowBytes;
constexpr int kFewWordAt = kFewLargestAt + kWarps * kFewRows * 4;
constexpr int kQueryBytes =
    DivideUp(kFew ? kFewWordAt + 16 : kManyRows * KeyRows::kRowBytes, 128) * 128;
constexpr int kKeyBytes = kStepTokens * KeyRows::kRowBytes;
constexpr int kStageBytes = kKeyBytes + kStepTokens * ValueRows::kRowBytes;

// What a step's copies need to know.
struct alignas(16) StepNote {
  int state;               // 0: there is no step; 2: the first of a segment of few rows
  int row_begin, row_end;  // rows of the step that are copied, others are zeros
  bool own;                // whether the prior grid may have written some of them
  int tile_at, head;       // of the segment
  int padding[2];
};
struct alignas(16) BlockNote {
  int units, arrivals_at;
  int64_t partials_at;
};
// Places are noted for runs of tokens that lie in one page.
constexpr int kRunTokens = CommonDivisor(kStepTokens, kPageTokens);
constexpr int kRuns = kStepTokens / kRunTokens;
constexpr int kLookers = Larger(kRuns, kWarpThreads / 2);
constexpr int kNotes = 6, kPlaceTables = 3;
constexpr int kNotesAt = kQueryBytes + kStages * kStageBytes;
constexpr int kBlockNoteAt = kNotesAt + kNotes * static_cast<int>(sizeof(StepNote));
constexpr int kPlacesAt = kBlockNoteAt + static_cast<int>(sizeof(BlockNote));
constexpr int kPlaceInts = (kD == kDv ? 1 : 2) * kRuns;
static_assert(kSharedBytes >= kPlacesAt + kPlaceTables * kPlaceInts * 4, "the launch rule's bytes");

// Consecutive steps of one tile for one KV head.
struct Segment {
  int tile_at;  // byte of the plan
  int head;
  int step_begin, step_end;
  // Of tiles of few rows:
  bool first, last;  // whether it has the first and the last chunk that the tile sees
  int unit, units;   // the first of its units, and their number
  int pair;          // index of (tile, head)

  DEVICE const Tile& tile(const uint8_t* plan) const {
    return *reinterpret_cast<const Tile*>(plan + tile_at);
  }
};

// A block's segments in order: of few rows those in its range of units, of many every gridDim'th
// pair of a tile and a KV head.
struct Walk {
  int tile_at, few_tile;
  int unit, unit_end, pair;

  DEVICE static int StartAt() {
    return static_cast<int>(sizeof(PlanHeader) + blockIdx.x * sizeof(BlockStart));
  }
  // For few rows a block's own copy, so that it is not waited for twice.
  DEVICE static const PlanHeader& Header(const uint8_t* plan) {
    const int at = kFew ? StartAt() + static_cast<int>(sizeof(BlockStart) - sizeof(PlanHeader)) : 0;
    return *reinterpret_cast<const PlanHeader*>(plan + at);
  }
  DEVICE void Start(const uint8_t* plan) {
    pair = blockIdx.x;
    if constexpr (kFew) {
      const auto& start = *reinterpret_cast<const BlockStart*>(plan + StartAt());
      tile_at = StartAt();
      few_tile = start.few_tile;
      unit = start.unit;
      unit_end = start.unit_end;
    }
  }
  DEVICE bool Next(const uint8_t* plan, Segment& segment) {
    return kFew ? NextFew(plan, segment) : NextMany(plan, segment);
  }
  DEVICE bool NextFew(const uint8_t* plan, Segment& segment) {
    if (unit == unit_end) return false;
    const Tile* tile = reinterpret_cast<const Tile*>(plan + tile_at);
    int at = unit - tile->unit * kHkv, chunks = tile->chunks();
    while (at >= chunks * kHkv) {
      ++few_tile;
      tile_at = Header(plan).few_at + few_tile * static_cast<int>(sizeof(Tile));
      tile = reinterpret_cast<const Tile*>(plan + tile_at);
      at = unit - tile->unit * kHkv;
      chunks = tile->chunks();
    }
    constexpr int kChunkSteps = kChunkTokens / kStepTokens;
    segment.tile_at = tile_at;
    segment.head = at / chunks;
    const int chunk = at % chunks, left = unit_end - unit;
    segment.units = chunks - chunk < left ? chunks - chunk : left;
    segment.first = chunk == 0;
    segment.last = chunk + segment.units == chunks;
    segment.unit = unit;
    segment.pair = few_tile * kHkv + segment.head;
    const int begin = (tile->chunk_begin() + chunk) * kChunkSteps;
    const int end = begin + segment.units * kChunkSteps;
    segment.step_begin = begin > tile->step_begin ? begin : tile->step_begin;
    segment.step_end = end < tile->step_end ? end : tile->step_end;
    unit += segment.units;
    return true;
  }
  DEVICE bool NextMany(const uint8_t* plan, Segment& segment) {
    const PlanHeader& header = Header(plan);
    if (pair >= header.many_tiles * kHkv) return false;
    segment.tile_at = header.many_at + pair / kHkv * static_cast<int>(sizeof(Tile));
    segment.head = pair % kHkv;
    segment.step_begin = segment.tile(plan).step_begin;
    segment.step_end = segment.tile(plan).step_end;
    pair += gridDim.x;
    return true;
  }
};

// Copies of the steps of a block's segments, one group a step, kStages - 1 steps ahead of their
// use. Pages are looked up two steps at a time, by the first 2 kLookers threads, half of them for
// each; their places are noted two steps before their copies start.
struct Feed {
  const AttentionOperands& operands;
  uint8_t* shared;
  Walk walk;
  Segment segment;
  int step;       // of `segment`: the last that was looked up
  bool known;     // whether there was one
  int page, row;  // of this thread's run of tokens; page -1: not there
  int note;       // of the next step to copy
  int looked;     // where the next notes go
  int stage;      // the next to read

  DEVICE StepNote& Note(int at) const { return reinterpret_cast<StepNote*>(shared + kNotesAt)[at]; }
  DEVICE int* Places(int at) const {
    return reinterpret_cast<int*>(shared + kPlacesAt) + at % kPlaceTables * kPlaceInts;
  }
  DEVICE const BlockNote& Block() const {
    return *reinterpret_cast<const BlockNote*>(shared + kBlockNoteAt);
  }

  // To the next step there is.
  DEVICE void Advance() {
    if (!known) return;
    ++step;
    while (step >= segment.step_end) {
      if (!walk.Next(operands.plan, segment)) {
        known = false;
        return;
      }
      step = segment.step_begin;
    }
  }

  // The note of step `at` of the segment, or that there is none, and the page of this thread's run.
  DEVICE void Make(bool there, int at, int run, int to) {
    StepNote made = {};
    page = -1;
    if (there) {
      const Tile& tile = segment.tile(operands.plan);
      const int begin = at * kStepTokens, token = begin + run * kRunTokens;
      const int own_begin = tile.context - tile.tokens;
      int first = 0;
      // Pages before every row's window may have gone.
      if constexpr (kWindow > 0) first = own_begin + tile.row / kGroup - kWindow + 1;
      if (run < kRuns && token < tile.context && token + kRunTokens > first) {
        page = operands.pages[tile.pages_begin + token / kPageTokens];
      }
      row = segment.head * kPageTokens + token % kPageTokens;
      made.state = kFew && at == segment.step_begin ? 2 : 1;
      made.row_begin = first - begin;
      made.row_end = tile.context - begin;
      made.own = begin + kStepTokens > own_begin;
      made.tile_at = segment.tile_at;
      made.head = segment.head;
    }
    if (run == 0) Note(to) = made;
  }
  // Two steps on.
  DEVICE void Look() {
    const int half = threadIdx.x / kLookers, run = threadIdx.x % kLookers;
    if (known && step + 2 < segment.step_end) {
      Make(true, step + 1 + half, run, looked + half);
      step += 2;
    } else {
      Advance();
      if (half == 0) Make(known, step, run, looked);
      Advance();
      if (half == 1) Make(known, step, run, looked + 1);
    }
    looked = looked + 2 == kNotes ? 0 : looked + 2;
  }

  // Notes the places of the pair of steps that begins with note `at`, in units of 16 bytes.
  DEVICE void Tabulate(int at) const {
    const int half = threadIdx.x / kLookers, run = threadIdx.x % kLookers;
    if (run >= kRuns) return;
    constexpr int kPageUnits = kHkv * kPageTokens * (kD + kDv) / 8;
    int* places = Places(at + half) + run;
    places[0] = page * kPageUnits + row * (kD / 8);
    if constexpr (kD != kDv) {
      places[kRuns] = page * kPageUnits + kHkv * kPageTokens * (kD / 8) + row * (kDv / 8);
    }
  }

  // Copies rows of a step, each thread the same unit of every kPass'th; kMore: also what lies
  // kMoreFrom bytes behind each, to kMoreTo behind. kAll: the step has all its rows; otherwise
  // those it lacks become zeros.
  template <typename Rows, int kElements, bool kMore, bool kAll>
  DEVICE void CopyRows(uint32_t to, const int* places, const StepNote& step_note) const {
    constexpr int kUnits = Rows::kUnits, kPass = kThreads / kUnits;
    constexpr int kMoreFrom = kHkv * kPageTokens * kD * 2, kMoreTo = kKeyBytes;
    const int first = threadIdx.x / kUnits, unit = threadIdx.x % kUnits;
    if (kThreads % kUnits != 0 && first >= kPass) return;
    const bool is_unit = kElements % 16 == 0 || unit < kElements / 8;
    const auto* layer = reinterpret_cast<const uint8_t*>(operands.layer) + unit * 16;
#pragma unroll
    for (int i = 0; i < DivideUp(kStepTokens, kPass); ++i) {
      const int in_step = first + i * kPass;
      if (kStepTokens % kPass != 0 && in_step >= kStepTokens) break;
      constexpr bool kEven = kRunTokens % kPass == 0;  // no pass has rows of two runs
      const int run = kEven ? i * kPass / kRunTokens : in_step / kRunTokens;
      const int in_run = kEven ? first + i * kPass % kRunTokens : in_step % kRunTokens;
      const uint8_t* from = layer + int64_t{places[run]} * 16 + in_run * (kElements * 2);
      bool copies = is_unit;
      if constexpr (!kAll) copies &= in_step >= step_note.row_begin && in_step < step_note.row_end;
      if (!copies) from = layer;
      const uint32_t at =
          to + (kPass % 8 == 0 ? Rows::Offset(first, unit) + i * kPass * Rows::kRowBytes
                               : Rows::Offset(in_step, unit));
      CopyAsync(at, from, copies ? 16 : 0);
      if constexpr (kMore) {
        CopyAsync(at + kMoreTo, copies ? from + kMoreFrom : from, copies ? 16 : 0);
      }
    }
  }
  template <bool kAll>
  DEVICE void CopyStep(uint32_t to, const StepNote& step_note) const {
    const int* places = Places(note);
    if constexpr (kD == kDv) {
      CopyRows<KeyRows, kD, true, kAll>(to, places, step_note);
    } else {
      CopyRows<KeyRows, kD, false, kAll>(to, places, step_note);
      CopyRows<ValueRows, kDv, false, kAll>(to + kKeyBytes, places + kRuns, step_note);
    }
  }

  // Of the stage whose keys Next() gave.
  DEVICE int Stage(uint32_t keys) const {
    return static_cast<int>(keys - SharedAddress(shared) - kQueryBytes) / kStageBytes;
  }

  // Starts the copies of the noted step into stage `to`, with q where it is the first of a segment
  // of few rows.
  DEVICE void Issue(int to, bool with_query = true) {
    const StepNote& step_note = Note(note);
    if (step_note.state != 0) {
      const uint32_t at = SharedAddress(shared) + kQueryBytes + to * kStageBytes;
      if (step_note.row_end >= kStepTokens && (kWindow == 0 || step_note.row_begin <= 0)) {
        CopyStep<true>(at, step_note);
      } else {
        CopyStep<false>(at, step_note);
      }
      if (kFew && with_query && step_note.state == 2) {
        const Tile& tile = *reinterpret_cast<const Tile*>(operands.plan + step_note.tile_at);
        QueryRows{operands, tile, step_note.head}.template Copy<kFewRows>(SharedAddress(shared) +
                                                                          to * kFewQueryBytes);
      }
    }
    CommitCopies();
    const bool second = note % 2 == 1;
    note = note + 1 == kNotes ? 0 : note + 1;
    if (second && threadIdx.x < 2 * kLookers) {
      Tabulate(note);
      Look();
    }
  }

  // Fills the ring but its last stage, as far as it can before the prior grid has ended.
  DEVICE void Start() {
    walk.Start(operands.plan);
    if (kFew && threadIdx.x == 0) {
      const PlanHeader& header = Walk::Header(operands.plan);
      *reinterpret_cast<BlockNote*>(shared + kBlockNoteAt) = {header.units, header.arrivals_at,
                                                              header.partials_at};
    }
    segment.step_end = step = 0;
    known = true;
    note = looked = stage = 0;
    if (threadIdx.x < 2 * kLookers) {
      Look();
      Tabulate(0);
      Look();
    }
    bool waited = false;
    for (int i = 0; i < kStages - 1; ++i) {
      SyncBlock();
      // The first q is loaded when this is done.
      if (!waited && (Note(note).own || (i > 0 && Note(note).state == 2))) {
        WaitForPriorGrid();
        waited = true;
      }
      Issue(i, i > 0);
    }
    if (!waited) WaitForPriorGrid();
    if constexpr (kStages == 1) SyncBlock();
  }

  // The shared address of the next step's keys; its values follow. The stage before it is free.
  DEVICE uint32_t Next() {
    const int at = stage;
    if constexpr (kStages == 1) {
      SyncBlock();
      Issue(0);
      WaitForCopies<0>();
      SyncBlock();
    } else {
      WaitForCopies<kStages - 2>();
      SyncBlock();
      Issue(at == 0 ? kStages - 1 : at - 1);
      stage = at + 1 == kStages ? 0 : at + 1;
    }
    return SharedAddress(shared) + kQueryBytes + at * kStageBytes;
  }
};

#endif  // QUIRE_ATTENTION_FEED_CUH_
