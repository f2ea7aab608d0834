// y[t,n] = sum_k weight[n,k] * x[t,k] with 4-bit weights (scale and minimum per 32) and 16-bit activations.
//
// weight [N,K] in "tile16", x [T,K/32] groups of "i16g32", y [T,N] float32. In one block, with integers q (weight) and
// a (activation): sum (s q + m) (u a) = s u (sum q a) + m u (sum a). |sum q a| < 2^24, so float32 holds it exactly.
#pragma once
#include "linear_tiles.h"

namespace pih {

struct Q4Tiles {
  static constexpr int BLOCK = Q4_BLOCK;

#if defined(__AVX512F__)
  template <int TOKENS>
  PIH_INLINE void step(const uint8_t* block, const Group* const (&group)[TOKENS], vf (&total)[TOKENS][LANES]) {
    const __m512i mask = _mm512_set1_epi8(15);
    vf scale = load_f16(block), minimum = load_f16(block + 32);
    __m512i weight[8];
    PIH_UNROLL
    for (int v = 0; v < 4; ++v) {
      __m512i bytes = _mm512_loadu_si512(block + 64 + 64 * v);
      weight[v] = _mm512_and_si512(bytes, mask);
      weight[4 + v] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
    }
    PIH_UNROLL
    for (int t = 0; t < TOKENS; ++t) {
      __m512i high = _mm512_setzero_si512(), low = high;
      PIH_UNROLL
      for (int v = 0; v < 8; ++v) {
        high = _mm512_dpbusd_epi32(high, weight[v], four(group[t]->high + 4 * v));
        low = _mm512_dpbusd_epi32(low, weight[v], four(group[t]->low + 4 * v));
      }
      vf dot = fma((vf)_mm512_cvtepi32_ps(high), splat(DIGIT_BASE), (vf)_mm512_cvtepi32_ps(low));
      total[t][0] = fma(dot, scale * splat(group[t]->scale), total[t][0]);
      total[t][0] = fma(minimum, splat(group[t]->scale * (float)group[t]->sum), total[t][0]);
    }
  }
#else
  // Two products with a nibble add up to at most 2 * 15 * 127, eight times that fits 16 bits.
  template <int TOKENS>
  PIH_INLINE void step(const uint8_t* block, const Group* const (&group)[TOKENS], vf (&total)[TOKENS][LANES]) {
    const __m256i mask = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1), base = _mm256_set1_epi16(DIGIT_BASE);
    PIH_UNROLL
    for (int lane = 0; lane < LANES; ++lane) {
      vf scale = load_f16(block + 16 * lane), minimum = load_f16(block + 32 + 16 * lane);
      __m256i high[TOKENS] = {}, low[TOKENS] = {};
      PIH_UNROLL
      for (int v = 0; v < 4; ++v) {
        __m256i bytes = _mm256_loadu_si256((const __m256i*)(block + 64 + 64 * v + 32 * lane));
        __m256i first = _mm256_and_si256(bytes, mask), second = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
        PIH_UNROLL
        for (int t = 0; t < TOKENS; ++t) {
          high[t] = _mm256_add_epi16(high[t], _mm256_maddubs_epi16(first, four(group[t]->high + 4 * v)));
          low[t] = _mm256_add_epi16(low[t], _mm256_maddubs_epi16(first, four(group[t]->low + 4 * v)));
          high[t] = _mm256_add_epi16(high[t], _mm256_maddubs_epi16(second, four(group[t]->high + 16 + 4 * v)));
          low[t] = _mm256_add_epi16(low[t], _mm256_maddubs_epi16(second, four(group[t]->low + 16 + 4 * v)));
        }
      }
      PIH_UNROLL
      for (int t = 0; t < TOKENS; ++t) {
        __m256i exact = _mm256_add_epi32(_mm256_madd_epi16(high[t], base), _mm256_madd_epi16(low[t], one));
        vf dot = (vf)_mm256_cvtepi32_ps(exact);
        total[t][lane] = fma(dot, scale * splat(group[t]->scale), total[t][lane]);
        total[t][lane] = fma(minimum, splat(group[t]->scale * (float)group[t]->sum), total[t][lane]);
      }
    }
  }
#endif
};

template <int N, int K, int ACCUMULATE>
void linear_q4_1(const pih_call* call, const pih_step* step, int part, int parts) {
  linear_tiles<Q4Tiles, N, K, ACCUMULATE>(call, step, part, parts);
}

template <int N, int K, int ACCUMULATE>
void linear_q4_1_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  linear_by_element<N, K, ACCUMULATE>(call, step, part, parts, element_q4_1<K>, i16g32_activation);
}

}  // namespace pih
