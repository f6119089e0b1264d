#include "codegen/cpu/llvm_text.h"

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace quire {
namespace {

std::string Typed(const LlvmValue& value) { return absl::StrCat(value.type, " ", value.text); }

// "v16f32" of "<16 x float>", as intrinsic names spell types.
std::string Mangled(absl::string_view type) {
  std::string element = ElementOf(type);
  if (element == "float") element = "f32";
  if (element == "double") element = "f64";
  if (element == "half") element = "f16";
  if (element == "ptr") element = "p0";
  const int lanes = LanesOf(type);
  return lanes == 0 ? element : absl::StrCat("v", lanes, element);
}

}  // namespace

std::string VectorOf(int lanes, absl::string_view element) {
  return lanes == 0 ? std::string(element) : absl::StrCat("<", lanes, " x ", element, ">");
}

int LanesOf(absl::string_view type) {
  return type.empty() || type[0] != '<' ? 0 : std::atoi(std::string(type.substr(1)).c_str());
}

std::string ElementOf(absl::string_view type) {
  if (type.empty() || type[0] != '<') return std::string(type);
  const size_t at = type.find(" x ") + 3;
  return std::string(type.substr(at, type.size() - at - 1));
}

LlvmValue I64(int64_t value) { return {"i64", absl::StrCat(value)}; }
LlvmValue I32(int64_t value) { return {"i32", absl::StrCat(value)}; }

LlvmValue F64(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return {"double", absl::StrFormat("0x%016X", bits)};
}

LlvmValue F32(float value) {
  // LLVM writes a float as the double of equal value.
  return {"float", F64(static_cast<double>(value)).text};
}

void LlvmWriter::BeginFunction(absl::string_view name, const std::vector<V>& parameters) {
  header_ = absl::StrCat(
      "define void @", name, "(",
      absl::StrJoin(parameters, ", ",
                    [](std::string* out, const V& v) { absl::StrAppend(out, Typed(v)); }),
      ") nounwind {\n");
  entry_.clear();
  body_.clear();
  next_ = 0;
}

void LlvmWriter::EndFunction() {
  absl::StrAppend(&module_, header_, "entry:\n", entry_, "  br label %body\nbody:\n", body_,
                  "  ret void\n}\n\n");
}

LlvmWriter::V LlvmWriter::Constant(absl::string_view element_type,
                                   const std::vector<std::string>& elements) {
  const std::string name = absl::StrCat("@constant", declarations_.size());
  declarations_.insert(absl::StrCat(name, " = private unnamed_addr constant [", elements.size(),
                                    " x ", element_type, "] [",
                                    absl::StrJoin(elements, ", ",
                                                  [&](std::string* out, const std::string& e) {
                                                    absl::StrAppend(out, element_type, " ", e);
                                                  }),
                                    "], align 64\n"));
  return {"ptr", name};
}

std::string LlvmWriter::Finish() const {
  return absl::StrCat(absl::StrJoin(declarations_, ""), "\n", module_);
}

LlvmWriter::V LlvmWriter::Let(absl::string_view type, absl::string_view text) {
  V value{std::string(type), absl::StrCat("%v", next_++)};
  absl::StrAppend(&body_, "  ", value.text, " = ", text, "\n");
  return value;
}

LlvmWriter::V LlvmWriter::Binary(absl::string_view op, const V& a, const V& b) {
  return Let(a.type, absl::StrCat(op, " ", Typed(a), ", ", b.text));
}

LlvmWriter::V LlvmWriter::FNeg(const V& a) { return Let(a.type, absl::StrCat("fneg ", Typed(a))); }

LlvmWriter::V LlvmWriter::Compare(absl::string_view op, const V& a, const V& b) {
  return Let(VectorOf(LanesOf(a.type), "i1"), absl::StrCat(op, " ", Typed(a), ", ", b.text));
}

LlvmWriter::V LlvmWriter::Select(const V& condition, const V& a, const V& b) {
  return Let(a.type, absl::StrCat("select ", Typed(condition), ", ", Typed(a), ", ", Typed(b)));
}

LlvmWriter::V LlvmWriter::Convert(absl::string_view op, const V& a, absl::string_view type) {
  if (a.type == type) return a;
  return Let(type, absl::StrCat(op, " ", Typed(a), " to ", type));
}

LlvmWriter::V LlvmWriter::Intrinsic(absl::string_view name, absl::string_view type,
                                    const std::vector<V>& operands) {
  return Call(absl::StrCat("llvm.", name, ".", Mangled(type)), type, operands);
}

LlvmWriter::V LlvmWriter::Call(absl::string_view full_name, absl::string_view type,
                               const std::vector<V>& operands) {
  const auto types = [](std::string* out, const V& v) { absl::StrAppend(out, v.type); };
  const auto values = [](std::string* out, const V& v) { absl::StrAppend(out, Typed(v)); };
  declarations_.insert(absl::StrCat("declare ", type, " @", full_name, "(",
                                    absl::StrJoin(operands, ", ", types), ")\n"));
  const std::string call =
      absl::StrCat("call ", type, " @", full_name, "(", absl::StrJoin(operands, ", ", values), ")");
  if (type == "void") {
    Do(call);
    return {"void", ""};
  }
  return Let(type, call);
}

LlvmWriter::V LlvmWriter::Splat(const V& scalar, int lanes) {
  if (lanes == 0) return scalar;
  const std::string type = VectorOf(lanes, scalar.type);
  const V one =
      Let(type, absl::StrCat("insertelement ", type, " poison, ", Typed(scalar), ", i64 0"));
  return Let(type, absl::StrCat("shufflevector ", Typed(one), ", ", type, " poison, <", lanes,
                                " x i32> zeroinitializer"));
}

LlvmWriter::V LlvmWriter::SplatConstant(const V& constant, int lanes) {
  if (lanes == 0) return constant;
  return {VectorOf(lanes, constant.type),
          absl::StrCat("<", absl::StrJoin(std::vector<std::string>(lanes, Typed(constant)), ", "),
                       ">")};
}

LlvmWriter::V LlvmWriter::Extract(const V& vector, int lane) {
  return Let(ElementOf(vector.type),
             absl::StrCat("extractelement ", Typed(vector), ", i64 ", lane));
}

LlvmWriter::V LlvmWriter::Insert(const V& vector, const V& scalar, int lane) {
  return Let(vector.type,
             absl::StrCat("insertelement ", Typed(vector), ", ", Typed(scalar), ", i64 ", lane));
}

LlvmWriter::V LlvmWriter::Shuffle(const V& a, const V& b, const std::vector<int>& mask) {
  const auto lane = [](std::string* out, int i) { absl::StrAppend(out, "i32 ", i); };
  return Let(VectorOf(static_cast<int>(mask.size()), ElementOf(a.type)),
             absl::StrCat("shufflevector ", Typed(a), ", ", Typed(b), ", <", mask.size(),
                          " x i32> <", absl::StrJoin(mask, ", ", lane), ">"));
}

LlvmWriter::V LlvmWriter::Reduce16(V vector, const std::function<V(const V&, const V&)>& combine) {
  for (int half = 8; half >= 1; half /= 2) {
    std::vector<int> low(static_cast<size_t>(half)), high(static_cast<size_t>(half));
    std::iota(low.begin(), low.end(), 0);
    std::iota(high.begin(), high.end(), half);
    vector = combine(Shuffle(vector, vector, low), Shuffle(vector, vector, high));
  }
  return Extract(vector, 0);
}

LlvmWriter::V LlvmWriter::At(const V& pointer, int64_t bytes) {
  return bytes == 0 ? pointer : At(pointer, I64(bytes));
}

LlvmWriter::V LlvmWriter::At(const V& pointer, const V& bytes) {
  return Let("ptr", absl::StrCat("getelementptr i8, ", Typed(pointer), ", ", Typed(bytes)));
}

LlvmWriter::V LlvmWriter::Load(absl::string_view type, const V& pointer, int align) {
  return Let(type, absl::StrCat("load ", type, ", ", Typed(pointer),
                                align == 0 ? "" : absl::StrCat(", align ", align)));
}

void LlvmWriter::Store(const V& value, const V& pointer, int align) {
  Do(absl::StrCat("store ", Typed(value), ", ", Typed(pointer),
                  align == 0 ? "" : absl::StrCat(", align ", align)));
}

void LlvmWriter::Prefetch(const V& pointer) {
  Call("llvm.prefetch.p0", "void", {pointer, I32(0), I32(2), I32(1)});
}

LlvmWriter::Var LlvmWriter::NewVar(absl::string_view type) {
  Var var{std::string(type), absl::StrCat("%s", next_++)};
  absl::StrAppend(&entry_, "  ", var.slot, " = alloca ", type, "\n");
  return var;
}

LlvmWriter::Var LlvmWriter::NewVar(const V& initial) {
  Var var = NewVar(initial.type);
  Set(var, initial);
  return var;
}

LlvmWriter::V LlvmWriter::Scratch(int64_t bytes) {
  V slot{"ptr", absl::StrCat("%s", next_++)};
  absl::StrAppend(&entry_, "  ", slot.text, " = alloca [", bytes, " x i8], align 64\n");
  return slot;
}

std::string LlvmWriter::NewLabel() { return absl::StrCat("b", next_++); }

void LlvmWriter::Label(absl::string_view label) { absl::StrAppend(&body_, label, ":\n"); }

void LlvmWriter::While(const std::function<V()>& condition, const std::function<void()>& body) {
  const std::string test = NewLabel(), inside = NewLabel(), after = NewLabel();
  Do(absl::StrCat("br label %", test));
  Label(test);
  const V again = condition();
  Do(absl::StrCat("br ", Typed(again), ", label %", inside, ", label %", after));
  Label(inside);
  body();
  Do(absl::StrCat("br label %", test));
  Label(after);
}

void LlvmWriter::For(const V& begin, const V& end, int64_t step,
                     const std::function<void(const V&)>& body) {
  const Var i = NewVar(begin);
  While([&] { return Compare("icmp slt", Get(i), end); },
        [&] {
          const V now = Get(i);
          body(now);
          // Extents are far below 2^63.
          Set(i, Binary("add nsw", now, I64(step)));
        });
}

void LlvmWriter::If(const V& condition, const std::function<void()>& body,
                    const std::function<void()>& otherwise) {
  const std::string yes = NewLabel(), no = NewLabel(), after = NewLabel();
  Do(absl::StrCat("br ", Typed(condition), ", label %", yes, ", label %", no));
  Label(yes);
  body();
  Do(absl::StrCat("br label %", after));
  Label(no);
  if (otherwise) otherwise();
  Do(absl::StrCat("br label %", after));
  Label(after);
}

}  // namespace quire
