// Properties of the text form over random functions and over broken text.
#include "gtest/gtest.h"
#include "ir/text.h"
#include "tests/random.h"
#include "tests/random_program.h"

namespace quire::testing {
namespace {

std::unique_ptr<Func> AnyFunc(uint64_t seed) {
  if (seed % 2 == 0) return RandomOps(seed, 25);
  ProgramOptions options;
  options.form = seed % 4 == 1 ? ProgramForm::kDefinition : ProgramForm::kCached;
  options.block_weights = options.casts = true;
  return RandomProgram(seed, options);
}

void ExpectSameGraph(const Func& a, const Func& b) {
  ASSERT_EQ(a.args().size(), b.args().size());
  ASSERT_EQ(a.ops().size(), b.ops().size());
  ASSERT_EQ(a.returns().size(), b.returns().size());
  for (size_t i = 0; i < a.args().size(); ++i) {
    ASSERT_EQ(a.args()[i]->name, b.args()[i]->name);
    ASSERT_EQ(a.args()[i]->type, b.args()[i]->type);
  }
  for (size_t i = 0; i < a.ops().size(); ++i) {
    const Op &x = *a.ops()[i], &y = *b.ops()[i];
    ASSERT_EQ(x.kind, y.kind);
    ASSERT_EQ(x.name, y.name);
    ASSERT_EQ(x.type, y.type);
    ASSERT_EQ(x.group, y.group);
    ASSERT_EQ(x.attrs(), y.attrs()) << Print(x);  // floats bit for bit
    ASSERT_EQ(x.operands.size(), y.operands.size());
    for (size_t j = 0; j < x.operands.size(); ++j) {
      ASSERT_EQ(x.operands[j]->name, y.operands[j]->name);
    }
  }
  for (size_t i = 0; i < a.returns().size(); ++i) {
    ASSERT_EQ(a.returns()[i]->name, b.returns()[i]->name);
  }
}

TEST(TextPropertyTest, ParsingGivesBackTheGraphAndTheText) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const auto func = AnyFunc(seed);
    const std::string text = Print(*func);
    const absl::StatusOr<Module> module = Parse(text);
    ASSERT_TRUE(module.ok()) << module.status() << "\n" << text;
    ASSERT_EQ(Print(*module), text);
    ExpectSameGraph(*func, *module->funcs[0]);
    if (HasFatalFailure()) return;
  }
}

TEST(TextPropertyTest, CloneIsTheSameGraph) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto func = AnyFunc(seed);
    ExpectSameGraph(*func, *func->Clone());
  }
}

// Text with a few bytes changed, cut or doubled is an error that says where, or is valid and then
// prints to a fixpoint.
TEST(TextPropertyTest, BrokenTextIsAnErrorOrValid) {
  Random random(uint64_t{7});
  int valid = 0, refused = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    std::string text = Print(*AnyFunc(seed % 40));
    for (int64_t edits = random.Between(1, 3); edits > 0; --edits) {
      const auto at = static_cast<size_t>(random.Below(static_cast<int64_t>(text.size())));
      switch (random.Below(4)) {
        case 0:
          text[at] = static_cast<char>(random.Below(256));
          break;
        case 1:
          text[at] = random.OneOf(absl::string_view("%@{}[](),:=\"TC0123456789\n /-"));
          break;
        case 2:
          text.erase(at, static_cast<size_t>(random.Between(1, 20)));
          break;
        default:
          text.insert(at, text.substr(at, static_cast<size_t>(random.Between(1, 40))));
      }
      if (text.empty()) break;
    }
    const absl::StatusOr<Module> module = Parse(text, "a.qir");
    if (!module.ok()) {
      ++refused;
      ASSERT_EQ(module.status().code(), absl::StatusCode::kInvalidArgument) << module.status();
      ASSERT_EQ(module.status().message().substr(0, 6), "a.qir:") << module.status();
      continue;
    }
    ++valid;
    const std::string printed = Print(*module);
    const absl::StatusOr<Module> again = Parse(printed);
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << printed;
    ASSERT_EQ(Print(*again), printed);
  }
  EXPECT_GT(valid, 50);
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace quire::testing
