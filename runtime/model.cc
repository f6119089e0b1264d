#include "runtime/model.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/plan_check.h"
#include "ir/guarded.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "runtime/device.h"
#include "runtime/sampler.h"
#include "runtime/tokenizer/tokenizer.h"
#include "runtime/tokenizer/unicode.h"
#include "runtime/weights.h"

namespace quire {
namespace {

constexpr absl::string_view kProgram = "step", kEncoder = "encode";

// What the plan recommends, as far as it makes sense: a model's author may have written anything.
SamplingParams RecommendedSampling(const plan::GenerationT& generation, int32_t vocabulary) {
  SamplingParams sampling;
  sampling.repetition_penalty = generation.repetition_penalty;
  if (generation.do_sample) {
    sampling.temperature = generation.temperature;
    sampling.top_k = generation.top_k;
    sampling.top_p = generation.top_p;
    sampling.min_p = generation.min_p;
  }
  sampling.no_repeat_ngram = generation.no_repeat_ngram;
  sampling.min_length = generation.min_length;
  sampling.min_new_tokens = generation.min_new_tokens;
  sampling.forced_bos = generation.forced_bos_id;
  sampling.forced_eos = generation.forced_eos_id;
  for (const int32_t id : generation.suppress_tokens) {
    sampling.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
  }
  sampling.begin_suppressed = generation.begin_suppress_tokens;
  return CheckSampling(sampling, vocabulary).ok() ? sampling : SamplingParams();
}

BeamParams RecommendedBeams(const plan::GenerationT& generation) {
  BeamParams beam;
  beam.beams = std::max(1, generation.num_beams);
  beam.length_penalty = generation.length_penalty;
  if (generation.early_stopping == "true") beam.stop = BeamParams::Stop::kEarly;
  if (generation.early_stopping == "never") beam.stop = BeamParams::Stop::kNever;
  return beam;
}

// Those that a text can hold.
std::vector<std::string> StopStrings(const plan::GenerationT& generation) {
  std::vector<std::string> stop;
  for (const std::string& text : generation.stop_strings) {
    if (!text.empty() && tokenizer::ValidUtf8Prefix(text) == text.size()) stop.push_back(text);
  }
  return stop;
}

// nullptr when there is none.
const plan::ProgramT* FindProgram(const plan::TargetT& target, absl::string_view name) {
  for (const auto& program : target.programs) {
    if (absl::string_view(program->name) == name) return program.get();
  }
  return nullptr;
}

ModelInfo InfoOf(const plan::PlanT& plan, const Tokenizer* tokenizer) {
  ModelInfo info;
  info.name = plan.model->name;
  info.architecture = plan.model->architecture;
  info.parameters = plan.model->parameters;
  info.vocabulary = plan.model->vocabulary;
  info.max_positions = plan.model->max_positions;
  info.max_source = plan.model->max_source;
  if (plan.generation != nullptr) {
    info.bos_id = plan.generation->bos_id;
    info.eos_ids = plan.generation->eos_ids;
    if (tokenizer != nullptr) info.stop = StopStrings(*plan.generation);
    info.chat_template = plan.generation->chat_template;
    info.sampling = RecommendedSampling(*plan.generation, info.vocabulary);
    info.beam = RecommendedBeams(*plan.generation);
    info.decoder_start_id = plan.generation->decoder_start_id;
    // A number of new tokens goes before one of all.
    info.default_tokens = std::max(0, plan.generation->max_new_tokens);
    if (info.default_tokens == 0) info.max_length = std::max(0, plan.generation->max_length);
  }
  if (tokenizer != nullptr) {
    info.has_tokenizer = true;
    if (info.bos_id < 0) info.bos_id = tokenizer->bos_id();
    if (info.eos_ids.empty() && tokenizer->eos_id() >= 0) info.eos_ids = {tokenizer->eos_id()};
    if (info.chat_template.empty()) {
      info.chat_template = std::string(tokenizer->chat_template());
    }
  }
  return info;
}

absl::Status NoTokenizer() {
  return absl::InvalidArgumentError("the plan has no tokenizer\n  fix: work with token ids");
}

}  // namespace

struct Model::Impl {
  static absl::StatusOr<std::unique_ptr<Model>> Open(absl::string_view plan_path,
                                                     const OpenOptions& options);

