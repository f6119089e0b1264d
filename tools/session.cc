#include "tools/session.h"

#include <chrono>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "ir/file.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "runtime/device.h"
#include "runtime/weights.h"
#include "tools/check_weights.h"
#include "tools/cli.h"

namespace quire {

void AddSessionOptions(CLI::App* app, SessionOptions* options) {
  app->add_option("plan", options->plan, "the .qplan")->required()->check(WrongName);
  app->add_option("--device", options->model.device,
                  "cpu, cuda, or auto: the GPU where there is one and the plan is for it")
      ->check(OneOf({"auto", "cpu", "cuda"}));
  app->add_option("--threads", options->model.threads,
                  "default: the cores that this process may use")
      ->check(CLI::Range(1, 1024));
  app->add_option_function<std::string>(
         "--jit",
         [options](const std::string& text) { options->model.never_compile = text == "never"; },
         "auto, or never: a kernel that neither plan nor cache has is an error")
      ->check(OneOf({"auto", "never"}));
  app->add_flag("--eager", options->model.eager,
                "cuda: launch kernels one by one, never as a graph; for debugging");
  app->add_flag("--portable", options->model.portable,
                "cuda: the kernels of devices before sm_90; for debugging");
  app->add_option(
         "--weights-dir", options->model.weights_dir,
         "where the weight files are now, if they are not packed (default: where the plan says)")
      ->check(WrongName);
}

namespace {

// The flag that was given and that only a GPU heeds; "" if none was.
absl::string_view CudaFlag(const SessionOptions& options) {
  return options.model.eager ? "--eager" : options.model.portable ? "--portable" : "";
}

}  // namespace

std::string WrongSessionUsage(const SessionOptions& options) {
  const absl::string_view flag = CudaFlag(options);
  if (options.model.device != "cpu" || flag.empty()) return "";
  return absl::StrCat(flag, " has no effect\n  allowed: with --device=cuda or auto");
}

absl::Status CheckIsNoModel(const std::string& plan_path) {
  if (KindOfPath(plan_path) != PathKind::kDirectory && !absl::EndsWith(plan_path, ".gguf") &&
      !absl::EndsWith(plan_path, ".qir")) {
    return absl::OkStatus();
  }
  return WithLine(absl::InvalidArgumentError(absl::StrCat(plan_path, ": is not a plan")), "fix",
                  absl::StrCat("quire compile ", plan_path, " -o x.qplan makes one of a model"));
}

namespace {

// A UsageError for a flag of GPUs where the CPU is what runs the plan.
absl::Status CheckCudaFlag(const SessionOptions& options) {
  const absl::string_view flag = CudaFlag(options);
  if (flag.empty()) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const PlanFile file, OpenPlan(options.plan));
  if (ChooseDevice(options.model.device, file.plan()) != "cpu") return absl::OkStatus();
  return WithLine(UsageError(absl::StrCat(flag, " has no effect on the CPU, which runs this")),
                  "allowed", "with --device=cuda");
}

// Says it of tensors if it is about weight files.
absl::Status Explain(const SessionOptions& options, const absl::Status& refused) {
  const absl::StatusOr<PlanFile> file = OpenPlan(options.plan);
  if (!file.ok()) return refused;
  const TensorFiles files(file->plan(), FolderOf(options.plan), options.model.weights_dir);
  if (files.Open() != refused) return refused;
  return ExplainRefusal(file->plan(), files, refused);
}

}  // namespace

absl::Status Session::ErrorOf(const TokenEvent& event) const {
  return absl::Status(event.error_code, absl::StrReplaceAll(event.error, {{"PLAN", plan}}));
}

absl::StatusOr<Session> OpenSession(const SessionOptions& options) {
  QUIRE_RETURN_IF_ERROR(CheckIsNoModel(options.plan));
  QUIRE_RETURN_IF_ERROR(CheckCudaFlag(options));
  const auto begin = std::chrono::steady_clock::now();
  Session session;
  auto opened = Model::Open(options.plan, options.model);
  if (!opened.ok()) return Explain(options, opened.status());
  session.model = *std::move(opened);
  session.target = &session.model->target();
  session.plan = options.plan;
  session.load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return session;
}

}  // namespace quire
