// A block's share of the work of the attention entry for tiles of many rows, and the stream of keys
// and values that it reads.
//
// Shared memory of the entry, in bytes:
//   0              q
//   kQueryBytes    kStages stages: keys [kStepTokens], then values [kStepTokens], as SharedRows
//   kWidenedAt     of E4m3: the step's keys and values as SharedRows of Element; in turn where there
//                  is no room for both
//   kNotesAt       StepNote [kNotes], then places of keys' pages [kPlaceTables], and of values'
//                  where kDv differs
#ifndef QUIRE_ATTENTION_FEED_CUH_
#define QUIRE_ATTENTION_FEED_CUH_

#include "attention.cuh"

DEVICE constexpr int Larger(int a, int b) { return a > b ? a : b; }

constexpr int kQueryBytes = DivideUp(kManyRows * SharedQuery::kRowBytes, 128) * 128;
constexpr int kKeyBytes = kStepTokens * KeyRows::kRowBytes;
constexpr int kStageBytes = kKeyBytes + kStepTokens * ValueRows::kRowBytes;

// What a step's copies need to know.
struct alignas(16) StepNote {
  int state;               // 0: there is no step
  int row_begin, row_end;  // rows of the step that are copied, others are zeros
  bool own;                // whether the prior grid may have written some of them
};
// Places are noted for runs of tokens that lie in one page.
constexpr int kRunTokens = CommonDivisor(kStepTokens, kPageTokens);
constexpr int kRuns = kStepTokens / kRunTokens;
constexpr int kLookers = Larger(kRuns, kWarpThreads / 2);
constexpr int kNotes = 6, kPlaceTables = 3;
constexpr int kWidenedAt = kQueryBytes + kStages * kStageBytes;
// Rows as products read them.
using ProductKeys = SharedRows<kD>;
using ProductValues = SharedRows<kDv>;
constexpr int kWideKeyBytes = kStepTokens * ProductKeys::kRowBytes;
constexpr int kWideValueBytes = kStepTokens * ProductValues::kRowBytes;
constexpr int kNotesBytes = kNotes * static_cast<int>(sizeof(StepNote)) +
                            kPlaceTables * (kD == kDv ? 1 : 2) * kRuns * 4;
constexpr bool kBothWide =
    kSharedBytes >= kWidenedAt + kWideKeyBytes + kWideValueBytes + kNotesBytes;
constexpr int kWidenedBytes = kBothWide ? kWideKeyBytes + kWideValueBytes
                                        : Larger(kWideKeyBytes, kWideValueBytes);
constexpr int kNotesAt = kWidenedAt + (kNarrow ? kWidenedBytes : 0);
constexpr int kPlacesAt = kNotesAt + kNotes * static_cast<int>(sizeof(StepNote));
constexpr int kPlaceInts = (kD == kDv ? 1 : 2) * kRuns;
static_assert(kSharedBytes >= kPlacesAt + kPlaceTables * kPlaceInts * 4, "the launch rule's bytes");

// The steps of one tile for one KV head.
struct Segment {
  int tile_at;  // byte of the plan
  int head;
  int step_begin, step_end;

  DEVICE const Tile& tile(const uint8_t* plan) const {
    return *reinterpret_cast<const Tile*>(plan + tile_at);
  }
};

// The segments in order of a block, one of those that work: as many pairs of a tile and a KV head
// lie between them.
struct Walk {
  int pair;

  DEVICE void Start() { pair = blockIdx.x; }
  DEVICE bool Next(const uint8_t* plan, Segment& segment) {
    const PlanHeader& header = *reinterpret_cast<const PlanHeader*>(plan);
    const bool works = static_cast<int>(blockIdx.x) < header.many_blocks;
    if (!works || pair >= header.many_tiles * kHkv) return false;
    segment.tile_at = header.many_at + pair / kHkv * static_cast<int>(sizeof(Tile));
    segment.head = pair % kHkv;
    segment.step_begin = segment.tile(plan).step_begin;
    segment.step_end = segment.tile(plan).step_end;
    pair += header.many_blocks;
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
      made.state = 1;
      made.row_begin = first - begin;
      made.row_end = tile.context - begin;
      made.own = begin + kStepTokens > own_begin;
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
    constexpr int kPageUnits = kHkv * kPageTokens * (kD + kDv) / kUnitElements;
    int* places = Places(at + half) + run;
    places[0] = page * kPageUnits + row * (kD / kUnitElements);
    if constexpr (kD != kDv) {
      places[kRuns] = page * kPageUnits + kHkv * kPageTokens * (kD / kUnitElements) +
                      row * (kDv / kUnitElements);
    }
  }

  // Copies rows of a step, each thread the same unit of every kPass'th; kMore: also what lies
  // kMoreFrom bytes behind each, to kMoreTo behind. kAll: the step has all its rows; otherwise
  // those it lacks become zeros.
  template <typename Rows, int kElements, bool kMore, bool kAll>
  DEVICE void CopyRows(uint32_t to, const int* places, const StepNote& step_note) const {
    constexpr int kUnits = Rows::kUnits, kPass = kThreads / kUnits;
    constexpr int kElementBytes = sizeof(KvElement);
    constexpr int kMoreFrom = kHkv * kPageTokens * kD * kElementBytes, kMoreTo = kKeyBytes;
    const int first = threadIdx.x / kUnits, unit = threadIdx.x % kUnits;
    if (kThreads % kUnits != 0 && first >= kPass) return;
    const bool is_unit = kElements % 16 == 0 || unit < kElements / kUnitElements;
    const auto* layer = reinterpret_cast<const uint8_t*>(operands.layer) + unit * 16;
#pragma unroll
    for (int i = 0; i < DivideUp(kStepTokens, kPass); ++i) {
      const int in_step = first + i * kPass;
      if (kStepTokens % kPass != 0 && in_step >= kStepTokens) break;
      constexpr bool kEven = kRunTokens % kPass == 0;  // no pass has rows of two runs
      const int run = kEven ? i * kPass / kRunTokens : in_step / kRunTokens;
      const int in_run = kEven ? first + i * kPass % kRunTokens : in_step % kRunTokens;
      const uint8_t* from = layer + int64_t{places[run]} * 16 + in_run * (kElements * kElementBytes);
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

  // Starts the copies of the noted step into stage `to`.
  DEVICE void Issue(int to) {
    const StepNote& step_note = Note(note);
    if (step_note.state != 0) {
      const uint32_t at = SharedAddress(shared) + kQueryBytes + to * kStageBytes;
      if (step_note.row_end >= kStepTokens && (kWindow == 0 || step_note.row_begin <= 0)) {
        CopyStep<true>(at, step_note);
      } else {
        CopyStep<false>(at, step_note);
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
    walk.Start();
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
      if (!waited && Note(note).own) {
        WaitForPriorGrid();
        waited = true;
      }
      Issue(i);
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
