/* The C ABI used from C99: c_api_test STORY_PLAN DATES_PLAN. Ends with a status that is not zero on the first
 * expectation that does not hold. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/quire.h"

#define EXPECT(condition)                                                                     \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: expected %s; last error: %s\n", __FILE__, __LINE__, #condition, \
              quire_last_error());                                                            \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

static quire_event NextEvent(quire_engine* engine) {
  quire_event event;
  event.struct_bytes = sizeof(event);
  EXPECT(quire_engine_next(engine, &event) == QUIRE_OK);
  return event;
}

/* Runs the engine until idle; appends the text of sample 0 of `request` to `text`. */
static int32_t RunToText(quire_engine* engine, uint64_t request, char* text, size_t capacity) {
  int32_t finish = QUIRE_FINISH_NONE;
  text[0] = 0;
  for (;;) {
    const quire_event event = NextEvent(engine);
    if (event.request == 0) return finish;
    if (event.request != request || event.sample != 0) continue;
    EXPECT(strlen(event.text) == event.text_bytes);
    EXPECT(strlen(text) + event.text_bytes < capacity);
    strcat(text, event.text);
    finish = event.finish;
  }
}

static void TestErrors(void) {
  quire_model* model = NULL;
  EXPECT(quire_model_open("/no/such/plan", NULL, &model) == QUIRE_INVALID_ARGUMENT);
  EXPECT(strstr(quire_last_error(), "/no/such/plan") != NULL);
  EXPECT(quire_model_open(NULL, NULL, &model) == QUIRE_INVALID_ARGUMENT);
  EXPECT(quire_model_open("x", NULL, NULL) == QUIRE_INVALID_ARGUMENT);
  quire_model_options options;
  memset(&options, 0, sizeof(options));
  EXPECT(quire_model_open("x", &options, &model) == QUIRE_INVALID_ARGUMENT);
  EXPECT(strstr(quire_last_error(), "struct_bytes") != NULL);
  EXPECT(model == NULL);
  EXPECT(quire_engine_next(NULL, NULL) == QUIRE_INVALID_ARGUMENT);
  quire_model_close(NULL);
  quire_engine_destroy(NULL);
}

static void TestTokenizer(const quire_model* model) {
  const char* text = "Once upon a time";
  int32_t ids[64];
  size_t count = 0, again = 0;
  EXPECT(quire_model_encode(model, text, strlen(text), 0, NULL, 0, &count) == QUIRE_OK);
  EXPECT(count > 0 && count < 64);
  EXPECT(quire_model_encode(model, text, strlen(text), 0, ids, 64, &again) == QUIRE_OK);
  EXPECT(again == count);
  char decoded[64];
  size_t bytes = 0;
  EXPECT(quire_model_decode(model, ids, count, 1, decoded, sizeof(decoded), &bytes) == QUIRE_OK);
  EXPECT(bytes == strlen(text) && memcmp(decoded, text, bytes) == 0);
}

static void TestEngine(const quire_model* model) {
  quire_engine_options options;
  quire_engine_options_init(&options);
  options.max_sequences = 4;
  quire_engine* engine = NULL;
  EXPECT(quire_engine_create(model, &options, &engine) == QUIRE_OK);
  EXPECT(NextEvent(engine).request == 0);

  quire_request request;
  quire_request_init(NULL, &request);
  request.text = "Once upon a time";
  request.text_bytes = strlen(request.text);
  request.max_tokens = 24;
  request.samples = 5;
  EXPECT(quire_engine_submit(engine, &request, NULL) == QUIRE_INVALID_ARGUMENT);
  EXPECT(strstr(quire_last_error(), "samples=5") != NULL);
  request.samples = 1;
  uint64_t id = 0;
  EXPECT(quire_engine_submit(engine, &request, &id) == QUIRE_OK);
  char whole[4096], cut[4096];
  EXPECT(RunToText(engine, id, whole, sizeof(whole)) != QUIRE_FINISH_NONE);
  EXPECT(strlen(whole) > 8);
  printf("%s%s\n", request.text, whole);

  /* The same text again, up to a stop string from its middle. */
  char stop[4] = {0};
  memcpy(stop, whole + 5, 3);
  const char* stops[1];
  stops[0] = stop;
  request.stop = stops;
  request.stop_count = 1;
  EXPECT(quire_engine_submit(engine, &request, &id) == QUIRE_OK);
  EXPECT(RunToText(engine, id, cut, sizeof(cut)) == QUIRE_FINISH_STOP_STRING);
  EXPECT(strlen(cut) == (size_t)(strstr(whole, stop) - whole));
  EXPECT(strncmp(whole, cut, strlen(cut)) == 0);

  /* A structure of an earlier version, that ends before `seed`. */
  request.stop_count = 0;
  request.struct_bytes = offsetof(quire_request, seed);
  request.top_logprobs = 9999;
  EXPECT(quire_engine_submit(engine, &request, &id) == QUIRE_OK);
  EXPECT(quire_engine_cancel(engine, id) == QUIRE_OK);
  const quire_event cancelled = NextEvent(engine);
  EXPECT(cancelled.request == id && cancelled.id == -1);
  EXPECT(cancelled.finish == QUIRE_FINISH_CANCELLED);
  EXPECT(quire_engine_cancel(engine, id) == QUIRE_INVALID_ARGUMENT);

  request.struct_bytes = sizeof(request);
  request.top_logprobs = 3;
  request.max_tokens = 1;
  EXPECT(quire_engine_submit(engine, &request, &id) == QUIRE_OK);
  const quire_event event = NextEvent(engine);
  EXPECT(event.request == id && event.top_count == 3);
  EXPECT(event.top[0].id == event.id && event.top[0].logprob == event.logprob);
  EXPECT(event.top[0].logprob >= event.top[1].logprob);
  EXPECT(event.finish == QUIRE_FINISH_LENGTH);
  quire_engine_destroy(engine);
}

