// A linear as the CUDA device runs it: one entry a body, chosen by the number of rows; what the
// chosen one leaves to others, before it and after it. On devices without the warpgroup body, where
// a library's products have the same bits, it computes the sums of whole runs of kCudaLibraryRows
// rows.
#include <algorithm>
#include <optional>
#include <utility>

#include "codegen/cuda/linear.h"
#include "codegen/cuda/linear_e4m3.h"
#include "codegen/cuda/linear_parts.h"
#include "codegen/cuda/linear_rope.h"
#include "codegen/cuda/linear_rows.h"
#include "codegen/cuda/linear_source.h"
#include "codegen/cuda/row.h"
#include "ir/status.h"

namespace quire {
namespace {

using Kind = CudaArgument::Kind;

// Where operands of the plan's launch are (codegen/spec.h).
struct Places {
  explicit Places(const LinearSpec& spec) {
    int64_t next = 2;
    if (spec.bias) bias = next++;
    if (spec.residual) residual = next++;
    if (spec.norm.has_value() && spec.norm->weight.has_value()) norm_weight = next++;
    if (spec.norm.has_value() && spec.norm->bias.has_value()) norm_bias = next++;
    if (spec.quantize.has_value() && spec.quantize->has_scale) scale = next++;
    if (spec.rope.has_value()) positions = next++;
    if (spec.rope.has_value() && spec.rope->factors.has_value()) factors = next++;
    if (spec.append.has_value()) layers = next, next += spec.append->layers;
    if (spec.y_columns() > 0) y = next;
  }
  int64_t bias = -1, residual = -1, norm_weight = -1, norm_bias = -1, scale = -1, y = -1;
  int64_t positions = -1, factors = -1;
  int64_t layers = -1;  // the first
};

CudaArgument Beyond(CudaArgument argument, int64_t bytes) {
  argument.offset += bytes;
  return argument;
}

// The linear whose result is the sums.
LinearSpec SumsOf(const LinearSpec& spec) {
  LinearSpec sums;
  sums.n = spec.weight_rows();
  sums.k = spec.k;
  sums.layout = spec.layout;
  sums.weight = sums.x = spec.x;
  sums.y = DType::kF32;
  return sums;
}

std::vector<int64_t> PartsOf(int64_t k, int64_t grain) {
  std::vector<int64_t> parts;
  for (int64_t part = 0; part < cuda_linear::kParts; ++part) {
    parts.push_back(cuda_linear::PartBegin(k, grain, part));
  }
  parts.push_back(k);
  return parts;
}

// Whether a product of a library may stand for the body for many rows: it is one for every
// architecture, sums are not the result themselves (logits, which are of few rows), and k is cut
// as the check's weight of no blocks has it, into parts that all are something.
bool HasUseForLibrary(const LinearSpec& spec, const std::vector<CudaLinearKernel>& kernels) {
  const std::vector<int64_t> parts = PartsOf(spec.k, CudaLinearGrain(spec.weight));
  return kernels.back().config.body == CudaLinearConfig::kTile && spec.y != DType::kF32 &&
         parts == PartsOf(spec.k, CudaLinearGrain(spec.x)) && parts[1] > 0;
}

// A row kernel and where its entry is.
struct Rows {
  std::unique_ptr<CudaKernel> kernel;
  size_t entry = 0;

