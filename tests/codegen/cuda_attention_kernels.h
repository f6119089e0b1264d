// The attention kernels for the sets of constants that the emulated tests run: one namespace for
// each, few rows and many.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_KERNELS_H_
#define QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_KERNELS_H_

#include "tests/codegen/cuda_attention_constants.h"

// Kernels are included as system headers (tests/CMakeLists.txt): their text is written for NVRTC,
// not for the warnings of this build.

namespace quire::emulated {

namespace plain_few {  // three heads a group, padded rows, two tensor-core steps
QUIRE_ATTENTION(Bf16, 6, 2, 24, 24, 16, 5, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace plain_few
#include "tests/codegen/cuda_attention_again.h"
namespace plain_many {
QUIRE_ATTENTION(Bf16, 6, 2, 24, 24, 16, 3, false)
QUIRE_PLAIN_MASKS
#include <attention_body.cuh>
}  // namespace plain_many
#include "tests/codegen/cuda_attention_again.h"

namespace paged_few {  // the same over pages of 5 tokens
QUIRE_ATTENTION(Bf16, 6, 2, 24, 24, 5, 2, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace paged_few
#include "tests/codegen/cuda_attention_again.h"
namespace paged_many {
QUIRE_ATTENTION(Bf16, 6, 2, 24, 24, 5, 2, false)
QUIRE_PLAIN_MASKS
#include <attention_body.cuh>
}  // namespace paged_many
#include "tests/codegen/cuda_attention_again.h"

namespace windowed_few {  // everything that goes with a window; pages of one token
QUIRE_ATTENTION(F16, 8, 1, 16, 64, 1, 3, true)
QUIRE_ALIBI_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace windowed_few
#include "tests/codegen/cuda_attention_again.h"
namespace windowed_many {
QUIRE_ATTENTION(F16, 8, 1, 16, 64, 1, 1, false)
QUIRE_ALIBI_MASKS
#include <attention_body.cuh>
}  // namespace windowed_many
#include "tests/codegen/cuda_attention_again.h"

namespace full_few {  // every row sees the whole context; columns for two warps
QUIRE_ATTENTION(Bf16, 2, 2, 8, 136, 32, 9, true)
QUIRE_BIAS_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace full_few
#include "tests/codegen/cuda_attention_again.h"
namespace full_many {
QUIRE_ATTENTION(Bf16, 2, 2, 8, 136, 32, 3, false)
QUIRE_BIAS_MASKS
#include <attention_body.cuh>
}  // namespace full_many
#include "tests/codegen/cuda_attention_again.h"

namespace tree_few {  // rows that see branches of the step's own tokens
QUIRE_ATTENTION(Bf16, 4, 2, 16, 16, 16, 6, true)
QUIRE_TREE_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace tree_few
#include "tests/codegen/cuda_attention_again.h"
namespace tree_many {
QUIRE_ATTENTION(Bf16, 4, 2, 16, 16, 16, 4, false)
QUIRE_TREE_MASKS
#include <attention_body.cuh>
}  // namespace tree_many
#include "tests/codegen/cuda_attention_again.h"

namespace grouped_few {  // so many heads a group that two warps share tiles
QUIRE_ATTENTION(Bf16, 20, 1, 24, 40, 16, 11, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace grouped_few
#include "tests/codegen/cuda_attention_again.h"
namespace grouped_many {
QUIRE_ATTENTION(Bf16, 20, 1, 24, 40, 16, 3, false)
QUIRE_PLAIN_MASKS
#include <attention_body.cuh>
}  // namespace grouped_many
#include "tests/codegen/cuda_attention_again.h"

// The body of sm_90a, and once the other over pages that it does not take.
namespace group_few {
QUIRE_ATTENTION(Bf16, 6, 2, 64, 64, 5, 2, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace group_few
#include "tests/codegen/cuda_attention_again.h"
namespace group_many {
QUIRE_ATTENTION(Bf16, 6, 2, 64, 64, 5, 2, false)
QUIRE_PLAIN_MASKS
#include <attention_body.cuh>
}  // namespace group_many
#include "tests/codegen/cuda_attention_again.h"
#undef QUIRE_MANY_THREADS
#define QUIRE_MANY_THREADS 384
namespace warpgroup_few {
QUIRE_ATTENTION(Bf16, 6, 2, 64, 64, 16, 2, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace warpgroup_few
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_many {
QUIRE_ATTENTION(Bf16, 6, 2, 64, 64, 16, 3, false)
QUIRE_PLAIN_MASKS
#include <attention_warpgroup.cuh>
}  // namespace warpgroup_many
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_wide_few {
QUIRE_ATTENTION(Bf16, 2, 1, 128, 128, 8, 2, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace warpgroup_wide_few
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_wide_many {
QUIRE_ATTENTION(Bf16, 2, 1, 128, 128, 8, 3, false)
QUIRE_PLAIN_MASKS
#include <attention_warpgroup.cuh>
}  // namespace warpgroup_wide_many
#include "tests/codegen/cuda_attention_again.h"
namespace wide_few {  // columns for two warpgroups, one panel for both
QUIRE_ATTENTION(Bf16, 3, 1, 192, 192, 16, 4, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace wide_few
#include "tests/codegen/cuda_attention_again.h"
namespace wide_many {
QUIRE_ATTENTION(Bf16, 3, 1, 192, 192, 16, 4, false)
QUIRE_PLAIN_MASKS
#include <attention_wide.cuh>
}  // namespace wide_many
#include "tests/codegen/cuda_attention_again.h"
namespace wide_windowed_few {
QUIRE_ATTENTION(F16, 8, 1, 256, 256, 8, 4, true)
QUIRE_WINDOW_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace wide_windowed_few
#include "tests/codegen/cuda_attention_again.h"
namespace wide_windowed_many {
QUIRE_ATTENTION(F16, 8, 1, 256, 256, 8, 5, false)
QUIRE_WINDOW_MASKS
#include <attention_wide.cuh>
}  // namespace wide_windowed_many
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_padded_few {  // panels that a row does not fill
QUIRE_ATTENTION(F16, 3, 1, 88, 88, 16, 2, true)
QUIRE_PLAIN_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace warpgroup_padded_few
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_padded_many {
QUIRE_ATTENTION(F16, 3, 1, 88, 88, 16, 3, false)
QUIRE_PLAIN_MASKS
#include <attention_warpgroup.cuh>
}  // namespace warpgroup_padded_many
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_windowed_few {
QUIRE_ATTENTION(F16, 8, 1, 64, 64, 24, 2, true)
QUIRE_WINDOW_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace warpgroup_windowed_few
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_windowed_many {
QUIRE_ATTENTION(F16, 8, 1, 64, 64, 24, 3, false)
QUIRE_WINDOW_MASKS
#include <attention_warpgroup.cuh>
}  // namespace warpgroup_windowed_many
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_full_few {
QUIRE_ATTENTION(Bf16, 2, 2, 64, 64, 128, 2, true)
QUIRE_NO_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace warpgroup_full_few
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_full_many {
QUIRE_ATTENTION(Bf16, 2, 2, 64, 64, 128, 3, false)
QUIRE_NO_MASKS
#include <attention_warpgroup.cuh>
}  // namespace warpgroup_full_many
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_tree_few {
QUIRE_ATTENTION(Bf16, 4, 2, 64, 64, 32, 2, true)
QUIRE_TREE_MASKS
#include <attention_few.cuh>
#include <attention_plan.cuh>
#include <attention_short.cuh>
}  // namespace warpgroup_tree_few
#include "tests/codegen/cuda_attention_again.h"
namespace warpgroup_tree_many {
QUIRE_ATTENTION(Bf16, 4, 2, 64, 64, 32, 3, false)
QUIRE_TREE_MASKS
#include <attention_warpgroup.cuh>
}  // namespace warpgroup_tree_many
#include "tests/codegen/cuda_attention_again.h"

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_KERNELS_H_
