// A plan opened on a device: what a program that links the runtime starts from.
//
//   auto model = quire::Model::Open("story.qplan");
//   auto engine = (*model)->CreateEngine();
//   (*engine)->Submit({.text = "Once upon a time"});
//   (*engine)->Run([](const quire::TokenEvent& event) { std::cout << event.text; });
//
// Errors:  Open: those of ir/plan_io.h and runtime/weights.h; UNAVAILABLE when the device is not
// here. Threads: a Model is immutable. Its engines share one program: one of them steps at a time.
// Owner:   a model must outlive its engines.
#ifndef QUIRE_RUNTIME_MODEL_H_
#define QUIRE_RUNTIME_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/engine.h"
#include "runtime/sampling.h"

namespace quire {

namespace plan {
struct PlanT;
struct TargetT;
}  // namespace plan

struct OpenOptions {
  std::string device = "auto";   // or "cpu", "cuda": runtime/device.h
  int threads = 0;               // 0: the number of cores this process may use
  std::string kernel_cache_dir;  // "": $QUIRE_CACHE, else $XDG_CACHE_HOME/quire, else
                                 // ~/.cache/quire; "none": no cache
  std::string weights_dir;       // "": where the plan says
  bool never_compile = false;    // a kernel that neither plan nor cache has is an error
  bool eager = false;            // cuda: launch kernels one by one, never as a graph
  bool portable = false;         // cuda: kernels of devices before sm_90
  bool verify = false;           // read the packed weights and compare their checksums
};

struct ModelInfo {
  std::string name;
  std::string architecture;
  uint64_t parameters = 0;
  int32_t vocabulary = 0;
  int64_t max_positions = 0;  // 0: any
  bool has_encoder = false;   // requests have a source
  int64_t max_source = 0;     // 0: any
  int64_t states_width = 0;   // where the encoder reads states: of a row; else 0
  int32_t decoder_start_id = -1;
  int32_t bos_id = -1;
  std::vector<int32_t> eos_ids;
  std::vector<std::string> stop;  // likewise texts, of outputs that are no beams
  std::string chat_template;
  std::string device;  // "cpu: AMD EPYC, avx512-vnni, 2 threads"
  bool has_tokenizer = false;
  // What the model's author recommends; greedy when nothing is.
  SamplingParams sampling;
  BeamParams beam;
  int32_t default_tokens = 0, max_length = 0;  // as in Request; 0: not stated
};

class Model {
 public:
  static absl::StatusOr<std::unique_ptr<Model>> Open(absl::string_view plan_path,
                                                     const OpenOptions& options = {});
  ~Model();

  const ModelInfo& info() const;

  // FAILED_PRECONDITION when the plan has no tokenizer.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              bool add_special = true) const;
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids, bool skip_special = true) const;

  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options = {}) const;

  // For tools of this build: ir/plan_generated.h has the type, tokenizer() is null without one.
  const plan::PlanT& plan() const;
  const plan::TargetT& target() const;  // what the device runs
  const Tokenizer* tokenizer() const;
  Program& program() const;
  Program* encoder() const;  // null without one

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_MODEL_H_
