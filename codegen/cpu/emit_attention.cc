#include "codegen/cpu/emit_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "codegen/cpu/abi.h"
#include "codegen/cpu/emit_math.h"

namespace quire {
namespace {

using V = LlvmValue;

constexpr int kTileHeight = 8;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Of Press et al. 2022 (arXiv 2108.12409): a geometric sequence for a power of two of heads; heads
// past the largest power take every other term of the sequence for twice as many.
std::vector<std::string> AlibiSlopes(int64_t heads, double max) {
  int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  std::vector<std::string> slopes;
  for (int64_t head = 0; head < heads; ++head) {
    const double number =
        head < power ? static_cast<double>(head + 1) : static_cast<double>(head - power) + 0.5;
    slopes.push_back(
        F32(static_cast<float>(std::exp2(-max * number / static_cast<double>(power)))).text);
  }
  return slopes;
}

}  // namespace

AttentionEmitter::AttentionEmitter(const AttentionSpec& spec)
    : spec_(spec),
      group_(spec.hq / spec.hkv),
      kv_bytes_(InfoOf(spec.kv).block_bytes),
      pages_hold_tiles_(spec.page_tokens % kTileTokens == 0) {
  queries_ = Reserve(4 * spec.d * kTileHeight);
  first_seen_ = Reserve(8 * kTileHeight);
  end_seen_ = Reserve(8 * kTileHeight);
  positions_ = Reserve(8 * kTileHeight);
  slopes_ = Reserve(4 * kTileHeight);
  bias_rows_ = Reserve(8 * kTileHeight);
  scores_ = Reserve(4 * kTileHeight * kSplitTokens);
  split_state_ = Reserve(state_bytes() * kTileHeight);
  running_state_ = Reserve(state_bytes() * kTileHeight);
  keys_ = Reserve(8 * kPointers);
  values_ = Reserve(8 * kPointers);
  if (!pages_hold_tiles_) {
    staged_keys_ = Reserve(kv_bytes_ * kSplitTokens * spec.d);
    staged_values_ = Reserve(kv_bytes_ * kSplitTokens * spec.dv);
  }
}

int64_t AttentionEmitter::Reserve(int64_t bytes) {
  const int64_t place = scratch_bytes_;
  scratch_bytes_ += (bytes + 63) / 64 * 64;
  return place;
}

EmittedKernel AttentionEmitter::Emit() {
  EmitMain();
  EmitMerge();
  return {w_.Finish(), scratch_bytes_};
}

V AttentionEmitter::Field(size_t offset) {
  return w_.Load("i64", w_.At(item_, static_cast<int64_t>(offset)), 8);
}

void AttentionEmitter::LoadTables() {
  const auto load = [&](size_t field) {
    return w_.Load("ptr", w_.At(tables_, static_cast<int64_t>(field)), 8);
  };
  const V head = w_.Mul(Field(offsetof(AttentionItem, kv_head)), I64(4));
  const auto scale = [&](size_t field) { return w_.Load("float", w_.At(load(field), head), 4); };
  if (spec_.buckets > 0) biases_ = load(offsetof(AttentionTables, biases));
  if (spec_.k_scale) k_scale_ = scale(offsetof(AttentionTables, k_scales));
  if (spec_.v_scale) v_scale_ = scale(offsetof(AttentionTables, v_scales));
}

void AttentionEmitter::EmitMain() {
  w_.BeginFunction(kMainEntry, {{"ptr noalias readonly", q_.text},
                                {"ptr noalias readonly", layer_.text},
                                {"ptr noalias", y_.text},
                                {"ptr noalias readonly", item_.text},
                                {"ptr noalias", scratch_.text},
                                {"ptr noalias readonly", tables_.text}});
  LoadTables();
  const V end = Field(offsetof(AttentionItem, query_end));
  const LlvmWriter::Var query = w_.NewVar(Field(offsetof(AttentionItem, query_begin)));
  // Few queries, as of one generated token, get a tile of their own height.
  const int few = static_cast<int>(std::min<int64_t>(group_, kTileHeight));
  w_.While([&] { return w_.Compare("icmp slt", w_.Get(query), end); },
           [&] {
             const V now = w_.Get(query);
             const V left = w_.Sub(end, now);
             const auto tile = [&](int height) {
               const V count = w_.Intrinsic("smin", "i64", {left, I64(height)});
               Tile(now, count, height);
             };
             if (few == kTileHeight) {
               tile(kTileHeight);
             } else {
               w_.If(
                   w_.Compare("icmp sle", left, I64(few)), [&] { tile(few); },
                   [&] { tile(kTileHeight); });
             }
             w_.Set(query, w_.Add(now, I64(kTileHeight)));
           });
  w_.EndFunction();
}

void AttentionEmitter::Tile(const V& query, const V& count, int height) {
  PrepareQueries(query, count, height);
  const V rows = I64(height);
  w_.For(I64(0), rows, 1, [&](const V& r) { Clear(At(running_state_, r, state_bytes())); });
  // Queries are in the order of their positions: the first sees the first token of all.
  const V first = w_.Load("i64", At(first_seen_), 8);
  const V end = w_.Load("i64", At(end_seen_ + 8 * (height - 1)), 8);
  const V split_begin = w_.Intrinsic(
      "smax", "i64",
      {Field(offsetof(AttentionItem, split_begin)), w_.Binary("sdiv", first, I64(kSplitTokens))});
  const V split_end =
      w_.Intrinsic("smin", "i64",
                   {Field(offsetof(AttentionItem, split_end)),
                    w_.Binary("sdiv", w_.Add(end, I64(kSplitTokens - 1)), I64(kSplitTokens))});
  w_.For(split_begin, split_end, 1, [&](const V& split) {
    Range range;
    range.first_token = w_.Mul(split, I64(kSplitTokens));
    range.begin = w_.Intrinsic("smax", "i64", {I64(0), w_.Sub(first, range.first_token)});
    range.seen_end = w_.Sub(end, range.first_token);
    range.end = w_.Intrinsic("smin", "i64", {I64(kSplitTokens), range.seen_end});
    FindTokens(range);
    Scores(range, height);
    Weights(range, height);
    Outputs(range, height);
    w_.For(I64(0), count, 1, [&](const V& r) {
      MergeState(At(running_state_, r, state_bytes()), At(split_state_, r, state_bytes()));
    });
  });
  const V partial =
      w_.Load("ptr", w_.At(item_, static_cast<int64_t>(offsetof(AttentionItem, partial))), 8);
  w_.If(
      w_.Compare("icmp eq", partial, {"ptr", "null"}),
      [&] {
        w_.For(I64(0), count, 1, [&](const V& r) {
          Finish(At(running_state_, r, state_bytes()), OutputOf(w_.Add(query, r)));
        });
      },
      [&] {
        const V number = w_.Sub(query, Field(offsetof(AttentionItem, query_begin)));
        const V to = w_.At(partial, w_.Mul(number, I64(state_bytes())));
        w_.For(I64(0), w_.Mul(count, I64(spec_.dv + 2)), 1, [&](const V& i) {
          const V offset = w_.Mul(i, I64(4));
          w_.Store(w_.Load("float", w_.At(At(running_state_), offset), 4), w_.At(to, offset), 4);
        });
      });
}

// Row of y of a query.
V AttentionEmitter::OutputOf(const V& query) {
  const V row =
      w_.Add(Field(offsetof(AttentionItem, first_row)), w_.Binary("sdiv", query, I64(group_)));
  const V head = w_.Add(w_.Mul(Field(offsetof(AttentionItem, kv_head)), I64(group_)),
                        w_.Binary("srem", query, I64(group_)));
  return w_.At(y_, w_.Mul(w_.Add(w_.Mul(row, I64(spec_.hq)), head), I64(4 * spec_.dv)));
}

void AttentionEmitter::PrepareQueries(const V& query, const V& count, int height) {
  V slopes;
  if (spec_.alibi_max != 0) {
    slopes = w_.Constant("float", AlibiSlopes(spec_.hq, spec_.alibi_max));
  }
  const V rows = Field(offsetof(AttentionItem, rows));
  const V context = Field(offsetof(AttentionItem, context_tokens));
  const V last = w_.Sub(count, I64(1));
  w_.For(I64(0), I64(height), 1, [&](const V& r) {
    const V number = w_.Add(query, w_.Intrinsic("smin", "i64", {r, last}));
    const V row = w_.Binary("sdiv", number, I64(group_));
    const V head = w_.Add(w_.Mul(Field(offsetof(AttentionItem, kv_head)), I64(group_)),
                          w_.Binary("srem", number, I64(group_)));
    const V position = w_.Add(w_.Sub(context, rows), row);
    const V end = spec_.causal ? w_.Add(position, I64(1)) : context;
    V first = I64(0);
    if (spec_.window != 0) {
      first = w_.Intrinsic("smax", "i64", {I64(0), w_.Sub(end, I64(spec_.window))});
    }
    w_.Store(position, At(positions_, r, 8), 8);
    w_.Store(end, At(end_seen_, r, 8), 8);
    w_.Store(first, At(first_seen_, r, 8), 8);
    if (spec_.alibi_max != 0) {
      w_.Store(w_.Load("float", w_.At(slopes, w_.Mul(head, I64(4))), 4), At(slopes_, r, 4), 4);
    }
    if (spec_.buckets > 0) {
      const int64_t head_bytes = 4 * RelativeBiases(spec_.max_distance);
      w_.Store(w_.At(biases_, w_.Mul(head, I64(head_bytes))), At(bias_rows_, r, 8), 8);
    }
    const V step_row = w_.Add(Field(offsetof(AttentionItem, first_row)), row);
    const V from =
        w_.At(q_, w_.Mul(w_.Add(w_.Mul(step_row, I64(spec_.hq)), head), I64(4 * spec_.d)));
    const V own_scale = F32(static_cast<float>(spec_.scale));
    const V scale = spec_.k_scale ? w_.FMul(k_scale_, own_scale) : own_scale;
    w_.For(I64(0), I64(spec_.d), 1, [&](const V& d) {
      const V scaled = w_.FMul(w_.Load("float", w_.At(from, w_.Mul(d, I64(4))), 4), scale);
      w_.Store(scaled, w_.At(At(queries_, d, 4 * height), w_.Mul(r, I64(4))), 4);
    });
  });
}

void AttentionEmitter::Clear(const V& state) {
  w_.For(I64(0), I64(spec_.dv), 1,
         [&](const V& i) { w_.Store(F32(0), w_.At(state, w_.Mul(i, I64(4))), 4); });
  w_.Store(F32(kMinusInfinity), w_.At(state, 4 * spec_.dv), 4);
  w_.Store(F32(0), w_.At(state, 4 * (spec_.dv + 1)), 4);
}

void AttentionEmitter::MergeState(const V& running, const V& split) {
  const int64_t maximum_at = 4 * spec_.dv, sum_at = maximum_at + 4;
  const V m1 = w_.Load("float", w_.At(running, maximum_at), 4);
  const V m2 = w_.Load("float", w_.At(split, maximum_at), 4);
  const V m = w_.Select(w_.Compare("fcmp ogt", m1, m2), m1, m2);
  // Two maxima of -inf: nothing was seen, and both factors become zero.
  const V seen = w_.Select(w_.Compare("fcmp oeq", m, F32(kMinusInfinity)), F32(0), m);
  const V both = w_.Insert(w_.Insert({"<2 x float>", "poison"}, m1, 0), m2, 1);
  const V factors = EmitExp(w_, w_.FSub(both, w_.Splat(seen, 2)));
  const V f1 = w_.Extract(factors, 0), f2 = w_.Extract(factors, 1);
  const V l1 = w_.Load("float", w_.At(running, sum_at), 4);
  const V l2 = w_.Load("float", w_.At(split, sum_at), 4);
  w_.Store(m, w_.At(running, maximum_at), 4);
  w_.Store(w_.Fma(l1, f1, w_.FMul(l2, f2)), w_.At(running, sum_at), 4);
  w_.For(I64(0), I64(spec_.dv), 8, [&](const V& i) {
    const V at = w_.Mul(i, I64(4));
    const V a = w_.Load("<8 x float>", w_.At(running, at), 4);
    const V b = w_.Load("<8 x float>", w_.At(split, at), 4);
    w_.Store(w_.Fma(a, w_.Splat(f1, 8), w_.FMul(b, w_.Splat(f2, 8))), w_.At(running, at), 4);
  });
}

void AttentionEmitter::Finish(const V& running, const V& y) {
  const V sum = w_.Load("float", w_.At(running, 4 * (spec_.dv + 1)), 4);
  // A query that sees nothing gives zeros.
  const V empty = w_.Compare("fcmp oeq", sum, F32(0));
  const V numerator = spec_.v_scale ? v_scale_ : F32(1);
  const V inverse = w_.Select(empty, F32(0), w_.FDiv(numerator, sum));
  w_.For(I64(0), I64(spec_.dv), 8, [&](const V& i) {
    const V at = w_.Mul(i, I64(4));
    w_.Store(w_.FMul(w_.Load("<8 x float>", w_.At(running, at), 4), w_.Splat(inverse, 8)),
             w_.At(y, at), 4);
  });
}

void AttentionEmitter::EmitMerge() {
  w_.BeginFunction(kMergeEntry, {{"ptr noalias", y_.text},
                                 {"ptr noalias readonly", item_.text},
                                 {"ptr noalias", scratch_.text},
                                 {"ptr noalias readonly", tables_.text}});
  LoadTables();
  const V begin = Field(offsetof(AttentionItem, query_begin));
  const V end = Field(offsetof(AttentionItem, query_end));
  const V splits = w_.Sub(Field(offsetof(AttentionItem, split_end)),
                          Field(offsetof(AttentionItem, split_begin)));
  const V partial =
      w_.Load("ptr", w_.At(item_, static_cast<int64_t>(offsetof(AttentionItem, partial))), 8);
  const V running = At(running_state_);
  w_.For(begin, end, 1, [&](const V& query) {
    Clear(running);
    w_.For(I64(0), splits, 1, [&](const V& split) {
      const V number = w_.Add(w_.Mul(split, w_.Sub(end, begin)), w_.Sub(query, begin));
      MergeState(running, w_.At(partial, w_.Mul(number, I64(state_bytes()))));
    });
    Finish(running, OutputOf(query));
  });
  w_.EndFunction();
}

EmittedKernel EmitAttention(const AttentionSpec& spec) { return AttentionEmitter(spec).Emit(); }

}  // namespace quire
