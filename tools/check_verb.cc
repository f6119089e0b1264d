// quire check: can this plan be loaded here; if not, why, and what to do.
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "codegen/spec.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "runtime/device.h"
#include "runtime/weights.h"
#include "tools/check_cuda.h"
#include "tools/check_weights.h"
#include "tools/checklist.h"
#include "tools/cli.h"
#include "tools/kernel_text.h"
#include "tools/pack_weights.h"
#include "tools/session.h"
#include "tools/summary.h"

namespace quire {
namespace {

struct Options {
  SessionOptions session;
  bool quiet = false, contents = false;
};

double WeightBytes(const plan::PlanT& plan) {
  double bytes = 0;
  for (const auto& tensor : plan.tensors) bytes += static_cast<double>(tensor->bytes);
  return bytes;
}

absl::Status FitsInMemory(const plan::PlanT& plan, std::string* text) {
  const double bytes = WeightBytes(plan);
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  *text = absl::StrCat("weights ", BytesText(bytes), ", memory ", BytesText(memory));
  if (bytes < memory) return absl::OkStatus();
  return WithLine(absl::ResourceExhaustedError(absl::StrCat("the weights do not fit: ", *text)),
                  "fix", "a machine with more memory, or a more quantised model");
}

// Where each kernel would come from, nothing being compiled.
void CheckCpuKernels(const plan::TargetT& target, const OpenOptions& options, Checklist* list) {
  std::vector<std::string> lines;
  std::string first_missing;
  size_t missing = 0;
  for (size_t i = 0; i < target.kernels.size(); ++i) {
    const std::string& spec = target.kernels[i]->spec;
    const absl::StatusOr<bool> found = IsInKernelCache(spec, options.kernel_cache_dir);
    if (!found.ok()) {
      list->Ask("kernels", WithPrefix(found.status(), absl::StrCat("kernel ", i)), "");
      return;
    }
    const std::string kernel = absl::StrCat("kernel ", i, ", ", SpecTitle(spec));
    lines.push_back(absl::StrCat(*found ? "in the cache: " : "to compile: ", kernel));
    if (!*found && missing++ == 0) first_missing = kernel;
  }
  const std::string counts =
      absl::StrCat(lines.size() - missing, " in the cache, ", missing, " to compile");
  const bool may_compile = missing == 0 || !options.never_compile;
  list->Ask("kernels",
            may_compile ? absl::OkStatus()
                        : WithLine(absl::FailedPreconditionError(absl::StrCat(
                                       "cpu: --jit=never, and ", counts, ": ", first_missing)),
                                   "fix", "--jit=auto; later loads find them in the cache"),
            counts);
  for (const std::string& line : lines) list->Note("", line);
}

void CheckWeights(const PlanFile& file, const plan::TargetT* target, const Options& options,
                  Checklist* list) {
  const plan::PlanT& plan = file.plan();
  const SessionOptions& session = options.session;
  const bool is_packed = target != nullptr && IsPacked(*target);
  const TensorFiles files(plan, FolderOf(session.plan), session.model.weights_dir);
  absl::Status opened = is_packed ? absl::OkStatus() : files.Open();
  if (!opened.ok()) opened = ExplainRefusal(plan, files, opened);
  list->Ask("weights", opened,
            is_packed ? "in the plan"
                      : absl::StrCat(plan.files.size(),
                                     " files of the sizes, beginnings and ends as compiled"));
  std::string memory;
  const absl::Status fits = FitsInMemory(plan, &memory);
  list->Ask("memory", fits, memory);
  if (!options.contents) return;
  list->Ask("packed", file.VerifySections(), "checksums of what is in the plan");
  if (is_packed || !opened.ok()) return;
  list->Ask("numbers", CheckFinite(plan, files),
            absl::StrCat("no NaN and no infinity in ", plan.tensors.size(), " tensors of files"));
}

absl::Status Check(const Options& options) {
  const SessionOptions& session = options.session;
  Checklist list(options.quiet);
  QUIRE_RETURN_IF_ERROR(CheckIsNoModel(session.plan));
  absl::StatusOr<PlanFile> file = OpenPlan(session.plan);
  if (!list.Ask("plan", file.status(), file.ok() ? file->plan().producer : "")) {
    return list.first_no();
  }
  const plan::PlanT& plan = file->plan();
  const std::string name = ChooseDevice(session.model.device, plan);
  absl::StatusOr<const plan::TargetT*> target = file->Target(name);
  list.Ask("target", target.status(), name);
  if (name == "cuda") CheckCuda(*file, target.ok() ? *target : nullptr, session, &list);
  DeviceOptions device_options;
  device_options.threads = session.model.threads;
  absl::StatusOr<std::unique_ptr<Device>> device = CreateDevice(name, device_options);
  list.Ask("device", device.status(), device.ok() ? (*device)->Description() : "");
  if (name == "cpu" && target.ok() && device.ok()) {
    CheckCpuKernels(**target, session.model, &list);
  }
  CheckWeights(*file, target.ok() ? *target : nullptr, options, &list);
  QUIRE_RETURN_IF_ERROR(list.first_no());
  // What is left can only be seen by doing it.
  const absl::StatusOr<Session> loaded = OpenSession(session);
  list.Ask("load", loaded.status(),
           loaded.ok() ? absl::StrCat(static_cast<int64_t>(loaded->load_ms), " ms") : "");
  return list.first_no();
}

}  // namespace

VerbMain AddCheckVerb(CLI::App* app) {
  auto options = std::make_shared<Options>();
  AddSessionOptions(app, &options->session);
  app->add_flag(
      "--contents", options->contents,
      "read all weights: checksums of packed ones, and no NaN or infinity in those of files");
  app->add_flag("-q,--quiet", options->quiet, "print nothing on stdout: the exit code says it");
  return [options] {
    const std::string wrong = WrongSessionUsage(options->session);
    if (!wrong.empty()) return FailUsage(absl::StrCat("quire check: ", wrong));
    const absl::Status status = Check(*options);
    return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
  };
}

}  // namespace quire
