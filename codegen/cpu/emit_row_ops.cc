// Norms, 8-bit numbers by scales, embedding look-ups and appends to the cache.
#include <algorithm>
#include <numeric>

#include "codegen/cpu/abi.h"
#include "codegen/cpu/emit_blocks.h"
#include "codegen/cpu/emit_math.h"
#include "codegen/cpu/emit_row.h"

namespace quire {

// Over `count` elements in 16 lanes that begin as zeros: `add` takes the elements at i into the
// lanes. Four vectors take turns; they are combined pairwise, then lanes are.
RowEmitter::V RowEmitter::Reduce(int64_t count,
                                 const std::function<V(const V& i, int lanes, const V& sum)>& add,
                                 const Combine& combine) {
  constexpr int kTurns = 4;
  const std::string type = VectorOf(16, "float");
  std::vector<LlvmWriter::Var> sums;
  for (int turn = 0; turn < kTurns; ++turn) sums.push_back(w_.NewVar(w_.Zero(type)));
  const int64_t whole = count / (16 * kTurns) * (16 * kTurns);
  w_.For(I64(0), I64(whole), 16 * kTurns, [&](const V& i) {
    for (int turn = 0; turn < kTurns; ++turn) {
      const LlvmWriter::Var& sum = sums[static_cast<size_t>(turn)];
      w_.Set(sum, add(w_.Add(i, I64(16 * turn)), 16, w_.Get(sum)));
    }
  });
  int64_t at = whole;
  for (int lanes : {16, 16, 16, 8, 4, 2, 1}) {
    if (count - at < lanes) continue;
    const V sum = w_.Get(sums[0]);
    if (lanes == 16) {
      w_.Set(sums[0], add(I64(at), 16, sum));
    } else {
      // The first lanes of the sum; the others stay.
      std::vector<int> first(static_cast<size_t>(lanes)), widened(16), mixed(16);
      std::iota(first.begin(), first.end(), 0);
      for (int i = 0; i < 16; ++i) widened[static_cast<size_t>(i)] = std::min(i, lanes - 1);
      for (int i = 0; i < 16; ++i) mixed[static_cast<size_t>(i)] = i < lanes ? 16 + i : i;
      const V part = add(I64(at), lanes, w_.Shuffle(sum, sum, first));
      w_.Set(sums[0], w_.Shuffle(sum, w_.Shuffle(part, part, widened), mixed));
    }
    at += lanes;
  }
  const V pairs =
      combine(combine(w_.Get(sums[0]), w_.Get(sums[1])), combine(w_.Get(sums[2]), w_.Get(sums[3])));
  return w_.Reduce16(pairs, combine);
}

RowEmitter::V RowEmitter::Sum(int64_t count,
                              const std::function<V(const V& i, int lanes, const V& sum)>& add) {
  return Reduce(count, add, [&](const V& a, const V& b) { return w_.FAdd(a, b); });
}

void RowEmitter::Quantize(const Op& op) {
  Dims dims = InnerExtents(op.type);
  const int64_t n = dims.back(), columns = op.Int(AttrKind::kColumns);
  const int64_t count = columns == 0 ? n : columns;
  const View x = Materialised(*op.operand(0)), place = NewPlace(op);
  const View* given = op.num_operands() > 1 ? &views_.at(op.operand(1)) : nullptr;
  dims.back() = n / count;
  const auto greater = [&](const V& a, const V& b) {
    return w_.Select(w_.Compare("fcmp olt", a, b), b, a);
  };
  Nest(dims, [&](const Index& at) {
    const Index index(at.begin(), at.end() - 1);
    const V begin = w_.Mul(at.back(), I64(count));
    // What quotients are of, and what they are multiplied by.
    V divisor, factor;
    if (given != nullptr) {
      divisor = factor = w_.Extract(LoadAt(*given, {}, I64(0), 1), 0);
    } else {
      V greatest = Reduce(
          count,
          [&](const V& i, int lanes, const V& sum) {
            const V value = LoadAt(x, index, w_.Add(begin, i), lanes);
            return greater(sum, w_.Intrinsic("fabs", value.type, {value}));
          },
          greater);
      if (const auto most = static_cast<float>(op.Float(AttrKind::kMost)); most > 0) {
        greatest = w_.Select(w_.Compare("fcmp olt", F32(most), greatest), F32(most), greatest);
      }
      const V is_zero = w_.Compare("fcmp olt", greatest, F32(0x1p-100f));
      const V scale = w_.FDiv(greatest, F32(448));
      divisor = w_.Select(is_zero, F32(1), scale);
      factor = w_.Select(is_zero, F32(0), scale);
    }
    Vectors(count, [&](const V& i, int lanes) {
      const V inner = w_.Add(begin, i);
      const V quotient = w_.FDiv(LoadAt(x, index, inner, lanes), w_.Splat(divisor, lanes));
      const V number = EmitRound(w_, DType::kF8E4M3, quotient);
      w_.Store(EmitRound(w_, op.type.dtype, w_.FMul(number, w_.Splat(factor, lanes))),
               Address(place, index, inner), 4);
    });
  });
  views_[&op] = place;
}

void RowEmitter::Norm(const Op& op) {
  Dims dims = InnerExtents(op.type);
  const int64_t n = dims.back();
  const View x = Materialised(*op.operand(0)), place = NewPlace(op);
  const bool is_layer = op.Is(OpKind::kLayerNorm);
  const View* weight = op.num_operands() > 1 ? &views_.at(op.operand(1)) : nullptr;
  const View* bias = op.num_operands() > 2 ? &views_.at(op.operand(2)) : nullptr;
  const double offset = is_layer ? 0 : op.Float(AttrKind::kWeightOffset);
  dims.pop_back();
  Nest(dims, [&](const Index& index) {
    const V count = F32(static_cast<float>(n));
    V mean = F32(0);
    if (is_layer) {
      mean = w_.FDiv(Sum(n, [&](const V& i, int lanes,
                                const V& sum) { return w_.FAdd(sum, LoadAt(x, index, i, lanes)); }),
                     count);
    }
    const auto centred = [&](const V& i, int lanes) {
      const V value = LoadAt(x, index, i, lanes);
      return is_layer ? w_.FSub(value, w_.Splat(mean, lanes)) : value;
    };
    const V squares = Sum(n, [&](const V& i, int lanes, const V& sum) {
      const V value = centred(i, lanes);
      return w_.Fma(value, value, sum);
    });
    const V eps = F32(static_cast<float>(op.Float(AttrKind::kEps)));
    const V root = w_.Intrinsic("sqrt", "float", {w_.FAdd(w_.FDiv(squares, count), eps)});
    const V inverse = w_.FDiv(F32(1), root);
    Vectors(n, [&](const V& i, int lanes) {
      V y = w_.FMul(centred(i, lanes), w_.Splat(inverse, lanes));
      if (weight != nullptr) {
        V factor = LoadAt(*weight, {}, i, lanes);
        if (offset != 0) factor = w_.FAdd(factor, Constant(w_, factor, offset));
        y = bias == nullptr ? w_.FMul(y, factor) : w_.Fma(y, factor, LoadAt(*bias, {}, i, lanes));
      }
      w_.Store(EmitRound(w_, op.type.dtype, y), Address(place, index, i), 4);
    });
  });
  views_[&op] = place;
}

void RowEmitter::Embed(const Op& op) {
  const Op& table = *op.operand(0);
  const View place = NewPlace(op);
  const V id =
      w_.Convert("sext", w_.Load("i32", Address(views_.at(op.operand(1)), {}, I64(0)), 4), "i64");
  const V row = w_.Add(id, I64(op.Int(AttrKind::kOffset)));
  const int64_t n = InnerExtents(op.type).back();
  if (table.type.dtype == DType::kF8E4M3_128) {
    EmbedScaled(op, row, place);
  } else if (IsBlockType(table.type.dtype)) {
    EmbedBlocks(op, row, place);
  } else if (table.name.find(".rows16") == std::string::npos) {
    const V base = w_.At(pointers_.at(&table), w_.Mul(row, I64(RowBytes(table.type.dtype, n))));
    const View from{base, table.type.dtype, 0, {1}};
    Vectors(n, [&](const V& i, int lanes) {
      w_.Store(EmitRound(w_, op.type.dtype, LoadAt(from, {}, i, lanes)), Address(place, {}, i), 4);
    });
  } else {
    // Strips of 64 rows; the last one is narrower.
    const int64_t bytes = InfoOf(table.type.dtype).block_bytes;
    const int64_t rows = (table.type.extents[0].value() + 15) / 16 * 16;
    const V strip = w_.Binary("and", row, I64(-kPackStrip));
    const V width = w_.Intrinsic("smin", "i64", {I64(kPackStrip), w_.Sub(I64(rows), strip)});
    const V first = w_.At(w_.At(pointers_.at(&table), w_.Mul(strip, I64(n * bytes))),
                          w_.Mul(w_.Sub(row, strip), I64(bytes)));
    w_.For(I64(0), I64(n), 1, [&](const V& i) {
      const V at = w_.At(first, w_.Mul(w_.Mul(i, width), I64(bytes)));
      w_.Store(EmitRound(w_, op.type.dtype, EmitLoad(w_, table.type.dtype, at, 1)),
               Address(place, {}, i), 4);
    });
  }
  views_[&op] = place;
}

// Strips of 64 rows; the last one is narrower. Of each 128 columns the scales, then the elements.
void RowEmitter::EmbedScaled(const Op& op, const V& row, const View& place) {
  const Op& table = *op.operand(0);
  const int64_t n = InnerExtents(op.type).back(),
                block_bytes = InfoOf(table.type.dtype).block_bytes;
  const int64_t elements = InfoOf(table.type.dtype).block_elements;
  const int64_t rows = (table.type.extents[0].value() + kPackLanes - 1) / kPackLanes * kPackLanes;
  const V strip = w_.Binary("and", row, I64(-kPackStrip)), in_strip = w_.Sub(row, strip);
  const V width = w_.Intrinsic("smin", "i64", {I64(kPackStrip), w_.Sub(I64(rows), strip)});
  const V first = w_.At(pointers_.at(&table), w_.Mul(strip, I64(n / elements * block_bytes)));
  w_.For(I64(0), I64(n), elements, [&](const V& begin) {
    const V block = w_.At(
        first, w_.Mul(w_.Mul(w_.Binary("sdiv", begin, I64(elements)), width), I64(block_bytes)));
    const V scale = EmitLoad(w_, DType::kF32, w_.At(block, w_.Mul(in_strip, I64(4))), 1);
    const V at = w_.At(w_.At(block, w_.Mul(width, I64(4))), in_strip);
    w_.For(I64(0), I64(elements), 1, [&](const V& i) {
      const V element = EmitLoad(w_, DType::kF8E4M3, w_.At(at, w_.Mul(i, width)), 1);
      w_.Store(EmitRound(w_, op.type.dtype, w_.FMul(element, scale)),
               Address(place, {}, w_.Add(begin, i)), 4);
    });
  });
}

// Tables of block types are always packed: the caller lays them out so.
void RowEmitter::EmbedBlocks(const Op& op, const V& row, const View& place) {
  const Op& table = *op.operand(0);
  const PackedFormat format = PackedFormatOf(table.type.dtype);
  const int64_t n = InnerExtents(op.type).back();
  const V group = w_.At(pointers_.at(&table),
                        w_.Mul(w_.Binary("lshr", row, I64(4)), I64(format.group_bytes(n))));
  const BlockLane lane{w_.Binary("and", row, I64(15))};
  const LlvmWriter::Var block = w_.NewVar(group);
  const int64_t columns = kPackColumns * format.blocks();
  w_.For(I64(0), I64(n), columns, [&](const V& super) {
    const BlockHeader header = EmitHeader(w_, format, w_.Get(block), 1, lane);
    w_.Set(block, w_.At(w_.Get(block), format.header_bytes()));
    w_.For(super, w_.Add(super, I64(columns)), kPackColumns, [&](const V& column) {
      const V now = w_.Get(block);
      const std::vector<V> scales = EmitScales(w_, format, now, header, 1, lane);
      const std::vector<V> u = EmitUnpack(w_, format, now, 1, lane);
      V minimum = w_.Zero("<4 x float>");
      if (format.minimum) {
        minimum = w_.Splat(w_.Extract(EmitMinimum(w_, format, now, header, 1, lane), 0), 4);
      }
      for (int g = 0; g < 8; ++g) {
        const V bytes = w_.Bitcast(u[static_cast<size_t>(g)], "<4 x i8>");
        const V numbers =
            w_.Sub(w_.Convert("zext", bytes, "<4 x i32>"), w_.SplatConstant(I32(format.offset), 4));
        const V scale = scales[static_cast<size_t>(g * format.scale_units / 8)];
        const V y = w_.Fma(w_.Convert("sitofp", numbers, "<4 x float>"),
                           w_.Splat(w_.Extract(scale, 0), 4), minimum);
        w_.Store(EmitRound(w_, op.type.dtype, y), Address(place, {}, w_.Add(column, I64(4 * g))),
                 4);
      }
      w_.Set(block, w_.At(now, format.block_bytes()));
    });
  });
}

void RowEmitter::KvAppend(const Op& op) {
  const Dims dims = InnerExtents(op.operand(0)->type);
  const View x = Materialised(*op.operand(0));
  const DType dtype = op.type.dtype;
  const int64_t bytes = InfoOf(dtype).block_bytes;
  const bool is_key = op.Text(AttrKind::kSlot) == "k";
  const auto step = [&](const char* type, size_t field) {
    return w_.Load(type, w_.At(step_, static_cast<int64_t>(field)), 8);
  };
  const auto of_row = [&](size_t field) {
    return w_.Load("i64", w_.At(step("ptr", field), w_.Mul(row_, I64(8))), 8);
  };
  const V page = w_.At(pointers_.at(&op), of_row(offsetof(RowStep, page_offset)));
  const V slot = of_row(offsetof(RowStep, slot));
  const V page_tokens = step("i64", offsetof(RowStep, page_tokens));
  const V column_bytes = w_.Mul(page_tokens, I64(bytes));
  Nest({dims[0]}, [&](const Index& head) {
    const V plane = w_.At(page, w_.Mul(w_.Mul(head[0], I64(dims[1])), column_bytes));
    Vectors(dims[1], [&](const V& i, int lanes) {
      V value = LoadAt(x, head, i, lanes);
      if (op.num_operands() > 1) {
        const V scale = w_.Extract(LoadAt(views_.at(op.operand(1)), {}, head[0], 1), 0);
        value = w_.FDiv(value, w_.Splat(scale, lanes));
      }
      const V narrow = EmitNarrow(w_, dtype, value);
      if (is_key) {
        const V first = w_.At(w_.At(plane, w_.Mul(slot, I64(bytes))), w_.Mul(i, column_bytes));
        for (int lane = 0; lane < lanes; ++lane) {
          w_.Store(w_.Extract(narrow, lane), w_.At(first, w_.Mul(I64(lane), column_bytes)),
                   static_cast<int>(bytes));
        }
      } else {
        const V token = w_.Add(w_.Mul(slot, I64(dims[1])), i);
        w_.Store(narrow, w_.At(plane, w_.Mul(token, I64(bytes))), static_cast<int>(bytes));
      }
    });
  });
  views_[&op] = x;
}

}  // namespace quire
