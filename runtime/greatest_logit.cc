#include "runtime/greatest_logit.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace quire {
namespace {

// Numbers that every processor compares at a time. Loops go over blocks of four such vectors, by
// pointers: a span checks each index.
constexpr int kVectorBytes = 16;
constexpr int kVectors = 4;
template <typename Number>
constexpr ptrdiff_t kBlock = kVectors * kVectorBytes / sizeof(Number);
template <typename Number>
struct Vector;
template <>
struct Vector<float> {
  using Numbers = float __attribute__((vector_size(kVectorBytes)));
  using Flags = int32_t __attribute__((vector_size(kVectorBytes)));
};
template <>
struct Vector<double> {
  using Numbers = double __attribute__((vector_size(kVectorBytes)));
  using Flags = int64_t __attribute__((vector_size(kVectorBytes)));
};

template <typename Number>
typename Vector<Number>::Numbers VectorAt(const Number* numbers, int index) {
  typename Vector<Number>::Numbers vector;
  std::memcpy(&vector, numbers + index * kBlock<Number> / kVectors, sizeof vector);
  return vector;
}

template <typename Flags>
bool IsAny(const Flags& flags) {
  uint64_t halves[2];
  std::memcpy(halves, &flags, sizeof halves);
  return (halves[0] | halves[1]) != 0;
}

// Whether `is_wanted` of one of a block's numbers; it says so of a vector.
template <typename Number, typename IsWanted>
bool AnyOfBlock(const Number* numbers, IsWanted is_wanted) {
  typename Vector<Number>::Flags any = {};
  for (int i = 0; i < kVectors; ++i) any |= is_wanted(VectorAt(numbers, i));
  return IsAny(any);
}

template <typename Number>
std::vector<int32_t> GreatestIdsOf(absl::Span<const Number> numbers, size_t count) {
  const auto size = static_cast<int32_t>(numbers.size());
  std::vector<int32_t> ids(std::min(count, numbers.size()));
  if (ids.empty()) return ids;
  const Number* const all = numbers.data();
  const auto is_greater = [all](int32_t a, int32_t b) {
    return all[a] > all[b] || (all[a] == all[b] && a < b);
  };
  // A heap whose front is the least of them; what comes later is of a higher id, and takes its
  // place only if it is greater.
  int32_t next = 0;
  for (int32_t& id : ids) id = next++;
  std::make_heap(ids.begin(), ids.end(), is_greater);
  const auto take = [&](int32_t id) {
    if (!(all[id] > all[ids.front()])) return;
    std::pop_heap(ids.begin(), ids.end(), is_greater);
    ids.back() = id;
    std::push_heap(ids.begin(), ids.end(), is_greater);
  };
  while (next < size) {
    const auto end = static_cast<int32_t>(std::min<ptrdiff_t>(size, next + kBlock<Number>));
    const Number least = all[ids.front()];
    const bool is_block = end - next == kBlock<Number>;
    if (is_block && !AnyOfBlock(all + next, [&](const auto& number) { return number > least; })) {
      next = end;
      continue;
    }
    while (next < end) take(next++);
  }
  std::sort(ids.begin(), ids.end(), is_greater);
  return ids;
}

}  // namespace

GreatestLogit GreatestOf(absl::Span<const float> logits) {
  using Floats = Vector<float>::Numbers;
  constexpr float kMost = std::numeric_limits<float>::max();
  const float* const begin = logits.data();
  const float* const end = begin + logits.size();
  Floats greatest[kVectors];
  for (Floats& vector : greatest) vector = Floats{} + *begin;
  auto sound = ~Vector<float>::Flags{};
  const float* at = begin;
  for (; end - at >= kBlock<float>; at += kBlock<float>) {
    for (int i = 0; i < kVectors; ++i) {
      const Floats logit = VectorAt(at, i);
      greatest[i] = logit > greatest[i] ? logit : greatest[i];
      sound &= logit <= kMost;  // not NaN, either
    }
  }
  float found = *begin;
  bool is_sound = !IsAny(~sound);
  const auto take = [&](float logit) {
    found = logit > found ? logit : found;
    is_sound &= logit <= kMost;
  };
  for (const Floats& vector : greatest) {
    for (int i = 0; i < kBlock<float> / kVectors; ++i) take(vector[i]);
  }
  for (; at < end; ++at) take(*at);
  // Of unsound logits none may be equal to it: then the last.
  at = begin;
  const auto is_found = [found](const auto& logit) { return logit == found; };
  while (end - at > kBlock<float> && !AnyOfBlock(at, is_found)) at += kBlock<float>;
  at = std::find_if(at, end - 1, is_found);
  return {static_cast<int32_t>(at - begin), *at, is_sound ? 1 : 0};
}

std::vector<int32_t> GreatestIds(absl::Span<const float> logits, size_t count) {
  return GreatestIdsOf(logits, count);
}

std::vector<int32_t> GreatestIds(absl::Span<const double> logprobs, size_t count) {
  return GreatestIdsOf(logprobs, count);
}

}  // namespace quire
