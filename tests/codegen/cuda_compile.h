// What tests of several kinds of CUDA kernels ask of NVRTC.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_COMPILE_H_
#define QUIRE_TESTS_CODEGEN_CUDA_COMPILE_H_

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/source.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire::testing {

// A kernel counts on shared memory that its launch rule gives: with a byte less in its text it does
// not compile.
inline void ExpectSharedBytesAreChecked(std::string source) {
  const absl::StatusOr<const Nvrtc*> nvrtc = Nvrtc::Get();
  if (absl::IsUnavailable(nvrtc.status())) GTEST_SKIP() << nvrtc.status();
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  const std::string name = "kSharedBytes = ";
  size_t begin = source.find(name);
  ASSERT_NE(begin, std::string::npos);
  begin += name.size();
  const size_t digits = source.find(';', begin) - begin;
  int64_t bytes = 0;
  ASSERT_TRUE(absl::SimpleAtoi(source.substr(begin, digits), &bytes)) << source.substr(begin, 20);
  source.replace(begin, digits, absl::StrCat(bytes - 1));
  const absl::StatusOr<CudaBinary> binary =
      (*nvrtc)->Compile("short.cu", source, "sm_90a", CudaKernelHeaders());
  ASSERT_FALSE(binary.ok());
  EXPECT_THAT(std::string(binary.status().message()), ::testing::HasSubstr("launch rule's bytes"));
}

}  // namespace quire::testing

#endif  // QUIRE_TESTS_CODEGEN_CUDA_COMPILE_H_
