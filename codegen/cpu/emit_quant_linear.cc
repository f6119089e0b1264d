// linear with block-quantised weights, for one row and for many with the same arithmetic:
//
//   for each block of 32 columns, in order, and each scale unit of it:
//     dot = sum of u * q over the unit - offset * (sum of q)                exact, 32-bit integers
//     y   = fma(float(dot), scale * activation scale, y)
//   and then, for types with minimums: y = fma(minimum, activation scale * (sum of q), y)
//
// One lane is one output, so there is no sum across lanes. Weights of a block are unpacked to bytes
// once for a tile of rows and stay in registers (8 vectors) while the rows' activations come from
// the first-level cache as broadcasts.
#include <vector>

#include "codegen/cpu/abi.h"
#include "codegen/cpu/emit.h"
#include "codegen/cpu/emit_blocks.h"
#include "codegen/cpu/emit_dot.h"
#include "codegen/cpu/emit_linear.h"
#include "codegen/cpu/packed_format.h"

namespace quire {
namespace {

using V = LlvmValue;

constexpr char kBytes[] = "<16 x i32>";  // 16 lanes of four bytes
constexpr char kFloats[] = "<16 x float>";
const std::vector<int> kTileHeights = {8, 4, 2, 1};
// How far ahead of the block at hand weights are asked for, when one row walks through memory.
constexpr int kPrefetchBytes = 3072;

class QuantLinear {
 public:
  QuantLinear(const LinearSpec& spec, const Isa& isa)
      : spec_(spec), isa_(isa), format_(PackedFormatOf(spec.weight)) {}

  std::string Emit() {
    EmitQuantize();
    p_ = BeginLinear(w_);
    const int64_t full = spec_.n / kPackLanes;
    const int rest = static_cast<int>(spec_.n % kPackLanes);
    if (full > 0) {
      const V end = w_.Intrinsic("smin", "i64", {p_.strip_end, I64(full)});
      w_.For(p_.strip_begin, end, 1, [&](const V& strip) { Rows(strip, kPackLanes); });
    }
    if (rest != 0) {
      w_.If(w_.Compare("icmp sgt", p_.strip_end, I64(full)), [&] { Rows(I64(full), rest); });
    }
    w_.EndFunction();
    return w_.Finish();
  }

 private:
  int64_t activation_row_bytes() const {
    return spec_.k / kPackColumns * static_cast<int64_t>(sizeof(ActivationBlock));
  }

  void Rows(const V& strip, int lanes) {
    const V group = w_.At(p_.weight, w_.Mul(strip, I64(format_.group_bytes(spec_.k))));
    ForRowTiles(w_, p_.row_begin, p_.row_end, kTileHeights,
                [&](const V& row, int height) { Tile(strip, group, row, height, lanes); });
  }

  void Tile(const V& strip, const V& group, const V& row, int height, int lanes) {
    std::vector<LlvmWriter::Var> sums;
    for (int r = 0; r < height; ++r) sums.push_back(w_.NewVar(w_.Zero(kFloats)));
    const LlvmWriter::Var weights = w_.NewVar(group);
    const LlvmWriter::Var activations =
        w_.NewVar(w_.At(p_.x, w_.Mul(row, I64(activation_row_bytes()))));
    const auto block = [&](const BlockHeader& header) {
      const V now = w_.Get(weights);
      if (height == 1) Ask(now);
      Block(now, w_.Get(activations), header, sums);
      w_.Set(weights, w_.At(now, format_.block_bytes()));
      w_.Set(activations, w_.At(w_.Get(activations), sizeof(ActivationBlock)));
    };
    const int64_t supers = spec_.k / (kPackColumns * format_.blocks());
    w_.For(I64(0), I64(supers), 1, [&](const V&) {
      const BlockHeader header = EmitHeader(w_, format_, w_.Get(weights), kPackLanes);
      w_.Set(weights, w_.At(w_.Get(weights), format_.header_bytes()));
      if (!format_.super) return block(header);
      w_.For(I64(0), I64(format_.blocks()), 1, [&](const V&) { block(header); });
    });
    for (int r = 0; r < height; ++r) {
      StoreOutputs(w_, spec_, p_, w_.Get(sums[static_cast<size_t>(r)]), w_.Add(row, I64(r)),
                   w_.Mul(strip, I64(kPackLanes)), lanes);
    }
  }

  void Ask(const V& block) {
    for (int line = 0; line < format_.block_bytes(); line += 64) {
      w_.Prefetch(w_.At(block, kPrefetchBytes + line));
    }
  }

