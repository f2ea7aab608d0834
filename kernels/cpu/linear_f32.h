// y[t,n] = sum_k weight[n,k] * x[t,k], all float32.
//
// weight [N,K] row-major, x [T,K], y [T,N].
#pragma once
#include "layouts.h"
#include "linear_rows.h"

namespace pih {

struct F32Rows {
  typedef float type;
  static constexpr int STEP = W;

  template <int ROWS, int TOKENS, int K>
  PIH_INLINE void step(const float* weight, const char* x, int64_t x_stride, vf (&total)[ROWS][TOKENS]) {
    vf values[ROWS];
    PIH_UNROLL
    for (int r = 0; r < ROWS; ++r) values[r] = load(weight + r * K);
    PIH_UNROLL
    for (int t = 0; t < TOKENS; ++t) {
      vf piece = load((const float*)(x + t * x_stride));
      PIH_UNROLL
      for (int r = 0; r < ROWS; ++r) total[r][t] = fma(values[r], piece, total[r][t]);
    }
  }
};

template <int N, int K, int ACCUMULATE>
void linear_f32(const pih_call* call, const pih_step* step, int part, int parts) {
  linear_rows<F32Rows, N, K, ACCUMULATE>(call, step, part, parts);
}

template <int N, int K, int ACCUMULATE>
void linear_f32_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  linear_by_element<N, K, ACCUMULATE>(call, step, part, parts, element_f32<K>, f32_activation);
}

}  // namespace pih