  std::shared_ptr<const PlanFile> file;
  ModelInfo info;
  const plan::TargetT* target = nullptr;
  std::optional<Tokenizer> tokenizer;
  // A program must not outlive its device: destroyed in this order, from the end.
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program, encoder;
};

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

absl::StatusOr<std::unique_ptr<Model>> Model::Open(absl::string_view plan_path,
                                                   const OpenOptions& options) {
  return Guarded([&] { return Impl::Open(plan_path, options); });
}

absl::StatusOr<std::unique_ptr<Model>> Model::Impl::Open(absl::string_view plan_path,
                                                         const OpenOptions& options) {
  auto impl = std::make_unique<Impl>();
  QUIRE_ASSIGN_OR_RETURN(PlanFile file, OpenPlan(plan_path));
  impl->file = std::make_shared<const PlanFile>(std::move(file));
  const plan::PlanT& plan = impl->file->plan();
  const std::string device = ChooseDevice(options.device, plan);
  const absl::StatusOr<const plan::TargetT*> found = impl->file->Target(device);
  if (!found.ok()) return ExplainChoice(options.device, device, found.status());
  const plan::TargetT* target = *found;
  QUIRE_RETURN_IF_ERROR(WithPrefix(CheckKernels(*target, *plan.model), plan_path));
  if (options.verify) QUIRE_RETURN_IF_ERROR(impl->file->VerifySections());
  impl->target = target;
  if (plan.tokenizer != nullptr) {
    auto tokenizer = Tokenizer::Create(*plan.tokenizer);
    if (!tokenizer.ok()) {
      return WithPrefix(tokenizer.status(), absl::StrCat(plan_path, ": tokenizer"));
    }
    impl->tokenizer.emplace(std::move(tokenizer).value());
  }
  DeviceOptions device_options;
  device_options.threads = options.threads;
  device_options.kernel_cache_dir = options.kernel_cache_dir;
  device_options.eager = options.eager;
  device_options.portable = options.portable;
  if (options.never_compile) device_options.jit = JitPolicy::kNever;
  QUIRE_ASSIGN_OR_RETURN(impl->device, CreateDevice(device, device_options));
  const std::unique_ptr<WeightSource> weights =
      OpenWeights(impl->file, {.weights_dir = options.weights_dir});
  QUIRE_ASSIGN_OR_RETURN(impl->program, impl->device->Load(*target, kProgram, *weights));
  if (FindProgram(*target, kEncoder) != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(impl->encoder, impl->device->Load(*target, kEncoder, *weights));
  }
  impl->info = InfoOf(plan, impl->tokenizer.has_value() ? &*impl->tokenizer : nullptr);
  impl->info.device = impl->device->Description();
  impl->info.has_encoder = impl->encoder != nullptr;
  if (impl->encoder != nullptr) impl->info.states_width = impl->encoder->states_width();
  if (impl->info.has_encoder && impl->info.states_width == 0 && impl->info.decoder_start_id < 0) {
    impl->info.decoder_start_id = impl->info.bos_id;
  }
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

const ModelInfo& Model::info() const { return impl_->info; }
const plan::PlanT& Model::plan() const { return impl_->file->plan(); }
Program& Model::program() const { return *impl_->program; }
Program* Model::encoder() const { return impl_->encoder.get(); }
const plan::TargetT& Model::target() const { return *impl_->target; }
const Tokenizer* Model::tokenizer() const {
  return impl_->tokenizer.has_value() ? &*impl_->tokenizer : nullptr;
}

absl::StatusOr<std::vector<int32_t>> Model::Encode(absl::string_view text, bool add_special) const {
  if (!impl_->tokenizer.has_value()) return NoTokenizer();
  return Guarded([&] { return impl_->tokenizer->Encode(text, {.add_special = add_special}); });
}

absl::StatusOr<std::string> Model::Decode(absl::Span<const int32_t> ids, bool skip_special) const {
  if (!impl_->tokenizer.has_value()) return NoTokenizer();
  return Guarded(
      [&]() -> absl::StatusOr<std::string> { return impl_->tokenizer->Decode(ids, skip_special); });
}

absl::StatusOr<std::unique_ptr<Engine>> Model::CreateEngine(const EngineOptions& options) const {
  EngineModel model;
  model.program = impl_->program.get();
  if (const plan::ProgramT* encoder = FindProgram(*impl_->target, kEncoder)) {
    model.encoder = impl_->encoder.get();
    model.encodes_every_step = encoder->every_step;
  }
  model.tokenizer = tokenizer();
  model.vocabulary = impl_->info.vocabulary;
  model.max_positions = impl_->info.max_positions;
  model.max_source = impl_->info.max_source;
  model.decoder_start_id = impl_->info.decoder_start_id;
  model.page_tokens = impl_->target->page_tokens;
  model.eos_ids = impl_->info.eos_ids;
  model.stop = impl_->info.stop;
  return Engine::Create(model, options);
}

}  // namespace quire
