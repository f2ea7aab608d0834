// y[t,n] = sum_k weight[n,k] * x[t,k] with 8-bit weights (scale per 32) and 16-bit activations.
//
// weight [N,K] in "tile16", x [T,K/32] groups of "i16g32", y [T,N] float32. AVX-512's byte dot product takes one
// unsigned side, so 128 is added to the weights and 128 * sum(a) taken off again; AVX2 multiplies in 16 bits.
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
  // Weights are widened to 16 bits. A load of 16 bytes is 4 rows x 4 columns, so two neighbouring sums make a row.
  template <int TOKENS>
  PIH_INLINE void step(const uint8_t* block, const Group* const (&group)[TOKENS], vf (&total)[TOKENS][LANES]) {
    alignas(32) int16_t values[TOKENS][GROUP];
    PIH_UNROLL
    for (int t = 0; t < TOKENS; ++t)
      PIH_UNROLL
      for (int i = 0; i < GROUP; i += 16) {
        __m256i high = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(group[t]->high + i)));
        __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(group[t]->low + i)));
        __m256i value = _mm256_add_epi16(_mm256_mullo_epi16(high, _mm256_set1_epi16(DIGIT_BASE)), low);
        _mm256_store_si256((__m256i*)(values[t] + i), value);
      }
    PIH_UNROLL
    for (int lane = 0; lane < LANES; ++lane) {
      const uint8_t* bytes = block + 32 + 32 * lane;
      __m256i first[TOKENS] = {}, second[TOKENS] = {};
      PIH_UNROLL
      for (int v = 0; v < 8; ++v) {
        __m256i upper = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(bytes + 64 * v)));
        __m256i lower = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(bytes + 64 * v + 16)));
        PIH_UNROLL
        for (int t = 0; t < TOKENS; ++t) {
          __m256i four_values = _mm256_set1_epi64x(load_double_word(values[t] + 4 * v));
          first[t] = _mm256_add_epi32(first[t], _mm256_madd_epi16(upper, four_values));
          second[t] = _mm256_add_epi32(second[t], _mm256_madd_epi16(lower, four_values));
        }
      }
      vf scale = load_f16(block + 16 * lane);
      PIH_UNROLL
      for (int t = 0; t < TOKENS; ++t) {
        __m256i exact = _mm256_permute4x64_epi64(_mm256_hadd_epi32(first[t], second[t]), 0xD8);
        total[t][lane] = fma((vf)_mm256_cvtepi32_ps(exact), scale * splat(group[t]->scale), total[t][lane]);
      }
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
