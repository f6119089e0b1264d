// What an encoder reads: ids of tokens, or states that something else computed. Copies share them.
//
// States are those of images, one after another. A row of the text sees those of the images that
// stand at or before it, back to the first image of their run: images whose tokens follow each
// other directly are a run, and the next run hides it. So what a row sees are the first states of
// some run, and a run is encoded like an input of its own, from a page on.
#ifndef QUIRE_RUNTIME_ENCODER_INPUT_H_
#define QUIRE_RUNTIME_ENCODER_INPUT_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace quire {

// An image of a prompt: where its token stands, and how many rows of states are its own.
struct SourceImage {
  int32_t position = 0;
  int32_t rows = 0;
  friend bool operator==(const SourceImage& a, const SourceImage& b) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const SourceImage& image) {
    return H::combine(std::move(hash), image.position, image.rows);
  }
};

class EncoderInput {
 public:
  EncoderInput() = default;
  EncoderInput(std::vector<int32_t> ids)  // NOLINT
      : ids_(std::make_shared<const std::vector<int32_t>>(std::move(ids))),
        hash_(absl::HashOf(*ids_)) {}
  EncoderInput(std::initializer_list<int32_t> ids) : EncoderInput(std::vector<int32_t>(ids)) {}
  // [rows, width], row after row. Images in order of position, that have all rows; or none, then
  // every row of the text sees all states.
  EncoderInput(std::shared_ptr<const std::vector<float>> states, int64_t width,
               std::vector<SourceImage> images = {})
      : states_(std::move(states)),
        width_(width),
        images_(std::move(images)),
        hash_(HashOfStates()) {}

  bool empty() const { return tokens() == 0; }
  int64_t tokens() const {
    return static_cast<int64_t>(states_ == nullptr ? ids().size() : states_->size()) / width_;
  }
  absl::Span<const int32_t> ids() const { return Of(ids_); }
  absl::Span<const float> states() const { return Of(states_); }

  // Tokens of each run.
  std::vector<int32_t> Runs() const {
    if (images_.empty()) return {static_cast<int32_t>(tokens())};
    std::vector<int32_t> runs;
    for (size_t i = 0; i < images_.size(); ++i) {
      if (BeginsRun(i)) runs.push_back(0);
      runs.back() += images_[i].rows;
    }
    return runs;
  }
  // What the row at `position` sees, and the first position that sees something else.
  struct Sight {
    size_t run = 0;
    int32_t tokens = 0;  // the run's first
    int32_t end = std::numeric_limits<int32_t>::max();
  };
  Sight SightAt(int32_t position) const {
    Sight sight;
    if (images_.empty()) {
      sight.tokens = static_cast<int32_t>(tokens());
      return sight;
    }
    for (size_t i = 0; i < images_.size(); ++i) {
      if (images_[i].position > position) {
        sight.end = images_[i].position;
        break;
      }
      if (i > 0 && BeginsRun(i)) {
        ++sight.run;
        sight.tokens = 0;
      }
      sight.tokens += images_[i].rows;
    }
    return sight;
  }

  // Compared whole, unless both are the same memory.
  friend bool operator==(const EncoderInput& a, const EncoderInput& b) {
    if (a.images_ != b.images_) return false;
    if (a.ids_ != b.ids_ && a.ids() != b.ids()) return false;
    if (a.states_ == b.states_) return true;
    return a.states_ != nullptr && b.states_ != nullptr && *a.states_ == *b.states_;
  }
  template <typename H>
  friend H AbslHashValue(H hash, const EncoderInput& input) {
    return H::combine(std::move(hash), input.hash_);
  }

 private:
  template <typename T>
  static absl::Span<const T> Of(const std::shared_ptr<const std::vector<T>>& values) {
    return values == nullptr ? absl::Span<const T>() : absl::MakeConstSpan(*values);
  }
  // States are many: some of them tell inputs apart well enough.
  size_t HashOfStates() const {
    size_t hash = absl::HashOf(tokens(), images_);
    const size_t stride = states().size() / 256 + 1;
    for (size_t i = 0; i < states().size(); i += stride) hash = absl::HashOf(hash, states()[i]);
    return hash;
  }
  bool BeginsRun(size_t image) const {
    return image == 0 || images_[image].position != images_[image - 1].position + 1;
  }

  std::shared_ptr<const std::vector<int32_t>> ids_;
  std::shared_ptr<const std::vector<float>> states_;
  int64_t width_ = 1;
  std::vector<SourceImage> images_;
  size_t hash_ = 0;  // of all of it: an input is looked for several times
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_ENCODER_INPUT_H_
