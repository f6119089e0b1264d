// The value of a single op on literal operands, for hand-computed tests.
#ifndef QUIRE_TESTS_IR_ONE_OP_H_
#define QUIRE_TESTS_IR_ONE_OP_H_

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/evaluate.h"

namespace quire::testing {

struct Operand {
  std::string type;  // without letters: "f32[2,4]"
  std::vector<double> values;
};

// `op` is the mnemonic and `attrs` its braces; `type` the result's.
inline absl::StatusOr<std::vector<double>> OneOp(absl::string_view op,
                                                 const std::vector<Operand>& operands,
                                                 absl::string_view attrs, absl::string_view type) {
  std::string args, names;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string name = absl::StrCat("%x", i);
    absl::StrAppend(&args, i == 0 ? "" : ", ", name, ": ", operands[i].type);
    absl::StrAppend(&names, i == 0 ? " " : ", ", name);
  }
  QUIRE_ASSIGN_OR_RETURN(Module module,
                         Parse(absl::StrCat("func @f(", args, ") {\n  %y = ", op, names, " ", attrs,
                                            " : ", type, "\n  return %y\n}\n")));
  reference::Inputs inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Type& declared = module.funcs[0]->args()[i]->type;
    QUIRE_ASSIGN_OR_RETURN(std::vector<int64_t> extents, Bind(declared.extents, {}));
    inputs.args[absl::StrCat("x", i)] = {std::move(extents), operands[i].values};
  }
  QUIRE_ASSIGN_OR_RETURN(std::vector<reference::Tensor> results,
                         reference::Interpret(*module.funcs[0], inputs));
  return results[0].values;
}

// Expects these values, each to the last few bits of a double.
inline void ExpectOp(absl::string_view op, const std::vector<Operand>& operands,
                     absl::string_view attrs, absl::string_view type,
                     const std::vector<double>& want) {
  SCOPED_TRACE(absl::StrCat(op, " ", attrs));
  const absl::StatusOr<std::vector<double>> got = OneOp(op, operands, attrs, type);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(*got, ::testing::Pointwise(::testing::DoubleEq(), want));
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_IR_ONE_OP_H_
