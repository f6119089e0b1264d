// Linears whose last columns go to pages of the KV cache, their source run on the CPU: every body,
// against the arithmetic that codegen/cuda/linear.h states and the places that
// runtime/cuda/cuda_pages.h does.
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_hopper_emulator.h"
#include "tests/codegen/cuda_linear_case.h"

namespace quire::emulated {

#define QUIRE_APPENDING(n, element, output, bias)             \
  using Element = element;                                    \
  using Output = output;                                      \
  constexpr int kN = n, kK = 256, kGrain = 16;                \
  constexpr bool kHasBias = bias, kHasResidual = false;       \
  constexpr bool kWeightIsWritten = false;                    \
  constexpr int kSharedBytes = 1 << 20, kArrivalBytes = 1024; \
  QUIRE_STAGES                                                \
  QUIRE_NO_ACT

// Queries; K and V of two sizes. Runs of columns end within heads, and tiles within a layer.
namespace queries {
QUIRE_APPENDING(40 + 2 * 3 * (16 + 8), Bf16, Bf16, true)
QUIRE_APPEND(2, 3, 16, 8, 16)
#include <linear_few.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace queries
#include "tests/codegen/forget_linear_kernels.h"

// Nothing but what is appended; whole lines of 128 bytes; a page a token.
namespace pages_alone {
QUIRE_APPENDING(3 * 2 * 64, Bf16, F16, false)
QUIRE_APPEND(3, 1, 64, 64, 1)
#include <linear_few.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace pages_alone
#include "tests/codegen/forget_linear_kernels.h"

// One layer, pages of a number of tokens that is no power of two.
namespace one_layer {
QUIRE_APPENDING(8 + 5 * 2 * 8, F16, F16, true)
QUIRE_APPEND(1, 5, 8, 8, 24)
#include <linear_few.cuh>
#include <linear_narrow.cuh>
#include <linear_tile.cuh>
#include <linear_warpgroup.cuh>
}  // namespace one_layer

namespace {

struct Geometry {
  int layers, heads, key_dim, value_dim, page_tokens;
  int layer_columns() const { return heads * (key_dim + value_dim); }
};

// A case with a place in pages for each row but some.
template <typename TestCase, typename Operands, typename Output>
struct Appended {
  static constexpr int kPages = 200, kGap = 40;  // elements between a layer and the next
  const TestCase c;
  const Geometry g;
  std::vector<int> slots = std::vector<int>(static_cast<size_t>(c.rows));
  const int64_t distance = int64_t{kPages} * g.page_tokens * g.layer_columns() + kGap;

  Appended(const TestCase& test_case, const Geometry& geometry) : c(test_case), g(geometry) {
    // All over the pages, no slot twice: 7 and the number of slots have no factor in common.
    for (int row = 0; row < c.rows; ++row) {
      slots[static_cast<size_t>(row)] =
          row % 5 == 3 ? -1 : (row * 7 + 11) % (kPages * g.page_tokens);
    }
  }

  // The element of the layers' memory that column `column` of the appended ones goes to.
  int64_t At(int slot, int column) const {
    const int layer = column / g.layer_columns(), in_layer = column % g.layer_columns();
    const int keys = g.heads * g.key_dim;
    const bool is_value = in_layer >= keys;
    const int dim = is_value ? g.value_dim : g.key_dim, in_row = in_layer - (is_value ? keys : 0);
    const int64_t page = slot / g.page_tokens * int64_t{g.page_tokens} * g.layer_columns();
    const int64_t first = page + (is_value ? int64_t{keys} * g.page_tokens : 0);
    return layer * distance + first +
           (int64_t{in_row / dim} * g.page_tokens + slot % g.page_tokens) * dim + in_row % dim;
  }

