#include "tools/error_bounds.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/reference/interpreter.h"
#include "ir/status.h"

namespace quire {
namespace {

using reference::Tensor;
using Errors = std::vector<double>;

constexpr double kUnit = 0x1p-24;
// Below what f32 has in full precision.
constexpr double kTiny = 0x1p-120;
constexpr double kSinCosError = 2e-7, kErfError = 2e-7;
constexpr double kFunctionUnits = 10 * kUnit;

class Analysis {
 public:
  Analysis(const std::map<const Op*, Tensor>& values, const std::map<const Op*, Tensor>& minimums,
           const KernelArithmetic& arithmetic)
      : values_(values), minimums_(minimums), arithmetic_(arithmetic) {}

  absl::StatusOr<std::map<const Op*, Errors>> Run(const Func& func) {
    for (const auto& arg : func.args()) {
      errors_[arg.get()].assign(values_.at(arg.get()).values.size(), 0);
      if (arithmetic_.scale_columns == 0) Convert(*arg);
    }
    for (const auto& op : func.ops()) {
      errors_[op.get()].assign(values_.at(op.get()).values.size(), 0);
      QUIRE_RETURN_IF_ERROR(Bound(*op));
    }
    return std::move(errors_);
  }

 private:
  const Tensor& In(const Op& op, int i) const { return values_.at(op.operand(i)); }
  const Errors& Of(const Op& op, int i) const { return errors_.at(op.operand(i)); }

  absl::Status Bound(const Op& op) {
    switch (op.kind) {
      case OpKind::kLinear:
        Linear(op);
        return absl::OkStatus();
      case OpKind::kAdd:
      case OpKind::kMul:
        Combine(op);
        return absl::OkStatus();
      case OpKind::kScale:
        Pointwise(op, std::fabs(op.Float(AttrKind::kFactor)), 2 * kUnit, 0);
        return absl::OkStatus();
      case OpKind::kGelu: {
        const bool is_exact =
            op.Text(AttrKind::kApproximate) != "tanh" && op.Text(AttrKind::kApproximate) != "quick";
        Pointwise(op, 1.13, kFunctionUnits, is_exact ? kErfError : 12 * kUnit);
        return absl::OkStatus();
      }
      case OpKind::kSilu:
        Pointwise(op, 1.13, kFunctionUnits, 4 * kUnit);
        return absl::OkStatus();
      case OpKind::kSoftcap:
      case OpKind::kTanh:
      case OpKind::kSigmoid:
        Pointwise(op, 1, kFunctionUnits, 0);
        return absl::OkStatus();
      case OpKind::kRelu:
        Pointwise(op, 1, 0, 0);
        return absl::OkStatus();
      case OpKind::kCast:
        Cast(op);
        return absl::OkStatus();
      case OpKind::kQuantize:
        Quantize(op);
        return absl::OkStatus();
      case OpKind::kRmsNorm:
        RmsNorm(op);
        return absl::OkStatus();
      case OpKind::kLayerNorm:
        LayerNorm(op);
        return absl::OkStatus();
      case OpKind::kRope:
        Rope(op);
        return absl::OkStatus();
      case OpKind::kEmbed:
      case OpKind::kReshape:
      case OpKind::kKvAppend:
      case OpKind::kTranspose:
      case OpKind::kSlice:
      case OpKind::kConcat:
      case OpKind::kTake:
      case OpKind::kExpandHeads:
        return Move(op);
      case OpKind::kAttention:
        return Attention(op);
      default:
        return absl::UnimplementedError(
            absl::StrCat("%", op.name, ": no bound is known for ", op.def().mnemonic));
    }
  }

  // |f'| <= slope, |error of f| <= relative |y| + of_x |x|.
  void Pointwise(const Op& op, double slope, double relative, double of_x) {
    const Tensor& x = In(op, 0);
    const Tensor& y = values_.at(&op);
    const Errors& e = Of(op, 0);
    Errors& out = errors_[&op];
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = slope * e[i] + relative * std::fabs(y.values[i]) + of_x * std::fabs(x.values[i]) +
               (relative > 0 ? kTiny : 0);
    }
  }

