/* Quire's runtime library for C: open a plan, submit prompts, take tokens.
 *
 *   quire_model* model;
 *   quire_engine* engine;
 *   if (quire_model_open("story.qplan", NULL, &model) != QUIRE_OK) puts(quire_last_error());
 *   quire_engine_create(model, NULL, &engine);
 *   quire_request request;
 *   quire_request_init(model, &request);
 *   request.text = "Once upon a time";
 *   request.text_bytes = strlen(request.text);
 *   quire_engine_submit(engine, &request, NULL);
 *   quire_event event;
 *   event.struct_bytes = sizeof(event);
 *   while (quire_engine_next(engine, &event) == QUIRE_OK && event.request != 0)
 *     fwrite(event.text, 1, event.text_bytes, stdout);
 *
 * Every function that can fail returns a quire_status; quire_last_error() has the message of the
 * last failure on this thread. Nothing throws, and nothing ends the process. Structures begin with
 * their own size, filled in by an ..._init function or by the caller: fields that a later version
 * appends are not read from a structure that does not have them. Handles are freed in the reverse
 * order of their creation; a null handle is ignored. One thread at a time uses a model and its
 * engines. Strings are UTF-8 and, where no length stands beside them, end with a zero byte.
 */
#ifndef QUIRE_RUNTIME_QUIRE_H_
#define QUIRE_RUNTIME_QUIRE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names of a C interface. NOLINTBEGIN(readability-identifier-naming) */

/* Grows when functions or fields are added; nothing is ever taken away or reordered. */
#define QUIRE_ABI_VERSION 6
uint32_t quire_abi_version(void);

typedef int32_t quire_status;
enum {
  QUIRE_OK = 0,
  QUIRE_INVALID_ARGUMENT = 3,    /* the call, the request or a file named in it is wrong */
  QUIRE_RESOURCE_EXHAUSTED = 8,  /* memory does not suffice */
  QUIRE_FAILED_PRECONDITION = 9, /* a plan of another build, or weights of another model */
  QUIRE_UNIMPLEMENTED = 12,
  QUIRE_INTERNAL = 13,
  QUIRE_UNAVAILABLE = 14, /* no such device here */
  QUIRE_DATA_LOSS = 15    /* plan or weights are truncated or corrupt */
};

/* "" when nothing has failed on this thread. Valid until its next failure. */
const char* quire_last_error(void);

/* Models. */

typedef struct quire_model quire_model;

typedef struct quire_model_options {
  size_t struct_bytes;
  const char* device;           /* "auto", "cpu" or "cuda" */
  int32_t threads;              /* 0: the number of cores this process may use */
  const char* kernel_cache_dir; /* NULL: the default place; "none": no cache */
  const char* weights_dir;      /* NULL: where the plan says */
  int32_t verify;               /* 1: read the packed weights and compare their checksums */
} quire_model_options;

typedef struct quire_model_info {
  size_t struct_bytes;
  const char* name; /* these strings live as long as the model */
  const char* architecture;
  const char* device;
  const char* chat_template; /* "" when there is none */
  int32_t vocabulary;
  int64_t max_positions; /* 0: any */
  int32_t bos_id;        /* -1: none */
  int32_t has_tokenizer;
  int32_t has_encoder; /* requests have a source; since version 2, as what follows */
  int64_t max_source;  /* 0: any */
  /* Where the encoder reads states: how many numbers a row has; else 0. Since version 3. */
  int64_t states_width;
} quire_model_info;

void quire_model_options_init(quire_model_options* options);
/* `options` may be NULL. */
quire_status quire_model_open(const char* plan_path, const quire_model_options* options,
                              quire_model** model);
void quire_model_close(quire_model* model);
/* REQUIRES: info->struct_bytes is set. */
quire_status quire_model_get_info(const quire_model* model, quire_model_info* info);

/* Writes up to `capacity` ids, and to `count` how many there are; call with capacity 0 to ask. */
quire_status quire_model_encode(const quire_model* model, const char* text, size_t text_bytes,
                                int32_t add_special, int32_t* ids, size_t capacity, size_t* count);
/* Likewise in bytes, without a zero byte at the end. */
quire_status quire_model_decode(const quire_model* model, const int32_t* ids, size_t count,
                                int32_t skip_special, char* text, size_t capacity,
                                size_t* text_bytes);

/* Engines. */

typedef struct quire_engine quire_engine;

typedef struct quire_engine_options {
  size_t struct_bytes;
  int32_t max_sequences; /* that run at the same time */
  int32_t step_tokens;   /* computed in one step, over all sequences */
  int32_t chunk_tokens;  /* of one prompt in one step; 0: no limit of its own */
  int64_t cache_bytes;   /* memory for keys and values; 0: what the device has */
  int32_t cache_pages;   /* when not 0, instead of cache_bytes */
  int32_t reuse_prefixes;
  int32_t encoder_pages; /* when not 0, of what an encoder leaves; since version 2 */
} quire_engine_options;