  // `body` over all rows from `first_row` on.
  void Run(int grid, int whole_tiles, int threads, size_t shared_bytes,
           const std::function<void(const Operands&)>& body, int first_row = 0) const {
    const int y_columns = c.n() - g.layers * g.layer_columns();
    std::vector<float> workspace(1 << 20, 0.0f);
    std::vector<Output> y(static_cast<size_t>(c.rows * y_columns), FromFloat<Output>(-77));
    std::vector<Output> pages(static_cast<size_t>(g.layers * distance), FromFloat<Output>(-78));
    Operands operands{c.x.data(), c.weight.data(), c.bias.data(),
                      nullptr,    y.data(),        reinterpret_cast<uint8_t*>(workspace.data()),
                      c.rows,     whole_tiles,     c.n(),
                      c.k(),      first_row};
    operands.slots = slots.data();
    operands.pages = pages.data();
    operands.next_pages = pages.data() + (g.layers > 1 ? distance : 0);
    RunGrid({grid, threads, shared_bytes, c.x.data(), c.x.size() * 2, 1}, [&] { body(operands); });
    std::map<int64_t, Output> expected;  // what is written of the pages
    for (int row = first_row; row < c.rows; ++row) {
      for (int n = 0; n < c.n(); ++n) {
        const int slot = slots[static_cast<size_t>(row)];
        if (n >= y_columns) {
          if (slot >= 0) expected[At(slot, n - y_columns)] = c.Expected(row, n);
          continue;
        }
        ASSERT_EQ(BitsOf(y[static_cast<size_t>(row * y_columns + n)]), BitsOf(c.Expected(row, n)))
            << "row " << row << ", n " << n;
      }
    }
    for (size_t i = 0; i < pages.size(); ++i) {
      const auto written = expected.find(static_cast<int64_t>(i));
      ASSERT_EQ(BitsOf(pages[i]),
                BitsOf(written == expected.end() ? FromFloat<Output>(-78) : written->second))
          << "element " << i << " of the pages, " << c.rows << " rows";
    }
  }
};

#define QUIRE_BODIES(space)                                                              \
  using Operands = space::LinearOperands;                                                \
  using TestCase =                                                                       \
      Case<space::Element, space::Output, space::kN, space::kK, space::kHasBias, false>; \
  using Of = Appended<TestCase, Operands, space::Output>;                                \
  constexpr Geometry kGeometry = {space::kAppendLayers, space::kKvHeads, space::kKeyDim, \
                                  space::kValueDim, space::kPageTokens};

template <typename Body, typename Of>
void RunFew(const Of& of, int first_row) {
  of.Run(
      3, 0, Body::kThreads, size_t{Body::kRingBytes} + 128 * 1024,
      [](const auto& operands) { Body::Run(operands); }, first_row);
}
template <typename Body, typename Of>
void RunTile(const Of& of, int tokens) {
  const int tiles = (of.c.rows + tokens - 1) / tokens * ((of.c.n() + 127) / 128);
  of.Run(2, tiles / 2, Body::kThreads, size_t{Body::kRingBytes} + 1024,
         [](const auto& operands) { Body::Run(operands); });
}
// A body that reads through tensor maps, with tiles of `tokens` rows of x.
template <typename Body, typename Of>
void RunMapped(const Of& of, int tokens, int tile_rows, bool cuts, size_t shared_bytes) {
  CudaLinearConfig config;
  config.rows = tokens;
  const TensorMap x{of.c.x.data(), of.c.rows, of.c.k(), CudaLinearBoxRows(config, of.c.rows)};
  const TensorMap weight{of.c.weight.data(), of.c.n(), of.c.k(), tile_rows};
  const int tiles = (of.c.rows + tokens - 1) / tokens * ((of.c.n() + tile_rows - 1) / tile_rows);
  of.Run(2, cuts ? tiles / 2 : tiles, Body::kThreads, shared_bytes,
         [&](const auto& operands) { Body::Run(operands, x, weight); });
}
template <typename Body, typename Of>
void RunWarpgroup(const Of& of, int tile_rows) {
  RunMapped<Body>(of, 128, tile_rows, Body::kCuts, Body::kUsedBytes);
}
template <typename Body, typename Of>
void RunNarrow(const Of& of, int tokens) {
  RunMapped<Body>(of, tokens, Body::kTileRows, true, Body::kFlagsAt + 16);
}

#define QUIRE_EVERY_BODY(space)                                                     \
  TEST(CudaLinearAppendEmulatedTest, space) {                                       \
    QUIRE_BODIES(space)                                                             \
    RunFew<space::LinearFew<4, 2, 3>>(Of({7}, kGeometry), 4);                       \
    RunTile<space::LinearTile<16, 1, 3>>(Of({21}, kGeometry), 16);                  \
    RunTile<space::LinearTile<128, 2, 3>>(Of({131}, kGeometry), 128);               \
    RunNarrow<space::LinearNarrow<16, 64, 3>>(Of({11}, kGeometry), 16);             \
    RunNarrow<space::LinearNarrow<64, 136, 2>>(Of({37}, kGeometry), 64);            \
    RunWarpgroup<space::LinearWarpgroup<64, 3, false>>(Of({131}, kGeometry), 64);   \
    RunWarpgroup<space::LinearWarpgroup<96, 3, false>>(Of({70}, kGeometry), 96);    \
    RunWarpgroup<space::LinearWarpgroup<128, 3, false>>(Of({131}, kGeometry), 128); \
    RunWarpgroup<space::LinearWarpgroup<192, 5, true>>(Of({131}, kGeometry), 192);  \
    RunWarpgroup<space::LinearWarpgroup<256, 4, false>>(Of({131}, kGeometry), 256); \
  }
QUIRE_EVERY_BODY(queries)
QUIRE_EVERY_BODY(pages_alone)
QUIRE_EVERY_BODY(one_layer)

}  // namespace
}  // namespace quire::emulated
