// What the linear kernels share: how rows of weights and tokens are cut into register tiles.
//
// Weights are read from memory once: a block of weight rows small enough for the L2 cache meets every
// token before the next block is read. The tile sizes never change an output value, because each
// (row, token) pair has an accumulator of its own that takes the columns in one fixed order.
#pragma once
#include "vec.h"

namespace pih {

constexpr int64_t BLOCK_BYTES = 256 * 1024;

// Calls run(tile<TOKENS>, first token) over `count` tokens: whole tiles of MOST, then one tile of what is left.
template <int TOKENS>
struct Tokens {
  static constexpr int count = TOKENS;
};

template <int LEFT, class F>
PIH_INLINE void rest_of_tokens(int64_t first, int64_t left, F& run) {
  if constexpr (LEFT > 0) {
    if (left == LEFT) return run(Tokens<LEFT>{}, first);
    rest_of_tokens<LEFT - 1>(first, left, run);
  }
}

template <int MOST, class F>
PIH_INLINE void tile_tokens(int64_t count, F run) {
  int64_t t = 0;
  for (; t + MOST <= count; t += MOST) run(Tokens<MOST>{}, t);
  rest_of_tokens<MOST - 1>(t, count - t, run);
}

template <int ACCUMULATE>
PIH_INLINE void put(float* y, float value) {
  *y = ACCUMULATE ? *y + value : value;
}

// One reference for every weight format: `element(weight, n, k)` times x in order of k, in double precision.
template <int N, int K, int ACCUMULATE, class E, class X>
PIH_INLINE void linear_by_element(const pih_call* call, const pih_step* step, int part, int parts, E element, X x_at) {
  Range range = share(N, part, parts);
  int64_t rows = rows_of(call, step);
  for (int64_t n = range.first; n < range.last; ++n)
    for (int64_t t = 0; t < rows; ++t) {
      double total = 0;
      for (int64_t k = 0; k < K; ++k) total += (double)element(call->operand[1].data, n, k) * (double)x_at(call->operand[0], t, k);
      put<ACCUMULATE>(row<float>(call->operand[2], t) + n, (float)total);
    }
}

PIH_INLINE float f32_activation(const pih_operand& x, int64_t t, int64_t k) { return row<float>(x, t)[k]; }

}  // namespace pih
