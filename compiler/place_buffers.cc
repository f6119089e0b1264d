#include <string>
#include <vector>

#include "compiler/lower.h"
#include "compiler/memory_plan.h"
#include "ir/status.h"

namespace quire {
namespace {

plan::Linear ToPlan(const LinearBytes& bytes) { return {bytes.constant, bytes.t, bytes.r}; }

std::vector<BufferUse> UsesOf(const plan::ProgramT& program) {
  std::vector<BufferUse> uses;
  for (const auto& buffer : program.buffers) {
    const plan::Linear& bytes = *buffer->bytes;
    uses.push_back({buffer->name, {bytes.constant(), bytes.t(), bytes.r()}});
  }
  auto touch = [&uses](const plan::Operand& operand, int launch, bool writes) {
    if (operand.kind() != plan::OperandKind::Buffer) return;
    BufferUse& use = uses[operand.index()];
    if (writes) use.first_launch = launch;
    use.last_launch = launch;
  };
  const int launches = static_cast<int>(program.launches.size());
  for (int i = 0; i < launches; ++i) {
    const plan::LaunchT& launch = *program.launches[static_cast<size_t>(i)];
    for (const plan::Operand& operand : launch.inputs) touch(operand, i, /*writes=*/false);
    for (const plan::Operand& operand : launch.outputs) touch(operand, i, /*writes=*/true);
  }
  // Results are read after the last launch.
  for (const plan::Operand& operand : program.results) touch(operand, launches, /*writes=*/false);
  return uses;
}

}  // namespace

absl::Status PlaceBuffers(plan::ProgramT& program) {
  const std::vector<BufferUse> uses = UsesOf(program);
  QUIRE_ASSIGN_OR_RETURN(MemoryPlan plan, PlanMemory(uses));
  QUIRE_RETURN_IF_ERROR(CheckMemoryPlan(uses, plan));
  for (size_t i = 0; i < uses.size(); ++i) *program.buffers[i]->offset = ToPlan(plan.offsets[i]);
  program.arena = std::make_unique<plan::Linear>(ToPlan(plan.arena));
  return absl::OkStatus();
}

}  // namespace quire
