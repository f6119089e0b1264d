// A linear whose last columns go to pages of the KV cache, and the bits that every body has to give
// there and in y. Include this after cuda_hopper_emulator.h.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_LINEAR_APPEND_CASE_H_
#define QUIRE_TESTS_CODEGEN_CUDA_LINEAR_APPEND_CASE_H_

#include <algorithm>
#include <cmath>
#include <map>
#include <type_traits>
#include <vector>

#include "codegen/cuda/linear_rope.h"
#include "gtest/gtest.h"
#include "tests/codegen/cuda_linear_case.h"

namespace quire::emulated {

#include <row.cuh>

struct Geometry {
  int layers, heads, key_dim, value_dim, page_tokens;
  int pair_distance;  // of heads that are turned (linear_rope.cuh), or 0
  int layer_columns() const { return heads * (key_dim + value_dim); }
};

// A position for each row, and what the row kernel makes of it: frequencies as of theta=10000.
inline int PositionOf(int row) { return row * 37 % 4099; }
inline Turns<1> TurnsAt(int position, int pair, int pairs) {
  const double frequency = std::pow(10000.0, -static_cast<double>(pair) / pairs);
  return TurnsOf(position, Angles<1>{{frequency}}, 1.0f);
}

// A case with a place in pages for each row but some, and heads that are turned if there are any.
template <typename TestCase, typename Operands, typename Output>
struct Appended {
  using Element = typename decltype(TestCase::weight)::value_type;
  static constexpr int kPages = 200, kGap = 40;  // elements between a layer and the next
  using Rotation = std::remove_cv_t<std::remove_pointer_t<decltype(Operands::turns)>>;

  const TestCase c;
  const Geometry g;
  decltype(TestCase::weight) weight = c.weight;  // in the order in which bodies read it
  std::vector<Rotation> turns;
  std::vector<Output> products;
  std::vector<int> slots = std::vector<int>(static_cast<size_t>(c.rows));
  const int64_t distance = int64_t{kPages} * g.page_tokens * g.layer_columns() + kGap;

  Appended(const TestCase& test_case, const Geometry& geometry) : c(test_case), g(geometry) {
    // All over the pages, no slot twice: 7 and the number of slots have no factor in common.
    for (int row = 0; row < c.rows; ++row) {
      slots[static_cast<size_t>(row)] =
          row % 5 == 3 ? -1 : (row * 7 + 11) % (kPages * g.page_tokens);
    }
    for (int i = 0; i < c.rows * c.n(); ++i) {
      products.push_back(c.Expected(i / c.n(), i % c.n()));
    }
    if (g.pair_distance == 0) return;
    const CudaRowOrder order = {g.pair_distance == 8 ? TurnedColumns() / g.key_dim : 0, g.key_dim};
    for (int at = 0; at < c.n(); ++at) {
      std::copy_n(c.weight.begin() + order.RowAt(at) * c.k(), c.k(), weight.begin() + at * c.k());
    }
    for (int row = 0; row < c.rows; ++row) {
      for (int pair = 0; pair < g.key_dim / 2; ++pair) {
        const Turns<1> turn = TurnsAt(PositionOf(row), pair, g.key_dim / 2);
        turns.push_back({turn.cosine.x[0], turn.sine.x[0]});
      }
    }
  }

  int TurnedColumns() const { return c.n() - g.heads * g.value_dim; }

  Output Product(int row, int n) const { return products[static_cast<size_t>(row * c.n() + n)]; }
  // As the linear's row kernel would make it of the product.
  Output Expected(int row, int n) const {
    const Output product = Product(row, n);
    if (g.pair_distance == 0 || n >= TurnedColumns()) return product;
    const int in_head = n % g.key_dim, half = g.key_dim / 2;
    const bool is_half = g.pair_distance == 8;
    const bool is_first = is_half ? in_head < half : in_head % 2 == 0;
    const int other = is_first ? n + (is_half ? half : 1) : n - (is_half ? half : 1);
    const Turns<1> turn = TurnsAt(PositionOf(row), is_half ? in_head % half : in_head / 2, half);
    const Vector<1> turned = Turn(Vector<1>{{ToFloat(product)}},
                                  Vector<1>{{ToFloat(Product(row, other))}}, turn, is_first);
    return FromFloat<Output>(turned.x[0]);
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
    Operands operands{c.x.data(), weight.data(), c.bias.data(),
                      nullptr,    y.data(),      reinterpret_cast<uint8_t*>(workspace.data()),
                      c.rows,     whole_tiles,   c.n(),
                      c.k(),      first_row};
    operands.slots = slots.data();
    operands.pages = pages.data();
    operands.next_pages = pages.data() + (g.layers > 1 ? distance : 0);
    operands.turns = turns.data();
    RunGrid({grid, threads, shared_bytes, c.x.data(), c.x.size() * 2, 1}, [&] { body(operands); });
    std::map<int64_t, Output> expected;  // what is written of the pages
    for (int row = first_row; row < c.rows; ++row) {
      for (int n = 0; n < c.n(); ++n) {
        const int slot = slots[static_cast<size_t>(row)];
        if (n >= y_columns) {
          if (slot >= 0) expected[At(slot, n - y_columns)] = Expected(row, n);
          continue;
        }
        ASSERT_EQ(BitsOf(y[static_cast<size_t>(row * y_columns + n)]), BitsOf(Expected(row, n)))
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

#define QUIRE_BODIES(space)                                                                 \
  using Operands = space::LinearOperands;                                                   \
  using TestCase =                                                                          \
      Case<space::Element, space::Output, space::kN, space::kK, space::kHasBias, false>;    \
  using Of = Appended<TestCase, Operands, space::Output>;                                   \
  constexpr Geometry kGeometry = {space::kAppendLayers, space::kKvHeads,    space::kKeyDim, \
                                  space::kValueDim,     space::kPageTokens, space::kPairDistance};

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
  const TensorMap weight{of.weight.data(), of.c.n(), of.c.k(), tile_rows};
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

}  // namespace quire::emulated

#endif  // QUIRE_TESTS_CODEGEN_CUDA_LINEAR_APPEND_CASE_H_
