// Continues a text with a plan: generate_cc PLAN PROMPT
#include <cstdio>
#include <string>

#include "runtime/model.h"

namespace {

absl::Status Generate(const char* plan, const char* prompt) {
  const auto model = quire::Model::Open(plan);
  if (!model.ok()) return model.status();
  const auto engine = (*model)->CreateEngine();
  if (!engine.ok()) return engine.status();
  quire::Request request;
  request.text = prompt;
  request.max_tokens = 32;
  request.sampling = (*model)->info().sampling;
  const auto id = (*engine)->Submit(std::move(request));
  if (!id.ok()) return id.status();
  return (*engine)->Run([](const quire::TokenEvent& event) {
    std::fwrite(event.text.data(), 1, event.text.size(), stdout);
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = Generate(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
