#include "codegen/cpu/emit_blocks.h"

namespace quire {
namespace {

using V = LlvmValue;

// `bytes` into an array with `stride` bytes for each lane.
V At(LlvmWriter& w, const V& pointer, int64_t bytes, int64_t stride, const BlockLane& lane) {
  const V at = w.At(pointer, bytes);
  return lane.lane.text.empty() ? at : w.At(at, w.Mul(lane.lane, I64(stride)));
}

V LoadF16(LlvmWriter& w, const V& pointer, int lanes) {
  return w.Convert("fpext", w.Load(VectorOf(lanes, "half"), pointer, 2), VectorOf(lanes, "float"));
}

V LoadByte(LlvmWriter& w, const V& pointer, int lanes, bool is_signed) {
  const V wide = w.Convert(is_signed ? "sext" : "zext", w.Load(VectorOf(lanes, "i8"), pointer, 1),
                           VectorOf(lanes, "i32"));
  return w.Convert("sitofp", wide, VectorOf(lanes, "float"));
}

V EachByte(LlvmWriter& w, int byte, int lanes) {
  return w.SplatConstant(I32(byte * 0x01010101), lanes);
}

V Shift(LlvmWriter& w, const V& x, int left) {
  if (left == 0) return x;
  const V amount = w.SplatConstant(I32(left > 0 ? left : -left), LanesOf(x.type));
  return w.Binary(left > 0 ? "shl" : "lshr", x, amount);
}

}  // namespace

BlockHeader EmitHeader(LlvmWriter& w, const PackedFormat& format, const V& super, int lanes,
                       const BlockLane& lane) {
  BlockHeader header;
  if (!format.super) return header;
  header.d = LoadF16(w, At(w, super, 0, 2, lane), lanes);
  if (format.minimum) header.dmin = LoadF16(w, At(w, super, 32, 2, lane), lanes);
  return header;
}

std::vector<V> EmitScales(LlvmWriter& w, const PackedFormat& format, const V& block,
                          const BlockHeader& header, int lanes, const BlockLane& lane) {
  std::vector<V> scales;
  for (int unit = 0; unit < format.scale_units; ++unit) {
    if (!format.super) {
      scales.push_back(LoadF16(w, At(w, block, 0, 2, lane), lanes));
    } else {
      // Q6_K alone has signed scales, and two of them.
      const V scale =
          LoadByte(w, At(w, block, unit * kPackLanes, 1, lane), lanes, format.scale_units == 2);
      scales.push_back(w.FMul(header.d, scale));
    }
  }
  return scales;
}

V EmitMinimum(LlvmWriter& w, const PackedFormat& format, const V& block, const BlockHeader& header,
              int lanes, const BlockLane& lane) {
  const int at = format.scale_bytes();
  if (!format.super) return LoadF16(w, At(w, block, at, 2, lane), lanes);
  return w.FMul(w.FNeg(header.dmin), LoadByte(w, At(w, block, at, 1, lane), lanes, false));
}

std::vector<V> EmitUnpack(LlvmWriter& w, const PackedFormat& format, const V& block, int lanes,
                          const BlockLane& lane) {
  const std::string type = VectorOf(lanes, "i32");
  const auto load = [&](int64_t at) { return w.Load(type, At(w, block, at, 4, lane), 1); };
  std::vector<V> u;
  for (int j = 0; j < format.low_bits; ++j) u.push_back(load(format.low_at() + 64 * j));
  if (format.low_bits == 8) return u;
  for (size_t j = 0; j < 4; ++j) {
    u.push_back(w.Binary("and", Shift(w, u[j], -4), EachByte(w, 15, lanes)));
  }
  for (size_t j = 0; j < 4; ++j) u[j] = w.Binary("and", u[j], EachByte(w, 15, lanes));
  std::vector<V> high;
  for (int h = 0; h < format.high_bits; ++h) high.push_back(load(format.high_at() + 64 * h));
  for (int g = 0; format.high_bits != 0 && g < 8; ++g) {
    // The bits of group g, moved to bit 4.
    const bool one = format.high_bits == 1;
    const V& plane = high[one ? 0 : static_cast<size_t>(g / 4)];
    const V bits = w.Binary("and", Shift(w, plane, 4 - (one ? g : g % 4 * 2)),
                            EachByte(w, one ? 0x10 : 0x30, lanes));
    u[static_cast<size_t>(g)] = w.Binary("or", u[static_cast<size_t>(g)], bits);
  }
  return u;
}

}  // namespace quire
