// The C ABI of runtime/quire.h over runtime/model.h.
#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/status.h"
#include "runtime/model.h"
#include "runtime/quire.h"

struct quire_model {
  std::unique_ptr<quire::Model> model;
  std::vector<quire_logit_bias> logit_bias;  // of the sampling that the model's author recommends
};

struct quire_engine {
  std::unique_ptr<quire::Engine> engine;
  std::deque<quire::TokenEvent> events;
  quire::TokenEvent current;  // what the last event's pointers show
  std::vector<quire_token_logprob> top;
};

namespace {

thread_local std::string last_error;

quire_status Keep(const absl::Status& status) {
  if (!status.ok()) last_error = std::string(status.message());
  return static_cast<quire_status>(status.code());
}

// Runs `body`, a function that returns absl::Status, and lets no exception out.
template <typename Body>
quire_status Guard(const Body& body) noexcept {
  try {
    return Keep(body());
  } catch (const std::bad_alloc&) {
    last_error.assign("out of memory");  // fits into the string itself
    return QUIRE_RESOURCE_EXHAUSTED;
  } catch (...) {
    last_error.assign("internal error");
    return QUIRE_INTERNAL;
  }
}

absl::Status CheckPointer(const void* pointer, absl::string_view name) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is NULL"));
}

template <typename Struct>
absl::Status CheckStruct(const Struct* given, absl::string_view name) {
  QUIRE_RETURN_IF_ERROR(CheckPointer(given, name));
  if (given->struct_bytes >= sizeof(size_t)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": struct_bytes is not set"));
}

// `fields` with what the caller's structure has of them.
template <typename Struct>
absl::Status Read(const Struct* given, absl::string_view name, Struct* fields) {
  QUIRE_RETURN_IF_ERROR(CheckStruct(given, name));
  std::memcpy(static_cast<void*>(fields), given, std::min(given->struct_bytes, sizeof(Struct)));
  return absl::OkStatus();
}

// The reverse: fills what the caller's structure has, and leaves its size.
template <typename Struct>
void Fill(Struct fields, Struct* taken) {
  fields.struct_bytes = taken->struct_bytes;
  std::memcpy(static_cast<void*>(taken), &fields, std::min(taken->struct_bytes, sizeof(Struct)));
}

absl::string_view TextOrEmpty(const char* text) { return text == nullptr ? "" : text; }

template <typename Element>
absl::StatusOr<absl::Span<const Element>> Array(const Element* elements, size_t count,
                                                absl::string_view name) {
  if (count > 0) QUIRE_RETURN_IF_ERROR(CheckPointer(elements, name));
  return absl::MakeConstSpan(elements, count);
}

