#include "codegen/cpu/emit_dot.h"

#include <numeric>
#include <vector>

namespace quire {
namespace {

using V = LlvmValue;

V Half(LlvmWriter& w, const V& x, int half) {
  std::vector<int> mask(8);
  std::iota(mask.begin(), mask.end(), 8 * half);
  return w.Shuffle(x, x, mask);
}

V Join(LlvmWriter& w, const V& low, const V& high) {
  std::vector<int> mask(16);
  std::iota(mask.begin(), mask.end(), 0);
  return w.Shuffle(low, high, mask);
}

V Vnni256(LlvmWriter& w, const V& sums, const V& u, const V& s) {
  V halves[2];
  for (int half = 0; half < 2; ++half) {
    halves[half] = w.Call("llvm.x86.avx512.vpdpbusd.256", "<8 x i32>",
                          {Half(w, sums, half), Half(w, u, half), Half(w, s, half)});
  }
  return Join(w, halves[0], halves[1]);
}

// Bytes 0, 2 and bytes 1, 3 of every lane as 16-bit numbers, then vpmaddwd: a pair of products of
// a byte each fits 18 bits.
V Madd(LlvmWriter& w, const V& sums, const V& u, const V& s) {
  const std::string words = "<32 x i16>";
  const V eight = w.SplatConstant({"i16", "8"}, 32), low = w.SplatConstant({"i16", "255"}, 32);
  const V u16 = w.Bitcast(u, words), s16 = w.Bitcast(s, words);
  const V us[2] = {w.Binary("and", u16, low), w.Binary("lshr", u16, eight)};
  const V ss[2] = {w.Binary("ashr", w.Binary("shl", s16, eight), eight),
                   w.Binary("ashr", s16, eight)};
  V total = sums;
  for (int part = 0; part < 2; ++part) {
    V halves[2];
    for (int half = 0; half < 2; ++half) {
      const V a = w.Bitcast(Half(w, w.Bitcast(us[part], "<16 x i32>"), half), "<16 x i16>");
      const V b = w.Bitcast(Half(w, w.Bitcast(ss[part], "<16 x i32>"), half), "<16 x i16>");
      halves[half] = w.Call("llvm.x86.avx2.pmadd.wd", "<8 x i32>", {a, b});
    }
    total = w.Add(total, Join(w, halves[0], halves[1]));
  }
  return total;
}

V Portable(LlvmWriter& w, const V& sums, const V& u, const V& s) {
  V total = sums;
  for (int byte = 0; byte < 4; ++byte) {
    const V ub = w.Binary("and", w.Binary("lshr", u, w.SplatConstant(I32(8 * byte), 16)),
                          w.SplatConstant(I32(255), 16));
    const V sb = w.Binary("ashr", w.Binary("shl", s, w.SplatConstant(I32(24 - 8 * byte), 16)),
                          w.SplatConstant(I32(24), 16));
    total = w.Add(total, w.Mul(ub, sb));
  }
  return total;
}

}  // namespace

V EmitDot(LlvmWriter& w, Isa::Dot dot, const V& sums, const V& u, const V& s) {
  switch (dot) {
    case Isa::Dot::kVnni512:
      return w.Call("llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", {sums, u, s});
    case Isa::Dot::kVnni256:
      return Vnni256(w, sums, u, s);
    case Isa::Dot::kMadd:
      return Madd(w, sums, u, s);
    case Isa::Dot::kPortable:
      break;
  }
  return Portable(w, sums, u, s);
}

}  // namespace quire
