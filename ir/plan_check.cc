#include "ir/plan_check.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ir/dtype.h"
#include "ir/op.h"
#include "ir/status.h"
#include "ir/weight_scales.h"

namespace quire {
namespace {

constexpr int kMaxRank = 8;
constexpr int64_t kMaxHeads = 65536, kMaxHead = 512, kMaxPageTokens = 65536;

absl::Status CheckType(const Type& type) {
  if (type.rank() > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", type.rank(), ", at most 8 is known"));
  }
  Bindings letters;
  for (int i = 0; i < type.rank(); ++i) {
    const Extent& extent = type.extents[static_cast<size_t>(i)];
    if (extent.is_letter() && i == 0) {
      letters[extent.letter()] = kMaxStepRows;
    } else if (extent.is_letter() || extent.value() < 1 || extent.value() > kMaxExtent) {
      return absl::InvalidArgumentError(
          absl::StrCat("extent ", extent.ToString(), " of axis ", i, " is not positive"));
    }
  }
  QUIRE_ASSIGN_OR_RETURN(const int64_t elements, Product(type.extents, letters));
  const DTypeInfo& info = InfoOf(type.dtype);
  if (info.block_elements > 1 && (type.rank() == 0 || type.extents.back().is_letter() ||
                                  type.extents.back().value() % info.block_elements != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of ", info.text, " are blocks of ", info.block_elements, " elements"));
  }
  if (elements > (int64_t{1} << 56)) {
    return absl::InvalidArgumentError(absl::StrCat(elements, " elements are too many"));
  }
  return absl::OkStatus();
}

absl::StatusOr<DType> DTypeOf(absl::string_view text) {
  const std::optional<DType> dtype = ParseDType(text);
  if (dtype.has_value()) return *dtype;
  return absl::InvalidArgumentError(absl::StrCat("element type \"", text, "\" is not known"));
}

// Of f8e4m3 elements of type `type`: one, one a row, or one for each 128 rows and columns.
absl::Status CheckScale(const Type& type, int32_t scale, const plan::PlanT& plan) {
  if (static_cast<size_t>(scale) >= plan.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no tensor ", scale, " of scales"));
  }
  const plan::TensorT& scales = *plan.tensors[static_cast<size_t>(scale)];
  QUIRE_ASSIGN_OR_RETURN(const Type found, TypeOfTensor(scales.dtype, scales.extents));
  if (type.rank() == 2 && IsFloat(found.dtype) &&
      WeightScalesOf(scales.extents, type.extents[0].value(), type.extents[1].value())
          .has_value()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(scales.name, ", ", found.ToString(), ", are no scales of ", type.ToString()));
}

absl::Status CheckTensor(const plan::TensorT& tensor, const plan::PlanT& plan) {
  QUIRE_ASSIGN_OR_RETURN(const Type type, StoredTypeOf(tensor));
  if (tensor.scale >= 0) QUIRE_RETURN_IF_ERROR(CheckScale(type, tensor.scale, plan));
  if (tensor.file >= plan.files.size()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no file ", tensor.file));
  }
  if (tensor.bytes != BytesOfTensor(type)) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.bytes, " bytes, but its type takes ", BytesOfTensor(type)));
  }
  const uint64_t file_bytes = plan.files[tensor.file]->bytes;
  if (tensor.offset > file_bytes || tensor.bytes > file_bytes - tensor.offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes at ", tensor.offset, " reach beyond the file's ", file_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckPart(const plan::WeightPartT& part, const Type& slot, const plan::PlanT& plan,
                       int64_t* rows) {
  if (part.tensor >= plan.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no tensor ", part.tensor));
  }
  const plan::TensorT& tensor = *plan.tensors[part.tensor];
  QUIRE_ASSIGN_OR_RETURN(Type type, TypeOfTensor(tensor.dtype, tensor.extents));
  if (type.rank() == 0) type.extents = {1};  // one number is a row
  if (type.dtype != slot.dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.name, " is ", tensor.dtype, ", the slot ", DTypeText(slot.dtype)));
  }
  if (part.transposed) {
    if (type.rank() != 2 || IsBlockType(type.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.name, " cannot be transposed"));
    }
    std::swap(type.extents[0], type.extents[1]);
  }
  if (type.rank() != slot.rank()) {
    return absl::InvalidArgumentError(absl::StrCat(tensor.name, " has another rank"));
  }
  for (size_t i = 1; i < type.extents.size(); ++i) {
    if (type.extents[i] != slot.extents[i]) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensor.name, " is ", type.ToString(), ", the slot ", slot.ToString()));
    }
  }
  if (part.row_begin < 0 || part.row_begin >= part.row_end ||
      part.row_end > type.extents[0].value()) {
    return absl::InvalidArgumentError(absl::StrCat("rows ", part.row_begin, " .. ", part.row_end,
                                                   " are not rows of ", tensor.name));
  }
  const int64_t part_rows = part.row_end - part.row_begin;
  if (part_rows > slot.extents[0].value() - *rows) {
    return absl::InvalidArgumentError("the parts have more rows than the slot");
  }
  *rows += part_rows;
  return absl::OkStatus();
}

