// y[t,n] = sum_k weight[n,k] * x[t,k] with bf16 weights in layout "pair16", widened to float32 in registers.
//
// weight [N,K] bf16 (see layouts.h), K a multiple of 32; x [T,K], y [T,N] float32. A piece is 32 columns:
// the low halves of a row's words are columns 0..15, the high halves columns 16..31.
#pragma once
#include "layouts.h"
#include "linear_rows.h"

namespace pih {

struct Bf16Rows {
  typedef uint16_t type;
  static constexpr int STEP = 32;

  template <int ROWS, int TOKENS, int K>
  PIH_INLINE void step(const uint16_t* weight, const char* x, int64_t x_stride, vf (&total)[ROWS][TOKENS]) {
    PIH_UNROLL
    for (int i = 0; i < 16; i += W) {
      vu words[ROWS];
      PIH_UNROLL
      for (int r = 0; r < ROWS; ++r) words[r] = load_words(weight + r * K + 2 * i);
      PIH_UNROLL
      for (int t = 0; t < TOKENS; ++t) {
        vf low = load((const float*)(x + t * x_stride) + i);
        PIH_UNROLL
        for (int r = 0; r < ROWS; ++r) total[r][t] = fma(low_bf16(words[r]), low, total[r][t]);
      }
      PIH_UNROLL
      for (int t = 0; t < TOKENS; ++t) {
        vf high = load((const float*)(x + t * x_stride) + 16 + i);
        PIH_UNROLL
        for (int r = 0; r < ROWS; ++r) total[r][t] = fma(high_bf16(words[r]), high, total[r][t]);
      }
    }
  }
};

template <int N, int K, int ACCUMULATE>
void linear_bf16(const pih_call* call, const pih_step* step, int part, int parts) {
  static_assert(K % 32 == 0, "pair16 holds whole groups of 32 columns");
  linear_rows<Bf16Rows, N, K, ACCUMULATE>(call, step, part, parts);
}

template <int N, int K, int ACCUMULATE>
void linear_bf16_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  linear_by_element<N, K, ACCUMULATE>(call, step, part, parts, element_bf16<K>, f32_activation);
}

}  // namespace pih
