// The outputs that read the plan alone: summary, metadata, weights, memory.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ir/op.h"
#include "ir/plan_check.h"
#include "ir/status.h"
#include "tools/dump.h"
#include "tools/summary.h"
#include "tools/table.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

std::string ShapeText(absl::string_view dtype, const std::vector<int64_t>& extents) {
  return absl::StrCat(dtype, "[", absl::StrJoin(extents, ","), "]");
}

// "1024 + 5376 T + 4 R"
std::string LinearText(const plan::Linear& form) {
  std::vector<std::string> terms;
  if (form.constant() != 0) terms.push_back(absl::StrCat(form.constant()));
  if (form.t() != 0) terms.push_back(absl::StrCat(form.t(), " T"));
  if (form.r() != 0) terms.push_back(absl::StrCat(form.r(), " R"));
  return terms.empty() ? "0" : absl::StrJoin(terms, " + ");
}

ordered_json LinearJson(const plan::Linear& form) {
  return {{"constant", form.constant()}, {"T", form.t()}, {"R", form.r()}};
}

std::string Hex(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

uint64_t TensorBytes(const plan::PlanT& plan) {
  uint64_t bytes = 0;
  for (const auto& tensor : plan.tensors) bytes += tensor->bytes;
  return bytes;
}

ordered_json ModelJson(const plan::ModelT& model) {
  return {{"name", model.name},
          {"architecture", model.architecture},
          {"parameters", model.parameters},
          {"vocabulary", model.vocabulary},
          {"max_positions", model.max_positions}};
}

const char* TokenizerModelText(plan::TokenizerModel model) {
  switch (model) {
    case plan::TokenizerModel::kBpe:
      return "bpe";
    case plan::TokenizerModel::kScoredBpe:
      return "scored bpe";
    case plan::TokenizerModel::kUnigram:
      return "unigram";
  }
  return "";
}

std::string CacheName(plan::KvCache cache) {
  return cache == plan::KvCache::Self    ? "self"
         : cache == plan::KvCache::Cross ? "cross"
                                         : "encoder";
}

}  // namespace

absl::StatusOr<const plan::TargetT*> TargetToDump(const PlanFile& file,
                                                  const DumpOptions& options) {
  QUIRE_RETURN_IF_ERROR(file.lowered_status());
  if (!options.target.empty()) return file.Target(options.target);
  if (file.plan().targets.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(file.path(), ": the plan has no target"));
  }
  return file.plan().targets[0].get();
}

absl::StatusOr<Dumped> DumpSummary(const PlanFile& file, const DumpOptions&) {
  const plan::PlanT& plan = file.plan();
  Dumped dumped;
  dumped.text = PlanSummary(plan);
  dumped.json = {{"model", ModelJson(*plan.model)},
                 {"tensors", plan.tensors.size()},
                 {"weight_bytes", TensorBytes(plan)},
                 {"plan_bytes", file.file_bytes()},
                 {"targets", ordered_json::array()}};
  for (const auto& target : plan.targets) {
    size_t launches = 0;
    for (const auto& program : target->programs) launches += program->launches.size();
    dumped.json["targets"].push_back({{"name", target->name},
                                      {"kernels", target->kernels.size()},
                                      {"launches", launches},
                                      {"kv_bytes_per_token", KvBytesPerToken(*target)},
                                      {"page_tokens", target->page_tokens}});
  }
  if (!file.lowered_status().ok()) {
    absl::StrAppend(&dumped.text, "note       ", file.lowered_status().message(), "\n");
    dumped.json["note"] = std::string(file.lowered_status().message());
  }
  return dumped;
}

absl::StatusOr<Dumped> DumpMetadata(const PlanFile& file, const DumpOptions&) {
  const plan::PlanT& plan = file.plan();
  Dumped dumped;
  ordered_json& json = dumped.json;
  json["producer"] = plan.producer;
  json["op_table"] = Hex(plan.op_table_hash);
  json["op_table_of_this_build"] = Hex(OpTableHash());
  json["model"] = ModelJson(*plan.model);
  for (const auto& entry : plan.files) {
    json["files"].push_back(
        {{"path", entry->path}, {"bytes", entry->bytes}, {"fingerprint", Hex(entry->fingerprint)}});
  }
  if (plan.tokenizer != nullptr) {
    json["tokenizer"] = {{"model", TokenizerModelText(plan.tokenizer->model)},
                         {"tokens", plan.tokenizer->token_ends.size()},
                         {"merges", plan.tokenizer->merges.size() / 3},
                         {"added_tokens", plan.tokenizer->added_tokens.size()}};
  }
  if (plan.generation != nullptr) {
    const plan::GenerationT& generation = *plan.generation;
    json["generation"] = {{"bos_id", generation.bos_id},
                          {"eos_ids", generation.eos_ids},
                          {"pad_id", generation.pad_id},
                          {"do_sample", generation.do_sample},
                          {"temperature", generation.temperature},
                          {"top_k", generation.top_k},
                          {"top_p", generation.top_p},
                          {"min_p", generation.min_p},
                          {"repetition_penalty", generation.repetition_penalty},
                          {"no_repeat_ngram", generation.no_repeat_ngram},
                          {"max_length", generation.max_length},
                          {"max_new_tokens", generation.max_new_tokens},
                          {"min_length", generation.min_length},
                          {"min_new_tokens", generation.min_new_tokens},
                          {"decoder_start_id", generation.decoder_start_id},
                          {"forced_bos_id", generation.forced_bos_id},
                          {"forced_eos_id", generation.forced_eos_id},
                          {"num_beams", generation.num_beams},
                          {"length_penalty", generation.length_penalty},
                          {"early_stopping", generation.early_stopping},
                          {"stop_strings", generation.stop_strings},
                          {"suppress_tokens", generation.suppress_tokens},
                          {"begin_suppress_tokens", generation.begin_suppress_tokens},
                          {"chat_template", generation.chat_template}};
  }
  const auto config = ordered_json::parse(plan.model->config, nullptr, false);
  json["config"] = config.is_discarded() ? ordered_json(plan.model->config) : config;

  // The JSON's own nesting is what is readable: one line for each leaf, by its path.
  std::string path;
  const auto flat = json.flatten();
  for (const auto& [key, value] : flat.items()) {
    path = key.substr(1);
    for (char& c : path) c = c == '/' ? '.' : c;
    absl::StrAppend(&dumped.text, path, " = ",
                    value.dump(-1, ' ', false, ordered_json::error_handler_t::replace), "\n");
  }
  return dumped;
}

