// Random groups of row-wise ops: any op after any other, at shapes of any vector length.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/codegen/cuda_row_cases.h"
#include "tests/random.h"

namespace quire::testing {
namespace {

using Extents = std::vector<int64_t>;  // of one row

int64_t CountOf(const Extents& extents) {
  int64_t count = 1;
  for (int64_t extent : extents) count *= extent;
  return count;
}

class RandomRow {
 public:
  explicit RandomRow(uint64_t seed) : random_(seed) {}

  RowSpec Make() {
    constexpr int64_t kUnits[] = {1, 2, 3, 4, 5, 8, 12, 16};
    const int64_t unit = kUnits[random_.Below(8)];
    AddRowArgument({random_.Between(1, 6), 2 * unit});
    AddRowArgument({random_.Between(1, 40) * unit});
    positions_ = AddArgument("i32[T]");
    const int64_t count = random_.Between(5, 12);
    for (int64_t i = 0; i < count; ++i) AddOp();
    // The last values, and what is read further up now and then.
    std::vector<std::string> returns;
    for (size_t i = values_.size(); i-- > 0 && returns.size() < 4;) {
      if (i + 2 < values_.size() && !random_.Chance(4)) continue;
      returns.push_back(values_[i].name);
      if (!random_.Chance(4)) continue;
      Add(Value(values_[i]), "cast", values_[i].extents, random_.Chance(2) ? "bf16" : "f16");
      returns.push_back(values_.back().name);
    }
    return {absl::StrCat("func @row(", absl::StrJoin(arguments_, ", "), ") {\n", body_, "  return ",
                         absl::StrJoin(returns, ", "), "\n}\n"),
            0};
  }

 private:
  struct Value {
    std::string name;
    Extents extents;
    std::string dtype;
  };

  std::string AddArgument(const std::string& type) {
    const std::string name = absl::StrCat("%", arguments_.size());
    arguments_.push_back(absl::StrCat(name, ": ", type));
    return name;
  }
  static std::string TypeOf(const std::string& dtype, const Extents& extents) {
    return absl::StrCat(dtype, "[T,", absl::StrJoin(extents, ","), "]");
  }
  void AddRowArgument(const Extents& extents) {
    const char* dtype = random_.Chance(2) ? "f32" : random_.Chance(2) ? "bf16" : "f16";
    const Value argument = {AddArgument(TypeOf(dtype, extents)), extents, dtype};
    if (argument.dtype == "f32") {
      values_.push_back(argument);
    } else {
      // Narrow values between ops would make a difference of one bit a large one.
      Add(argument, "cast", extents, "f32");
    }
  }
  std::string AddWeight(const Extents& extents) {
    const char* dtype = random_.Chance(2) ? "f32" : random_.Chance(2) ? "bf16" : "f16";
    return AddArgument(absl::StrCat(dtype, "[", absl::StrJoin(extents, ","), "]"));
  }

  // "%v = call %x rest : dtype[T,extents]".
  void Add(const Value& x, const std::string& call, const Extents& extents,
           const std::string& dtype, const std::string& rest = "") {
    const std::string name = absl::StrCat("%v", next_++);
    absl::StrAppend(&body_, "  ", name, " = ", call, " ", x.name, rest, " : ",
                    TypeOf(dtype, extents), "\n");
    values_.push_back({name, extents, dtype});
  }

  // Recent values more often.
  Value Pick() {
    const auto size = static_cast<int64_t>(values_.size());
    const int64_t back =
        random_.Chance(3) ? random_.Below(size) : random_.Below(std::min<int64_t>(size, 3));
    return values_[static_cast<size_t>(size - 1 - back)];
  }

  void AddOp() {
    const Value x = Pick();
    const int64_t last = x.extents.back();
    switch (random_.Below(9)) {
      case 0: {
        constexpr const char* kCalls[] = {"silu", "gelu", "tanh", "sigmoid", "relu"};
        return Add(x, kCalls[random_.Below(5)], x.extents, x.dtype);
      }
      case 1: {
        // A weight with some of the trailing extents, or another value of the shape.
        Extents trailing(x.extents.begin() + random_.Below(static_cast<int64_t>(x.extents.size())),
                         x.extents.end());
        std::string other = AddWeight(random_.Chance(4) ? Extents{} : trailing);
        for (const Value& value : values_) {
          if (value.extents == x.extents && random_.Chance(2)) other = value.name;
        }
        return Add(x, random_.Chance(2) ? "add" : "mul", x.extents, x.dtype, ", " + other);
      }
      case 2:
        return Add(x, "rms_norm", x.extents, x.dtype,
                   absl::StrCat(random_.Chance(3) ? "" : ", " + AddWeight({last}),
                                " {eps=0.01, weight_offset=", random_.Below(2), "}"));
      case 3:
        return Add(x, "layer_norm", x.extents, x.dtype,
                   absl::StrCat(", ", AddWeight({last}),
                                random_.Chance(2) ? ", " + AddWeight({last}) : "", " {eps=0.1}"));
      case 4: {
        // Two extents whose product is the count.
        const int64_t count = CountOf(x.extents);
        int64_t inner = random_.Between(1, std::min<int64_t>(count, 48));
        while (count % inner != 0) --inner;
        return Add(x, "reshape", random_.Chance(3) ? Extents{count} : Extents{count / inner, inner},
                   x.dtype);
      }
      case 5: {
        const auto axis =
            static_cast<size_t>(random_.Below(static_cast<int64_t>(x.extents.size())));
        const int64_t begin = random_.Below(x.extents[axis]);
        Extents extents = x.extents;
        extents[axis] = random_.Between(1, x.extents[axis] - begin);
        return Add(x, "slice", extents, x.dtype,
                   absl::StrCat(" {axis=", axis + 1, ", begin=", begin,
                                ", end=", begin + extents[axis], "}"));
      }
      case 6: {
        if (CountOf(x.extents) > 400) return;
        const auto axis =
            static_cast<size_t>(random_.Below(static_cast<int64_t>(x.extents.size())));
        Extents extents = x.extents;
        extents[axis] *= 2;
        return Add(x, "concat", extents, x.dtype,
                   absl::StrCat(", ", x.name, " {axis=", axis + 1, "}"));
      }
      case 7: {
        if (x.extents.size() != 2 || last % 2 != 0) return;
        const int64_t dims = random_.Chance(3) ? 2 * random_.Between(1, last / 2) : 0;
        return Add(x, "rope", x.extents, x.dtype,
                   absl::StrCat(", ", positions_, " {theta=10000",
                                dims == 0 ? "" : absl::StrCat(", dims=", dims),
                                random_.Chance(3) ? ", style=interleave" : "", "}"));
      }
      default: {
        if (x.extents.size() == 2 && CountOf(x.extents) < 200) {
          return Add(
              x, "expand_heads", {x.extents[0] * 3, last}, x.dtype,
              absl::StrCat(" {group=3, order=", random_.Chance(2) ? "tile" : "interleave", "}"));
        }
        return Add(x, "scale", x.extents, x.dtype, " {factor=-0.75}");
      }
    }
  }

  Random random_;
  std::vector<std::string> arguments_;
  std::string positions_, body_;
  std::vector<Value> values_;
  int next_ = 0;
};

}  // namespace

RowSpec RandomRowCase(uint64_t seed) { return RandomRow(seed).Make(); }

}  // namespace quire::testing
