// Per group of D = COLUMNS / GROUPS columns: y = x / sqrt(mean(x^2) + eps) * weight.
//
// x [T,COLUMNS] and y [T,COLUMNS] float32 (y may be x), weight [D] float32. Work is shared by group.
#pragma once
#include "vec.h"

namespace pih {

template <int D>
PIH_INLINE float sum_of_squares(const float* x) {
  vf total = {};
  int i = 0;
  for (; i + W <= D; i += W) total = fma(load(x + i), load(x + i), total);
  float result = sum(total);
  for (; i < D; ++i) result = fma(x[i], x[i], result);
  return result;
}

template <int COLUMNS, int GROUPS, uint32_t EPS>
void rms_norm(const pih_call* call, const pih_step* step, int part, int parts) {
  constexpr int D = COLUMNS / GROUPS;
  const float* weight = (const float*)call->operand[1].data;
  Range range = share(rows_of(call, step) * GROUPS, part, parts);
  for (int64_t unit = range.first; unit < range.last; ++unit) {
    const float* x = row<float>(call->operand[0], unit / GROUPS) + unit % GROUPS * D;
    float* y = row<float>(call->operand[2], unit / GROUPS) + unit % GROUPS * D;
    float factor = 1.0f / __builtin_elementwise_sqrt(sum_of_squares<D>(x) / D + from_bits(EPS));
    int i = 0;
    for (; i + W <= D; i += W) store(y + i, load(x + i) * splat(factor) * load(weight + i));
    for (; i < D; ++i) y[i] = x[i] * factor * weight[i];
  }
}

template <int COLUMNS, int GROUPS, uint32_t EPS>
void rms_norm_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  constexpr int D = COLUMNS / GROUPS;
  const float* weight = (const float*)call->operand[1].data;
  Range range = share(rows_of(call, step), part, parts);
  for (int64_t t = range.first; t < range.last; ++t)
    for (int group = 0; group < GROUPS; ++group) {
      const float* x = row<float>(call->operand[0], t) + group * D;
      float* y = row<float>(call->operand[2], t) + group * D;
      double squares = 0;
      for (int i = 0; i < D; ++i) squares += (double)x[i] * x[i];
      double factor = 1.0 / __builtin_elementwise_sqrt(squares / D + (double)from_bits(EPS));
      for (int i = 0; i < D; ++i) y[i] = (float)(x[i] * factor * weight[i]);
    }
}

}  // namespace pih