absl::StatusOr<Dumped> DumpWeights(const PlanFile& file, const DumpOptions& options) {
  const plan::PlanT& plan = file.plan();
  Dumped dumped;
  Table tensors({"tensor", "type", "bytes", "offset", "file"});
  for (const auto& tensor : plan.tensors) {
    tensors.AddRow({tensor->name, ShapeText(tensor->dtype, tensor->extents),
                    static_cast<int64_t>(tensor->bytes), static_cast<int64_t>(tensor->offset),
                    plan.files[tensor->file]->path});
  }
  dumped.text = tensors.Text();
  dumped.json["tensors"] = tensors.Json();
  if (!file.lowered_status().ok()) return dumped;
  QUIRE_ASSIGN_OR_RETURN(const plan::TargetT* target, TargetToDump(file, options));
  Table slots({"weight", "type", "layout", "parts"});
  for (const auto& slot : target->weights) {
    const auto part_text = [&](std::string* out, const std::unique_ptr<plan::WeightPartT>& part) {
      const plan::TensorT& tensor = *plan.tensors[part->tensor];
      absl::StrAppend(out, tensor.name, part->transposed ? "^T" : "");
      const int64_t all = tensor.extents.empty() ? 1 : tensor.extents[part->transposed ? 1 : 0];
      if (part->row_begin != 0 || part->row_end != all) {
        absl::StrAppend(out, "[", part->row_begin, ":", part->row_end, "]");
      }
    };
    slots.AddRow({slot->name, ShapeText(slot->dtype, slot->extents),
                  absl::StrCat(slot->layout, slot->packed ? ", packed" : ""),
                  absl::StrJoin(slot->parts, " ++ ", part_text)});
  }
  absl::StrAppend(&dumped.text, "\n", slots.Text());
  dumped.json["weights"] = slots.Json();
  return dumped;
}

absl::StatusOr<Dumped> DumpMemory(const PlanFile& file, const DumpOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(const plan::TargetT* target, TargetToDump(file, options));
  Dumped dumped;
  const int64_t kv_bytes = KvBytesPerToken(*target);
  const auto weight_bytes = static_cast<int64_t>(TensorBytes(file.plan()));
  absl::StrAppend(&dumped.text, "weights  ", weight_bytes, " bytes\n", "KV       ", kv_bytes,
                  " bytes a token, pages of ", target->page_tokens, " tokens\n");
  const int64_t cross_bytes = KvBytesPerToken(*target, plan::KvCache::Cross);
  if (cross_bytes > 0) {
    absl::StrAppend(&dumped.text, "cross KV ", cross_bytes,
                    " bytes an encoder token, shared by all with the same encoder input\n");
  }
  dumped.json = {{"weight_bytes", weight_bytes},
                 {"kv_bytes_per_token", kv_bytes},
                 {"page_tokens", target->page_tokens}};
  if (cross_bytes > 0) dumped.json["cross_kv_bytes_per_token"] = cross_bytes;
  Table layers({"cache", "layer", "heads", "k", "v", "dtype", "window"});
  for (const auto& layer : target->kv_layers) {
    layers.AddRow({CacheName(layer->cache), int64_t{layer->layer}, int64_t{layer->heads},
                   int64_t{layer->k_dim}, int64_t{layer->v_dim}, layer->dtype, layer->window});
  }
  dumped.json["kv_layers"] = layers.Json();
  for (const auto& program : target->programs) {
    ordered_json buffers = ordered_json::array();
    Table table({"buffer", "type", "offset", "bytes"});
    for (const auto& buffer : program->buffers) {
      const std::string type =
          absl::StrCat(buffer->dtype, "[", absl::StrJoin(buffer->extents, ","), "]");
      table.AddRow({buffer->name, type, LinearText(*buffer->offset), LinearText(*buffer->bytes)});
      buffers.push_back({{"name", buffer->name},
                         {"type", type},
                         {"offset", LinearJson(*buffer->offset)},
                         {"bytes", LinearJson(*buffer->bytes)}});
    }
    absl::StrAppend(&dumped.text, "@", program->name, "    arena of ", LinearText(*program->arena),
                    " bytes for T rows, R of them with logits: ",
                    BytesText(static_cast<double>(Evaluate(*program->arena, 1, 1))),
                    " for one row, ",
                    BytesText(static_cast<double>(Evaluate(*program->arena, 512, 1))),
                    " for a prompt of 512\n\n", table.Text());
    dumped.json["programs"].push_back({{"name", program->name},
                                       {"arena", LinearJson(*program->arena)},
                                       {"buffers", std::move(buffers)}});
  }
  absl::StrAppend(&dumped.text, "\n", layers.Text());
  return dumped;
}

}  // namespace quire
