// Rotary position embedding. Angles are position * frequency in double precision, so that cosines
// and sines are good to 1.5e-7 at any position; they are computed once a row for all heads, and for
// all ropes of the row that turn alike.
#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/cpu/emit_math.h"
#include "codegen/cpu/emit_row.h"
#include "codegen/rope.h"
#include "ir/op.h"

namespace quire {
namespace {

using V = LlvmValue;

std::vector<std::string> Texts(const std::vector<double>& numbers) {
  std::vector<std::string> texts;
  for (double number : numbers) texts.push_back(F64(number).text);
  return texts;
}

// Every attribute and the operands that turn: equal keys turn alike.
std::string KeyOf(const Op& op, int64_t dims) {
  std::string key = absl::StrCat(dims, " ", op.operand(1)->name);
  if (op.num_operands() > 2) absl::StrAppend(&key, " ", op.operand(2)->name);
  for (const auto& [attr, value] : op.attrs()) {
    if (attr == AttrKind::kStyle) continue;
    absl::StrAppend(&key, " ", DefOf(attr).text, "=", AttrText(DefOf(attr), value));
  }
  return key;
}

}  // namespace

RowEmitter::Turns RowEmitter::TurnsOf(const Op& op, int64_t dims) {
  const std::string key = KeyOf(op, dims);
  auto known = turns_.find(key);
  if (known != turns_.end()) return known->second;
  const int64_t pairs = dims / 2;
  const auto place = [&] {
    const View view{w_.At(scratch_, scratch_bytes_), DType::kF32, 0, {1}};
    scratch_bytes_ += (4 * pairs + 63) / 64 * 64;
    return view;
  };
  const Turns turns{place(), place()};
  const V frequencies = w_.Constant("double", Texts(RopeFrequencies(op, dims)));
  const V position = w_.Convert(
      "sitofp", w_.Load("i32", Address(views_.at(op.operand(1)), {}, I64(0)), 4), "double");
  const bool dynamic = op.Text(AttrKind::kScaling) == "dynamic";
  V exponents, log_growth;
  if (dynamic) {
    exponents = w_.Constant("double", Texts(RopeGrowthExponents(dims)));
    const double factor = op.Float(AttrKind::kScaleFactor);
    const double tokens = static_cast<double>(op.Int(AttrKind::kOriginalTokens));
    const V one_more = w_.FAdd(position, F64(1));
    const V length =
        w_.Select(w_.Compare("fcmp ogt", one_more, F64(tokens)), one_more, F64(tokens));
    const V growth = w_.FSub(w_.FDiv(w_.FMul(length, F64(factor)), F64(tokens)), F64(factor - 1));
    log_growth = w_.Intrinsic("log", "double", {growth});
  }
  const double magnitude = op.Float(AttrKind::kMagnitude);
  Vectors(pairs, [&](const V& i, int lanes) {
    const std::string type = VectorOf(lanes, "double");
    const V at = w_.Mul(i, I64(8));
    V frequency = w_.Load(type, w_.At(frequencies, at), 8);
    if (dynamic) {
      const V exponent =
          w_.FMul(w_.Load(type, w_.At(exponents, at), 8), w_.Splat(log_growth, lanes));
      frequency = w_.FMul(frequency, w_.Intrinsic("exp", type, {w_.FNeg(exponent)}));
    }
    if (op.num_operands() > 2) {
      frequency = w_.FDiv(
          frequency, w_.Convert("fpext", LoadAt(views_.at(op.operand(2)), {}, i, lanes), type));
    }
    const SinCos turn = EmitSinCos(w_, w_.FMul(w_.Splat(position, lanes), frequency));
    const auto store = [&](const V& value, const View& to) {
      w_.Store(magnitude == 1 ? value : w_.FMul(value, Constant(w_, value, magnitude)),
               Address(to, {}, i), 4);
    };
    store(turn.cosine, turns.cosines);
    store(turn.sine, turns.sines);
  });
  return turns_[key] = turns;
}

void RowEmitter::Rope(const Op& op) {
  const Dims dims = InnerExtents(op.type);
  const int64_t turned = op.Int(AttrKind::kDims) == 0 ? dims[1] : op.Int(AttrKind::kDims);
  const View x = Materialised(*op.operand(0));
  const Turns turns = TurnsOf(op, turned);
  const View place = NewPlace(op);
  const bool half = op.Text(AttrKind::kStyle) == "half";
  const auto rotate = [&](const V& a, const V& b, const V& i, int lanes) {
    const V c = LoadAt(turns.cosines, {}, i, lanes), s = LoadAt(turns.sines, {}, i, lanes);
    return std::pair(EmitRound(w_, op.type.dtype, w_.Fma(a, c, w_.FNeg(w_.FMul(b, s)))),
                     EmitRound(w_, op.type.dtype, w_.Fma(b, c, w_.FMul(a, s))));
  };
  Nest({dims[0]}, [&](const Index& head) {
    Vectors(turned / 2, [&](const V& i, int lanes) {
      if (half) {
        const V j = w_.Add(i, I64(turned / 2));
        const auto [a, b] = rotate(LoadAt(x, head, i, lanes), LoadAt(x, head, j, lanes), i, lanes);
        w_.Store(a, Address(place, head, i), 4);
        w_.Store(b, Address(place, head, j), 4);
        return;
      }
      std::vector<int> even, odd, mixed;
      for (int lane = 0; lane < lanes; ++lane) {
        even.push_back(2 * lane);
        odd.push_back(2 * lane + 1);
        mixed.insert(mixed.end(), {lane, lanes + lane});
      }
      const V first = w_.Mul(i, I64(2));
      const V both = LoadAt(x, head, first, 2 * lanes);
      const auto [a, b] =
          rotate(w_.Shuffle(both, both, even), w_.Shuffle(both, both, odd), i, lanes);
      w_.Store(w_.Shuffle(a, b, mixed), Address(place, head, first), 4);
    });
    if (turned == dims[1]) return;
    View from = x, to = place;
    from.offset += turned, to.offset += turned;
    Vectors(dims[1] - turned, [&](const V& i, int lanes) {
      w_.Store(LoadAt(from, head, i, lanes), Address(to, head, i), 4);
    });
  });
  views_[&op] = place;
}

}  // namespace quire
