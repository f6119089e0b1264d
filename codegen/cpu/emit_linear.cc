#include "codegen/cpu/emit_linear.h"

#include "codegen/cpu/abi.h"

namespace quire {
namespace {

using V = LlvmValue;

// y[at .. at + lanes) for a power-of-two piece of the 16 sums.
void StorePiece(LlvmWriter& w, const LinearSpec& spec, const LinearParameters& p, V sums,
                const V& row, const V& column, int first, int lanes) {
  const std::string type = VectorOf(lanes, "float");
  if (lanes < 16) {
    std::vector<int> mask(static_cast<size_t>(lanes));
    for (int i = 0; i < lanes; ++i) mask[static_cast<size_t>(i)] = first + i;
    sums = w.Shuffle(sums, sums, mask);
  }
  const V at = w.Add(column, I64(first));
  if (spec.bias) {
    sums = w.FAdd(sums, w.Load(type, w.At(p.bias, w.Mul(at, I64(4))), 4));
  }
  const V offset = w.Mul(w.Add(w.Mul(row, I64(spec.n)), at), I64(4));
  if (spec.residual) sums = w.FAdd(sums, w.Load(type, w.At(p.residual, offset), 4));
  w.Store(sums, w.At(p.y, offset), 4);
}

}  // namespace

LinearParameters BeginLinear(LlvmWriter& w) {
  LinearParameters p;
  w.BeginFunction(kMainEntry, {{"ptr noalias readonly", p.x.text},
                               {"ptr noalias readonly", p.weight.text},
                               {"ptr noalias readonly", p.bias.text},
                               {"ptr noalias readonly", p.residual.text},
                               {"ptr noalias", p.y.text},
                               p.row_begin,
                               p.row_end,
                               p.strip_begin,
                               p.strip_end});
  return p;
}

void ForRowTiles(LlvmWriter& w, const V& begin, const V& end, const std::vector<int>& heights,
                 const std::function<void(const V& row, int height)>& tile) {
  const LlvmWriter::Var row = w.NewVar(begin);
  for (int height : heights) {
    w.While([&] { return w.Compare("icmp sle", w.Add(w.Get(row), I64(height)), end); },
            [&] {
              const V now = w.Get(row);
              tile(now, height);
              w.Set(row, w.Add(now, I64(height)));
            });
  }
}

void StoreOutputs(LlvmWriter& w, const LinearSpec& spec, const LinearParameters& p, const V& sums,
                  const V& row, const V& column, int lanes) {
  int first = 0;
  for (int piece = 16; piece >= 1; piece /= 2) {
    if ((lanes & piece) == 0) continue;
    StorePiece(w, spec, p, sums, row, column, first, piece);
    first += piece;
  }
}

}  // namespace quire