  // Its launch with the linear's arguments for its own operands.
  CudaLaunch Launch(int64_t rows, const std::vector<CudaArgument>& operands) const {
    CudaLaunch launch = kernel->Launches(rows).launches[0];
    launch.entry = entry;
    for (CudaArgument& argument : launch.arguments) {
      if (argument.kind == Kind::kOperand) argument = operands[static_cast<size_t>(argument.value)];
    }
    return launch;
  }
};

class CudaLinear : public CudaKernel {
 public:
  CudaLinear(const LinearSpec& spec, const CudaLimits& limits,
             std::vector<CudaLinearKernel> kernels, std::unique_ptr<CudaKernel> head,
             std::unique_ptr<CudaKernel> finish, std::unique_ptr<CudaKernel> act)
      : spec_(spec),
        product_(ProductOf(spec, limits)),
        places_(spec),
        limits_(limits),
        kernels_(std::move(kernels)) {
    for (const CudaLinearKernel& kernel : kernels_) {
      entries_.push_back({kernel.entry, kernel.source, kernel.block_threads, kernel.shared_bytes});
    }
    dequantize_ = entries_.size();
    const bool dequantizes =
        std::any_of(kernels_.begin(), kernels_.end(), [&](const CudaLinearKernel& kernel) {
          return CudaLinearReadsDequantized(product_, kernel.config.body);
        });
    if (dequantizes) {
      entries_.push_back(
          {kCudaDequantizeEntry, CudaDequantizeSource(spec_), kCudaDequantizeThreads});
    }
    const auto add = [this](std::unique_ptr<CudaKernel> kernel, Rows* rows) {
      if (kernel == nullptr) return;
      *rows = {std::move(kernel), entries_.size()};
      entries_.push_back(rows->kernel->entries()[0]);
    };
    add(std::move(head), &head_);
    add(std::move(act), &act_);
    splits_scales_ = IsE4m3Product(product_);
    rows_ = entries_.size();
    if (splits_scales_) entries_.push_back(CudaE4m3Rows(spec_));
    turns_ = entries_.size();
    if (spec_.rope.has_value()) entries_.push_back(CudaTurnsEntry(spec_));
    if (!HasUseForLibrary(spec_, kernels_)) return;
    add(std::move(finish), &finish_);
    if (spec_.rope.has_value()) {
      finish_.entry = entries_.size();
      entries_.push_back(CudaFinishEntry(spec_));
    }
    sums_kernel_ = MakeCudaLinearKernel(SumsOf(spec_), kernels_.back().config);
    // The body's own text, where that serves linears like the check's.
    sums_ = kernels_.size() - 1;
    if (sums_kernel_.source == kernels_.back().source) return;
    sums_ = entries_.size();
    entries_.push_back({sums_kernel_.entry, sums_kernel_.source, sums_kernel_.block_threads,
                        sums_kernel_.shared_bytes});
  }

  // What bodies compute: the spec's own product, or that of numbers of f8e4m3.
  static LinearSpec ProductOf(const LinearSpec& spec, const CudaLimits& limits) {
    return CudaLinearIsE4m3(spec, limits) ? CudaE4m3Product(spec) : spec;
  }

