// A plan opened on a device as the flags say: what run, bench and verify work with.
#ifndef QUIRE_TOOLS_SESSION_H_
#define QUIRE_TOOLS_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/plan_generated.h"
#include "runtime/model.h"
#include "runtime/request.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quire {

struct SessionOptions {
  std::string plan;
  OpenOptions model;
};

// The flags of these options, the same for every verb.
void AddSessionOptions(CLI::App* app, SessionOptions* options);

// What is wrong with these flags beside each other; "" if nothing.
std::string WrongSessionUsage(const SessionOptions& options);

struct Session {
  std::unique_ptr<Model> model;
  const plan::TargetT* target = nullptr;
  std::string plan;  // as the user named it
  double load_ms = 0;

  int32_t vocabulary() const { return model->info().vocabulary; }
  // What a request failed with, which names the plan, as the engine cannot.
  absl::Status ErrorOf(const TokenEvent& event) const;
};

// INVALID_ARGUMENT for a path that is a model's, with the command that makes a plan of it.
absl::Status CheckIsNoModel(const std::string& plan_path);

// Errors: those of CheckIsNoModel and Model::Open; before anything is loaded a UsageError for a
// flag of GPUs where the CPU is what runs the plan.
absl::StatusOr<Session> OpenSession(const SessionOptions& options);

}  // namespace quire

#endif  // QUIRE_TOOLS_SESSION_H_
