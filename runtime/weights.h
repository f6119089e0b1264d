// Weights of a plan as a device loads them: from the checkpoint files that the plan names, or
// packed in the plan.
//
// Errors:  INVALID_ARGUMENT when a weight file is missing or cannot be read; FAILED_PRECONDITION
//          when it is another than the plan was compiled from, as far as its size, its first and
//          its last 64 KiB show (ir/fingerprint.h); DATA_LOSS when it is shorter. All name the
//          file, what was expected and found, and the fix.
// Owner:   what a load returns keeps the files mapped, also beyond the source's life.
#ifndef QUIRE_RUNTIME_WEIGHTS_H_
#define QUIRE_RUNTIME_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/weights.h"
#include "ir/plan_io.h"

namespace quire {

struct SlotBytes {
  absl::Span<const uint8_t> bytes;  // aligned to 4 bytes; to 4096 when packed
  bool packed = false;              // laid out as the slot's layout says; else rows
  std::shared_ptr<const void> owner;
};

// The same bytes in pieces that follow each other, each of whole rows and not aligned: nothing is
// copied to join them.
struct SlotSpans {
  std::vector<absl::Span<const uint8_t>> pieces;
  std::shared_ptr<const void> owner;
};

class WeightSource {
 public:
  WeightSource();
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  // Tells this source from every other one of the process.
  uint64_t number() const { return number_; }
  virtual absl::StatusOr<SlotBytes> Load(const plan::WeightSlotT& slot) const = 0;
  virtual absl::StatusOr<SlotSpans> LoadPieces(const plan::WeightSlotT& slot) const = 0;
  // The file of the slots, which may have binaries of kernels beside them; lives as long as this.
  virtual const PlanFile& plan() const = 0;

 private:
  const uint64_t number_;
};

// Tensors of the files that a plan names, each opened and compared with the plan at its first use.
class TensorFiles : public TensorReader {
 public:
  // Relative paths are relative to `folder`. With a `weights_dir`, every file is looked for there,
  // by the last part of its path. `plan` must outlive this.
  TensorFiles(const plan::PlanT& plan, absl::string_view folder, absl::string_view weights_dir);
  ~TensorFiles() override;

  absl::StatusOr<absl::Span<const uint8_t>> Read(uint32_t tensor) const override;
  // Where the file of that index in the plan is looked for.
  std::string PathOf(uint32_t file) const;
  // Opens and compares every file, so that later reads cannot fail.
  absl::Status Open() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct WeightOptions {
  std::string weights_dir;  // "": where the plan says
};

std::unique_ptr<WeightSource> OpenWeights(std::shared_ptr<const PlanFile> plan,
                                          const WeightOptions& options = {});

}  // namespace quire

#endif  // QUIRE_RUNTIME_WEIGHTS_H_
