// What split-cross-qkv saves on this machine's GPU, by what is launched to prepare one layer's
// cross-attention: the packed projection of queries, keys and values over decoder rows and encoder
// rows, and a kernel that brings keys and values to their pages, as the field does; and what Quire
// launches, queries of the former, keys and values of the latter, which go to their pages from the
// projection.
//
//   bench_cuda_cross_qkv     Mllama 11B's geometry, 16 images of 4 x 1601 tokens; one line a number
//                            of decoder rows: rows, ms packed, of that the projections, ms split,
//                            and ms of queries alone, which is all that a step has once `encode`
//                            ran
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/substitute.h"
#include "ir/dtype.h"
#include "tools/bench/cuda_linear_kernels.h"
#include "tools/bench/cuda_planned.h"

namespace quire::bench {
namespace {

constexpr int64_t kWidth = 4096, kQueries = 32 * 128, kHeads = 8, kHead = 128, kPageTokens = 16;
constexpr int64_t kKeysAndValues = 2 * kHeads * kHead, kPacked = kQueries + kKeysAndValues;
constexpr int64_t kBatch = 16, kEncoderRows = kBatch * 4 * 1601;

LinearSpec Projection(int64_t columns, bool appends) {
  LinearSpec spec = Spec(columns, kWidth, DType::kBF16, DType::kBF16, false, false);
  if (appends) spec.append = AppendSpec{1, kHeads, kHead, kHead, kPageTokens};
  return spec;
}

// The last columns of packed rows. A function has to return something: eight others.
RowSpec Append() {
  return {
      absl::Substitute("func @row(%0: bf16[T,$0]) {\n"
                       "  %v0 = cast %0 : f32[T,$0]\n"
                       "  %v1 = slice %v0 {axis=1, begin=$1, end=$2} : f32[T,$3]\n"
                       "  %v2 = slice %v0 {axis=1, begin=$2, end=$0} : f32[T,$3]\n"
                       "  %v3 = reshape %v1 : f32[T,$4,$5]\n"
                       "  %v4 = reshape %v2 : f32[T,$4,$5]\n"
                       "  %v5 = kv_append %v3 {layer=0, slot=k} : bf16[C,$4,$5]\n"
                       "  %v6 = kv_append %v4 {layer=0, slot=v} : bf16[C,$4,$5]\n"
                       "  %v7 = slice %v0 {axis=1, begin=0, end=8} : f32[T,8]\n"
                       "  %v8 = cast %v7 : bf16[T,8]\n"
                       "  return %v8\n}\n",
                       kPacked, kQueries, kQueries + kHeads * kHead, kHeads * kHead, kHeads, kHead),
      kPageTokens};
}

CuDevicePtr Drawn(const Gpu& gpu, int64_t elements, uint64_t seed) {
  constexpr int64_t kBlock = int64_t{1} << 24;
  std::vector<uint16_t> values(static_cast<size_t>(std::min(elements, kBlock)));
  Random random{seed};
  for (uint16_t& value : values) value = F32ToBF16(random.Value());
  const CuDevicePtr memory = gpu.Allocate(static_cast<size_t>(elements) * 2);
  for (int64_t at = 0; at < elements; at += kBlock) {
    gpu.Upload(memory + static_cast<uint64_t>(at) * 2, values.data(),
               static_cast<size_t>(std::min(kBlock, elements - at)) * 2);
  }
  return memory;
}

// The first page of a pool.
std::vector<uint16_t> FirstPage(const Gpu& gpu, CuDevicePtr pool) {
  std::vector<uint16_t> page(kPageTokens * kKeysAndValues);
  gpu.Download(page.data(), pool, page.size() * 2);
  return page;
}

int Main() {
  const Gpu gpu;
  constexpr int64_t kMostRows = kBatch * 512;
  Planned packed(gpu, Projection(kPacked, false)), append(gpu, Append()),
      queries(gpu, Projection(kQueries, false)), keys_values(gpu, Projection(kKeysAndValues, true));
  Compile(gpu, {&packed, &append, &queries, &keys_values});
  const CuDevicePtr weight = Drawn(gpu, kPacked * kWidth, 1);
  const CuDevicePtr kv_weight = weight + static_cast<uint64_t>(kQueries * kWidth) * 2;
  const CuDevicePtr x = Drawn(gpu, kMostRows * kWidth, 2);
  const CuDevicePtr memory = Drawn(gpu, kEncoderRows * kWidth, 3);
  const CuDevicePtr y = gpu.Allocate(static_cast<size_t>(kMostRows * kPacked) * 2);
  const CuDevicePtr encoded = gpu.Allocate(static_cast<size_t>(kEncoderRows * kPacked) * 2);
  const auto pool_bytes = static_cast<size_t>(kEncoderRows * kKeysAndValues) * 2;
  const CuDevicePtr pool = gpu.Allocate(pool_bytes), own_pool = gpu.Allocate(pool_bytes);
  const CuDevicePtr workspace = gpu.Allocate(kWorkspaceBytes);
  std::vector<int32_t> slots(kEncoderRows);
  std::iota(slots.begin(), slots.end(), 0);
  const CuDevicePtr slots_at = gpu.Allocate(slots.size() * 4);
  gpu.Upload(slots_at, slots.data(), slots.size() * 4);
  append.SetSlots(slots_at);
  keys_values.SetSlots(slots_at);

  const auto project = [&](int64_t rows) {
    packed.Enqueue(packed.Launches(rows), {x, weight, y}, workspace);
    packed.Enqueue(packed.Launches(kEncoderRows), {memory, weight, encoded}, workspace);
  };
  const auto run_packed = [&](int64_t rows) {
    project(rows);
    append.Enqueue(append.Launches(kEncoderRows), {encoded, pool, pool, y}, workspace);
  };
  const auto run_queries = [&](int64_t rows) {
    queries.Enqueue(queries.Launches(rows), {x, weight, y}, workspace);
  };
  const auto run_split = [&](int64_t rows) {
    run_queries(rows);
    keys_values.Enqueue(keys_values.Launches(kEncoderRows), {memory, kv_weight, own_pool},
                        workspace);
  };
  run_packed(kBatch);
  run_split(kBatch);
  const bool same = FirstPage(gpu, pool) == FirstPage(gpu, own_pool);
  std::printf("%s; %ld encoder rows; bits %s\n", gpu.name().c_str(),
              static_cast<long>(kEncoderRows), same ? "equal" : "DIFFER");
  for (const int64_t tokens : {1, 32, 512}) {
    const int64_t rows = kBatch * tokens;
    const double all = gpu.TimeGraph(9, [&] { run_packed(rows); });
    const double projections = gpu.TimeGraph(9, [&] { project(rows); });
    const double split = gpu.TimeGraph(9, [&] { run_split(rows); });
    const double alone = gpu.TimeGraph(9, [&] {
      for (int i = 0; i < 10; ++i) run_queries(rows);
    });
    std::printf("%ld %.3f %.3f %.3f %.4f\n", static_cast<long>(rows), all / 1e3, projections / 1e3,
                split / 1e3, alone / 1e4);
    std::fflush(stdout);
  }
  return same ? 0 : 1;
}

}  // namespace
}  // namespace quire::bench

int main() { return quire::bench::Main(); }
