// Any bytes either are refused, or are a plan whose every reference can be followed.
//
// The first byte chooses: 0, the rest is a whole file; otherwise it is the FlatBuffer alone,
// because the checksums of a file would stop nearly every change to it.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "codegen/plan_check.h"
#include "codegen/weights.h"
#include "ir/plan_check.h"
#include "ir/plan_io.h"

namespace {

using quire::plan::Linear;
using quire::plan::PlanT;
using quire::plan::ProgramT;

// Tensors of zeros, as long as the plan says.
class Zeros : public quire::TensorReader {
 public:
  explicit Zeros(const PlanT& plan) : plan_(plan) {}
  absl::StatusOr<absl::Span<const uint8_t>> Read(uint32_t tensor) const override {
    const uint64_t bytes = plan_.tensors[tensor]->bytes;
    if (bytes > zeros_.size()) return absl::UnimplementedError("too large to try");
    return absl::MakeConstSpan(zeros_).subspan(0, bytes);
  }

 private:
  const PlanT& plan_;
  std::vector<uint8_t> zeros_ = std::vector<uint8_t>(size_t{1} << 16);
};

void Require(bool condition) {
  if (!condition) std::abort();
}

void FollowProgram(const ProgramT& program) {
  for (const int64_t T : {int64_t{1}, int64_t{7}, quire::kMaxStepRows}) {
    for (const int64_t R : {int64_t{1}, T}) {
      const int64_t arena = quire::Evaluate(*program.arena, T, R);
      for (const auto& buffer : program.buffers) {
        const int64_t offset = quire::Evaluate(*buffer->offset, T, R);
        const int64_t bytes = quire::Evaluate(*buffer->bytes, T, R);
        Require(offset >= 0 && bytes >= 0 && offset <= arena - bytes);
      }
    }
  }
}

// Where plan_seeds.cc puts weights and a kernel's binary.
const quire::PlanSection kSections[] = {{4096, 768, 0, quire::PlanSection::Kind::kWeights},
                                        {8192, 768, 0, quire::PlanSection::Kind::kWeights},
                                        {12288, 300, 0, quire::PlanSection::Kind::kBinary}};

void Follow(const PlanT& plan, absl::Span<const quire::PlanSection> sections) {
  const Zeros reader(plan);
  for (const auto& target : plan.targets) {
    for (const auto& slot : target->weights) {
      const auto type = quire::TypeOfTensor(slot->dtype, slot->extents);
      Require(type.ok());
      if (quire::BytesOfTensor(*type) > 1 << 20) continue;
      const auto rows = quire::RowsOfSlot(*slot, plan.tensors, reader);
      Require(!rows.ok() || rows->bytes.size() == quire::BytesOfTensor(*type));
    }
    for (const auto& kernel : target->kernels) {
      for (const auto& binary : kernel->binaries) {
        Require(quire::FindSection(sections, quire::PlanSection::Kind::kBinary, binary->offset,
                                   binary->bytes) != nullptr);
      }
    }
    for (const auto& program : target->programs) FollowProgram(*program);
    const absl::Status checked = quire::CheckKernels(*target, *plan.model);
    Require(checked.ok() || checked.code() == absl::StatusCode::kDataLoss);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  // A vector is aligned as a mapped file is.
  const std::vector<uint8_t> input(data + 1, data + bytes);
  if (data[0] == 0) {
    const auto contents = quire::ReadPlan(input, "fuzz.qplan");
    if (contents.ok()) Follow(*contents->plan, contents->sections);
    return 0;
  }
  const auto plan = quire::UnpackPlan(input);
  if (!plan.ok()) return 0;
  if (quire::CheckPlan(**plan, kSections).ok()) Follow(**plan, kSections);
  return 0;
}
