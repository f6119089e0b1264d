// What an encoder reads: ids of tokens, or states that something else computed.
#ifndef QUIRE_RUNTIME_ENCODER_INPUT_H_
#define QUIRE_RUNTIME_ENCODER_INPUT_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace quire {

class EncoderInput {
 public:
  EncoderInput() = default;
  EncoderInput(std::vector<int32_t> ids) : ids_(std::move(ids)) {}  // NOLINT
  EncoderInput(std::initializer_list<int32_t> ids) : ids_(ids.begin(), ids.end()) {}
  // [rows, width], row after row.
  EncoderInput(std::shared_ptr<const std::vector<float>> states, int64_t width)
      : states_(std::move(states)), width_(width) {}

  bool empty() const { return tokens() == 0; }
  int64_t tokens() const {
    return static_cast<int64_t>(states_ == nullptr ? ids_.size() : states_->size()) / width_;
  }
  absl::Span<const int32_t> ids() const { return ids_; }
  absl::Span<const float> states() const {
    return states_ == nullptr ? absl::Span<const float>() : absl::MakeConstSpan(*states_);
  }

  // Compared whole, unless both are the same memory.
  friend bool operator==(const EncoderInput& a, const EncoderInput& b) {
    if (a.ids_ != b.ids_) return false;
    if (a.states_ == b.states_) return true;
    return a.states_ != nullptr && b.states_ != nullptr && *a.states_ == *b.states_;
  }
  // States are many: some of them tell inputs apart well enough.
  template <typename H>
  friend H AbslHashValue(H hash, const EncoderInput& input) {
    hash = H::combine(std::move(hash), input.ids_, input.tokens());
    if (input.states_ == nullptr) return hash;
    const std::vector<float>& states = *input.states_;
    const size_t stride = states.size() / 256 + 1;
    for (size_t i = 0; i < states.size(); i += stride)
      hash = H::combine(std::move(hash), states[i]);
    return hash;
  }

 private:
  std::vector<int32_t> ids_;
  std::shared_ptr<const std::vector<float>> states_;
  int64_t width_ = 1;
};

}  // namespace quire

#endif  // QUIRE_RUNTIME_ENCODER_INPUT_H_
