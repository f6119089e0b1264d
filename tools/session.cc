#include "tools/session.h"

#include <chrono>
#include <utility>

#include "ir/status.h"

namespace quire {

void AddSessionOptions(CLI::App* app, SessionOptions* options) {
  app->add_option("plan", options->plan, "the .qplan")->required();
  app->add_option("--device", options->model.device, "where to run")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app->add_option("--threads", options->model.threads,
                  "default: the cores that this process may use")
      ->check(CLI::Range(1, 1024));
  app->add_option_function<std::string>(
         "--jit",
         [options](const std::string& text) { options->model.never_compile = text == "never"; },
         "auto, or never: a kernel that neither plan nor cache has is an error")
      ->check(CLI::IsMember({"auto", "never"}));
  app->add_option("--weights-dir", options->model.weights_dir,
                  "where the weight files are now (default: where the plan says)");
}

absl::StatusOr<Session> OpenSession(const SessionOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  Session session;
  QUIRE_ASSIGN_OR_RETURN(session.model, Model::Open(options.plan, options.model));
  for (const auto& target : session.model->plan().targets) {
    if (target->name == options.model.device) session.target = target.get();
  }
  session.load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return session;
}

}  // namespace quire