typedef struct quire_logit_bias {
  int32_t id;
  float bias; /* -INFINITY bans the token */
} quire_logit_bias;

/* Where an image stands in the prompt, and how many rows of states are its own. */
typedef struct quire_source_image {
  int32_t position;
  int32_t rows;
} quire_source_image;

/* A prompt, as ids or as text, and how to continue it. runtime/sampling.h defines the choice. */
typedef struct quire_request {
  size_t struct_bytes;
  const int32_t* ids; /* NULL: tokenise `text` */
  size_t id_count;
  const char* text;
  size_t text_bytes;
  int32_t add_special;
  int32_t max_tokens; /* 0: as many as positions, memory, default_tokens and max_length allow */
  int32_t samples;
  const char* const* stop; /* strings that end with a zero byte */
  size_t stop_count;
  const int32_t* stop_ids;
  size_t stop_id_count;
  int32_t ignore_eos;
  double timeout_s;
  float temperature; /* 0: greedy */
  int32_t top_k;
  float top_p;
  float min_p;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  const quire_logit_bias* logit_bias;
  size_t logit_bias_count;
  uint64_t seed;
  int32_t logprobs;
  int32_t top_logprobs;
  /* Since version 2. Of a model with an encoder: what it reads. */
  const int32_t* source_ids; /* NULL: tokenise `source` */
  size_t source_id_count;
  const char* source;
  size_t source_bytes;
  int32_t no_repeat_ngram;
  int32_t min_length;
  int32_t forced_bos; /* -1: none */
  int32_t forced_eos; /* -1: none */
  int32_t beams;      /* 1: no beam search */
  float length_penalty;
  int32_t beam_stop; /* QUIRE_BEAM_... */
  /* Since version 3. Of a model whose encoder reads states: rows of states_width numbers, or
   * NULL. */
  const float* source_states;
  size_t source_state_count; /* numbers, of all rows */
  /* Since version 4. With max_tokens 0 it generates no more than this; 0: any. */
  int32_t default_tokens;
  int32_t max_length; /* of prompt and output */
  /* Since version 5. The images that source_states are of, in order: a row sees those at or before
   * it, of the last that follow each other directly. NULL: every row sees all states. */
  const quire_source_image* source_images;
  size_t source_image_count;
  /* Of the output, before which no end is chosen. */
  int32_t min_new_tokens;
  /* Since version 6. Not chosen as the first of the output. */
  const int32_t* begin_suppressed;
  size_t begin_suppressed_count;
} quire_request;

enum { QUIRE_BEAM_STOP_EARLY = 0, QUIRE_BEAM_STOP_UNLIKELY = 1, QUIRE_BEAM_STOP_NEVER = 2 };

enum {
  QUIRE_FINISH_NONE = 0,
  QUIRE_FINISH_STOP_TOKEN = 1,
  QUIRE_FINISH_STOP_STRING = 2,
  QUIRE_FINISH_LENGTH = 3,
  QUIRE_FINISH_CANCELLED = 4,
  QUIRE_FINISH_TIMEOUT = 5,
  QUIRE_FINISH_FAILED = 6
};

typedef struct quire_token_logprob {
  int32_t id;
  float logprob;
} quire_token_logprob;

/* One token of one continuation, or its end. Pointers are valid until the engine's next call. */
typedef struct quire_event {
  size_t struct_bytes;
  uint64_t request; /* 0: no event, the engine has nothing left to do */
  int32_t sample;
  int32_t id; /* -1: no token, only an end */
  float logprob;
  const quire_token_logprob* top;
  size_t top_count;
  const char* text; /* certain by now: whole characters; ends with a zero byte too */
  size_t text_bytes;
  int32_t finish;    /* QUIRE_FINISH_... */
  const char* error; /* of QUIRE_FINISH_FAILED; else "" */
  float score;       /* of a beam's last event; since version 2 */
} quire_event;

void quire_engine_options_init(quire_engine_options* options);
/* `options` may be NULL. */
quire_status quire_engine_create(const quire_model* model, const quire_engine_options* options,
                                 quire_engine** engine);
void quire_engine_destroy(quire_engine* engine);

/* Everything off or greedy, or as the model's author recommends when `model` is not NULL; then
 * logit_bias and begin_suppressed point to what the model has. */
void quire_request_init(const quire_model* model, quire_request* request);
/* `id` may be NULL. Copies what the request points to. */
quire_status quire_engine_submit(quire_engine* engine, const quire_request* request, uint64_t* id);
quire_status quire_engine_cancel(quire_engine* engine, uint64_t id);
/* The next event, computing steps until there is one. REQUIRES: event->struct_bytes is set. */
quire_status quire_engine_next(quire_engine* engine, quire_event* event);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* QUIRE_RUNTIME_QUIRE_H_ */
