// y[t,n] = sum_k weight[n,k] * x[t,k] with 8-bit weights (scale per 32) and 16-bit activations.
//
// weight [N,K] in "tile16", x [T,K/32] groups of "i16g32", y [T,N] float32. The byte dot products take one unsigned
// side: AVX-512 adds 128 to the weights and takes 128 * sum(a) off again; AVX2 moves the weight's sign to the digit.
#pragma once
#include "linear_tiles.h"

namespace pih {

struct Q8Tiles {
  static constexpr int BLOCK = Q8_BLOCK;

#if defined(__AVX512F__)
  template <int TOKENS>
  PIH_INLINE void step(const uint8_t* block, const Group* const (&group)[TOKENS], vf (&total)[TOKENS][LANES]) {
    const __m512i offset = _mm512_set1_epi8(-128);
    vf scale = load_f16(block);
    __m512i weight[8];
    PIH_UNROLL
    for (int v = 0; v < 8; ++v) weight[v] = _mm512_xor_si512(_mm512_loadu_si512(block + 32 + 64 * v), offset);
    PIH_UNROLL
    for (int t = 0; t < TOKENS; ++t) {
      __m512i high = _mm512_setzero_si512(), low = _mm512_set1_epi32(-128 * group[t]->sum);
      PIH_UNROLL
      for (int v = 0; v < 8; ++v) {
        high = _mm512_dpbusd_epi32(high, weight[v], four(group[t]->high + 4 * v));
        low = _mm512_dpbusd_epi32(low, weight[v], four(group[t]->low + 4 * v));
      }
      __m512i exact = _mm512_add_epi32(_mm512_mullo_epi32(high, _mm512_set1_epi32(DIGIT_BASE)), low);
      total[t][0] = fma((vf)_mm512_cvtepi32_ps(exact), scale * splat(group[t]->scale), total[t][0]);
    }
  }
#else
  // |weight| <= 128 and |digit| <= 127: two products fit 16 bits; four at a time are widened.
  template <int TOKENS>
  PIH_INLINE void step(const uint8_t* block, const Group* const (&group)[TOKENS], vf (&total)[TOKENS][LANES]) {
    const __m256i one = _mm256_set1_epi16(1), base = _mm256_set1_epi16(DIGIT_BASE);
    PIH_UNROLL
    for (int lane = 0; lane < LANES; ++lane) {
      vf scale = load_f16(block + 16 * lane);
      __m256i exact[TOKENS] = {};
      PIH_UNROLL
      for (int v = 0; v < 8; ++v) {
        __m256i weight = _mm256_loadu_si256((const __m256i*)(block + 32 + 64 * v + 32 * lane));
        __m256i size = _mm256_abs_epi8(weight);
        PIH_UNROLL
        for (int t = 0; t < TOKENS; ++t) {
          __m256i high = _mm256_maddubs_epi16(size, _mm256_sign_epi8(four(group[t]->high + 4 * v), weight));
          __m256i low = _mm256_maddubs_epi16(size, _mm256_sign_epi8(four(group[t]->low + 4 * v), weight));
          exact[t] = _mm256_add_epi32(exact[t], _mm256_madd_epi16(high, base));
          exact[t] = _mm256_add_epi32(exact[t], _mm256_madd_epi16(low, one));
        }
      }
      PIH_UNROLL
      for (int t = 0; t < TOKENS; ++t)
        total[t][lane] = fma((vf)_mm256_cvtepi32_ps(exact[t]), scale * splat(group[t]->scale), total[t][lane]);
    }
  }
#endif
};

template <int N, int K, int ACCUMULATE>
void linear_q8_0(const pih_call* call, const pih_step* step, int part, int parts) {
  linear_tiles<Q8Tiles, N, K, ACCUMULATE>(call, step, part, parts);
}

template <int N, int K, int ACCUMULATE>
void linear_q8_0_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  linear_by_element<N, K, ACCUMULATE>(call, step, part, parts, element_q8_0<K>, i16g32_activation);
}

}  // namespace pih
