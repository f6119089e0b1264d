/* Continues a text with a plan: generate_c PLAN PROMPT */
#include <stdio.h>
#include <string.h>

#include "runtime/quire.h"

static quire_status Generate(const char* plan, const char* prompt, quire_model** model,
                             quire_engine** engine) {
  quire_status status = quire_model_open(plan, NULL, model);
  if (status != QUIRE_OK) return status;
  if ((status = quire_engine_create(*model, NULL, engine)) != QUIRE_OK) return status;
  quire_request request;
  quire_request_init(*model, &request);
  request.text = prompt;
  request.text_bytes = strlen(prompt);
  request.max_tokens = 32;
  if ((status = quire_engine_submit(*engine, &request, NULL)) != QUIRE_OK) return status;
  quire_event event = {.struct_bytes = sizeof(event)};
  while ((status = quire_engine_next(*engine, &event)) == QUIRE_OK && event.request != 0) {
    fwrite(event.text, 1, event.text_bytes, stdout);
  }
  return status;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  quire_model* model = NULL;
  quire_engine* engine = NULL;
  const quire_status status = Generate(argv[1], argv[2], &model, &engine);
  if (status != QUIRE_OK) fprintf(stderr, "%s\n", quire_last_error());
  quire_engine_destroy(engine);
  quire_model_close(model);
  return status == QUIRE_OK ? 0 : 1;
}