  void Block(const V& block, const V& activations, const BlockHeader& header,
             const std::vector<LlvmWriter::Var>& sums) {
    const std::vector<V> scales = EmitScales(w_, format_, block, header, kPackLanes);
    V minimum;
    if (format_.minimum) minimum = EmitMinimum(w_, format_, block, header, kPackLanes);
    const std::vector<V> u = EmitUnpack(w_, format_, block, kPackLanes);
    const int groups = 8 / format_.scale_units;
    for (size_t r = 0; r < sums.size(); ++r) {
      const V x = w_.At(activations, static_cast<int64_t>(r) * activation_row_bytes());
      const V scale =
          w_.Splat(w_.Load("float", w_.At(x, offsetof(ActivationBlock, scale)), 4), kPackLanes);
      V sum = w_.Get(sums[r]);
      for (int unit = 0; unit < format_.scale_units; ++unit) {
        V dot = w_.Zero(kBytes);
        if (format_.offset != 0) {
          dot = w_.Splat(
              w_.Load("i32",
                      w_.At(x, static_cast<int64_t>(offsetof(ActivationBlock, offset)) + 4 * unit),
                      4),
              kPackLanes);
        }
        // Few rows leave little else to do while a sum waits for the one before: two sums take
        // turns. They are integers, so the bits are the same.
        const bool two_sums = sums.size() <= 2;
        V other = w_.Zero(kBytes);
        for (int g = unit * groups; g < (unit + 1) * groups; ++g) {
          const V four = w_.Splat(w_.Load("i32", w_.At(x, 4 * g), 4), kPackLanes);
          V& to = two_sums && g % 2 == 1 ? other : dot;
          to = EmitDot(w_, isa_.dot, to, u[static_cast<size_t>(g)], four);
        }
        if (two_sums) dot = w_.Add(dot, other);
        sum = w_.Fma(w_.Convert("sitofp", dot, kFloats),
                     w_.FMul(scales[static_cast<size_t>(unit)], scale), sum);
      }
      if (format_.minimum) {
        const V scaled_sum = w_.Load("float", w_.At(x, offsetof(ActivationBlock, scaled_sum)), 4);
        sum = w_.Fma(minimum, w_.Splat(scaled_sum, kPackLanes), sum);
      }
      w_.Set(sums[r], sum);
    }
  }

  // scale = max |x| / 127, q = x / scale rounded to nearest, ties to even. A block whose largest
  // element is below 2^-100 becomes zero.
  void EmitQuantize() {
    const V x{"ptr", "%x"}, blocks{"ptr", "%blocks"};
    const V begin{"i64", "%row_begin"}, end{"i64", "%row_end"};
    w_.BeginFunction(kQuantizeEntry,
                     {{"ptr noalias readonly", "%x"}, {"ptr noalias", "%blocks"}, begin, end});
    const int64_t count = spec_.k / kPackColumns;
    w_.For(w_.Mul(begin, I64(count)), w_.Mul(end, I64(count)), 1, [&](const V& i) {
      const V from = w_.At(x, w_.Mul(i, I64(4 * kPackColumns)));
      const V to = w_.At(blocks, w_.Mul(i, I64(sizeof(ActivationBlock))));
      const V halves[2] = {w_.Load(kFloats, from, 4), w_.Load(kFloats, w_.At(from, 64), 4)};
      const V a = w_.Intrinsic("fabs", kFloats, {halves[0]});
      const V b = w_.Intrinsic("fabs", kFloats, {halves[1]});
      const V largest = w_.Reduce16(
          w_.Select(w_.Compare("fcmp ogt", a, b), a, b),
          [&](const V& l, const V& r) { return w_.Select(w_.Compare("fcmp ogt", l, r), l, r); });
      const V tiny = w_.Compare("fcmp olt", largest, F32(0x1p-100f));
      const V scale = w_.Select(tiny, F32(0), w_.FMul(largest, F32(1.0f / 127)));
      const V inverse = w_.Select(tiny, F32(0), w_.FDiv(F32(127), largest));
      V q[2];
      for (int half = 0; half < 2; ++half) {
        // Adding 1.5 * 2^23 rounds to an integer that stands in the low bits.
        const V magic = w_.SplatConstant(F32(12582912.0f), kPackLanes);
        const V shifted = w_.FAdd(w_.FMul(halves[half], w_.Splat(inverse, kPackLanes)), magic);
        q[half] =
            w_.Sub(w_.Bitcast(shifted, kBytes), w_.SplatConstant(I32(0x4b400000), kPackLanes));
        w_.Store(w_.Convert("trunc", q[half], "<16 x i8>"), w_.At(to, 16 * half), 1);
      }
      const auto total = [&](const V& x16) {
        return w_.Reduce16(x16, [&](const V& l, const V& r) { return w_.Add(l, r); });
      };
      const bool halves_apart = format_.scale_units == 2;
      V parts[2];
      if (halves_apart) parts[0] = total(q[0]), parts[1] = total(q[1]);
      const V sum = halves_apart ? w_.Add(parts[0], parts[1]) : total(w_.Add(q[0], q[1]));
      w_.Store(scale, w_.At(to, offsetof(ActivationBlock, scale)), 4);
      w_.Store(w_.FMul(scale, w_.Convert("sitofp", sum, "float")),
               w_.At(to, offsetof(ActivationBlock, scaled_sum)), 4);
      for (int unit = 0; unit < 2; ++unit) {
        const V& part = halves_apart ? parts[unit] : sum;
        w_.Store(w_.Mul(part, I32(-format_.offset)),
                 w_.At(to, static_cast<int64_t>(offsetof(ActivationBlock, offset)) + 4 * unit), 4);
      }
    });
    w_.EndFunction();
  }

  const LinearSpec& spec_;
  const Isa& isa_;
  const PackedFormat format_;
  LlvmWriter w_;
  LinearParameters p_;
};

}  // namespace

EmittedKernel EmitQuantLinear(const LinearSpec& spec, const Isa& isa) {
  return {QuantLinear(spec, isa).Emit()};
}

}  // namespace quire