absl::Status CheckSlot(const plan::WeightSlotT& slot, const plan::PlanT& plan,
                       absl::Span<const PlanSection> sections) {
  QUIRE_ASSIGN_OR_RETURN(const Type type, TypeOfTensor(slot.dtype, slot.extents));
  if (type.rank() == 0) return absl::InvalidArgumentError("it has no rows");
  int64_t rows = 0;
  for (const auto& part : slot.parts) QUIRE_RETURN_IF_ERROR(CheckPart(*part, type, plan, &rows));
  if (rows != type.extents[0].value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the parts have ", rows, " rows of ", type.extents[0].value()));
  }
  if (slot.layout.empty()) return absl::InvalidArgumentError("it has no layout");
  if (!slot.packed) return absl::OkStatus();
  if (FindSection(sections, PlanSection::Kind::kWeights, slot.offset, slot.bytes) != nullptr) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("its packed bytes are no section of the file");
}

absl::Status CheckKernel(const plan::KernelT& kernel, absl::Span<const PlanSection> sections) {
  absl::flat_hash_set<absl::string_view> keys;
  for (const auto& binary : kernel.binaries) {
    // Devices of one architecture may have texts of their own for an entry.
    const std::string name = absl::StrCat(binary->architecture, " ", binary->entry);
    if (binary->architecture.empty() || binary->entry.empty()) {
      return absl::InvalidArgumentError("a binary has no architecture or no entry");
    }
    if (!keys.insert(binary->key).second) {
      return absl::InvalidArgumentError(absl::StrCat("binary ", name, " stands twice"));
    }
    if (binary->key.size() != 32 ||
        binary->key.find_first_not_of("0123456789abcdef") != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("binary ", name, ": its key is not 32 hexadecimal digits"));
    }
    if (FindSection(sections, PlanSection::Kind::kBinary, binary->offset, binary->bytes) ==
        nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("binary ", name, ": its bytes are no section of the file"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKvLayer(const plan::KvLayerT& layer) {
  QUIRE_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(layer.dtype));
  if (!IsKvType(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys of ", layer.dtype, "\n  allowed: f32, f16, bf16, f8e4m3"));
  }
  if (layer.layer < 0 || layer.heads < 1 || layer.heads > kMaxHeads || layer.k_dim < 1 ||
      layer.k_dim > kMaxHead || layer.v_dim < 1 || layer.v_dim > kMaxHead || layer.window < 0 ||
      layer.window > kMaxExtent) {
    return absl::InvalidArgumentError("a size is out of its range");
  }
  return absl::OkStatus();
}

absl::Status Placed(const absl::Status& status, absl::string_view table, size_t index,
                    absl::string_view name = "") {
  if (status.ok()) return status;
  return PlanError(
      table, index,
      name.empty() ? std::string(status.message()) : absl::StrCat(name, ": ", status.message()));
}

absl::Status CheckTarget(const plan::TargetT& target, const plan::PlanT& plan,
                         absl::Span<const PlanSection> sections) {
  for (size_t i = 0; i < target.weights.size(); ++i) {
    const plan::WeightSlotT& slot = *target.weights[i];
    QUIRE_RETURN_IF_ERROR(Placed(CheckSlot(slot, plan, sections), "weights", i, slot.name));
  }
  for (size_t i = 0; i < target.kernels.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(Placed(CheckKernel(*target.kernels[i], sections), "kernels", i));
  }
  for (size_t i = 0; i < target.kv_layers.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(Placed(CheckKvLayer(*target.kv_layers[i]), "kv_layers", i));
  }
  if (!target.activation.empty()) {
    const std::optional<DType> activation = ParseDType(target.activation);
    if (!activation.has_value() || !IsFloat(*activation)) {
      return absl::DataLossError(absl::StrCat("activation=", target.activation,
                                              " is not possible\n  allowed: f32, f16, bf16"));
    }
  }
  if (target.page_tokens < 1 || target.page_tokens > kMaxPageTokens) {
    return absl::DataLossError(absl::StrCat("page_tokens=", target.page_tokens,
                                            " is not possible\n  allowed: 1 .. ", kMaxPageTokens));
  }
  for (size_t i = 0; i < target.programs.size(); ++i) {
    const plan::ProgramT& program = *target.programs[i];
    QUIRE_RETURN_IF_ERROR(WithPrefix(CheckProgram(program, target, plan.model->vocabulary),
                                     absl::StrCat("programs[", i, "]")));
  }
  return absl::OkStatus();
}

}  // namespace

const PlanSection* FindSection(absl::Span<const PlanSection> sections, PlanSection::Kind kind,
                               uint64_t offset, uint64_t bytes) {
  const auto found =
      std::lower_bound(sections.begin(), sections.end(), offset,
                       [](const PlanSection& section, uint64_t at) { return section.offset < at; });
  if (found == sections.end() || found->offset != offset || found->bytes != bytes ||
      found->kind != kind) {
    return nullptr;
  }
  return &*found;
}

absl::Status PlanError(absl::string_view table, size_t index, absl::string_view reason) {
  return absl::DataLossError(absl::StrCat(table, "[", index, "]: ", reason));
}

absl::StatusOr<Type> TypeOfTensor(absl::string_view dtype, absl::Span<const int64_t> extents) {
  Type type;
  QUIRE_ASSIGN_OR_RETURN(type.dtype, DTypeOf(dtype));
  type.extents.assign(extents.begin(), extents.end());
  QUIRE_RETURN_IF_ERROR(CheckType(type));
  return type;
}

absl::StatusOr<Type> TypeOfValue(const plan::ValueT& value) {
  Type type;
  QUIRE_ASSIGN_OR_RETURN(type.dtype, DTypeOf(value.dtype));
  for (const std::string& text : value.extents) {
    int64_t number = 0;
    if (text == "T" || text == "R") {
      type.extents.push_back(Extent::Letter(text[0]));
    } else if (absl::SimpleAtoi(text, &number)) {
      type.extents.push_back(number);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("extent \"", text, "\" is not known"));
    }
  }
  QUIRE_RETURN_IF_ERROR(CheckType(type));
  return type;
}

absl::StatusOr<Type> StoredTypeOf(const plan::TensorT& tensor) {
  QUIRE_ASSIGN_OR_RETURN(Type type, TypeOfTensor(tensor.dtype, tensor.extents));
  if (tensor.scale < 0) return type;
  if (type.dtype != DType::kF8E4M3_128) {
    return absl::InvalidArgumentError(absl::StrCat(tensor.dtype, " has no scales apart"));
  }
  type.dtype = DType::kF8E4M3;
  return type;
}

uint64_t BytesOfTensor(const Type& type) {
  uint64_t elements = 1;
  for (const Extent& extent : type.extents) elements *= static_cast<uint64_t>(extent.value());
  const DTypeInfo& info = InfoOf(type.dtype);
  return elements / static_cast<uint64_t>(info.block_elements) *
         static_cast<uint64_t>(info.block_bytes);
}

int64_t Evaluate(const plan::Linear& form, int64_t T, int64_t R) {
  return form.constant() + form.t() * T + form.r() * R;
}

absl::Status CheckPlan(const plan::PlanT& plan, absl::Span<const PlanSection> sections) {
  if (plan.model == nullptr) return absl::DataLossError("model: is missing");
  if (plan.model->vocabulary < 1) {
    return absl::DataLossError(
        absl::StrCat("model: vocabulary=", plan.model->vocabulary, " is not positive"));
  }
  if (plan.model->max_positions < 0 || plan.model->max_positions > kMaxExtent) {
    return absl::DataLossError(
        absl::StrCat("model: max_positions=", plan.model->max_positions, " is out of range"));
  }
  if (plan.model->max_source < 0 || plan.model->max_source > kMaxExtent) {
    return absl::DataLossError(
        absl::StrCat("model: max_source=", plan.model->max_source, " is out of range"));
  }
  for (size_t i = 0; i < plan.files.size(); ++i) {
    if (plan.files[i]->path.empty()) return PlanError("files", i, "it has no path");
  }
  absl::flat_hash_set<absl::string_view> names;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const plan::TensorT& tensor = *plan.tensors[i];
    QUIRE_RETURN_IF_ERROR(Placed(CheckTensor(tensor, plan), "tensors", i, tensor.name));
    if (!names.insert(tensor.name).second) {
      return PlanError("tensors", i, absl::StrCat(tensor.name, " stands twice"));
    }
  }
  names.clear();
  for (size_t i = 0; i < plan.targets.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(WithPrefix(CheckTarget(*plan.targets[i], plan, sections),
                                     absl::StrCat("targets[", i, "]")));
    if (!names.insert(plan.targets[i]->name).second) {
      return PlanError("targets", i, absl::StrCat(plan.targets[i]->name, " stands twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
