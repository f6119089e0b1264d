// quire check: can this plan be loaded here; if not, why, and what to do.
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "runtime/device.h"
#include "runtime/weights.h"
#include "tools/check_cuda.h"
#include "tools/checklist.h"
#include "tools/cli.h"
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
  const TensorFiles files(plan, FolderOf(session.plan), session.model.weights_dir);
  list.Ask("weights", files.Open(), absl::StrCat(plan.files.size(), " files as compiled"));
  std::string memory;
  const absl::Status fits = FitsInMemory(plan, &memory);
  list.Ask("memory", fits, memory);
  if (options.contents) list.Ask("contents", file->VerifySections(), "checksums of packed weights");
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
  app->add_flag("--contents", options->contents, "read packed weights and compare their checksums");
  app->add_flag("-q,--quiet", options->quiet, "print nothing on stdout: the exit code says it");
  return [options] {
    const absl::Status status = Check(*options);
    return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
  };
}

}  // namespace quire
