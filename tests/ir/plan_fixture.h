// A small plan that passes every check: embedding, one take, one linear for the logits.
#ifndef QUIRE_TESTS_IR_PLAN_FIXTURE_H_
#define QUIRE_TESTS_IR_PLAN_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/op.h"
#include "ir/plan_generated.h"

namespace quire::testing {

inline std::unique_ptr<plan::TensorT> MakeTensor(std::string name, std::string dtype,
                                                 std::vector<int64_t> extents, uint64_t offset,
                                                 uint64_t bytes) {
  auto tensor = std::make_unique<plan::TensorT>();
  tensor->name = std::move(name);
  tensor->dtype = std::move(dtype);
  tensor->extents = std::move(extents);
  tensor->offset = offset;
  tensor->bytes = bytes;
  return tensor;
}

// One part: rows [begin, end) of tensor `index`.
inline std::unique_ptr<plan::WeightPartT> MakePart(uint32_t index, int64_t begin, int64_t end,
                                                   bool transposed = false) {
  auto part = std::make_unique<plan::WeightPartT>();
  part->tensor = index;
  part->row_begin = begin;
  part->row_end = end;
  part->transposed = transposed;
  return part;
}

inline std::unique_ptr<plan::WeightSlotT> MakeSlot(std::string name, std::string dtype,
                                                   std::vector<int64_t> extents) {
  auto slot = std::make_unique<plan::WeightSlotT>();
  slot->name = std::move(name);
  slot->dtype = std::move(dtype);
  slot->extents = std::move(extents);
  slot->layout = "rows";
  return slot;
}

inline std::unique_ptr<plan::ValueT> MakeValue(std::string name, std::string dtype,
                                               std::vector<std::string> extents,
                                               plan::Linear offset = {0, 0, 0},
                                               plan::Linear bytes = {0, 0, 0}) {
  auto value = std::make_unique<plan::ValueT>();
  value->name = std::move(name);
  value->dtype = std::move(dtype);
  value->extents = std::move(extents);
  value->offset = std::make_unique<plan::Linear>(offset);
  value->bytes = std::make_unique<plan::Linear>(bytes);
  return value;
}

inline std::unique_ptr<plan::LaunchT> MakeLaunch(std::string name, uint32_t kernel,
                                                 std::string rows,
                                                 std::vector<plan::Operand> inputs,
                                                 std::vector<plan::Operand> outputs) {
  auto launch = std::make_unique<plan::LaunchT>();
  launch->name = std::move(name);
  launch->kernel = kernel;
  launch->rows = std::move(rows);
  launch->inputs = std::move(inputs);
  launch->outputs = std::move(outputs);
  return launch;
}

inline std::unique_ptr<plan::ProgramT> TinyProgram() {
  using plan::Operand, plan::OperandKind;
  auto program = std::make_unique<plan::ProgramT>();
  program->name = "step";
  program->ir = "lowered text";
  program->arguments.push_back(MakeValue("ids", "i32", {"T"}));
  program->arguments.push_back(MakeValue("pos", "i32", {"T"}));
  program->arguments.push_back(MakeValue("rows", "i32", {"R"}));
  program->buffers.push_back(MakeValue("x", "f32", {"T", "16"}, {0, 0, 0}, {0, 64, 0}));
  program->buffers.push_back(MakeValue("y", "f32", {"R", "16"}, {0, 64, 0}, {0, 0, 64}));
  program->buffers.push_back(MakeValue("logits", "f32", {"R", "12"}, {0, 64, 64}, {0, 0, 64}));
  program->arena = std::make_unique<plan::Linear>(0, 64, 128);
  program->launches.push_back(
      MakeLaunch("x", 0, "T", {Operand(OperandKind::Argument, 0), Operand(OperandKind::Weight, 0)},
                 {Operand(OperandKind::Buffer, 0)}));
  program->launches.push_back(
      MakeLaunch("y", 1, "R", {Operand(OperandKind::Buffer, 0), Operand(OperandKind::Argument, 2)},
                 {Operand(OperandKind::Buffer, 1)}));
  program->launches.push_back(MakeLaunch(
      "logits", 2, "R", {Operand(OperandKind::Buffer, 1), Operand(OperandKind::Weight, 1)},
      {Operand(OperandKind::Buffer, 2)}));
  program->results.push_back(Operand(OperandKind::Buffer, 2));
  return program;
}

// Weights "emb" f32[12,16] at byte 64 and "head.t" f32[16,12] behind it, of a file "w.safetensors"
// of 1600 bytes.
inline plan::PlanT TinyPlan() {
  plan::PlanT plan;
  plan.producer = "quire test";
  plan.op_table_hash = OpTableHash();
  plan.model = std::make_unique<plan::ModelT>();
  plan.model->name = "tiny";
  plan.model->architecture = "qir";
  plan.model->vocabulary = 12;
  plan.model->max_positions = 64;
  plan.ir = "func @step(%ids: i32[T], %pos: i32[T]) {}";
  plan.files.push_back(std::make_unique<plan::WeightFileT>());
  plan.files[0]->path = "w.safetensors";
  plan.files[0]->bytes = 1600;
  plan.tensors.push_back(MakeTensor("emb", "f32", {12, 16}, 64, 768));
  plan.tensors.push_back(MakeTensor("head.t", "f32", {16, 12}, 832, 768));
  auto target = std::make_unique<plan::TargetT>();
  target->name = "cpu";
  target->page_tokens = 16;
  for (const char* spec : {"row func @row(%0: i32[T], %1: f32[12,16]) {\n"
                           "  %v0 = embed %1, %0 : f32[T,16]\n  return %v0\n}",
                           "row func @row(%0: f32[T,16], %1: i32[R]) {\n"
                           "  %v0 = take %0, %1 : f32[R,16]\n  return %v0\n}",
                           "linear n=12 k=16 w=f32 x=f32 y=f32 bias=0 residual=0 layout=rows"}) {
    target->kernels.push_back(std::make_unique<plan::KernelT>());
    target->kernels.back()->spec = spec;
  }
  target->weights.push_back(MakeSlot("emb", "f32", {12, 16}));
  target->weights[0]->parts.push_back(MakePart(0, 0, 12));
  target->weights.push_back(MakeSlot("head", "f32", {12, 16}));
  target->weights[1]->parts.push_back(MakePart(1, 0, 12, /*transposed=*/true));
  target->programs.push_back(TinyProgram());
  plan.targets.push_back(std::move(target));
  return plan;
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_IR_PLAN_FIXTURE_H_
