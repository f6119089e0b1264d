#include "codegen/cuda/greatest.h"

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr int kThreads = 1024;
constexpr int kGreatestBytes = 12;

class CudaGreatest : public CudaKernel {
 public:
  explicit CudaGreatest(int64_t columns) {
    CudaEntry entry;
    entry.entry = "greatest";
    entry.block_threads = kThreads;
    entry.shared_bytes = kThreads / 32 * kGreatestBytes;
    entry.source =
        absl::StrCat("// greatest columns=", columns, "\n",        //
                     "#include \"prelude.cuh\"\n",                 //
                     "constexpr int kColumns = ", columns, ";\n",  //
                     "#include \"greatest.cuh\"\n",                //
                     "using Body = GreatestOfRows<", kThreads, ">;\n",
                     "static_assert(Body::kSharedBytes == ", entry.shared_bytes, ");\n",
                     "extern \"C\" __global__ void __launch_bounds__(", kThreads, ", 1)\n",
                     "greatest(const float* logits, Greatest* out) { Body::Run(logits, out); }\n");
    entries_.push_back(std::move(entry));
  }

  CudaLaunches Launches(int64_t rows) const override {
    CudaLaunch launch;
    launch.grid = static_cast<int>(rows);
    for (const int64_t operand : {0, 1}) {
      launch.arguments.push_back({CudaArgument::Kind::kOperand, operand});
    }
    return {{std::move(launch)}, 0};
  }
};

}  // namespace

std::unique_ptr<CudaKernel> MakeCudaGreatest(int64_t columns) {
  return std::make_unique<CudaGreatest>(columns);
}

}  // namespace quire
