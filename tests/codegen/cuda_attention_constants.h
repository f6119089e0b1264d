// The constants that the emulated attention kernels are included with.
#ifndef QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_CONSTANTS_H_
#define QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_CONSTANTS_H_

#include <type_traits>

#include "codegen/cuda/kernels/step.cuh"
#include "tests/codegen/cuda_emulator.h"
#include "tests/codegen/cuda_hopper_emulator.h"

// A kernel per set of constants.
#define QUIRE_ATTENTION(element, hq, hkv, d, dv, page, stages, few) \
  QUIRE_KV_ATTENTION(element, element, false, hq, hkv, d, dv, page, stages, few)
// With keys and values of another type, by scales or not.
#define QUIRE_KV_ATTENTION(element, kv, scales, hq, hkv, d, dv, page, stages, few)      \
  using Element = element;                                                              \
  using KvElement = kv;                                                                 \
  constexpr bool kKeyScales = scales, kValueScales = scales;                            \
  constexpr bool kIsBf16 = std::is_same_v<Element, Bf16>;                               \
  constexpr int kHq = hq, kHkv = hkv, kD = d, kDv = dv, kPageTokens = page;             \
  constexpr bool kFew = few;                                                            \
  constexpr int kThreads = kFew ? ((hq) / (hkv) > 16 ? 256 : 128) : QUIRE_MANY_THREADS, \
                kManyRows = dv > 128 ? 64 : 128, kStages = stages, kResident = 1,       \
                kSharedBytes = QUIRE_SHARED_BYTES;                                      \
  constexpr double kScale = 0.3;
#define QUIRE_MANY_THREADS 256
#define QUIRE_SHARED_BYTES (1 << 20)
#define QUIRE_PLAIN_MASKS                                        \
  constexpr bool kCausal = true, kAlibi = false, kSinks = false; \
  constexpr int kWindow = 0, kBiasDistances = 0, kTreeWords = 0; \
  constexpr double kCap = 0;                                     \
  constexpr float kAlibiSlopes[] = {0};
#define QUIRE_ALIBI_MASKS                                                \
  constexpr bool kCausal = true, kAlibi = true, kSinks = true;           \
  constexpr int kWindow = 100, kBiasDistances = 50, kTreeWords = 0;      \
  constexpr double kCap = 2;                                             \
  constexpr float kAlibiSlopes[] = {                                     \
      0.5f * 1.4426950408889634f,       0.25f * 1.4426950408889634f,     \
      0.125f * 1.4426950408889634f,     0.0625f * 1.4426950408889634f,   \
      0.03125f * 1.4426950408889634f,   0.015625f * 1.4426950408889634f, \
      0.0078125f * 1.4426950408889634f, 0.00390625f * 1.4426950408889634f};
#define QUIRE_BIAS_MASKS                                          \
  constexpr bool kCausal = false, kAlibi = false, kSinks = false; \
  constexpr int kWindow = 0, kBiasDistances = 31, kTreeWords = 0; \
  constexpr double kCap = 0;                                      \
  constexpr float kAlibiSlopes[] = {0};
#define QUIRE_TREE_MASKS                                         \
  constexpr bool kCausal = true, kAlibi = false, kSinks = true;  \
  constexpr int kWindow = 0, kBiasDistances = 0, kTreeWords = 2; \
  constexpr double kCap = 0;                                     \
  constexpr float kAlibiSlopes[] = {0};
#define QUIRE_WINDOW_MASKS                                          \
  constexpr bool kCausal = true, kAlibi = false, kSinks = true;     \
  constexpr int kWindow = 100, kBiasDistances = 50, kTreeWords = 0; \
  constexpr double kCap = 2;                                        \
  constexpr float kAlibiSlopes[] = {0};
#define QUIRE_NO_MASKS                                            \
  constexpr bool kCausal = false, kAlibi = false, kSinks = false; \
  constexpr int kWindow = 0, kBiasDistances = 0, kTreeWords = 0;  \
  constexpr double kCap = 0;                                      \
  constexpr float kAlibiSlopes[] = {0};

#endif  // QUIRE_TESTS_CODEGEN_CUDA_ATTENTION_CONSTANTS_H_
