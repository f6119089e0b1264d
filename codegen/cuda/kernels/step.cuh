// The step's block in device memory, written by the host once a step (one copy), read by kernels.
// Also included by the host.
#ifndef QUIRE_STEP_CUH_
#define QUIRE_STEP_CUH_

struct StepHeader {
  int rows;       // T that are not padding
  int sequences;  // entries of the list
  int pages;      // entries of all block tables
  int logit_rows;
};

// Rows [first_row, first_row + rows) of the step; the last stands at position context - 1. Page of
// token i: pages[pages_begin + i / page_tokens].
struct StepSequence {
  int first_row;
  int rows;
  int context;
  int pages_begin;
};

#endif  // QUIRE_STEP_CUH_