  CudaLaunches Launches(int64_t rows) const override {
    const size_t chosen = ChooseCudaLinear(product_, kernels_, rows, limits_.multiprocessors);
    const CudaLinearConfig& config = kernels_[chosen].config;
    // Of a library; the rest is the chosen body's.
    const int64_t library_rows = uses_library_ ? rows / kCudaLibraryRows * kCudaLibraryRows : 0;
    CudaLinearLaunch plan;
    if (rows > library_rows) {
      plan =
          PlanCudaLinear(product_, kernels_[chosen], rows - library_rows, limits_.multiprocessors);
    }
    CudaLaunches launches{{}, plan.workspace_bytes};
    const auto reserve = [&launches](int64_t bytes) {
      constexpr int64_t kAlignment = 256;
      const int64_t begin =
          (std::max<int64_t>(launches.workspace_bytes, kCudaZeroBytes) + kAlignment - 1) /
          kAlignment * kAlignment;
      launches.workspace_bytes = begin + bytes;
      return CudaArgument{Kind::kWorkspace, begin};
    };
    Operands operands{{Kind::kOperand, 0},
                      {Kind::kOperand, 1},
                      {Kind::kOperand, places_.residual},
                      {Kind::kOperand, places_.y}};
    const bool few = config.body == CudaLinearConfig::kFew;
    if (CudaLinearReadsDequantized(product_, config.body)) {
      operands.weight = reserve(spec_.weight_rows() * spec_.k * 2);
      CudaLaunch dequantize;
      dequantize.entry = dequantize_;
      dequantize.grid = 8 * limits_.multiprocessors;
      dequantize.arguments = {{Kind::kOperand, 1}, operands.weight};
      launches.launches.push_back(std::move(dequantize));
    }
    if (head_.kernel != nullptr && !config.norm) {
      std::vector<CudaArgument> own = {operands.x};
      for (int64_t parameter : {places_.norm_weight, places_.norm_bias, places_.scale}) {
        if (parameter >= 0) own.push_back({Kind::kOperand, parameter});
      }
      operands.x = reserve(rows * spec_.k * 2);
      own.push_back(operands.x);
      launches.launches.push_back(head_.Launch(rows, own));
    }
    if (splits_scales_) {
      CudaLaunch numbers;
      numbers.entry = rows_;
      numbers.grid = static_cast<int>(rows);
      numbers.arguments = {operands.x};
      for (int64_t parameter : {places_.norm_weight, places_.norm_bias, places_.scale}) {
        numbers.arguments.push_back({Kind::kOperand, parameter});
      }
      operands.x = reserve(CudaE4m3RowBytes(spec_, rows));
      operands.x_scales = reserve(CudaE4m3ScaleBytes(spec_, rows));
      numbers.arguments.push_back(operands.x);
      numbers.arguments.push_back(operands.x_scales);
      numbers.arguments.push_back({Kind::kInt32, (rows + 7) / 8 * 8});
      launches.launches.push_back(std::move(numbers));
    }
    const bool acts_after = act_.kernel != nullptr && !config.act;
    if (acts_after) operands.y = reserve(rows * RowBytes(spec_.y, spec_.weight_rows()));
    if (library_rows > 0) {
      const CudaArgument sums = reserve(kCudaLibraryRows * spec_.weight_rows() * 4);
      if (places_.y < 0 && !spec_.rope.has_value()) {
        operands.unused = reserve(kCudaLibraryRows * RowBytes(spec_.y, kCudaLeastReturned));
      }
      for (; operands.first < library_rows; operands.first += kCudaLibraryRows) {
        AddLibraryRows(operands, sums, &launches.launches);
      }
    }
    // A few rows at a time, where there are more.
    for (int64_t first = operands.first; first < rows;
         first += few ? kernels_[chosen].max_rows : rows) {
      launches.launches.push_back(Launch(chosen, plan.grid, operands, rows - operands.first,
                                         few ? first : plan.whole_tiles));
    }
    if (acts_after) {
      launches.launches.push_back(act_.Launch(rows, {operands.y, {Kind::kOperand, places_.y}}));
    }
    return launches;
  }

  std::optional<CudaLibraryCheck> LibraryCheck() const override {
    if (!HasUseForLibrary(spec_, kernels_)) return std::nullopt;
    const Operands operands{{Kind::kOperand, 0}, {Kind::kOperand, 1}, {}, {Kind::kOperand, 2}};
    const LinearSpec sums = SumsOf(spec_);
    const int64_t tiles = CudaLinearTiles(sums, sums_kernel_, kCudaLibraryRows);
    const CudaLinearLaunch plan =
        PlanCudaLinearTiles(sums, sums_kernel_, kCudaLibraryRows, limits_.multiprocessors, tiles);
    CudaLaunch launch;
    launch.entry = sums_;
    launch.grid = plan.grid;
    const CudaArgument none{Kind::kOperand, -1};
    launch.arguments = {operands.x, operands.weight, none, none, operands.y, none};
    const int64_t is_f32 = CudaLinearYIsF32(sums, sums_kernel_.config);
    for (const int64_t number : {kCudaLibraryRows, tiles, sums.n, sums.k, is_f32}) {
      launch.arguments.push_back({Kind::kInt32, number});
    }
    return CudaLibraryCheck{LibraryProductOf(operands, operands.y), std::move(launch)};
  }

  Preparation Prepare(int64_t max_rows, int64_t, int64_t) const override {
    if (!spec_.rope.has_value()) return {};
    CudaLaunch turns;
    turns.entry = turns_;
    // Steps have far fewer rows than the most: blocks go round.
    turns.grid = static_cast<int>(
        std::min<int64_t>(cuda_linear::DivideUp(max_rows * spec_.append->d / 2, kCudaTurnsThreads),
                          2 * limits_.multiprocessors));
    turns.arguments = {{Kind::kHeader},
                       {Kind::kOperand, places_.positions},
                       {Kind::kOperand, places_.factors},
                       {Kind::kPlan}};
    return {{std::move(turns)}, max_rows * CudaTurnBytes(spec_)};
  }

