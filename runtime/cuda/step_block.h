// A step as the device gets it: padded to a bucket of rows, in one block of memory that one copy
// brings there (codegen/cuda/kernels/step.cuh has the structs).
//
// Where the arrays lie depends on the bucket alone, so that a captured graph finds them for every
// step of that bucket; the block tables, the only part of another length, come last. Rows of
// padding have id 0, position 0 and no place in the cache, and belong to no sequence; rows with
// logits that are padding name row 0.
//
// A program may work on pages of two caches: then sequences, and where it appends to both the rows'
// places, are there once for each. All block tables are of one array.
#ifndef QUIRE_RUNTIME_CUDA_STEP_BLOCK_H_
#define QUIRE_RUNTIME_CUDA_STEP_BLOCK_H_

#include <cstdint>
#include <vector>

#include "runtime/device.h"

namespace quire {

// The bucket of a number of rows: 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, and then multiples
// of 64.
int64_t BucketOf(int64_t rows);
// All buckets up to that of `rows`, in ascending order.
std::vector<int64_t> BucketsUpTo(int64_t rows);

// The caches whose pages a program works on.
enum class StepCaches : uint8_t {
  kNone,
  kOwn,            // of the pool that it runs with
  kOwnAndEncoder,  // and, of another pool, what `encode` left for each sequence
  kOwnAndRun,      // and pages that last for the run: as many, numbered from 0 on
};

// Byte offsets from the begin of the block; each array from a multiple of 16.
struct StepLayout {
  StepLayout(int64_t T, int64_t R, StepCaches caches = StepCaches::kOwn);

  // What is there for each cache.
  struct Cache {
    int64_t token_slots = 0;  // i32 [T]: page * page_tokens + place in the page, or -1
    int64_t sequences = 0;    // StepSequence [T]: each has a row
  };

  int64_t header = 0;
  int64_t ids, positions;  // i32 [T]
  Cache own;
  int64_t logit_rows;  // i32 [R]
  Cache other;         // of kOwnAndEncoder without places: nothing is appended
  int64_t pages;       // i32 [all block tables]
};

// Entries of all block tables, as the block has them: those that hold tokens.
int64_t PagesOfStep(const Step& step, int64_t page_tokens, StepCaches caches);

// Writes the block of a step that was checked (runtime/step_check.h), of its buckets T and R.
// Returns the bytes written: everything up to the last entry of the block tables.
int64_t WriteStepBlock(const Step& step, int64_t T, int64_t R, int64_t page_tokens,
                       StepCaches caches, uint8_t* block);

}  // namespace quire

#endif  // QUIRE_RUNTIME_CUDA_STEP_BLOCK_H_
