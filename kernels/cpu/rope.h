// rope_table: a = float32(positions[t]) * inv_freq[i]; y[t] = cos(a[0..D/2)), sin(a[0..D/2)).  inv_freq [D/2], y [T,D].
// rope: rotates each head of x [T,H*D] in place by table [T,D]: (a, b) -> (a cos - b sin, b cos + a sin).
// PAIRS 0 "half": (i, i + D/2); 1 "adjacent": (2i, 2i + 1). All float32. Work is shared by token, then by head.
#pragma once
#include "vec.h"

namespace pih {

struct Turn {
  double cosine, sine;
};

// Sine and cosine of an angle below 2^20 to about 1e-15: angle = n pi/2 + r, |r| <= pi/4, Taylor to r^17.
// pi/2 is split in two: n times the first part (33 bits) is exact.
PIH_INLINE Turn turn(double angle) {
  double n = __builtin_elementwise_roundeven(angle * 0.63661977236758134308);
  double r = (angle - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
  double z = r * r;
  double sine = 1.0 / 355687428096000;
  sine = sine * z - 1.0 / 1307674368000;
  sine = sine * z + 1.0 / 6227020800;
  sine = sine * z - 1.0 / 39916800;
  sine = sine * z + 1.0 / 362880;
  sine = sine * z - 1.0 / 5040;
  sine = sine * z + 1.0 / 120;
  sine = sine * z - 1.0 / 6;
  sine = sine * z * r + r;
  double cosine = 1.0 / 20922789888000;
  cosine = cosine * z - 1.0 / 87178291200;
  cosine = cosine * z + 1.0 / 479001600;
  cosine = cosine * z - 1.0 / 3628800;
  cosine = cosine * z + 1.0 / 40320;
  cosine = cosine * z - 1.0 / 720;
  cosine = cosine * z + 1.0 / 24;
  cosine = cosine * z - 0.5;
  cosine = cosine * z + 1.0;
  switch ((int64_t)n & 3) {
    case 0: return {cosine, sine};
    case 1: return {-sine, cosine};
    case 2: return {-cosine, -sine};
    default: return {sine, -cosine};
  }
}

template <int D>
void rope_table(const pih_call* call, const pih_step* step, int part, int parts) {
  const float* inv_freq = (const float*)call->operand[0].data;
  Range range = share(step->tokens, part, parts);
  for (int64_t t = range.first; t < range.last; ++t) {
    float* y = row<float>(call->operand[1], t);
    for (int i = 0; i < D / 2; ++i) {
      Turn value = turn((double)((float)step->positions[t] * inv_freq[i]));
      y[i] = (float)value.cosine;
      y[D / 2 + i] = (float)value.sine;
    }
  }
}

// One scalar path: a step computes the table once.
template <int D>
void rope_table_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  rope_table<D>(call, step, part, parts);
}

template <int D>
PIH_INLINE void rotate(float* x, const float* table, int i, int a, int b) {
  float first = x[a], second = x[b], cosine = table[i], sine = table[D / 2 + i];
  x[a] = fma(first, cosine, -(second * sine));
  x[b] = fma(second, cosine, first * sine);
}

template <int COLUMNS, int D, int PAIRS>
void rope_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  constexpr int HEADS = COLUMNS / D;
  Range range = share(step->tokens * HEADS, part, parts);
  for (int64_t unit = range.first; unit < range.last; ++unit) {
    float* x = row<float>(call->operand[0], unit / HEADS) + unit % HEADS * D;
    const float* table = row<float>(call->operand[1], unit / HEADS);
    for (int i = 0; i < D / 2; ++i) PAIRS ? rotate<D>(x, table, i, 2 * i, 2 * i + 1) : rotate<D>(x, table, i, i, i + D / 2);
  }
}

template <int COLUMNS, int D, int PAIRS>
void rope(const pih_call* call, const pih_step* step, int part, int parts) {
  if constexpr (PAIRS == 1 || D / 2 % W != 0) {
    rope_ref<COLUMNS, D, PAIRS>(call, step, part, parts);
  } else {
    constexpr int HEADS = COLUMNS / D;
    Range range = share(step->tokens * HEADS, part, parts);
    for (int64_t unit = range.first; unit < range.last; ++unit) {
      float* x = row<float>(call->operand[0], unit / HEADS) + unit % HEADS * D;
      const float* table = row<float>(call->operand[1], unit / HEADS);
      for (int i = 0; i < D / 2; i += W) {
        vf first = load(x + i), second = load(x + D / 2 + i), cosine = load(table + i), sine = load(table + D / 2 + i);
        store(x + i, fma(first, cosine, -(second * sine)));
        store(x + D / 2 + i, fma(second, cosine, first * sine));
      }
    }
  }
}

}  // namespace pih
