// y = x in the activation format "i16g32" (see i16g32.h).
//
// x [T,COLUMNS] float32, y [T,COLUMNS/32] groups. Work is shared by group.
#pragma once
#include "i16g32.h"

namespace pih {

// Below this a group counts as zero: 1 / scale would leave the range of float32.
constexpr float LEAST_GROUP = 1e-30f;

PIH_INLINE void quantize_group(const float* x, Group* group) {
  vf most = {};
  for (int i = 0; i < 32; i += W) most = max(most, __builtin_elementwise_abs(load(x + i)));
  float top = largest(most);
  float inverse = top < LEAST_GROUP ? 0.0f : DIGIT_MOST / top;
  vi total = {};
  for (int i = 0; i < 32; i += W) {
    vf q = round_even(load(x + i) * splat(inverse));
    vf high = round_even(q * splat(1.0f / DIGIT_BASE));
    vf low = fma(high, splat(-DIGIT_BASE), q);
    *(vb_any*)(group->high + i) = __builtin_convertvector(__builtin_convertvector(high, vi), vb);
    *(vb_any*)(group->low + i) = __builtin_convertvector(__builtin_convertvector(low, vi), vb);
    total += __builtin_convertvector(q, vi);
  }
  group->scale = top < LEAST_GROUP ? 0.0f : top / DIGIT_MOST;
  group->sum = __builtin_reduce_add(total);
}

template <int COLUMNS>
void quantize_i16g32(const pih_call* call, const pih_step* step, int part, int parts) {
  constexpr int GROUPS = COLUMNS / 32;
  Range range = share(rows_of(call, step) * GROUPS, part, parts);
  for (int64_t unit = range.first; unit < range.last; ++unit)
    quantize_group(row<float>(call->operand[0], unit / GROUPS) + unit % GROUPS * 32,
                   row<Group>(call->operand[1], unit / GROUPS) + unit % GROUPS);
}

template <int COLUMNS>
void quantize_i16g32_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  Range range = share(rows_of(call, step), part, parts);
  for (int64_t t = range.first; t < range.last; ++t)
    for (int g = 0; g < COLUMNS / 32; ++g) {
      const float* x = row<float>(call->operand[0], t) + g * 32;
      Group* group = row<Group>(call->operand[1], t) + g;
      float top = 0;
      for (int i = 0; i < 32; ++i) top = max(top, __builtin_elementwise_abs(x[i]));
      float inverse = top < LEAST_GROUP ? 0.0f : DIGIT_MOST / top;
      group->scale = top < LEAST_GROUP ? 0.0f : top / DIGIT_MOST;
      group->sum = 0;
      for (int i = 0; i < 32; ++i) {
        float q = __builtin_elementwise_roundeven(x[i] * inverse);
        float high = __builtin_elementwise_roundeven(q * (1.0f / DIGIT_BASE));
        group->high[i] = (int8_t)high;
        group->low[i] = (int8_t)(q - high * DIGIT_BASE);
        group->sum += (int32_t)q;
      }
    }
}

}  // namespace pih
