// Any bytes as the text of the IR: an error that says where, or a module whose text is a fixpoint
// and which the interpreter evaluates or refuses.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "ir/reference/interpreter.h"
#include "ir/text.h"

namespace quire {
namespace {

using reference::Inputs;
using reference::Tensor;

void Require(bool holds) {
  if (!holds) std::abort();
}

// Enough for small shapes, and little enough for thousands of runs a second.
constexpr int64_t kMaxLiveElements = 1 << 14;

absl::StatusOr<Tensor> SmallNumbers(absl::Span<const Extent> extents, const Bindings& bindings) {
  absl::StatusOr<std::vector<int64_t>> bound = Bind(extents, bindings);
  if (!bound.ok()) return bound.status();
  absl::StatusOr<Tensor> tensor = Tensor::Zeros(*std::move(bound), kMaxLiveElements);
  if (!tensor.ok()) return tensor;
  // Whole, so that they may be ids too.
  for (size_t i = 0; i < tensor->values.size(); ++i) {
    tensor->values[i] = static_cast<double>(i * 7 % 5);
  }
  return tensor;
}

void Evaluate(const Func& func) {
  reference::KvState kv;
  Inputs inputs;
  inputs.bindings = {{'T', 2}, {'S', 3}, {'R', 1}};
  inputs.max_live_elements = kMaxLiveElements;
  inputs.kv = &kv;
  inputs.weights = [](absl::string_view, const Type& type) {
    return SmallNumbers(type.extents, {});
  };
  for (const auto& arg : func.args()) {
    Bindings bindings = inputs.bindings;
    bindings['C'] = 2;
    absl::StatusOr<Tensor> value = SmallNumbers(arg->type.extents, bindings);
    if (!value.ok()) return;
    inputs.args[arg->name] = *std::move(value);
  }
  // Twice: the second time with a past, if the function keeps one.
  for (int step = 0; step < 2; ++step) {
    if (!reference::Interpret(func, inputs).ok()) return;
  }
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using quire::Require;
  const absl::string_view text(reinterpret_cast<const char*>(data), bytes);
  const absl::StatusOr<quire::Module> module = quire::Parse(text, "fuzz");
  if (!module.ok()) {
    Require(module.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  const std::string printed = quire::Print(*module);
  const absl::StatusOr<quire::Module> again = quire::Parse(printed);
  Require(again.ok());
  Require(quire::Print(*again) == printed);
  Require(quire::Print(module->Clone()) == printed);
  for (const auto& func : module->funcs) quire::Evaluate(*func);
  return 0;
}
