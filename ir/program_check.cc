#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/plan_check.h"
#include "ir/status.h"

namespace quire {
namespace {

using plan::Linear;
using plan::OperandKind;

constexpr int64_t kMaxCoefficient = int64_t{1} << 40;
constexpr int64_t kAlignmentBytes = 64;

bool InRange(const Linear& form) {
  for (const int64_t c : {form.constant(), form.t(), form.r()}) {
    if (c < -kMaxCoefficient || c > kMaxCoefficient) return false;
  }
  return true;
}

bool IsAligned(const Linear& form) {
  return form.constant() % kAlignmentBytes == 0 && form.t() % kAlignmentBytes == 0 &&
         form.r() % kAlignmentBytes == 0;
}

Linear Minus(const Linear& a, const Linear& b) {
  return Linear(a.constant() - b.constant(), a.t() - b.t(), a.r() - b.r());
}

// Whether form >= 0 for all T >= R >= 1. With R = 1 + a and T = 1 + a + b the form is
// (constant + t + r) + (t + r) a + t b for any a, b >= 0: no coefficient may be negative.
bool NeverNegative(const Linear& form) {
  return form.t() >= 0 && form.t() + form.r() >= 0 && form.constant() + form.t() + form.r() >= 0;
}

Linear BytesOf(const Type& type) {
  int64_t bytes = InfoOf(type.dtype).block_bytes;
  char letter = 0;
  for (const Extent& extent : type.extents) {
    if (extent.is_letter()) {
      letter = extent.letter();
    } else {
      bytes *= extent.value();
    }
  }
  if (letter == 'T') return Linear(0, bytes, 0);
  if (letter == 'R') return Linear(0, 0, bytes);
  return Linear(bytes, 0, 0);
}

class Checker {
 public:
  Checker(const plan::ProgramT& program, const plan::TargetT& target)
      : program_(program), target_(target), written_(program.buffers.size(), false) {}

  absl::Status Buffers() {
    if (program_.arena == nullptr || !InRange(*program_.arena)) {
      return absl::DataLossError("arena: it has no size");
    }
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const plan::ValueT& buffer = *program_.buffers[i];
      auto type = TypeOfValue(buffer);
      if (!type.ok()) return PlanError("buffers", i, type.status().message());
      if (IsBlockType(type->dtype)) {
        return PlanError("buffers", i, "a buffer does not hold quantised blocks");
      }
      if (buffer.offset == nullptr || buffer.bytes == nullptr || !InRange(*buffer.offset) ||
          !InRange(*buffer.bytes)) {
        return PlanError("buffers", i, "it has no place");
      }
      if (!IsAligned(*buffer.offset) || !NeverNegative(*buffer.offset)) {
        return PlanError("buffers", i, "its offset is negative or not a multiple of 64 bytes");
      }
      if (!InRange(BytesOf(*type)) || !NeverNegative(Minus(*buffer.bytes, BytesOf(*type)))) {
        return PlanError("buffers", i, "its type takes more bytes than it has");
      }
      const Linear after = Minus(*program_.arena, *buffer.offset);
      if (!NeverNegative(Minus(after, *buffer.bytes))) {
        return PlanError("buffers", i, "it reaches beyond the arena");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Launches() {
    for (size_t i = 0; i < program_.launches.size(); ++i) {
      if (absl::Status status = Check(*program_.launches[i]); !status.ok()) {
        return PlanError("launches", i,
                         absl::StrCat(program_.launches[i]->name, ": ", status.message()));
      }
    }
    for (const plan::Operand& result : program_.results) {
      if (result.kind() != OperandKind::Buffer || !CanRead(result)) {
        return absl::DataLossError("results: a result is not a buffer that a launch writes");
      }
    }
    return absl::OkStatus();
  }

 private:
  bool CanRead(const plan::Operand& operand) const {
    switch (operand.kind()) {
      case OperandKind::Argument:
        return operand.index() < program_.arguments.size();
      case OperandKind::Buffer:
        return operand.index() < written_.size() && written_[operand.index()];
      case OperandKind::Weight:
        return operand.index() < target_.weights.size();
      case OperandKind::KvLayer:
        return operand.index() < target_.kv_layers.size();
      case OperandKind::None:
        return true;
    }
    return false;
  }

  absl::Status Check(const plan::LaunchT& launch) {
    if (launch.kernel >= target_.kernels.size()) {
      return absl::InvalidArgumentError(absl::StrCat("there is no kernel ", launch.kernel));
    }
    if (launch.rows != "T" && launch.rows != "R") {
      return absl::InvalidArgumentError(absl::StrCat("rows=", launch.rows, " is not T or R"));
    }
    for (size_t i = 0; i < launch.inputs.size(); ++i) {
      if (!CanRead(launch.inputs[i])) {
        return absl::InvalidArgumentError(
            absl::StrCat("input ", i, " does not exist or is not written yet"));
      }
    }
    for (size_t i = 0; i < launch.outputs.size(); ++i) {
      const plan::Operand& output = launch.outputs[i];
      if (output.kind() != OperandKind::Buffer || output.index() >= written_.size()) {
        return absl::InvalidArgumentError(absl::StrCat("output ", i, " is not a buffer"));
      }
      written_[output.index()] = true;
    }
    return absl::OkStatus();
  }

  const plan::ProgramT& program_;
  const plan::TargetT& target_;
  std::vector<bool> written_;
};

absl::Status CheckArguments(const plan::ProgramT& program) {
  for (size_t i = 0; i < program.arguments.size(); ++i) {
    auto type = TypeOfValue(*program.arguments[i]);
    if (!type.ok()) return PlanError("arguments", i, type.status().message());
    const bool is_step = program.name == "step";
    if (!is_step && program.name != "encode") continue;
    const std::string text = absl::StrCat(program.arguments[i]->name, " ", type->ToString());
    const bool is_states = !is_step && program.arguments[i]->name == "states" &&
                           IsFloat(type->dtype) && type->rank() == 2 &&
                           type->extents[0] == Extent::Letter('T') && !type->extents[1].is_letter();
    if (is_states) continue;
    if (text != "ids i32[T]" && text != "pos i32[T]" && !(is_step && text == "rows i32[R]")) {
      return PlanError("arguments", i,
                       absl::StrCat(text, " is not one of ids i32[T], pos i32[T]",
                                    is_step ? ", rows i32[R]" : ", states of floats [T,E]"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLogits(const plan::ProgramT& program, int64_t vocabulary) {
  if (program.results.size() == 1) {
    auto type = TypeOfValue(*program.buffers[program.results[0].index()]);
    if (type.ok() && *type == Type{DType::kF32, {Extent::Letter('R'), Extent(vocabulary)}}) {
      return absl::OkStatus();
    }
  }
  return absl::DataLossError(
      absl::StrCat("results: step does not return logits f32[R,", vocabulary, "]"));
}

}  // namespace

absl::Status CheckProgram(const plan::ProgramT& program, const plan::TargetT& target,
                          int64_t vocabulary) {
  QUIRE_RETURN_IF_ERROR(CheckArguments(program));
  Checker checker(program, target);
  QUIRE_RETURN_IF_ERROR(checker.Buffers());
  QUIRE_RETURN_IF_ERROR(checker.Launches());
  if (program.name == "encode" && !program.results.empty()) {
    return absl::DataLossError("results: encode returns what stays in caches alone");
  }
  return program.name == "step" ? CheckLogits(program, vocabulary) : absl::OkStatus();
}

}  // namespace quire
