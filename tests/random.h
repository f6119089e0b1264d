// Random numbers for tests: the same sequence for the same seed on every platform, which the
// standard library's distributions do not promise.
#ifndef QUIRE_TESTS_RANDOM_H_
#define QUIRE_TESTS_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <numbers>

#include "absl/strings/string_view.h"

namespace quire::testing {

// SplitMix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // Seeded by a name (FNV-1a), so that every tensor of a model has numbers of its own.
  explicit Random(absl::string_view name) : state_(0xcbf29ce484222325u) {
    for (char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In [0, count). REQUIRES: count > 0.
  int64_t Below(int64_t count) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(count));
  }
  // In [low, high].
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  // True once in `one_in` times.
  bool Chance(int64_t one_in) { return Below(one_in) == 0; }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // Of the standard normal distribution (Box and Muller).
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return *std::next(values.begin(), Below(static_cast<int64_t>(values.size())));
  }
  template <typename Container>
  const auto& OneOf(const Container& values) {
    return values[static_cast<size_t>(Below(static_cast<int64_t>(values.size())))];
  }

 private:
  uint64_t state_;
};

}  // namespace quire::testing

#endif  // QUIRE_TESTS_RANDOM_H_
