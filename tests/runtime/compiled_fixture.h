// Parity fixtures as plans: compiled once for each test that asks, opened as a Model.
#ifndef QUIRE_TESTS_RUNTIME_COMPILED_FIXTURE_H_
#define QUIRE_TESTS_RUNTIME_COMPILED_FIXTURE_H_

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/plan_io.h"
#include "runtime/model.h"
#include "tests/models/checkpoint_files.h"
#include "tests/parity/fixture.h"
#include "tools/assemble_plan.h"

namespace quire::testing {

class CompiledFixture {
 public:
  // `path`: a model directory or a .gguf. `passes`: "a,b"; empty: all.
  explicit CompiledFixture(const std::string& path, int page_tokens = 16,
                           absl::string_view passes = "")
      : model_path_(path) {
    AssembleOptions options;
    options.model = path;
    options.plan_path = plan_path();
    options.targets.resize(1);
    options.targets[0].page_tokens = page_tokens;
    options.targets[0].kv_dtype = DType::kF32;
    if (!passes.empty()) options.passes = *ParsePassList(passes);
    auto assembled = AssemblePlan(options);
    EXPECT_TRUE(assembled.ok()) << assembled.status();
    if (!assembled.ok()) return;
    const absl::Status written = WritePlan(*assembled->plan, plan_path());
    EXPECT_TRUE(written.ok()) << written;
  }

  const std::string& model_path() const { return model_path_; }
  std::string plan_path() const { return folder_.File("model.qplan"); }

  absl::StatusOr<std::unique_ptr<Model>> Open(int threads) const {
    // One cache for the process: the kernels of a model are built once.
    static const TempDir* const cache = new TempDir;
    OpenOptions options;
    options.threads = threads;
    options.kernel_cache_dir = cache->path();
    return Model::Open(plan_path(), options);
  }

 private:
  TempDir folder_;
  std::string model_path_;
};

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RUNTIME_COMPILED_FIXTURE_H_