  // The right side may lack leading axes.
  void Combine(const Op& op) {
    const Tensor &a = In(op, 0), &b = In(op, 1), &y = values_.at(&op);
    const Errors &ea = Of(op, 0), &eb = Of(op, 1);
    Errors& out = errors_[&op];
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t j = i % b.values.size();
      const double read = op.Is(OpKind::kAdd)
                              ? ea[i] + eb[j]
                              : std::fabs(a.values[i]) * eb[j] + std::fabs(b.values[j]) * ea[i];
      out[i] = read + kUnit * std::fabs(y.values[i]) + (op.Is(OpKind::kMul) ? kTiny : 0);
    }
  }

  void Cast(const Op& op) {
    const Tensor& x = In(op, 0);
    const Errors& e = Of(op, 0);
    Errors& out = errors_[&op];
    const DType dtype = op.type.dtype;
    for (size_t i = 0; i < out.size(); ++i) {
      if (e[i] == 0) continue;
      const double v = x.values[i], middle = reference::RoundTo(dtype, v);
      out[i] = std::max(std::fabs(reference::RoundTo(dtype, v + e[i]) - middle),
                        std::fabs(reference::RoundTo(dtype, v - e[i]) - middle));
    }
  }

  // Of a group of elements with a scale in common, all rounded numbers lie between those of the
  // corners of the ranges of x and of the scale.
  void Quantize(const Op& op) {
    const Tensor &x = In(op, 0), &y = values_.at(&op);
    const Errors& e = Of(op, 0);
    const bool is_given = op.num_operands() > 1;
    const int64_t columns = op.Int(AttrKind::kColumns);
    const auto count = static_cast<size_t>(columns == 0 ? x.last() : columns);
    Errors& out = errors_[&op];
    for (size_t begin = 0; begin < out.size(); begin += count) {
      double greatest = 0, error = 0;
      for (size_t i = begin; i < begin + count; ++i) {
        greatest = std::max(greatest, std::fabs(x.values[i]));
        error = std::max(error, e[i]);
      }
      if (error == 0) continue;
      if (const double most = op.Float(AttrKind::kMost); most > 0) {
        greatest = std::min(greatest, most);
      }
      const double scale = is_given ? In(op, 1).values[0] : greatest / 448;
      const double off = is_given ? 0 : error / 448 + 2 * kUnit * scale;
      const double scales[] = {std::max(scale - off, kTiny), scale + off};
      for (size_t i = begin; i < begin + count; ++i) {
        double low = INFINITY, high = -INFINITY;
        for (const double s : scales) {
          for (const double v : {x.values[i] - e[i], x.values[i] + e[i]}) {
            const double number = reference::RoundTo(DType::kF8E4M3, v / s);
            low = std::min(low, number);
            high = std::max(high, number);
          }
        }
        for (const double s : scales) {
          out[i] = std::max(
              {out[i], std::fabs(s * low - y.values[i]), std::fabs(s * high - y.values[i])});
        }
      }
    }
  }

