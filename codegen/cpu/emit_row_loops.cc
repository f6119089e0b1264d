// Loops over the elements of one row.
#include <algorithm>

#include "codegen/cpu/emit_math.h"
#include "codegen/cpu/emit_row.h"

namespace quire {

void RowEmitter::Nest(const Dims& dims, const std::function<void(const Index&)>& body) {
  Index index;
  std::function<void(size_t)> level = [&](size_t i) {
    if (i == dims.size()) return body(index);
    if (dims[i] == 1) {
      index.push_back(I64(0));
      level(i + 1);
      index.pop_back();
      return;
    }
    w_.For(I64(0), I64(dims[i]), 1, [&](const V& now) {
      index.push_back(now);
      level(i + 1);
      index.pop_back();
    });
  };
  level(0);
}

void RowEmitter::Vectors(int64_t count, const std::function<void(const V& i, int lanes)>& body) {
  const int64_t whole = count / 16 * 16;
  if (whole > 0) w_.For(I64(0), I64(whole), 16, [&](const V& i) { body(i, 16); });
  int64_t at = whole;
  for (int lanes = 8; lanes >= 1; lanes /= 2) {
    if ((count & lanes) == 0) continue;
    body(I64(at), lanes);
    at += lanes;
  }
}

RowEmitter::V RowEmitter::Address(const View& view, const Index& outer, const V& inner) {
  const int bytes = InfoOf(view.dtype).block_bytes;
  V at = w_.At(view.base, view.offset * bytes);
  for (size_t i = 0; i < outer.size(); ++i) {
    at = w_.At(at, w_.Mul(outer[i], I64(view.strides[i] * bytes)));
  }
  return w_.At(at, w_.Mul(inner, I64(bytes)));
}

RowEmitter::V RowEmitter::LoadAt(const View& view, const Index& outer, const V& inner, int lanes) {
  const bool repeated = view.strides.size() > outer.size() && view.strides.back() == 0;
  if (!repeated) return EmitLoad(w_, view.dtype, Address(view, outer, inner), lanes);
  // One number for the whole of the last extent.
  const V one = EmitLoad(w_, view.dtype, Address(view, outer, I64(0)), 1);
  return w_.Splat(w_.Extract(one, 0), lanes);
}

// Joins neighbouring extents that every view walks as one.
void RowEmitter::Collapse(Dims& dims, std::vector<View*> views) const {
  if (dims.empty()) {
    dims = {1};
    for (View* view : views) view->strides = {1};
  }
  for (size_t i = dims.size() - 1; i-- > 0;) {
    const bool together = std::all_of(views.begin(), views.end(), [&](const View* view) {
      return view->strides[i] == view->strides[i + 1] * dims[i + 1];
    });
    if (!together) continue;
    dims[i + 1] *= dims[i];
    dims.erase(dims.begin() + static_cast<int64_t>(i));
    for (View* view : views) view->strides.erase(view->strides.begin() + static_cast<int64_t>(i));
  }
}

void RowEmitter::Copy(const View& from, const View& to, const Dims& extents) {
  Dims dims = extents;
  View source = from, target = to;
  Collapse(dims, {&source, &target});
  const Dims outer(dims.begin(), dims.end() - 1);
  Nest(outer, [&](const Index& index) {
    Vectors(dims.back(), [&](const V& i, int lanes) {
      w_.Store(LoadAt(source, index, i, lanes), Address(target, index, i), 4);
    });
  });
}

void RowEmitter::CollectLeaves(const Op& op, size_t rank, std::map<const Op*, View>& leaves) {
  for (const Op* operand : op.operands) {
    if (IsLazy(*operand)) {
      CollectLeaves(*operand, rank, leaves);
      continue;
    }
    View view = Materialised(*operand);
    // A right side without the leading extents is repeated over them.
    view.strides.insert(view.strides.begin(), rank - view.strides.size(), 0);
    leaves[operand] = view;
  }
}

void RowEmitter::Elementwise(const Op& op, const View& place) {
  Dims dims = InnerExtents(op.type);
  std::map<const Op*, View> leaves;
  CollectLeaves(op, dims.size(), leaves);
  View target = place;
  std::vector<View*> views = {&target};
  for (auto& [leaf, view] : leaves) views.push_back(&view);
  Collapse(dims, views);
  const Dims outer(dims.begin(), dims.end() - 1);
  Nest(outer, [&](const Index& index) {
    Vectors(dims.back(), [&](const V& i, int lanes) {
      w_.Store(Evaluate(op, leaves, index, i, lanes), Address(target, index, i), 4);
    });
  });
}

RowEmitter::V RowEmitter::Evaluate(const Op& op, const std::map<const Op*, View>& leaves,
                                   const Index& outer, const V& inner, int lanes) {
  std::vector<V> operands;
  for (const Op* operand : op.operands) {
    auto leaf = leaves.find(operand);
    operands.push_back(leaf != leaves.end() ? LoadAt(leaf->second, outer, inner, lanes)
                                            : Evaluate(*operand, leaves, outer, inner, lanes));
  }
  return EmitRound(w_, op.type.dtype, Pointwise(op, operands));
}

RowEmitter::V RowEmitter::Pointwise(const Op& op, const std::vector<V>& operands) {
  const V& x = operands[0];
  switch (op.kind) {
    case OpKind::kAdd:
      return w_.FAdd(x, operands[1]);
    case OpKind::kMul:
      return w_.FMul(x, operands[1]);
    case OpKind::kScale:
      return w_.FMul(x, Constant(w_, x, op.Float(AttrKind::kFactor)));
    case OpKind::kSoftcap: {
      const double cap = op.Float(AttrKind::kCap);
      if (cap == 0) return x;
      return w_.FMul(EmitTanh(w_, w_.FMul(x, Constant(w_, x, 1 / cap))), Constant(w_, x, cap));
    }
    case OpKind::kSilu:
      return w_.FMul(x, EmitSigmoid(w_, x));
    case OpKind::kGelu: {
      const std::string& form = op.Text(AttrKind::kApproximate);
      if (form == "quick") {
        return w_.FMul(x, EmitSigmoid(w_, w_.FMul(x, Constant(w_, x, 1.702))));
      }
      if (form == "tanh") {
        // (1 + tanh(u)) / 2 is sigmoid(2u).
        const V cube = w_.FMul(w_.FMul(x, x), x);
        const V u = w_.Fma(cube, Constant(w_, x, 0.044715), x);
        return w_.FMul(x, EmitSigmoid(w_, w_.FMul(u, Constant(w_, x, 1.5957691216057308))));
      }
      const V erf = EmitErf(w_, w_.FMul(x, Constant(w_, x, 0.7071067811865476)));
      return w_.FMul(w_.FMul(x, Constant(w_, x, 0.5)), w_.FAdd(erf, Constant(w_, x, 1)));
    }
    case OpKind::kRelu:
      // The comparison that keeps NaN.
      return w_.Select(w_.Compare("fcmp olt", x, Constant(w_, x, 0)), w_.Zero(x.type), x);
    case OpKind::kTanh:
      return EmitTanh(w_, x);
    case OpKind::kSigmoid:
      return EmitSigmoid(w_, x);
    default:
      return x;  // a cast: rounded by Evaluate
  }
}

}  // namespace quire