absl::StatusOr<quire::Request> RequestOf(const quire_request& given) {
  quire::Request request;
  if (given.ids != nullptr) {
    request.ids.assign(given.ids, given.ids + given.id_count);
  } else {
    QUIRE_ASSIGN_OR_RETURN(auto text, Array(given.text, given.text_bytes, "request: text"));
    request.text.assign(text.begin(), text.end());
  }
  request.add_special = given.add_special != 0;
  request.max_tokens = given.max_tokens;
  request.default_tokens = given.default_tokens;
  request.max_length = given.max_length;
  request.samples = given.samples;
  QUIRE_ASSIGN_OR_RETURN(auto stop, Array(given.stop, given.stop_count, "request: stop"));
  for (const char* text : stop) request.stop.push_back(std::string(TextOrEmpty(text)));
  QUIRE_ASSIGN_OR_RETURN(auto stop_ids,
                         Array(given.stop_ids, given.stop_id_count, "request: stop_ids"));
  request.stop_ids.assign(stop_ids.begin(), stop_ids.end());
  request.ignore_eos = given.ignore_eos != 0;
  request.timeout_s = given.timeout_s;
  quire::SamplingParams& sampling = request.sampling;
  sampling.temperature = given.temperature;
  sampling.top_k = given.top_k;
  sampling.top_p = given.top_p;
  sampling.min_p = given.min_p;
  sampling.repetition_penalty = given.repetition_penalty;
  sampling.presence_penalty = given.presence_penalty;
  sampling.frequency_penalty = given.frequency_penalty;
  QUIRE_ASSIGN_OR_RETURN(auto biases,
                         Array(given.logit_bias, given.logit_bias_count, "request: logit_bias"));
  for (const quire_logit_bias& bias : biases) sampling.logit_bias.emplace_back(bias.id, bias.bias);
  sampling.seed = given.seed;
  sampling.logprobs = given.logprobs != 0;
  sampling.top_logprobs = given.top_logprobs;
  if (given.source_ids != nullptr) {
    request.source_ids.assign(given.source_ids, given.source_ids + given.source_id_count);
  } else {
    QUIRE_ASSIGN_OR_RETURN(auto source, Array(given.source, given.source_bytes, "request: source"));
    request.source.assign(source.begin(), source.end());
  }
  sampling.no_repeat_ngram = given.no_repeat_ngram;
  sampling.min_length = given.min_length;
  sampling.min_new_tokens = given.min_new_tokens;
  QUIRE_ASSIGN_OR_RETURN(auto begin, Array(given.begin_suppressed, given.begin_suppressed_count,
                                           "request: begin_suppressed"));
  sampling.begin_suppressed.assign(begin.begin(), begin.end());
  sampling.forced_bos = given.forced_bos;
  sampling.forced_eos = given.forced_eos;
  request.beam.beams = given.beams;
  request.beam.length_penalty = given.length_penalty;
  if (given.beam_stop < QUIRE_BEAM_STOP_EARLY || given.beam_stop > QUIRE_BEAM_STOP_NEVER) {
    return absl::InvalidArgumentError(
        absl::StrCat("request: beam_stop=", given.beam_stop, "\n  allowed: 0 .. 2"));
  }
  request.beam.stop = static_cast<quire::BeamParams::Stop>(given.beam_stop);
  if (given.source_states != nullptr) {
    request.source_states = std::make_shared<const std::vector<float>>(
        given.source_states, given.source_states + given.source_state_count);
  }
  if (given.source_images != nullptr) {
    for (size_t i = 0; i < given.source_image_count; ++i) {
      request.source_images.push_back(
          {given.source_images[i].position, given.source_images[i].rows});
    }
  }
  return request;
}

// Copies as many elements as fit, and says how many there are.
template <typename Container, typename Element>
absl::Status CopyOut(const Container& from, Element* to, size_t capacity, size_t* count) {
  QUIRE_RETURN_IF_ERROR(CheckPointer(count, "count"));
  *count = from.size();
  if (capacity == 0) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(CheckPointer(to, "buffer"));
  std::copy_n(from.begin(), std::min(capacity, from.size()), to);
  return absl::OkStatus();
}

}  // namespace

uint32_t quire_abi_version(void) { return QUIRE_ABI_VERSION; }

const char* quire_last_error(void) { return last_error.c_str(); }

void quire_model_options_init(quire_model_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_bytes = sizeof(*options);
  options->device = "auto";
}

quire_status quire_model_open(const char* plan_path, const quire_model_options* options,
                              quire_model** model) {
  return Guard([&]() -> absl::Status {
    QUIRE_RETURN_IF_ERROR(CheckPointer(plan_path, "plan_path"));
    QUIRE_RETURN_IF_ERROR(CheckPointer(model, "model"));
    quire_model_options given;
    quire_model_options_init(&given);
    if (options != nullptr) QUIRE_RETURN_IF_ERROR(Read(options, "options", &given));
    quire::OpenOptions model_options;
    model_options.device = std::string(TextOrEmpty(given.device));
    model_options.threads = given.threads;
    model_options.kernel_cache_dir = std::string(TextOrEmpty(given.kernel_cache_dir));
    model_options.weights_dir = std::string(TextOrEmpty(given.weights_dir));
    model_options.verify = given.verify != 0;
    QUIRE_ASSIGN_OR_RETURN(auto opened, quire::Model::Open(plan_path, model_options));
    auto handle = std::make_unique<quire_model>();
    for (const auto& [id, bias] : opened->info().sampling.logit_bias) {
      handle->logit_bias.push_back({id, bias});
    }
    handle->model = std::move(opened);
    *model = handle.release();
    return absl::OkStatus();
  });
}

