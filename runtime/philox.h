// The generator of the sampler: Philox4x32 with ten rounds, a function from a key and a counter to
// 128 random bits. It has no state, so a request's numbers depend on its seed and on the place of a
// token in it, not on what was drawn before or beside it.
//
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#ifndef QUIRE_RUNTIME_PHILOX_H_
#define QUIRE_RUNTIME_PHILOX_H_

#include <array>
#include <cstdint>

namespace quire {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock Philox4x32(PhiloxKey key, PhiloxBlock counter) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// Uniform in [0, 1), a multiple of 2^-53: counter {position, sample} under the key `seed`.
inline double PhiloxUniform(uint64_t seed, uint64_t position, uint32_t sample) {
  const PhiloxBlock block = Philox4x32(
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), sample, 0});
  const uint64_t bits = (uint64_t{block[1]} << 32) | block[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace quire

#endif  // QUIRE_RUNTIME_PHILOX_H_
