// What generated row kernels (codegen/cuda/row_emit.h) are made of: vectors of V neighbouring
// elements of one row, in f32, and the ops on them.
//
// A vector in memory is aligned to its size, or to 16 bytes where it is larger.
#ifndef QUIRE_ROW_CUH_
#define QUIRE_ROW_CUH_

#include "blocks.cuh"
#include "e4m3.cuh"
#include "math.cuh"
#include "norm.cuh"
#include "prelude.cuh"

template <int V>
struct Vector {
  float x[V];
};

// ---- memory

template <int kWords>
DEVICE void LoadWords(uint32_t (&words)[kWords], const void* from) {
  if constexpr (kWords == 1) {
    words[0] = LoadGlobal(static_cast<const uint32_t*>(from));
  } else if constexpr (kWords == 2) {
    const Words2 pair = LoadGlobal(static_cast<const Words2*>(from));
    words[0] = pair.x, words[1] = pair.y;
  } else {
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
      const Words4 four = LoadGlobal(static_cast<const Words4*>(from) + i);
      words[4 * i] = four.x, words[4 * i + 1] = four.y;
      words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
    }
  }
}
template <int kWords>
DEVICE void StoreWords(void* to, const uint32_t (&words)[kWords]) {
  if constexpr (kWords == 1) {
    StoreGlobal(static_cast<uint32_t*>(to), words[0]);
  } else if constexpr (kWords == 2) {
    StoreGlobal(static_cast<Words2*>(to), Words2{words[0], words[1]});
  } else {
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
      StoreGlobal(static_cast<Words4*>(to) + i,
                  Words4{words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]});
    }
  }
}

template <int V, typename T>
DEVICE Vector<V> Load(const T* from) {
  Vector<V> y;
  if constexpr (V * sizeof(T) < 4) {
    y.x[0] = ToFloat(LoadGlobal(from));
  } else {
    constexpr int kPerWord = 4 / sizeof(T);
    uint32_t words[V / kPerWord];
    LoadWords(words, from);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (kPerWord == 1) {
        y.x[i] = FromBits(words[i]);
      } else {
        y.x[i] = ToFloat(T{static_cast<uint16_t>(words[i / 2] >> i % 2 * 16)});
      }
    }
  }
  return y;
}
// One number, V times.
template <int V, typename T>
DEVICE Vector<V> LoadOne(const T* from) {
  const float value = ToFloat(LoadGlobal(from));
  Vector<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.x[i] = value;
  return y;
}
// Of a row of a block-quantised matrix, from element `at`, a multiple of V; V is up to 8.
template <int V, typename Q>
DEVICE Vector<V> LoadBlocks(const uint8_t* row, int at) {
  const uint8_t* block = row + static_cast<int64_t>(at / Q::kElements) * Q::kBytes;
  Vector<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.x[i] = Q::At(block, at % Q::kElements + i);
  return y;
}
template <int V>
DEVICE void StoreBytes(E4m3* to, const Vector<V>& value) {
  if constexpr (V < 4) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      StoreGlobal(to + i, E4m3{static_cast<uint8_t>(PackFours(value.x[i], 0, 0, 0))});
    }
  } else {
    uint32_t words[V / 4];
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      words[i / 4] = PackFours(value.x[i], value.x[i + 1], value.x[i + 2], value.x[i + 3]);
    }
    StoreWords(to, words);
  }
}
template <int V, typename T>
DEVICE void Store(T* to, const Vector<V>& value) {
  if constexpr (sizeof(T) == 1) {
    StoreBytes(to, value);
  } else if constexpr (V * sizeof(T) < 4) {
    StoreGlobal(to, FromFloat<T>(value.x[0]));
  } else {
    constexpr int kPerWord = 4 / sizeof(T);
    uint32_t words[V / kPerWord];
#pragma unroll
    for (int i = 0; i < V / kPerWord; ++i) {
      if constexpr (kPerWord == 1) {
        words[i] = Bits(value.x[i]);
      } else {
        words[i] = Pack<T>(value.x[2 * i], value.x[2 * i + 1]);
      }
    }
    StoreWords(to, words);
  }
}