void quire_model_close(quire_model* model) { delete model; }

quire_status quire_model_get_info(const quire_model* model, quire_model_info* info) {
  return Guard([&]() -> absl::Status {
    QUIRE_RETURN_IF_ERROR(CheckPointer(model, "model"));
    QUIRE_RETURN_IF_ERROR(CheckStruct(info, "info"));
    const quire::ModelInfo& from = model->model->info();
    quire_model_info fields = {};
    fields.name = from.name.c_str();
    fields.architecture = from.architecture.c_str();
    fields.device = from.device.c_str();
    fields.chat_template = from.chat_template.c_str();
    fields.vocabulary = from.vocabulary;
    fields.max_positions = from.max_positions;
    fields.bos_id = from.bos_id;
    fields.has_tokenizer = from.has_tokenizer ? 1 : 0;
    fields.has_encoder = from.has_encoder ? 1 : 0;
    fields.max_source = from.max_source;
    fields.states_width = from.states_width;
    Fill(fields, info);
    return absl::OkStatus();
  });
}

quire_status quire_model_encode(const quire_model* model, const char* text, size_t text_bytes,
                                int32_t add_special, int32_t* ids, size_t capacity, size_t* count) {
  return Guard([&]() -> absl::Status {
    QUIRE_RETURN_IF_ERROR(CheckPointer(model, "model"));
    QUIRE_ASSIGN_OR_RETURN(auto given, Array(text, text_bytes, "text"));
    QUIRE_ASSIGN_OR_RETURN(auto encoded,
                           model->model->Encode({given.data(), given.size()}, add_special != 0));
    return CopyOut(encoded, ids, capacity, count);
  });
}

quire_status quire_model_decode(const quire_model* model, const int32_t* ids, size_t count,
                                int32_t skip_special, char* text, size_t capacity,
                                size_t* text_bytes) {
  return Guard([&]() -> absl::Status {
    QUIRE_RETURN_IF_ERROR(CheckPointer(model, "model"));
    QUIRE_ASSIGN_OR_RETURN(auto given, Array(ids, count, "ids"));
    QUIRE_ASSIGN_OR_RETURN(auto decoded, model->model->Decode(given, skip_special != 0));
    return CopyOut(decoded, text, capacity, text_bytes);
  });
}

void quire_engine_options_init(quire_engine_options* options) {
  if (options == nullptr) return;
  const quire::EngineOptions defaults;
  *options = {};
  options->struct_bytes = sizeof(*options);
  options->max_sequences = defaults.max_sequences;
  options->step_tokens = defaults.step_tokens;
  options->chunk_tokens = defaults.chunk_tokens;
  options->cache_bytes = defaults.cache_bytes;
  options->cache_pages = defaults.cache_pages;
  options->encoder_pages = defaults.encoder_pages;
  options->reuse_prefixes = defaults.reuse_prefixes ? 1 : 0;
}

quire_status quire_engine_create(const quire_model* model, const quire_engine_options* options,
                                 quire_engine** engine) {
  return Guard([&]() -> absl::Status {
    QUIRE_RETURN_IF_ERROR(CheckPointer(model, "model"));
    QUIRE_RETURN_IF_ERROR(CheckPointer(engine, "engine"));
    quire_engine_options given;
    quire_engine_options_init(&given);
    if (options != nullptr) QUIRE_RETURN_IF_ERROR(Read(options, "options", &given));
    quire::EngineOptions engine_options;
    engine_options.max_sequences = given.max_sequences;
    engine_options.step_tokens = given.step_tokens;
    engine_options.chunk_tokens = given.chunk_tokens;
    engine_options.cache_bytes = given.cache_bytes;
    engine_options.cache_pages = given.cache_pages;
    engine_options.encoder_pages = given.encoder_pages;
    engine_options.reuse_prefixes = given.reuse_prefixes != 0;
    QUIRE_ASSIGN_OR_RETURN(auto created, model->model->CreateEngine(engine_options));
    auto handle = std::make_unique<quire_engine>();
    handle->engine = std::move(created);
    *engine = handle.release();
    return absl::OkStatus();
  });
}

