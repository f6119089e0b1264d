#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ir/shape.h"
#include "tests/random.h"
#include "tests/random_program.h"

namespace quire::testing {
namespace {

// Draws ops until one verifies. Nothing here knows a particular op beyond the type that it must
// declare: the tables say what to draw.
class OpDrawer {
 public:
  explicit OpDrawer(uint64_t seed) : random_(seed), func_(std::make_unique<Func>("ops")) {}

  std::unique_ptr<Func> Draw(int count) {
    for (int64_t i = random_.Between(1, 4); i > 0; --i)
      func_->AddArg("x", DrawType(/*stored=*/false));
    func_->AddArg("heads", {DType::kF32, {Extent::Letter('T'), 2, 8}});
    func_->AddArg("pos", {DType::kI32, {Extent::Letter('T')}});
    // Most draws disagree in some extent and are thrown away.
    for (int tries = 40 * count; tries > 0 && static_cast<int>(func_->ops().size()) < count;
         --tries) {
      TryOne();
    }
    std::vector<Op*> returns = {AnyValue()};
    while (random_.Chance(2)) returns.push_back(AnyValue());
    func_->set_returns(std::move(returns));
    return std::move(func_);
  }

 private:
  Extent DrawExtent() {
    if (random_.Chance(3)) return Extent::Letter(random_.OneOf(kExtentLetters));
    return random_.OneOf<int64_t>({0, 1, 2, 4, 8, 8, 16, 256});
  }

  Type DrawType(bool stored) {
    Type type;
    type.dtype = stored ? random_.OneOf(AllDTypes()).dtype
                        : random_.OneOf({DType::kF32, DType::kF32, DType::kBF16, DType::kI32});
    for (int64_t rank = random_.Between(0, 3); rank > 0; --rank)
      type.extents.push_back(DrawExtent());
    return type;
  }

  // Recent values more often than others, so that chains grow.
  Op* AnyValue() {
    const auto& ops = func_->ops();
    const auto& args = func_->args();
    if (!ops.empty() && random_.Chance(2)) {
      const auto recent = std::min<int64_t>(4, static_cast<int64_t>(ops.size()));
      return ops[ops.size() - 1 - static_cast<size_t>(random_.Below(recent))].get();
    }
    const int64_t at = random_.Below(static_cast<int64_t>(ops.size() + args.size()));
    const auto index = static_cast<size_t>(at);
    return index < args.size() ? args[index].get() : ops[index - args.size()].get();
  }

  int64_t DrawInt(const AttrDef& def) {
    const auto low = static_cast<int64_t>(def.low), high = static_cast<int64_t>(def.high);
    // Small numbers fit small extents; the whole range is for the text.
    if (random_.Chance(8)) return random_.Between(low, high);
    return random_.Between(low, std::min<int64_t>(high, low + 8));
  }

  AttrValue DrawAttr(const AttrDef& def, const Op& op) {
    switch (def.form) {
      case AttrDef::kInt:
        return DrawInt(def);
      case AttrDef::kFloat:
        if (random_.Chance(3)) return random_.OneOf({def.low, def.high});
        return std::clamp(random_.Normal(), def.low, def.high);
      case AttrDef::kInts: {
        // A permutation of the first operand's axes is the only list there is.
        std::vector<int64_t> axes(op.operands[0]->type.extents.size());
        for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
        for (size_t i = axes.size(); i > 1; --i) {
          std::swap(axes[i - 1], axes[static_cast<size_t>(random_.Below(static_cast<int64_t>(i)))]);
        }
        return axes;
      }
      case AttrDef::kString:
        return absl::StrCat("w/", random_.Below(5), " {x}.weight");
      case AttrDef::kEnum: {
        const std::vector<std::string> allowed = absl::StrSplit(def.allowed, '|');
        return random_.OneOf(allowed);
      }
    }
    return int64_t{0};
  }

  std::optional<Type> DrawDeclared(const Op& op) {
    if (op.Is(OpKind::kWeight)) return DrawType(/*stored=*/true);
    if (op.Is(OpKind::kKvRead)) return Type{DType::kF32, {Extent::Letter('S'), 2, 8}};
    if (op.operands.empty()) return std::nullopt;
    Type type = op.operands[0]->type;
    if (op.Is(OpKind::kReshape)) {
      // Splits an extent, joins two, or swaps two.
      if (!type.extents.empty() && !type.extents.back().is_letter() &&
          type.extents.back().value() % 2 == 0 && random_.Chance(2)) {
        type.extents.back() = type.extents.back().value() / 2;
        type.extents.push_back(2);
      } else if (type.extents.size() >= 2) {
        std::swap(type.extents[0], type.extents[1]);
      } else {
        type.extents.push_back(1);
      }
      return type;
    }
    type.dtype = random_.OneOf({DType::kF32, DType::kF16, DType::kBF16});
    if (op.Is(OpKind::kKvAppend) && !type.extents.empty()) type.extents[0] = Extent::Letter('C');
    return type;
  }

  void TryOne() {
    auto op = std::make_unique<Op>();
    op->kind = random_.OneOf(AllOps()).kind;
    if (op->Is(OpKind::kArg)) return;
    const OpDef& def = op->def();
    const int most = std::min(def.max_operands(), def.min_operands() + 2);
    for (int64_t i = random_.Between(def.min_operands(), most); i > 0; --i) {
      op->operands.push_back(AnyValue());
    }
    for (AttrKind kind : def.required) op->Set(kind, DrawAttr(DefOf(kind), *op));
    for (AttrKind kind : def.optional) {
      if (!random_.Chance(2)) continue;
      // A graph does not hold what its text leaves out.
      AttrValue value = DrawAttr(DefOf(kind), *op);
      if (value != DefaultOf(kind)) op->Set(kind, std::move(value));
    }
    absl::StatusOr<Type> type = InferType(*op, DrawDeclared(*op));
    if (!type.ok()) return;
    for (const Extent& extent : type->extents) {
      if (!extent.is_letter() && extent.value() > kMaxExtent) return;
    }
    // The text form has no more axes than this.
    if (type->rank() > 8) return;
    op->type = *std::move(type);
    if (random_.Chance(6)) op->group = static_cast<int>(random_.Below(9));
    func_->Insert(std::move(op));
  }

  Random random_;
  std::unique_ptr<Func> func_;
};

}  // namespace

std::unique_ptr<Func> RandomOps(uint64_t seed, int count) { return OpDrawer(seed).Draw(count); }

}  // namespace quire::testing
