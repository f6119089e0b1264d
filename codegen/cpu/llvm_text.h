// Writes functions of LLVM IR as text, value by value, with types checked by LLVM's own parser.
//
// Locals that change in loops are Vars (stack slots, which the optimiser turns into registers), so
// emitters write loops without phi nodes. No arithmetic carries fast-math flags: what is written is
// what is computed, on every instruction set.
#ifndef QUIRE_CODEGEN_CPU_LLVM_TEXT_H_
#define QUIRE_CODEGEN_CPU_LLVM_TEXT_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace quire {

// A typed operand: a register "%7", or a constant "0", "zeroinitializer".
struct LlvmValue {
  std::string type;  // "float", "<16 x i32>", "ptr"
  std::string text;
};

// "<16 x float>"; a scalar for lanes == 0.
std::string VectorOf(int lanes, absl::string_view element);
// 16 of "<16 x float>", 0 of "float".
int LanesOf(absl::string_view type);
// "float" of "<16 x float>" and of "float".
std::string ElementOf(absl::string_view type);

LlvmValue I64(int64_t value);
LlvmValue I32(int64_t value);
// Exact: written as bits.
LlvmValue F32(float value);
LlvmValue F64(double value);

class LlvmWriter {
 public:
  using V = LlvmValue;
  struct Var {
    std::string type, slot;
  };

  // Functions take and return what abi.h says; all results are void.
  void BeginFunction(absl::string_view name, const std::vector<V>& parameters);
  void EndFunction();
  // A constant array at module level; returns its pointer.
  V Constant(absl::string_view element_type, const std::vector<std::string>& elements);
  // The module, with the intrinsics it calls declared.
  std::string Finish() const;

  // Operations. Operands of binary ops have one type; a vector and a scalar are not mixed.
  V Let(absl::string_view type, absl::string_view text);  // %n = text
  void Do(absl::string_view text) { body_ += "  " + std::string(text) + "\n"; }
  V Binary(absl::string_view op, const V& a, const V& b);
  V Add(const V& a, const V& b) { return Binary("add", a, b); }
  V Sub(const V& a, const V& b) { return Binary("sub", a, b); }
  V Mul(const V& a, const V& b) { return Binary("mul", a, b); }
  V FAdd(const V& a, const V& b) { return Binary("fadd", a, b); }
  V FSub(const V& a, const V& b) { return Binary("fsub", a, b); }
  V FMul(const V& a, const V& b) { return Binary("fmul", a, b); }
  V FDiv(const V& a, const V& b) { return Binary("fdiv", a, b); }
  V Fma(const V& a, const V& b, const V& c) { return Intrinsic("fma", a.type, {a, b, c}); }
  V FNeg(const V& a);
  V Compare(absl::string_view op, const V& a, const V& b);  // "icmp slt", "fcmp ogt"
  V Select(const V& condition, const V& a, const V& b);
  V Convert(absl::string_view op, const V& a, absl::string_view type);  // "sitofp", "zext", ...
  V Bitcast(const V& a, absl::string_view type) { return Convert("bitcast", a, type); }
  // llvm.<name>.<type>(operands), giving `type`.
  V Intrinsic(absl::string_view name, absl::string_view type, const std::vector<V>& operands);
  // Any intrinsic by its full name, result type stated.
  V Call(absl::string_view full_name, absl::string_view type, const std::vector<V>& operands);

  // Vectors.
  V Splat(const V& scalar, int lanes);
  V SplatConstant(const V& constant, int lanes);  // of a literal
  V Extract(const V& vector, int lane);
  V Insert(const V& vector, const V& scalar, int lane);
  V Shuffle(const V& a, const V& b, const std::vector<int>& mask);
  // All 16 lanes into a scalar: lanes i and i+8, then i and i+4, and so on.
  V Reduce16(V vector, const std::function<V(const V&, const V&)>& combine);
  V Zero(absl::string_view type) { return {std::string(type), "zeroinitializer"}; }

  // Memory. Offsets are in bytes.
  V At(const V& pointer, int64_t bytes);
  V At(const V& pointer, const V& bytes);
  V Load(absl::string_view type, const V& pointer, int align);
  void Store(const V& value, const V& pointer, int align);
  void Prefetch(const V& pointer);  // read, into the second-level cache

  // Locals and control. A body is emitted where it stands.
  Var NewVar(absl::string_view type);
  Var NewVar(const V& initial);
  V Get(const Var& var) { return Load(var.type, {"ptr", var.slot}, 0); }
  void Set(const Var& var, const V& value) { Store(value, {"ptr", var.slot}, 0); }
  V Scratch(int64_t bytes);  // 64-byte aligned stack memory of the function
  // i = begin; i < end; i += step.
  void For(const V& begin, const V& end, int64_t step, const std::function<void(const V&)>& body);
  void If(const V& condition, const std::function<void()>& body,
          const std::function<void()>& otherwise = nullptr);
  void While(const std::function<V()>& condition, const std::function<void()>& body);

 private:
  std::string NewLabel();
  void Label(absl::string_view label);

  std::string module_, entry_, body_, header_;
  std::set<std::string> declarations_;
  int next_ = 0;
};

}  // namespace quire

#endif  // QUIRE_CODEGEN_CPU_LLVM_TEXT_H_
