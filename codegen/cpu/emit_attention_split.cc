// One split of 256 tokens for one tile of queries.
#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "codegen/cpu/abi.h"
#include "codegen/cpu/emit_attention.h"
#include "codegen/cpu/emit_math.h"

namespace quire {
namespace {

constexpr char kFloats[] = "<16 x float>";

}  // namespace

// Pointers to the tiles of 16 tokens of K and V that the range touches. Blocks of two tiles may
// reach beyond the range on either side: there stands the nearest tile that holds seen tokens.
void AttentionEmitter::FindTokens(const Range& range) {
  const V first_tile = w_.Binary("sdiv", range.begin, I64(kTileTokens));
  // Staged tiles end with the split; pages do not.
  const V& end = pages_hold_tiles_ ? range.seen_end : range.end;
  const V last_tile = w_.Binary("sdiv", w_.Sub(end, I64(1)), I64(kTileTokens));
  if (!pages_hold_tiles_) StageTokens(range);
  const V pages =
      w_.Load("ptr", w_.At(item_, static_cast<int64_t>(offsetof(AttentionItem, pages))), 8);
  const V page_bytes = Field(offsetof(AttentionItem, page_bytes));
  const V head = Field(offsetof(AttentionItem, kv_head));
  const int64_t page = spec_.page_tokens;
  w_.For(I64(0), I64(kPointers), 1, [&](const V& i) {
    const V tile =
        w_.Intrinsic("smin", "i64", {last_tile, w_.Intrinsic("smax", "i64", {first_tile, i})});
    V key, value;
    if (pages_hold_tiles_) {
      const V token = w_.Add(range.first_token, w_.Mul(tile, I64(kTileTokens)));
      const V number =
          w_.Load("i32", w_.At(pages, w_.Mul(w_.Binary("sdiv", token, I64(page)), I64(4))), 4);
      const V slot = w_.Binary("srem", token, I64(page));
      const V base = w_.At(layer_, w_.Mul(w_.Convert("sext", number, "i64"), page_bytes));
      key = w_.At(w_.At(base, w_.Mul(head, I64(spec_.d * page * kv_bytes_))),
                  w_.Mul(slot, I64(kv_bytes_)));
      const V row = w_.Add(w_.Mul(head, I64(page)), slot);
      value = w_.At(w_.At(base, spec_.hkv * spec_.d * page * kv_bytes_),
                    w_.Mul(row, I64(spec_.dv * kv_bytes_)));
    } else {
      key = At(staged_keys_, tile, spec_.d * kTileTokens * kv_bytes_);
      value = At(staged_values_, tile, spec_.dv * kTileTokens * kv_bytes_);
    }
    w_.Store(key, At(keys_, i, 8), 8);
    w_.Store(value, At(values_, i, 8), 8);
  });
}

// Copies the range's tokens into tiles, K as [d][16] and V as [16][dv].
void AttentionEmitter::StageTokens(const Range& range) {
  const std::string bits = absl::StrCat("i", 8 * kv_bytes_);
  const int align = static_cast<int>(kv_bytes_);
  const int64_t page = spec_.page_tokens;
  const V pages =
      w_.Load("ptr", w_.At(item_, static_cast<int64_t>(offsetof(AttentionItem, pages))), 8);
  const V page_bytes = Field(offsetof(AttentionItem, page_bytes));
  const V head = Field(offsetof(AttentionItem, kv_head));
  w_.For(range.begin, range.end, 1, [&](const V& i) {
    const V token = w_.Add(range.first_token, i);
    const V number =
        w_.Load("i32", w_.At(pages, w_.Mul(w_.Binary("sdiv", token, I64(page)), I64(4))), 4);
    const V slot = w_.Binary("srem", token, I64(page));
    const V base = w_.At(layer_, w_.Mul(w_.Convert("sext", number, "i64"), page_bytes));
    const V key = w_.At(w_.At(base, w_.Mul(head, I64(spec_.d * page * kv_bytes_))),
                        w_.Mul(slot, I64(kv_bytes_)));
    const V tile = w_.Binary("sdiv", i, I64(kTileTokens));
    const V lane = w_.Binary("srem", i, I64(kTileTokens));
    const V staged_key = w_.At(At(staged_keys_, tile, spec_.d * kTileTokens * kv_bytes_),
                               w_.Mul(lane, I64(kv_bytes_)));
    w_.For(I64(0), I64(spec_.d), 1, [&](const V& d) {
      const V element = w_.Load(bits, w_.At(key, w_.Mul(d, I64(page * kv_bytes_))), align);
      w_.Store(element, w_.At(staged_key, w_.Mul(d, I64(kTileTokens * kv_bytes_))), align);
    });
    const V row = w_.Add(w_.Mul(head, I64(page)), slot);
    const V value = w_.At(w_.At(base, spec_.hkv * spec_.d * page * kv_bytes_),
                          w_.Mul(row, I64(spec_.dv * kv_bytes_)));
    const V staged_value = At(staged_values_, i, spec_.dv * kv_bytes_);
    const std::string eight = VectorOf(8, bits);
    w_.For(I64(0), I64(spec_.dv), 8, [&](const V& d) {
      const V offset = w_.Mul(d, I64(kv_bytes_));
      w_.Store(w_.Load(eight, w_.At(value, offset), align), w_.At(staged_value, offset), align);
    });
  });
}

AttentionEmitter::V AttentionEmitter::LoadKv(const V& pointer, int lanes) {
  return EmitLoad(w_, spec_.kv, pointer, lanes);
}

// q . k of every query with 32 tokens at a time.
void AttentionEmitter::Scores(const Range& range, int height) {
  const int64_t token_stride =
      kv_bytes_ * (pages_hold_tiles_ ? spec_.page_tokens : int64_t{kTileTokens});
  const V begin = w_.Binary("and", range.begin, I64(-kBlockTokens));
  w_.For(begin, range.end, kBlockTokens, [&](const V& block) {
    const V tile = w_.Binary("sdiv", block, I64(kTileTokens));
    V keys[2], later[2];
    for (int half = 0; half < 2; ++half) {
      keys[half] = w_.Load("ptr", w_.At(At(keys_, tile, 8), 8 * half), 8);
      later[half] = w_.Load("ptr", w_.At(At(keys_, tile, 8), 8 * (half + kAheadTiles)), 8);
    }
    std::vector<LlvmWriter::Var> sums;
    for (int i = 0; i < 2 * height; ++i) sums.push_back(w_.NewVar(w_.Zero(kFloats)));
    w_.For(I64(0), I64(spec_.d), 1, [&](const V& d) {
      V k[2];
      for (int half = 0; half < 2; ++half) {
        const V at = w_.Mul(d, I64(token_stride));
        k[half] = LoadKv(w_.At(keys[half], at), kTileTokens);
        w_.Prefetch(w_.At(later[half], at));
      }
      const V q = At(queries_, d, 4 * height);
      for (int r = 0; r < height; ++r) {
        const V one = w_.Splat(w_.Load("float", w_.At(q, 4 * r), 4), kTileTokens);
        for (int half = 0; half < 2; ++half) {
          const LlvmWriter::Var& sum = sums[static_cast<size_t>(2 * r + half)];
          w_.Set(sum, w_.Fma(k[half], one, w_.Get(sum)));
        }
      }
    });
    for (int r = 0; r < height; ++r) {
      for (int half = 0; half < 2; ++half) {
        const V to = At(scores_ + 4 * (r * kSplitTokens + half * kTileTokens), block, 4);
        w_.Store(w_.Get(sums[static_cast<size_t>(2 * r + half)]), to, 4);
      }
    }
  });
}

// Softcap and position bias. `token`: absolute, of lane 0.
AttentionEmitter::V AttentionEmitter::Adjusted(const V& scores, const V& token,
                                               const V& query_slot) {
  V s = scores;
  if (spec_.cap != 0) {
    s = w_.FMul(EmitTanh(w_, w_.FMul(s, Constant(w_, s, 1 / spec_.cap))),
                Constant(w_, s, spec_.cap));
  }
  if (spec_.alibi_max != 0) {
    const V position = w_.Load("i64", At(positions_, query_slot, 8), 8);
    const V distance = w_.Convert("trunc", w_.Sub(token, position), "i32");
    const V lanes = w_.Add(w_.Splat(distance, kTileTokens), LaneNumbers());
    const V slope = w_.Splat(w_.Load("float", At(slopes_, query_slot, 4), 4), kTileTokens);
    s = w_.Fma(slope, w_.Convert("sitofp", lanes, kFloats), s);
  }
  if (spec_.buckets > 0) {
    const int64_t reach = spec_.max_distance + kTileTokens - 1;
    const V position = w_.Load("i64", At(positions_, query_slot, 8), 8);
    // Beyond the reach all lanes have the bias of the last bucket.
    const V first =
        w_.Intrinsic("smin", "i64",
                     {I64(spec_.max_distance),
                      w_.Intrinsic("smax", "i64", {I64(-reach), w_.Sub(token, position)})});
    const V row = w_.Load("ptr", At(bias_rows_, query_slot, 8), 8);
    const V at = w_.At(row, w_.Mul(w_.Add(first, I64(reach)), I64(4)));
    s = w_.FAdd(s, w_.Load(kFloats, at, 4));
  }
  return s;
}

AttentionEmitter::V AttentionEmitter::LaneNumbers() {
  std::string text = "<i32 0";
  for (int lane = 1; lane < kTileTokens; ++lane) text += ", i32 " + std::to_string(lane);
  return {"<16 x i32>", text + ">"};
}

void AttentionEmitter::Weights(const Range& range, int height) {
  const V begin = w_.Binary("and", range.begin, I64(-kBlockTokens));
  const V end = w_.Binary("and", w_.Add(range.end, I64(kBlockTokens - 1)), I64(-kBlockTokens));
  const V minus_infinity =
      w_.SplatConstant(F32(-std::numeric_limits<float>::infinity()), kTileTokens);
  w_.For(I64(0), I64(height), 1, [&](const V& r) {
    const auto relative = [&](int64_t place) {
      const V token = w_.Sub(w_.Load("i64", At(place, r, 8), 8), range.first_token);
      // Far outside the split is as good as just outside: the numbers stay small.
      const V near = w_.Intrinsic(
          "smin", "i64", {I64(kSplitTokens), w_.Intrinsic("smax", "i64", {I64(0), token})});
      return w_.Splat(w_.Convert("trunc", near, "i32"), kTileTokens);
    };
    const V first = relative(first_seen_), last = relative(end_seen_);
    const V row = At(scores_, r, 4 * kSplitTokens);
    const LlvmWriter::Var largest = w_.NewVar(minus_infinity);
    w_.For(begin, end, kTileTokens, [&](const V& i) {
      const V at = w_.At(row, w_.Mul(i, I64(4)));
      const V s = Adjusted(w_.Load(kFloats, at, 4), w_.Add(range.first_token, i), r);
      const V token = w_.Add(w_.Splat(w_.Convert("trunc", i, "i32"), kTileTokens), LaneNumbers());
      V seen = w_.Compare("icmp slt", token, last);
      if (spec_.window != 0) {
        seen = w_.Binary("and", seen, w_.Compare("icmp sge", token, first));
      }
      const V masked = w_.Select(seen, s, minus_infinity);
      w_.Store(masked, at, 4);
      const V so_far = w_.Get(largest);
      w_.Set(largest, w_.Select(w_.Compare("fcmp ogt", masked, so_far), masked, so_far));
    });
    const V m = w_.Reduce16(w_.Get(largest), [&](const V& a, const V& b) {
      return w_.Select(w_.Compare("fcmp ogt", a, b), a, b);
    });
    const V none = w_.Compare("fcmp oeq", m, F32(-std::numeric_limits<float>::infinity()));
    const V subtracted = w_.Splat(w_.Select(none, F32(0), m), kTileTokens);
    const LlvmWriter::Var sum = w_.NewVar(w_.Zero(kFloats));
    w_.For(begin, end, kTileTokens, [&](const V& i) {
      const V at = w_.At(row, w_.Mul(i, I64(4)));
      const V weight = EmitExp(w_, w_.FSub(w_.Load(kFloats, at, 4), subtracted));
      w_.Store(weight, at, 4);
      w_.Set(sum, w_.FAdd(w_.Get(sum), weight));
    });
    const V state = At(split_state_, r, state_bytes());
    w_.Store(m, w_.At(state, 4 * spec_.dv), 4);
    w_.Store(w_.Reduce16(w_.Get(sum), [&](const V& a, const V& b) { return w_.FAdd(a, b); }),
             w_.At(state, 4 * (spec_.dv + 1)), 4);
  });
}

void AttentionEmitter::Outputs(const Range& range, int height) {
  const int vectors = std::clamp(16 / height, 1, 8);
  const int64_t columns = 16 * vectors, whole = spec_.dv / columns * columns;
  w_.For(I64(0), I64(whole), columns, [&](const V& first) {
    OutputColumns(range, height, first, std::vector<int>(static_cast<size_t>(vectors), 16));
  });
  std::vector<int> rest(static_cast<size_t>((spec_.dv - whole) / 16), 16);
  if (spec_.dv % 16 != 0) rest.push_back(8);
  if (!rest.empty()) OutputColumns(range, height, I64(whole), rest);
}

// Columns from `first` on, in vectors of the given widths: sums of weight * V over the tokens.
void AttentionEmitter::OutputColumns(const Range& range, int height, const V& first,
                                     const std::vector<int>& widths) {
  std::vector<LlvmWriter::Var> sums;
  for (int r = 0; r < height; ++r) {
    for (int width : widths) sums.push_back(w_.NewVar(w_.Zero(VectorOf(width, "float"))));
  }
  const V column_bytes = w_.Mul(first, I64(kv_bytes_));
  const V first_tile = w_.Binary("and", range.begin, I64(-kTileTokens));
  w_.For(first_tile, range.end, kTileTokens, [&](const V& tile) {
    const V pointers = At(values_, w_.Binary("sdiv", tile, I64(kTileTokens)), 8);
    const V values = w_.At(w_.Load("ptr", pointers, 8), column_bytes);
    const V later = w_.At(w_.Load("ptr", w_.At(pointers, 8 * kAheadTiles), 8), column_bytes);
    const V begin = w_.Intrinsic("smax", "i64", {I64(0), w_.Sub(range.begin, tile)});
    const V end = w_.Intrinsic("smin", "i64", {I64(kTileTokens), w_.Sub(range.end, tile)});
    w_.For(begin, end, 1, [&](const V& token) {
      const V row_at = w_.Mul(token, I64(spec_.dv * kv_bytes_));
      const V row = w_.At(values, row_at), later_row = w_.At(later, row_at);
      const int64_t columns = std::accumulate(widths.begin(), widths.end(), int64_t{0});
      for (int64_t line = 0; line < columns * kv_bytes_; line += 64) {
        w_.Prefetch(w_.At(later_row, line));
      }
      std::vector<V> v;
      int64_t column = 0;
      for (int width : widths) {
        v.push_back(LoadKv(w_.At(row, column * kv_bytes_), width));
        column += width;
      }
      const V weights = At(scores_, w_.Add(tile, token), 4);
      for (int r = 0; r < height; ++r) {
        const V one = w_.Load("float", w_.At(weights, 4 * r * kSplitTokens), 4);
        for (size_t i = 0; i < widths.size(); ++i) {
          const LlvmWriter::Var& sum = sums[static_cast<size_t>(r) * widths.size() + i];
          w_.Set(sum, w_.Fma(v[i], w_.Splat(one, widths[i]), w_.Get(sum)));
        }
      }
    });
  });
  for (int r = 0; r < height; ++r) {
    const V state = w_.At(At(split_state_ + r * state_bytes()), w_.Mul(first, I64(4)));
    int64_t column = 0;
    for (size_t i = 0; i < widths.size(); ++i) {
      w_.Store(w_.Get(sums[static_cast<size_t>(r) * widths.size() + i]), w_.At(state, 4 * column),
               4);
      column += widths[i];
    }
  }
}

}  // namespace quire