 private:
  // Where a body's are, and their first row.
  struct Operands {
    CudaArgument x, weight, residual, y;
    int64_t first = 0;
    CudaArgument x_scales = {};  // of f8e4m3
    CudaArgument unused = {};    // what a row kernel returns that only appends

    CudaArgument X(const LinearSpec& spec) const {
      return Beyond(x, first * RowBytes(spec.x, spec.k));
    }
    CudaArgument Residual(const LinearSpec& spec) const {
      return Beyond(residual, first * RowBytes(spec.y, spec.weight_rows()));
    }
    CudaArgument Y(const LinearSpec& spec) const {
      const int64_t appended = spec.append.has_value() ? spec.append->columns() : 0;
      return Beyond(y, first * RowBytes(spec.y, spec.weight_rows() - appended));
    }
    CudaArgument Slots() const {
      return Beyond({Kind::kTokenSlots}, first * int64_t{sizeof(int32_t)});
    }
    CudaArgument Turns(const LinearSpec& spec) const {
      return {Kind::kPlan, first * CudaTurnBytes(spec)};
    }
  };

  CudaProduct LibraryProductOf(const Operands& operands, const CudaArgument& sums) const {
    return {spec_.x,
            kCudaLibraryRows,
            spec_.weight_rows(),
            spec_.k,
            PartsOf(spec_.k, CudaLinearGrain(spec_.weight)),
            operands.X(spec_),
            operands.weight,
            sums};
  }

  // A product, and what makes y of its sums.
  void AddLibraryRows(const Operands& operands, const CudaArgument& sums,
                      std::vector<CudaLaunch>* launches) const {
    launches->emplace_back().product = LibraryProductOf(operands, sums);
    if (spec_.rope.has_value()) {
      launches->push_back(FinishTurned(operands, sums));
      return;
    }
    std::vector<CudaArgument> own = {sums};
    if (spec_.bias) own.push_back({Kind::kOperand, places_.bias});
    if (spec_.residual) own.push_back(operands.Residual(spec_));
    const int64_t layers = spec_.append.has_value() ? spec_.append->layers : 0;
    for (int64_t i = 0; i < 2 * layers; ++i)
      own.push_back({Kind::kOperand, places_.layers + i / 2});
    own.push_back(places_.y >= 0 ? operands.Y(spec_) : operands.unused);
    CudaLaunch finish = finish_.Launch(kCudaLibraryRows, own);
    for (CudaArgument& argument : finish.arguments) {
      if (argument.kind == Kind::kTokenSlots) argument = operands.Slots();
    }
    launches->push_back(std::move(finish));
  }

  CudaLaunch FinishTurned(const Operands& operands, const CudaArgument& sums) const {
    constexpr int64_t kEights = kCudaFinishThreads;  // of a block
    CudaLaunch finish;
    finish.entry = finish_.entry;
    finish.grid = static_cast<int>(
        cuda_linear::DivideUp(kCudaLibraryRows * cuda_linear::DivideUp(spec_.n, 16) * 2, kEights));
    finish.arguments = {sums,
                        {Kind::kOperand, places_.bias},
                        operands.Y(spec_),
                        {Kind::kInt32, kCudaLibraryRows},
                        operands.Slots(),
                        {Kind::kOperand, places_.layers},
                        operands.Turns(spec_)};
    return finish;
  }