// `value` clamped to 0 .. limit - 1.
DEVICE int Inside(int value, int limit) {
  const int below = value < limit ? value : limit - 1;
  return below > 0 ? below : 0;
}

// ---- pointwise

template <int V, typename F>
DEVICE Vector<V> Each(const Vector<V>& a, F f) {
  Vector<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.x[i] = f(a.x[i]);
  return y;
}
template <int V>
DEVICE Vector<V> Add(const Vector<V>& a, const Vector<V>& b) {
  Vector<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.x[i] = Add(a.x[i], b.x[i]);
  return y;
}
template <int V>
DEVICE Vector<V> Mul(const Vector<V>& a, const Vector<V>& b) {
  Vector<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.x[i] = Mul(a.x[i], b.x[i]);
  return y;
}
template <int V>
DEVICE Vector<V> Scale(const Vector<V>& a, float factor) {
  return Each(a, [factor](float x) { return Mul(x, factor); });
}
template <int V>
DEVICE Vector<V> Quotient(const Vector<V>& a, float divisor) {
  return Each(a, [divisor](float x) { return Divide(x, divisor); });
}
template <int V>
DEVICE Vector<V> Softcap(const Vector<V>& a, float cap, float per_cap) {
  return Each(a, [cap, per_cap](float x) { return Mul(Tanh(Mul(x, per_cap)), cap); });
}
// As T stores it.
template <typename T, int V>
DEVICE Vector<V> Rounded(const Vector<V>& a) {
  return Each(a, [](float x) { return ToFloat(FromFloat<T>(x)); });
}

#define QUIRE_EACH(name)                              \
  template <int V>                                    \
  DEVICE Vector<V> name(const Vector<V>& a) {         \
    return Each(a, [](float x) { return name(x); });  \
  }
QUIRE_EACH(Silu)
QUIRE_EACH(Gelu)
QUIRE_EACH(GeluTanh)
QUIRE_EACH(GeluQuick)
QUIRE_EACH(Relu)
QUIRE_EACH(Tanh)
QUIRE_EACH(Sigmoid)
#undef QUIRE_EACH

// ---- norms

template <int V>
DEVICE Vector<V> Centred(const Vector<V>& a, float mean) {
  return Each(a, [mean](float x) { return Add(x, Negate(mean)); });
}
template <int V>
DEVICE Vector<V> AddEach(const Vector<V>& a, float offset) {
  return Each(a, [offset](float x) { return Add(x, offset); });
}
template <int V>
DEVICE Vector<V> MulAdd(const Vector<V>& a, const Vector<V>& b, const Vector<V>& c) {
  Vector<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.x[i] = Fma(a.x[i], b.x[i], c.x[i]);
  return y;
}

// ---- numbers of f8e4m3 by a scale

template <int V>
DEVICE Vector<V> Quantized(const Vector<V>& a, float scale) {
  const float divisor = scale == 0 ? 1.0f : scale;
  Vector<V> y;
#pragma unroll
  for (int i = 0; i < V; i += 4) {
    float quotients[4] = {};
#pragma unroll
    for (int e = 0; e < 4 && i + e < V; ++e) quotients[e] = Divide(a.x[i + e], divisor);
    uint32_t halves[2];
    WidenHalves<F16>(PackFours(quotients[0], quotients[1], quotients[2], quotients[3]), halves[0],
                     halves[1]);
#pragma unroll
    for (int e = 0; e < 4 && i + e < V; ++e) {
      const auto bits = static_cast<uint16_t>(halves[e / 2] >> e % 2 * 16);
      y.x[i + e] = Mul(ToFloat(F16{bits}), scale);
    }
  }
  return y;
}

// ---- rope: pairs (a, b) become (a cos - b sin, b cos + a sin)

template <int V>
struct Angles {
  double x[V];
};
template <int V>
struct Turns {
  Vector<V> cosine, sine;
};

