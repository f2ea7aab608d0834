// y = x in the activation format "i16g32" (see i16g32.h).
//
// x [T,COLUMNS] float32, y [T,COLUMNS/32] groups. Work is shared by group.
#pragma once
#include "i16g32.h"

namespace pih {

// Below this a group counts as zero: 1 / scale would leave the range of float32.
constexpr float LEAST_GROUP = 1e-30f;

// 32 whole numbers of 8 bits, in 32 / W vectors.
PIH_INLINE void store_digits(int8_t* to, const vf (&digits)[GROUP / W]) {
  vi whole[GROUP / W];
  PIH_UNROLL
  for (int i = 0; i < GROUP / W; ++i) whole[i] = __builtin_convertvector(digits[i], vi);
#if defined(__AVX512F__)
  for (int i = 0; i < GROUP / W; ++i) _mm_storeu_si128((__m128i*)(to + i * W), _mm512_cvtepi32_epi8((__m512i)whole[i]));
#else
  // Packing works within halves of 128 bits: the lower halves of all four vectors come first, then the upper ones.
  __m256i first = _mm256_packs_epi32((__m256i)whole[0], (__m256i)whole[1]);
  __m256i second = _mm256_packs_epi32((__m256i)whole[2], (__m256i)whole[3]);
  __m256i mixed = _mm256_packs_epi16(first, second);
  _mm256_storeu_si256((__m256i*)to, _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
#endif
}

PIH_INLINE void quantize_group(const float* x, Group* group) {
  vf most = {};
  PIH_UNROLL
  for (int i = 0; i < GROUP; i += W) most = max(most, __builtin_elementwise_abs(load(x + i)));
  float top = largest(most);
  float inverse = top < LEAST_GROUP ? 0.0f : DIGIT_MOST / top;
  vf high[GROUP / W], low[GROUP / W], total = {};
  PIH_UNROLL
  for (int i = 0; i < GROUP / W; ++i) {
    vf q = round_even(load(x + i * W) * splat(inverse));
    high[i] = round_even(q * splat(1.0f / DIGIT_BASE));
    low[i] = fma(high[i], splat(-DIGIT_BASE), q);
    total += q;
  }
  store_digits(group->high, high);
  store_digits(group->low, low);
  group->scale = top < LEAST_GROUP ? 0.0f : top * (1.0f / DIGIT_MOST);
  // Whole numbers below 2^24, so their sum in float32 is exact.
  group->sum = (int32_t)sum(total);
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
      group->scale = top < LEAST_GROUP ? 0.0f : top * (1.0f / DIGIT_MOST);
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