  // Of `rows` rows. `last`: whole_tiles, or of kFew the first row.
  CudaLaunch Launch(size_t entry, int grid, const Operands& operands, int64_t rows,
                    int64_t last) const {
    const CudaLinearConfig& config = kernels_[entry].config;
    CudaLaunch launch;
    launch.entry = entry;
    launch.grid = grid;
    if (CudaLinearTakesMaps(config.body)) {
      launch.tensor_maps = {{operands.x, rows, product_.k, CudaLinearBoxRows(config, rows)}};
      launch.arguments = {{Kind::kTensorMap, 0}, operands.weight};
      if (!CudaLinearReadsBlocks(product_, config.body)) {
        launch.tensor_maps.push_back({operands.weight, spec_.weight_rows(), product_.k,
                                      config.tile_rows, false, config.act && spec_.gated});
        launch.arguments[1] = {Kind::kTensorMap, 1};
      }
    } else {
      launch.arguments = {operands.X(spec_), operands.weight};
    }
    const auto add_operand = [&launch](int64_t operand) {
      launch.arguments.push_back({Kind::kOperand, operand});
    };
    add_operand(places_.bias);
    launch.arguments.push_back(operands.Residual(spec_));
    launch.arguments.push_back(operands.Y(spec_));
    launch.arguments.push_back({Kind::kWorkspace, 0});
    launch.arguments.push_back({Kind::kInt32, rows});
    launch.arguments.push_back({Kind::kInt32, last});
    if (config.body != CudaLinearConfig::kFew) {
      launch.arguments.push_back({Kind::kInt32, CudaLinearBodySpec(product_, config).n});
      launch.arguments.push_back({Kind::kInt32, product_.k});
      launch.arguments.push_back({Kind::kInt32, CudaLinearYIsF32(product_, config)});
    }
    if (splits_scales_) {
      launch.arguments.push_back(operands.x_scales);
      launch.arguments.push_back({Kind::kOperand, 1});
    }
    if (config.norm) {
      add_operand(places_.norm_weight);
      add_operand(places_.norm_bias);
    }
    if (spec_.append.has_value()) {
      launch.arguments.push_back(operands.Slots());
      add_operand(places_.layers);
      add_operand(places_.layers + (spec_.append->layers > 1 ? 1 : 0));
    }
    if (spec_.rope.has_value()) launch.arguments.push_back(operands.Turns(spec_));
    for (int i = 0; i < kernels_[entry].unused_pointers; ++i) add_operand(-1);
    return launch;
  }

  const LinearSpec spec_, product_;
  const Places places_;
  const CudaLimits limits_;
  const std::vector<CudaLinearKernel> kernels_;
  size_t dequantize_ = 0, rows_ = 0, turns_ = 0;  // entries of their own
  Rows head_, act_;  // what comes before and after the product, where the spec has it
  // Where a library may compute sums: what makes y of them (an entry alone where heads are turned),
  // and what they have to be equal to.
  Rows finish_;
  CudaLinearKernel sums_kernel_;
  size_t sums_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKernel>> MakeCudaLinear(const LinearSpec& spec,
                                                           const CudaLimits& limits,
                                                           const LinearSpec* appending) {
  const bool is_e4m3 = CudaLinearIsE4m3(spec, limits);
  QUIRE_ASSIGN_OR_RETURN(
      std::vector<CudaLinearKernel> kernels,
      CudaLinearKernels(is_e4m3 ? CudaE4m3Product(spec) : spec, limits, appending));
  std::unique_ptr<CudaKernel> head, act;
  if (!is_e4m3 && (spec.norm.has_value() || spec.quantize.has_value())) {
    QUIRE_ASSIGN_OR_RETURN(head, MakeCudaRow(CudaLinearHeadRows(spec), limits));
  }
  const bool acts_after =
      std::any_of(kernels.begin(), kernels.end(),
                  [](const CudaLinearKernel& kernel) { return !kernel.config.act; });
  if (spec.act != LinearAct::kNone && acts_after) {
    QUIRE_ASSIGN_OR_RETURN(act, MakeCudaRow(CudaLinearActRows(spec), limits));
  }
  std::unique_ptr<CudaKernel> finish;
  if (HasUseForLibrary(spec, kernels) && !spec.rope.has_value()) {
    QUIRE_ASSIGN_OR_RETURN(finish, MakeCudaRow(CudaLinearFinishRows(spec), limits));
  }
  return std::make_unique<CudaLinear>(spec, limits, std::move(kernels), std::move(head),
                                      std::move(finish), std::move(act));
}

}  // namespace quire