// Radians per position of V neighbouring pairs.
template <int V>
DEVICE Angles<V> Frequencies(const double* table) {
  Angles<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.x[i] = table[i];
  return y;
}
template <int V>
DEVICE Angles<V> Divide(const Angles<V>& a, const Vector<V>& factors) {
  Angles<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.x[i] = a.x[i] / static_cast<double>(factors.x[i]);
  return y;
}
// Divided by growth^exponent.
template <int V>
DEVICE Angles<V> Shrink(const Angles<V>& a, const Angles<V>& exponents, double log_growth) {
  Angles<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.x[i] = Mul(a.x[i], exp(Mul(-exponents.x[i], log_growth)));
  return y;
}
// Of a base that grows with a row's own length beyond `tokens`.
DEVICE double LogGrowth(int position, double factor, double tokens) {
  const double length = static_cast<double>(position) + 1;
  return log((length > tokens ? length : tokens) * factor / tokens - (factor - 1));
}
template <int V>
DEVICE Turns<V> TurnsOf(int position, const Angles<V>& frequencies, float magnitude) {
  Turns<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    float cosine, sine;
    CosineAndSine(Mul(static_cast<double>(position), frequencies.x[i]), cosine, sine);
    y.cosine.x[i] = Mul(cosine, magnitude);
    y.sine.x[i] = Mul(sine, magnitude);
  }
  return y;
}
// Every kLanes'th lane of a warp has the same V pairs: each computes kOwn of them, from First() on.
template <int V, int kLanes>
struct Sharing {
  static constexpr int kOwn = V * kLanes > kWarpThreads ? V * kLanes / kWarpThreads : 1;
  static DEVICE int First() {
    return static_cast<int>(threadIdx.x) % kWarpThreads / kLanes * kOwn % V;
  }
};
// Turns of all V pairs, from those of each lane's own. The whole warp, of one row, comes here.
template <int V, int kLanes>
DEVICE Turns<V> Gather(const Turns<Sharing<V, kLanes>::kOwn>& own) {
  constexpr int kOwn = Sharing<V, kLanes>::kOwn;
  Turns<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int from = i / kOwn * kLanes + static_cast<int>(threadIdx.x) % kLanes;
    y.cosine.x[i] = FromBits(Shuffle(Bits(own.cosine.x[i % kOwn]), from));
    y.sine.x[i] = FromBits(Shuffle(Bits(own.sine.x[i % kOwn]), from));
  }
  return y;
}

DEVICE float TurnFirst(float a, float b, float cosine, float sine) {
  return Fma(a, cosine, Negate(Mul(b, sine)));
}
DEVICE float TurnSecond(float a, float b, float cosine, float sine) {
  return Fma(b, cosine, Mul(a, sine));
}
// The first or the second of each pair, from the one and its partner.
template <int V>
DEVICE Vector<V> Turn(const Vector<V>& own, const Vector<V>& partner, const Turns<V>& turns,
                      bool is_first) {
  Vector<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const float c = turns.cosine.x[i], s = turns.sine.x[i];
    y.x[i] = is_first ? TurnFirst(own.x[i], partner.x[i], c, s)
                      : TurnSecond(partner.x[i], own.x[i], c, s);
  }
  return y;
}
// Pairs that lie side by side.
template <int V>
DEVICE Vector<V> TurnNeighbours(const Vector<V>& a, const Turns<V / 2>& turns) {
  Vector<V> y;
#pragma unroll
  for (int i = 0; i < V / 2; ++i) {
    const float c = turns.cosine.x[i], s = turns.sine.x[i];
    y.x[2 * i] = TurnFirst(a.x[2 * i], a.x[2 * i + 1], c, s);
    y.x[2 * i + 1] = TurnSecond(a.x[2 * i], a.x[2 * i + 1], c, s);
  }
  return y;
}
template <int V>
DEVICE Vector<V> Select(bool condition, const Vector<V>& a, const Vector<V>& b) {
  Vector<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.x[i] = condition ? a.x[i] : b.x[i];
  return y;
}

#endif  // QUIRE_ROW_CUH_
