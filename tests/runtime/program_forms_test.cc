#include "runtime/program_forms.h"

#include <memory>

#include "gtest/gtest.h"

namespace quire {
namespace {

plan::TargetT TwoPrograms() {
  plan::TargetT target;
  for (const char* name : {"encode", "step"}) {
    auto program = std::make_unique<plan::ProgramT>();
    program->name = name;
    program->arena = std::make_unique<plan::Linear>(1, 2, 3);
    target.programs.push_back(std::move(program));
  }
  auto layer = std::make_unique<plan::KvLayerT>();
  layer->cache = plan::KvCache::Cross;
  layer->heads = 4, layer->k_dim = 8, layer->v_dim = 16;
  layer->dtype = "f8e4m3";
  target.kv_layers.push_back(std::move(layer));
  auto buffer = std::make_unique<plan::ValueT>();
  buffer->offset = std::make_unique<plan::Linear>(64, 0, 0);
  buffer->bytes = std::make_unique<plan::Linear>(0, 32, 0);
  target.programs[1]->buffers.push_back(std::move(buffer));
  target.programs[1]->results.emplace_back(plan::OperandKind::Buffer, 0);
  return target;
}

TEST(ProgramFormsTest, AProgramIsFoundByItsName) {
  const plan::TargetT target = TwoPrograms();
  const absl::StatusOr<const plan::ProgramT*> step = FindProgram(target, "step");
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(*step, target.programs[1].get());
  const absl::Status none = FindProgram(target, "decode").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(none.message(), "the plan has no program decode\n  allowed: encode, step");
}

TEST(ProgramFormsTest, FormsAreThePlansOfBuffersAndKvLayers) {
  const plan::TargetT target = TwoPrograms();
  const ProgramForms step = FormsOf(target, *target.programs[1]);
  ASSERT_EQ(step.buffers.size(), 1u);
  EXPECT_EQ(step.buffers[0].constant(), 64);
  ASSERT_EQ(step.buffer_bytes.size(), 1u);
  EXPECT_EQ(step.buffer_bytes[0].t(), 32);
  EXPECT_EQ(step.arena.r(), 3);
  EXPECT_EQ(step.result, 0u);
  ASSERT_EQ(step.layers.size(), 1u);
  EXPECT_EQ(step.layers[0].cache, plan::KvCache::Cross);
  EXPECT_EQ(step.layers[0].heads, 4);
  EXPECT_EQ(step.layers[0].k_dim, 8);
  EXPECT_EQ(step.layers[0].v_dim, 16);
  EXPECT_EQ(step.layers[0].element_bytes, 1);
  const ProgramForms encode = FormsOf(target, *target.programs[0]);
  EXPECT_TRUE(encode.buffers.empty());
  EXPECT_FALSE(encode.result.has_value());
}

TEST(ProgramFormsTest, ALaunchThatIsNoneIsNamed) {
  plan::LaunchT launch;
  launch.name = "l3.x";
  const absl::Status status = BadLaunch(launch, "wrong operands");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "launch l3.x: wrong operands");
}

}  // namespace
}  // namespace quire