  // A weight that is a block's number times its scale, and a minimum added.
  void Convert(const Op& arg) {
    const auto minimum = minimums_.find(&arg);
    if (minimum == minimums_.end()) return;
    const Tensor& y = values_.at(&arg);
    Errors& out = errors_[&arg];
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = 2 * kUnit * (std::fabs(y.values[i]) + 2 * std::fabs(minimum->second.values[i]));
    }
  }

  // Ops that move elements move their errors.
  absl::Status Move(const Op& op) {
    if (op.Is(OpKind::kKvAppend)) {
      // New rows stand last.
      const Errors& e = Of(op, 0);
      std::copy(e.begin(), e.end(), errors_[&op].end() - static_cast<ptrdiff_t>(e.size()));
      return absl::OkStatus();
    }
    if (op.Is(OpKind::kReshape)) {
      errors_[&op] = Of(op, 0);
      return absl::OkStatus();
    }
    std::vector<Tensor> moved;
    std::vector<const Tensor*> operands;
    moved.reserve(op.operands.size());
    for (int i = 0; i < op.num_operands(); ++i) {
      if (op.operand(i)->type.dtype == DType::kI32) {
        operands.push_back(&In(op, i));
      } else {
        moved.push_back({In(op, i).extents, Of(op, i)});
        operands.push_back(&moved.back());
      }
    }
    QUIRE_ASSIGN_OR_RETURN(Tensor errors, Again(op, operands));
    errors_[&op] = std::move(errors.values);
    return absl::OkStatus();
  }

  // The op by itself, on other operands.
  static absl::StatusOr<Tensor> Again(const Op& op, const std::vector<const Tensor*>& operands) {
    Func func("again");
    reference::Inputs inputs;
    auto clone = std::make_unique<Op>(op);
    for (size_t i = 0; i < operands.size(); ++i) {
      const std::string name = absl::StrCat("in", i);
      clone->operands[i] = func.AddArg(name, op.operands[i]->type);
      inputs.args[name] = *operands[i];
    }
    func.set_returns({func.Insert(std::move(clone))});
    QUIRE_ASSIGN_OR_RETURN(std::vector<Tensor> results, reference::Interpret(func, inputs));
    return std::move(results[0]);
  }

  void Linear(const Op& op) {
    const Tensor &x = In(op, 0), &w = In(op, 1);
    const Errors &ex = Of(op, 0), &ew = Of(op, 1);
    const bool has_ex = std::any_of(ex.begin(), ex.end(), [](double e) { return e > 0; });
    const bool has_ew = std::any_of(ew.begin(), ew.end(), [](double e) { return e > 0; });
    const auto minimum = minimums_.find(op.operand(1));
    const Tensor* low = minimum == minimums_.end() ? nullptr : &minimum->second;
    const auto K = static_cast<size_t>(w.last());
    const int64_t N = w.extent(0), rows = x.elements() / w.last();
    Errors& out = errors_[&op];
    for (int64_t n = 0; n < N; ++n) {
      const double* wn = w.row(n);
      for (int64_t t = 0; t < rows; ++t) {
        const double* xt = x.values.data() + static_cast<size_t>(t) * K;
        const auto at = static_cast<size_t>(t * N + n);
        double e = arithmetic_.sum_unit *
                   (arithmetic_.scale_columns == 0
                        ? FloatSums(xt, wn, K)
                        : BlockSums(xt, wn, low == nullptr ? nullptr : low->row(n), K));
        for (size_t k = 0; has_ex && k < K; ++k) {
          e += std::fabs(wn[k]) * ex[static_cast<size_t>(t) * K + k];
        }
        for (size_t k = 0; has_ew && k < K; ++k) {
          e += std::fabs(xt[k]) * ew[static_cast<size_t>(n) * K + k];
        }
        if (op.num_operands() > 2) {
          e += Of(op, 2)[static_cast<size_t>(n)] + kUnit * std::fabs(values_.at(&op).values[at]);
        }
        out[at] = e + kTiny;
      }
    }
  }

  // A bound on the sum of the absolute values of all partial sums, columns in order.
  static double FloatSums(const double* x, const double* w, size_t K) {
    constexpr size_t kStep = 16;
    double sum = 0, all = 0;
    for (size_t k = 0; k < K; k += kStep) {
      const size_t count = std::min(kStep, K - k);
      double part = 0, terms = 0;
      for (size_t i = k; i < k + count; ++i) {
        part += x[i] * w[i];
        terms += std::fabs(x[i] * w[i]);
      }
      all += static_cast<double>(count) * (std::fabs(sum) + terms);
      sum += part;
    }
    return all;
  }

  // Likewise for integers times a scale, and a minimum, of so many columns in common.
  double BlockSums(const double* x, const double* w, const double* low, size_t K) const {
    const auto columns = static_cast<size_t>(arithmetic_.scale_columns);
    double sum = 0, all = 0;
    for (size_t k = 0; k < K; k += columns) {
      double part = 0, minimum = 0;
      for (size_t i = k; i < k + columns; ++i) part += x[i] * w[i];
      for (size_t i = k; low != nullptr && i < k + columns; ++i) minimum += x[i] * low[i];
      sum += part;
      all += std::fabs(part) + 4 * std::fabs(minimum) + (low == nullptr ? 1 : 2) * std::fabs(sum);
    }
    return all;
  }

  static double SumUnits(int64_t width) { return (static_cast<double>(width) / 16 + 24) * kUnit; }

  void RmsNorm(const Op& op) {
    const Tensor &x = In(op, 0), &y = values_.at(&op);
    const Errors& e = Of(op, 0);
    const Errors* ew = op.num_operands() > 1 ? &Of(op, 1) : nullptr;
    const auto width = static_cast<size_t>(x.last());
    const double eps = op.Float(AttrKind::kEps);
    Errors& out = errors_[&op];
    for (size_t begin = 0; begin < out.size(); begin += width) {
      double squares = 0, moved = 0;
      for (size_t i = begin; i < begin + width; ++i) {
        squares += x.values[i] * x.values[i];
        moved += std::fabs(x.values[i]) * e[i];
      }
      const double mean = squares / static_cast<double>(width) + eps;
      const double of_root = moved / static_cast<double>(width) / mean;
      for (size_t i = begin; i < begin + width; ++i) {
        const double factor = FactorOf(op, static_cast<int64_t>(i - begin));
        out[i] = std::fabs(y.values[i]) * (SumUnits(x.last()) + 4 * kUnit + of_root) +
                 std::fabs(factor) * e[i] / std::sqrt(mean) +
                 (ew == nullptr ? 0 : (*ew)[i - begin] * std::fabs(x.values[i]) / std::sqrt(mean)) +
                 kTiny;
      }
    }
  }

  double FactorOf(const Op& op, int64_t i) const {
    if (op.num_operands() < 2) return 1;
    const double offset = op.Is(OpKind::kRmsNorm) ? op.Float(AttrKind::kWeightOffset) : 0;
    return offset + In(op, 1).values[static_cast<size_t>(i)];
  }

  void LayerNorm(const Op& op) {
    const Tensor &x = In(op, 0), &y = values_.at(&op);
    const Errors& e = Of(op, 0);
    const auto width = static_cast<size_t>(x.last());
    const auto count = static_cast<double>(width);
    const double eps = op.Float(AttrKind::kEps), sums = SumUnits(x.last());
    Errors& out = errors_[&op];
    for (size_t begin = 0; begin < out.size(); begin += width) {
      double mean = 0, size = 0, moved = 0;
      for (size_t i = begin; i < begin + width; ++i) {
        mean += x.values[i] / count;
        size += std::fabs(x.values[i]) / count;
        moved += e[i] / count;
      }
      const double mean_error = moved + sums * size;
      double variance = 0, variance_error = 0;
      for (size_t i = begin; i < begin + width; ++i) {
        const double d = std::fabs(x.values[i] - mean);
        variance += d * d / count;
        variance_error += 2 * d * (e[i] + mean_error + kUnit * d) / count;
      }
      variance_error += sums * variance;
      const double root = std::sqrt(variance + eps);
      const double of_root = variance_error / (2 * (variance + eps)) + 4 * kUnit;
      for (size_t i = begin; i < begin + width; ++i) {
        const double d = std::fabs(x.values[i] - mean);
        const double factor = std::fabs(FactorOf(op, static_cast<int64_t>(i - begin)));
        out[i] = factor / root * (e[i] + mean_error + d * (of_root + 2 * kUnit)) +
                 2 * kUnit * std::fabs(y.values[i]) + kTiny;
      }
    }
  }

  void Rope(const Op& op) {
    const Tensor& x = In(op, 0);
    const Errors& e = Of(op, 0);
    const auto D = static_cast<size_t>(x.last());
    const int64_t dims = op.Int(AttrKind::kDims);
    const size_t turned = dims == 0 ? D : static_cast<size_t>(dims);
    const bool is_half = op.Text(AttrKind::kStyle) == "half";
    const double magnitude = std::fabs(op.Float(AttrKind::kMagnitude));
    Errors& out = errors_[&op];
    for (size_t begin = 0; begin < out.size(); begin += D) {
      for (size_t i = 0; i < D; ++i) {
        out[begin + i] = e[begin + i];
        if (i >= turned) continue;
        const size_t other = is_half ? (i + turned / 2) % turned : i ^ 1;
        const double size = std::fabs(x.values[begin + i]) + std::fabs(x.values[begin + other]);
        out[begin + i] =
            magnitude * (size * (kSinCosError + 4 * kUnit) + e[begin + i] + e[begin + other]) +
            kTiny;
      }
    }
  }

  absl::Status Attention(const Op& op) {
    const Tensor &q = In(op, 0), &k = In(op, 1), &v = In(op, 2);
    Tensor size = v;
    for (double& value : size.values) value = std::fabs(value);
    std::vector<const Tensor*> operands = {&q, &k, &size};
    double largest_bias = 0;
    if (op.num_operands() > 3) {
      operands.push_back(&In(op, 3));
      for (const double bias : In(op, 3).values) {
        largest_bias = std::max(largest_bias, std::fabs(bias));
      }
    }
    QUIRE_ASSIGN_OR_RETURN(const Tensor sums, Again(op, operands));
    const int64_t T = q.extent(0), Hq = q.extent(1), D = q.extent(2);
    const int64_t C = k.extent(0), Hkv = k.extent(1), dv = v.extent(2);
    if (op.Float(AttrKind::kAlibiMax) > 0) largest_bias += static_cast<double>(C);
    const double scale = std::fabs(op.Float(AttrKind::kScale));
    const double units = arithmetic_.sum_unit * static_cast<double>(D + 8);
    const double of_sums = arithmetic_.sum_unit * static_cast<double>(2 * C + 64) +
                           (arithmetic_.probabilities == DType::kF32    ? 0
                            : arithmetic_.probabilities == DType::kBF16 ? 0x1p-8
                                                                        : 0x1p-11);
    Errors& out = errors_[&op];
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t h = 0; h < Hq; ++h) {
        double largest = 0;
        for (int64_t c = 0; c < C; ++c) {
          double score = 0;
          const double* query = q.values.data() + (t * Hq + h) * D;
          const double* key = k.values.data() + (c * Hkv + h / (Hq / Hkv)) * D;
          for (int64_t i = 0; i < D; ++i) score += std::fabs(query[i] * key[i]);
          largest = std::max(largest, scale * score);
        }
        const double of_scores =
            units * largest + kUnit * (kFunctionUnits / kUnit + 4) * (largest + largest_bias);
        for (int64_t i = 0; i < dv; ++i) {
          const auto at = static_cast<size_t>((t * Hq + h) * dv + i);
          out[at] = sums.values[at] * (2 * of_scores + of_sums) + kTiny;
        }
      }
    }
    return absl::OkStatus();
  }

  const std::map<const Op*, Tensor>& values_;
  const std::map<const Op*, Tensor>& minimums_;
  const KernelArithmetic arithmetic_;
  std::map<const Op*, Errors> errors_;
};

}  // namespace

absl::StatusOr<std::map<const Op*, std::vector<double>>> ErrorBounds(
    const Func& func, const std::map<const Op*, Tensor>& values,
    const std::map<const Op*, Tensor>& minimums, const KernelArithmetic& arithmetic) {
  return Analysis(values, minimums, arithmetic).Run(func);
}

}  // namespace quire
