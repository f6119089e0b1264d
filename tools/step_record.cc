#include "tools/step_record.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/spec.h"
#include "ir/file.h"
#include "ir/plan_format.h"
#include "ir/status.h"

namespace quire {
namespace {

constexpr size_t kChecksumBytes = sizeof(uint64_t);

template <typename T>
std::vector<uint8_t> BytesOf(absl::Span<const T> values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The step's own rows of K and then of V.
absl::StatusOr<std::vector<uint8_t>> AppendedRows(const LaunchMemory& memory, uint32_t layer,
                                                  const SequenceRows& sequence) {
  std::vector<uint8_t> rows;
  for (const bool is_v : {false, true}) {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<uint8_t> context, memory.ReadLayer(layer, is_v, 0));
    const size_t row_bytes = context.size() / static_cast<size_t>(sequence.context_tokens);
    rows.insert(rows.end(), context.end() - static_cast<ptrdiff_t>(row_bytes) * sequence.rows,
                context.end());
  }
  return rows;
}

}  // namespace

std::optional<uint32_t> AppendedLayer(const plan::TargetT& target, const plan::LaunchT& launch) {
  const absl::StatusOr<KernelSpec> spec = ParseSpec(target.kernels[launch.kernel]->spec);
  if (!spec.ok() || std::holds_alternative<AttentionSpec>(*spec)) return std::nullopt;
  for (const plan::Operand& input : launch.inputs) {
    if (input.kind() == plan::OperandKind::KvLayer) return input.index();
  }
  return std::nullopt;
}

absl::Status RecordStep(const plan::TargetT& target, const plan::ProgramT& lowered,
                        Program& program, const Step& step, PagePool& pool, int64_t vocabulary,
                        record::StepRecordT* record) {
  if (step.sequences.size() != 1) {
    return absl::InvalidArgumentError("only steps of one sequence can be recorded");
  }
  const SequenceRows& sequence = step.sequences[0];
  auto recorded = std::make_unique<record::StepT>();
  recorded->ids.assign(step.ids.begin(), step.ids.end());
  recorded->positions.assign(step.positions.begin(), step.positions.end());
  recorded->logit_rows.assign(step.logit_rows.begin(), step.logit_rows.end());
  recorded->context_tokens = sequence.context_tokens;
  recorded->pages.assign(sequence.pages.begin(), sequence.pages.end());
  std::vector<float> logits(step.logit_rows.size() * static_cast<size_t>(vocabulary));
  QUIRE_RETURN_IF_ERROR(program.RunWatched(
      step, pool, absl::MakeSpan(logits),
      [&](size_t index, const LaunchMemory& memory) -> absl::Status {
        auto launch = std::make_unique<record::LaunchT>();
        const auto add = [&](std::vector<uint8_t> bytes) {
          launch->outputs.push_back(std::make_unique<record::OutputT>());
          launch->outputs.back()->bytes = std::move(bytes);
        };
        for (const plan::Operand& operand : lowered.launches[index]->outputs) {
          QUIRE_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, memory.ReadBuffer(operand.index()));
          add(std::move(bytes));
        }
        if (const auto layer = AppendedLayer(target, *lowered.launches[index])) {
          QUIRE_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes,
                                 AppendedRows(memory, *layer, sequence));
          add(std::move(bytes));
        }
        recorded->launches.push_back(std::move(launch));
        return absl::OkStatus();
      }));
  if (program.finds_greatest()) {
    // The same step again, which leaves the same keys and values.
    std::vector<GreatestLogit> greatest(step.logit_rows.size());
    QUIRE_RETURN_IF_ERROR(program.RunGreedy(step, pool, absl::MakeSpan(greatest)));
    recorded->greatest = BytesOf(absl::MakeConstSpan(greatest));
  }
  record->steps.push_back(std::move(recorded));
  return absl::OkStatus();
}

std::vector<uint8_t> PlanOfRecord(const plan::PlanT& plan, const plan::TargetT& target) {
  plan::PlanT part;
  part.op_table_hash = plan.op_table_hash;
  part.model = std::make_unique<plan::ModelT>(*plan.model);
  part.model->config.clear();
  for (const auto& file : plan.files) {
    part.files.push_back(std::make_unique<plan::WeightFileT>(*file));
    part.files.back()->path = file->path.substr(file->path.rfind('/') + 1);
  }
  for (const auto& tensor : plan.tensors) {
    part.tensors.push_back(std::make_unique<plan::TensorT>(*tensor));
  }
  part.targets.push_back(std::make_unique<plan::TargetT>(target));
  for (auto& kernel : part.targets[0]->kernels) kernel->binaries.clear();
  for (auto& program : part.targets[0]->programs) program->ir.clear();
  flatbuffers::FlatBufferBuilder builder;
  plan::FinishPlanBuffer(builder, plan::Plan::Pack(builder, &part));
  return BytesOf(absl::MakeConstSpan(builder.GetBufferPointer(), builder.GetSize()));
}

absl::Status WriteStepRecord(const record::StepRecordT& record, const std::string& path) {
  flatbuffers::FlatBufferBuilder builder;
  record::FinishStepRecordBuffer(builder, record::StepRecord::Pack(builder, &record));
  const uint64_t checksum =
      PlanChecksum(absl::MakeConstSpan(builder.GetBufferPointer(), builder.GetSize()));
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(builder.GetBufferPointer()),
             static_cast<std::streamsize>(builder.GetSize()));
  file.write(reinterpret_cast<const char*>(&checksum), kChecksumBytes);
  file.close();
  if (!file) return absl::InvalidArgumentError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<record::StepRecordT>> ReadStepRecord(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const auto lost = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path, ": ", what));
  };
  if (file.bytes().size() < kChecksumBytes) return lost("truncated");
  const absl::Span<const uint8_t> bytes = file.bytes().first(file.bytes().size() - kChecksumBytes);
  uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + bytes.size(), kChecksumBytes);
  if (PlanChecksum(bytes) != checksum) return lost("checksum differs: the file is corrupt");
  flatbuffers::Verifier verifier(bytes.data(), bytes.size());
  if (!record::VerifyStepRecordBuffer(verifier)) return lost("not a record of steps");
  return record::UnPackStepRecord(bytes.data());
}

}  // namespace quire
