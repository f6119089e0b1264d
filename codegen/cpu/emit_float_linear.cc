// linear with f32, f16, bf16 or f8e4m3_128 weights: y = fma chain over k in order, one chain for
// each output. A weight of f8e4m3_128 is its element times its scale, rounded to f32.
//
// A tile is up to 64 outputs (four vectors, one lane an output) by up to 6 rows. Columns are walked
// in slabs, so that a strip's slab stays in the second-level cache while many rows pass over it;
// between slabs sums rest in y, exactly.
#include <algorithm>
#include <vector>

#include "codegen/cpu/abi.h"
#include "codegen/cpu/emit.h"
#include "codegen/cpu/emit_linear.h"
#include "codegen/cpu/emit_math.h"
#include "codegen/cpu/packed_format.h"

namespace quire {
namespace {

using V = LlvmValue;

constexpr char kFloats[] = "<16 x float>";
constexpr int64_t kSlabBytes = 128 * 1024;
const std::vector<int> kTileHeights = {6, 2, 1};

class FloatLinear {
 public:
  explicit FloatLinear(const LinearSpec& spec)
      : spec_(spec),
        is_scaled_(spec.weight == DType::kF8E4M3_128),
        block_(InfoOf(spec.weight).block_elements),
        block_bytes_(InfoOf(spec.weight).block_bytes) {}

  std::string Emit() {
    p_ = BeginLinear(w_);
    const int64_t full = spec_.n / kPackStrip;
    const int rest = static_cast<int>(spec_.n % kPackStrip);
    if (full > 0) {
      const V end = w_.Intrinsic("smin", "i64", {p_.strip_end, I64(full)});
      w_.For(p_.strip_begin, end, 1, [&](const V& strip) { Strip(strip, kPackStrip); });
    }
    if (rest != 0) {
      w_.If(w_.Compare("icmp sgt", p_.strip_end, I64(full)), [&] { Strip(I64(full), rest); });
    }
    w_.EndFunction();
    return w_.Finish();
  }

 private:
  // `outputs` of the strip exist.
  void Strip(const V& strip, int outputs) {
    const int vectors = (outputs + kPackLanes - 1) / kPackLanes;
    const int64_t width = vectors * kPackLanes;
    const V base =
        w_.At(p_.weight, w_.Mul(strip, I64(kPackStrip * (spec_.k / block_) * block_bytes_)));
    const int64_t slab = std::min<int64_t>(spec_.k, kSlabBytes / (width * block_bytes_) * block_);
    const auto rows = [&](const V& begin, const V& end, bool first, bool last) {
      ForRowTiles(w_, p_.row_begin, p_.row_end, kTileHeights, [&](const V& row, int height) {
        Tile(strip, base, row, height, outputs, begin, end, first, last);
      });
    };
    // One row never comes back to a slab: walk the strip in one go.
    if (slab == spec_.k) return rows(I64(0), I64(spec_.k), true, true);
    const V few = w_.Compare("icmp sle", w_.Sub(p_.row_end, p_.row_begin), I64(6));
    w_.If(
        few, [&] { rows(I64(0), I64(spec_.k), true, true); },
        [&] {
          rows(I64(0), I64(slab), true, false);
          const int64_t last = (spec_.k - 1) / slab * slab;
          w_.For(I64(slab), I64(last), slab,
                 [&](const V& begin) { rows(begin, w_.Add(begin, I64(slab)), false, false); });
          rows(I64(last), I64(spec_.k), false, true);
        });
  }

  void Tile(const V& strip, const V& base, const V& row, int height, int outputs, const V& begin,
            const V& end, bool first, bool last) {
    const int vectors = (outputs + kPackLanes - 1) / kPackLanes;
    const int64_t width = vectors * kPackLanes;
    const V column = w_.Mul(strip, I64(kPackStrip));
    const auto lanes = [&](int v) { return std::min(kPackLanes, outputs - v * kPackLanes); };
    std::vector<LlvmWriter::Var> sums;
    for (int r = 0; r < height; ++r) {
      for (int v = 0; v < vectors; ++v) {
        sums.push_back(w_.NewVar(
            first ? w_.Zero(kFloats)
                  : Resume(w_.Add(row, I64(r)), w_.Add(column, I64(v * kPackLanes)), lanes(v))));
      }
    }
    const V x = w_.At(p_.x, w_.Mul(row, I64(4 * spec_.k)));
    const auto add = [&](const V& k, const std::vector<V>& weights) {
      const V xk = w_.At(x, w_.Mul(k, I64(4)));
      for (int r = 0; r < height; ++r) {
        const V one = w_.Splat(w_.Load("float", w_.At(xk, r * 4 * spec_.k), 4), kPackLanes);
        for (int v = 0; v < vectors; ++v) {
          const LlvmWriter::Var& sum = sums[static_cast<size_t>(r * vectors + v)];
          w_.Set(sum, w_.Fma(weights[static_cast<size_t>(v)], one, w_.Get(sum)));
        }
      }
    };
    // `vectors` of them, one behind the other.
    const auto load = [&](DType dtype, const V& at) {
      std::vector<V> loaded;
      for (int v = 0; v < vectors; ++v) {
        const V place = w_.At(at, v * kPackLanes * InfoOf(dtype).block_bytes);
        loaded.push_back(EmitLoad(w_, dtype, place, kPackLanes));
      }
      return loaded;
    };
    if (is_scaled_) {
      w_.For(begin, end, block_, [&](const V& k) {
        const V block =
            w_.At(base, w_.Mul(w_.Binary("sdiv", k, I64(block_)), I64(width * block_bytes_)));
        const std::vector<V> scales = load(DType::kF32, block);
        w_.For(I64(0), I64(block_), 1, [&](const V& i) {
          const V at = w_.At(w_.At(block, 4 * width), w_.Mul(i, I64(width)));
          std::vector<V> weights = load(DType::kF8E4M3, at);
          for (size_t v = 0; v < weights.size(); ++v) weights[v] = w_.FMul(weights[v], scales[v]);
          add(w_.Add(k, i), weights);
        });
      });
    } else {
      w_.For(begin, end, 1, [&](const V& k) {
        add(k, load(spec_.weight, w_.At(base, w_.Mul(k, I64(width * block_bytes_)))));
      });
    }
    LinearSpec plain = spec_;
    if (!last) plain.bias = plain.residual = false;
    for (int r = 0; r < height; ++r) {
      for (int v = 0; v < vectors; ++v) {
        StoreOutputs(w_, plain, p_, w_.Get(sums[static_cast<size_t>(r * vectors + v)]),
                     w_.Add(row, I64(r)), w_.Add(column, I64(v * kPackLanes)), lanes(v));
      }
    }
  }

  // Sums of the slabs so far, from y; lanes that do not exist are zero.
  V Resume(const V& row, const V& column, int lanes) {
    const V at = w_.At(p_.y, w_.Mul(w_.Add(w_.Mul(row, I64(spec_.n)), column), I64(4)));
    if (lanes == kPackLanes) return w_.Load(kFloats, at, 4);
    V sums = w_.Zero(kFloats);
    for (int lane = 0; lane < lanes; ++lane) {
      sums = w_.Insert(sums, w_.Load("float", w_.At(at, 4 * lane), 4), lane);
    }
    return sums;
  }

  const LinearSpec& spec_;
  const bool is_scaled_;
  const int64_t block_, block_bytes_;  // of a row of weights
  LlvmWriter w_;
  LinearParameters p_;
};

}  // namespace

EmittedKernel EmitFloatLinear(const LinearSpec& spec) { return {FloatLinear(spec).Emit()}; }

}  // namespace quire
