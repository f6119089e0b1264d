// A fixture as a user runs it: compiled to a plan file, opened, loaded on the CPU.
#ifndef QUIRE_TESTS_PARITY_CPU_RIG_H_
#define QUIRE_TESTS_PARITY_CPU_RIG_H_

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "ir/plan_io.h"
#include "ir/status.h"
#include "runtime/device.h"
#include "runtime/weights.h"
#include "tests/parity/fixture.h"
#include "tools/assemble_plan.h"

namespace quire::testing {

class PlanPath {
 public:
  PlanPath() {
    char name[] = "/tmp/quire_parity_XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~PlanPath() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/model.qplan"; }

 private:
  std::string folder_;
};

// A program that was loaded from a plan file, with what must outlive it.
struct Loaded {
  std::shared_ptr<const PlanPath> path;
  std::shared_ptr<const PlanFile> plan;
  const plan::TargetT* target = nullptr;
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program;
  std::unique_ptr<Program> encoder;  // of an encoder-decoder
};

struct LoadOptions {
  int page_tokens = 16;
  int threads = 1;
  DType kv_dtype = DType::kF32;
  // Changes the plan before it is written.
  std::function<void(plan::PlanT& plan)> change = nullptr;
};

inline absl::StatusOr<Loaded> Load(const std::string& fixture, const LoadOptions& how) {
  Loaded loaded;
  loaded.path = std::make_shared<const PlanPath>();
  const std::string path = loaded.path->path();
  AssembleOptions options;
  options.model = FixturePath(fixture);
  options.plan_path = path;
  options.targets.resize(1);
  options.targets[0].page_tokens = how.page_tokens;
  options.targets[0].kv_dtype = how.kv_dtype;
  QUIRE_ASSIGN_OR_RETURN(AssembledPlan assembled, AssemblePlan(options));
  if (how.change != nullptr) how.change(*assembled.plan);
  QUIRE_RETURN_IF_ERROR(WritePlan(*assembled.plan, path));
  QUIRE_ASSIGN_OR_RETURN(PlanFile opened, OpenPlan(path));
  loaded.plan = std::make_shared<const PlanFile>(std::move(opened));
  DeviceOptions device;
  device.threads = how.threads;
  device.kernel_cache_dir = "none";
  QUIRE_ASSIGN_OR_RETURN(loaded.device, CreateDevice("cpu", device));
  QUIRE_ASSIGN_OR_RETURN(loaded.target, loaded.plan->Target("cpu"));
  QUIRE_ASSIGN_OR_RETURN(loaded.program,
                         loaded.device->Load(*loaded.target, "step", *OpenWeights(loaded.plan)));
  if (loaded.target->programs.size() > 1) {
    QUIRE_ASSIGN_OR_RETURN(
        loaded.encoder, loaded.device->Load(*loaded.target, "encode", *OpenWeights(loaded.plan)));
  }
  return loaded;
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_PARITY_CPU_RIG_H_