/* An encoder-decoder: sources, and beams with their scores. */
static void TestEncoder(const char* plan) {
  quire_model* model = NULL;
  EXPECT(quire_model_open(plan, NULL, &model) == QUIRE_OK);
  quire_model_info info;
  info.struct_bytes = sizeof(info);
  EXPECT(quire_model_get_info(model, &info) == QUIRE_OK);
  EXPECT(info.has_encoder == 1 && info.max_source == 128);
  quire_engine_options options;
  quire_engine_options_init(&options);
  options.encoder_pages = 2;
  quire_engine* engine = NULL;
  EXPECT(quire_engine_create(model, &options, &engine) == QUIRE_OK);

  quire_request request;
  quire_request_init(model, &request);
  EXPECT(request.beams == 1 && request.forced_bos >= 0);
  EXPECT(request.max_tokens == 0 && request.max_length == 16);
  EXPECT(quire_engine_submit(engine, &request, NULL) == QUIRE_INVALID_ARGUMENT);
  EXPECT(strstr(quire_last_error(), "source") != NULL);
  request.source = "3/3/84";
  request.source_bytes = strlen(request.source);
  uint64_t id = 0;
  char text[256];
  EXPECT(quire_engine_submit(engine, &request, &id) == QUIRE_OK);
  RunToText(engine, id, text, sizeof(text));
  EXPECT(strcmp(text, "1984-03-03") == 0);

  /* The same as ids; each beam ends with its score, the best first. */
  int32_t ids[64];
  size_t count = 0;
  EXPECT(quire_model_encode(model, request.source, request.source_bytes, 1, ids, 64, &count) ==
         QUIRE_OK);
  request.source = NULL;
  request.source_bytes = 0;
  request.source_ids = ids;
  request.source_id_count = count;
  request.beams = 4;
  request.samples = 2;
  request.length_penalty = 0.5f;
  request.beam_stop = QUIRE_BEAM_STOP_NEVER;
  EXPECT(quire_engine_submit(engine, &request, &id) == QUIRE_OK);
  float scores[2] = {0, 0};
  size_t ended = 0;
  for (;;) {
    const quire_event event = NextEvent(engine);
    if (event.request == 0) break;
    EXPECT(event.request == id && event.sample >= 0 && event.sample < 2);
    if (event.finish == QUIRE_FINISH_NONE) continue;
    scores[event.sample] = event.score;
    ++ended;
  }
  EXPECT(ended == 2 && scores[0] >= scores[1] && scores[1] < 0);
  request.beam_stop = 7;
  EXPECT(quire_engine_submit(engine, &request, &id) == QUIRE_INVALID_ARGUMENT);
  quire_engine_destroy(engine);

  /* More than the encoder's pages hold. */
  options.encoder_pages = 1;
  EXPECT(quire_engine_create(model, &options, &engine) == QUIRE_OK);
  int32_t many[100];
  for (size_t i = 0; i < 100; ++i) many[i] = ids[0];
  quire_request_init(model, &request);
  request.source_ids = many;
  request.source_id_count = 100;
  EXPECT(quire_engine_submit(engine, &request, &id) == QUIRE_RESOURCE_EXHAUSTED);
  quire_request_init(model, &request);
  EXPECT(request.begin_suppressed_count == 0 && request.logit_bias_count == 0);
  request.source = "3/3/84";
  request.source_bytes = strlen(request.source);
  const int32_t no_token = -5;
  request.begin_suppressed = &no_token;
  request.begin_suppressed_count = 1;
  EXPECT(quire_engine_submit(engine, &request, &id) == QUIRE_INVALID_ARGUMENT);
  EXPECT(strstr(quire_last_error(), "begin_suppressed=-5") != NULL);
  quire_engine_destroy(engine);
  quire_model_close(model);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  EXPECT(quire_abi_version() == QUIRE_ABI_VERSION);
  EXPECT(strcmp(quire_last_error(), "") == 0);
  TestErrors();
  quire_model_options options;
  quire_model_options_init(&options);
  options.verify = 1;
  quire_model* model = NULL;
  EXPECT(quire_model_open(argv[1], &options, &model) == QUIRE_OK);
  quire_model_info info;
  info.struct_bytes = sizeof(info);
  EXPECT(quire_model_get_info(model, &info) == QUIRE_OK);
  EXPECT(strcmp(info.architecture, "llama") == 0 && info.vocabulary > 0 && info.has_tokenizer);
  TestTokenizer(model);
  TestEngine(model);
  quire_model_close(model);
  TestEncoder(argv[2]);
  return 0;
}
