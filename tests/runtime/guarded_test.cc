// Where memory runs out, the library's interface says so and throws nothing.
#include "ir/guarded.h"

#include <sys/resource.h>

#include <cstdlib>
#include <new>
#include <system_error>

#include "absl/base/config.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine.h"
#include "tests/runtime/engine_rig.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

TEST(GuardedTest, WhatIsThrownBecomesAStatus) {
  const absl::Status memory = Guarded([]() -> absl::Status { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(memory.message()), HasSubstr("the memory is used up\n  fix: "));
  const absl::StatusOr<int> threads = Guarded([]() -> absl::StatusOr<int> {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_EQ(threads.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*Guarded([]() -> absl::StatusOr<int> { return 7; }), 7);
  EXPECT_EQ(Guarded([] { return absl::DataLossError("x"); }), absl::DataLossError("x"));
}

#if !defined(ABSL_HAVE_ADDRESS_SANITIZER)
// In a process of its own, with half a GiB of address space.
[[noreturn]] void SubmitWithoutMemory() {
  testing::EngineRig rig;
  const rlimit limit = {512u << 20, 512u << 20};
  setrlimit(RLIMIT_AS, &limit);
  EngineModel model;
  model.program = &rig.program;
  model.vocabulary = testing::kRigVocabulary;
  model.page_tokens = 4;
  EngineOptions options;
  options.cache_pages = 1 << 30;
  const absl::Status created = Engine::Create(model, options).status();
  Request request;
  request.ids = {1};
  request.max_tokens = 2;
  // The engine that there is goes on.
  const bool goes_on = rig.engine->Submit(request).ok() && !rig.Run().empty();
  std::_Exit(created.code() == absl::StatusCode::kResourceExhausted && goes_on ? 0 : 1);
}

TEST(GuardedTest, AnEngineThatDoesNotFitIsRefused) {
  EXPECT_EXIT(SubmitWithoutMemory(), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace quire