void quire_engine_destroy(quire_engine* engine) { delete engine; }

void quire_request_init(const quire_model* model, quire_request* request) {
  if (request == nullptr) return;
  const quire::Request defaults;
  const quire::SamplingParams& sampling =
      model == nullptr ? defaults.sampling : model->model->info().sampling;
  *request = {};
  request->struct_bytes = sizeof(*request);
  request->add_special = defaults.add_special ? 1 : 0;
  request->max_tokens = defaults.max_tokens;
  if (model != nullptr) {
    request->default_tokens = model->model->info().default_tokens;
    request->max_length = model->model->info().max_length;
    request->logit_bias = model->logit_bias.data();
    request->logit_bias_count = model->logit_bias.size();
    request->begin_suppressed = sampling.begin_suppressed.data();
    request->begin_suppressed_count = sampling.begin_suppressed.size();
  }
  request->samples = defaults.samples;
  request->temperature = sampling.temperature;
  request->top_k = sampling.top_k;
  request->top_p = sampling.top_p;
  request->min_p = sampling.min_p;
  request->repetition_penalty = sampling.repetition_penalty;
  request->presence_penalty = sampling.presence_penalty;
  request->frequency_penalty = sampling.frequency_penalty;
  request->no_repeat_ngram = sampling.no_repeat_ngram;
  request->min_length = sampling.min_length;
  request->min_new_tokens = sampling.min_new_tokens;
  request->forced_bos = sampling.forced_bos;
  request->forced_eos = sampling.forced_eos;
  const quire::BeamParams& beam = model == nullptr ? defaults.beam : model->model->info().beam;
  request->beams = beam.beams;
  request->length_penalty = beam.length_penalty;
  request->beam_stop = static_cast<int32_t>(beam.stop);
}

quire_status quire_engine_submit(quire_engine* engine, const quire_request* request, uint64_t* id) {
  return Guard([&]() -> absl::Status {
    QUIRE_RETURN_IF_ERROR(CheckPointer(engine, "engine"));
    quire_request given;
    quire_request_init(nullptr, &given);
    QUIRE_RETURN_IF_ERROR(Read(request, "request", &given));
    QUIRE_ASSIGN_OR_RETURN(quire::Request submitted, RequestOf(given));
    QUIRE_ASSIGN_OR_RETURN(const quire::RequestId number,
                           engine->engine->Submit(std::move(submitted)));
    if (id != nullptr) *id = number;
    return absl::OkStatus();
  });
}

quire_status quire_engine_cancel(quire_engine* engine, uint64_t id) {
  return Guard([&]() -> absl::Status {
    QUIRE_RETURN_IF_ERROR(CheckPointer(engine, "engine"));
    return engine->engine->Cancel(id);
  });
}

quire_status quire_engine_next(quire_engine* engine, quire_event* event) {
  return Guard([&]() -> absl::Status {
    QUIRE_RETURN_IF_ERROR(CheckPointer(engine, "engine"));
    QUIRE_RETURN_IF_ERROR(CheckStruct(event, "event"));
    while (engine->events.empty() && !engine->engine->idle()) {
      std::vector<quire::TokenEvent> events;
      QUIRE_RETURN_IF_ERROR(engine->engine->Step(&events));
      std::move(events.begin(), events.end(), std::back_inserter(engine->events));
    }
    engine->current = {};
    engine->top.clear();
    if (!engine->events.empty()) {
      engine->current = std::move(engine->events.front());
      engine->events.pop_front();
    }
    const quire::TokenEvent& from = engine->current;
    for (const quire::TokenLogprob& token : from.top) {
      engine->top.push_back({token.id, token.logprob});
    }
    quire_event fields = {};
    fields.request = from.request;
    fields.sample = from.sample;
    fields.id = from.token.id;
    fields.logprob = from.token.logprob;
    fields.top = engine->top.data();
    fields.top_count = engine->top.size();
    fields.text = from.text.c_str();
    fields.text_bytes = from.text.size();
    fields.finish = static_cast<int32_t>(from.finish);
    fields.error = from.error.c_str();
    fields.score = from.score;
    Fill(fields, event);
    return absl::OkStatus();
  });
}
