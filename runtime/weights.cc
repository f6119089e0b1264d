#include "runtime/weights.h"

#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ir/fingerprint.h"
#include "ir/status.h"

namespace quire {
namespace {

absl::string_view LastPart(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

std::string Hex(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

constexpr absl::string_view kFix =
    "\n  fix: name the folder that holds it (--weights-dir=DIR), or compile the plan again";

absl::Status Compare(const MappedFile& file, const plan::WeightFileT& expected) {
  const std::string sizes =
      absl::StrCat("\n  expected: ", expected.bytes, " bytes, fingerprint ",
                   Hex(expected.fingerprint), "\n  found: ", file.file_bytes(), " bytes");
  if (file.file_bytes() < expected.bytes) {
    return absl::DataLossError(absl::StrCat(
        file.path(), ": shorter than the file that the plan was compiled from", sizes, kFix));
  }
  const uint64_t found = Fingerprint(file.bytes());
  if (file.file_bytes() != expected.bytes || found != expected.fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path(), ": not the file that the plan was compiled from", sizes,
                     ", fingerprint ", Hex(found), kFix));
  }
  return absl::OkStatus();
}

}  // namespace

struct TensorFiles::Impl {
  const plan::PlanT& plan;
  std::string folder, weights_dir;
  std::mutex mutex;
  std::vector<std::optional<MappedFile>> files;

  std::string PathOf(const plan::WeightFileT& file) const {
    if (!weights_dir.empty()) return JoinPath(weights_dir, LastPart(file.path));
    if (absl::StartsWith(file.path, "/")) return file.path;
    return JoinPath(folder, file.path);
  }

  absl::StatusOr<const MappedFile*> File(uint32_t index) {
    const std::lock_guard<std::mutex> lock(mutex);
    std::optional<MappedFile>& file = files[index];
    if (file.has_value()) return &*file;
    const plan::WeightFileT& expected = *plan.files[index];
    auto opened = MappedFile::Open(PathOf(expected));
    if (!opened.ok()) {
      // The fix comes last: of a file that is not there, where it may be.
      absl::string_view said = opened.status().message();
      const size_t fix = said.find("\n  fix: ");
      const bool is_gone = access(PathOf(expected).c_str(), F_OK) != 0 && errno == ENOENT;
      return absl::Status(
          opened.status().code(),
          absl::StrCat(said.substr(0, fix), "\n  expected: weights of the plan, ", expected.bytes,
                       " bytes", is_gone || fix == said.npos ? kFix : said.substr(fix)));
    }
    QUIRE_RETURN_IF_ERROR(Compare(*opened, expected));
    file = std::move(opened).value();
    return &*file;
  }
};

TensorFiles::TensorFiles(const plan::PlanT& plan, absl::string_view folder,
                         absl::string_view weights_dir)
    : impl_(new Impl{plan, std::string(folder), std::string(weights_dir), {}, {}}) {
  impl_->files.resize(plan.files.size());
}

TensorFiles::~TensorFiles() = default;

absl::StatusOr<absl::Span<const uint8_t>> TensorFiles::Read(uint32_t tensor) const {
  const plan::TensorT& info = *impl_->plan.tensors[tensor];
  QUIRE_ASSIGN_OR_RETURN(const MappedFile* file, impl_->File(info.file));
  return file->bytes().subspan(info.offset, info.bytes);
}

std::string TensorFiles::PathOf(uint32_t file) const {
  return impl_->PathOf(*impl_->plan.files[file]);
}

absl::Status TensorFiles::Open() const {
  for (uint32_t i = 0; i < impl_->plan.files.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(impl_->File(i).status());
  }
  return absl::OkStatus();
}

namespace {

class PlanWeights : public WeightSource {
 public:
  PlanWeights(std::shared_ptr<const PlanFile> plan, const WeightOptions& options)
      : state_(std::make_shared<State>(std::move(plan), options)) {}

  absl::StatusOr<SlotBytes> Load(const plan::WeightSlotT& slot) const override {
    SlotBytes loaded;
    loaded.packed = slot.packed;
    if (slot.packed) {
      QUIRE_ASSIGN_OR_RETURN(loaded.bytes, state_->plan->PackedBytes(slot));
      loaded.owner = state_;
      return loaded;
    }
    QUIRE_ASSIGN_OR_RETURN(SlotRows rows,
                           RowsOfSlot(slot, state_->plan->plan().tensors, state_->files));
    if (rows.copied.empty()) {
      loaded.bytes = rows.bytes;
      loaded.owner = state_;
    } else {
      auto copied = std::make_shared<SlotRows>(std::move(rows));
      loaded.bytes = copied->bytes;
      loaded.owner = std::move(copied);
    }
    return loaded;
  }

  const PlanFile& plan() const override { return *state_->plan; }

  absl::StatusOr<SlotSpans> LoadPieces(const plan::WeightSlotT& slot) const override {
    SlotSpans loaded;
    loaded.owner = state_;
    if (slot.packed) {
      QUIRE_ASSIGN_OR_RETURN(const auto bytes, state_->plan->PackedBytes(slot));
      loaded.pieces.push_back(bytes);
      return loaded;
    }
    QUIRE_ASSIGN_OR_RETURN(SlotPieces pieces,
                           PiecesOfSlot(slot, state_->plan->plan().tensors, state_->files));
    loaded.pieces = pieces.pieces;
    if (!pieces.copied.copied.empty()) {
      loaded.owner = std::make_shared<SlotPieces>(std::move(pieces));
    }
    return loaded;
  }

 private:
  struct State {
    State(std::shared_ptr<const PlanFile> file, const WeightOptions& options)
        : plan(std::move(file)), files(plan->plan(), FolderOf(plan->path()), options.weights_dir) {}
    std::shared_ptr<const PlanFile> plan;
    TensorFiles files;
  };
  std::shared_ptr<State> state_;
};

}  // namespace

WeightSource::WeightSource()
    : number_([] {
        static std::atomic<uint64_t> last{0};
        return ++last;
      }()) {}

std::unique_ptr<WeightSource> OpenWeights(std::shared_ptr<const PlanFile> plan,
                                          const WeightOptions& options) {
  return std::make_unique<PlanWeights>(std::move(plan), options);
}

}  // namespace quire
