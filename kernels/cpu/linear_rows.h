// Row-major weights times float32 activations: the tile loops that linear_f32 and linear_bf16 share.
//
// weight [N,K] row-major, x [T,K] float32, y [T,N] float32. Each (row, token) pair has one vector accumulator
// that takes the columns in the order of the format's `step`, then the accumulator's lanes are folded.
#pragma once
#include "linear.h"

namespace pih {

// Rows x tokens whose accumulators fit the registers: 32 with AVX-512, 16 with AVX2.
#if defined(__AVX512F__)
constexpr int TILE_ROWS = 4, TILE_TOKENS = 6;
#else
constexpr int TILE_ROWS = 2, TILE_TOKENS = 4;
#endif
// Decoding is bound by memory. Its tile has accumulators enough to hide what an fma takes, and bytes so few that two tiles
// stay in the L1 cache.
constexpr int64_t DECODE_TILE_BYTES = 8 * 1024;

constexpr int decode_rows(int64_t row_bytes) {
  int rows = 8;
  while (rows > 2 && rows * row_bytes > DECODE_TILE_BYTES) rows /= 2;
  return rows;
}

// Asks for the bytes at `p`, for one use only or for one by each tile of tokens: those stay in the L2 cache.
template <int64_t BYTES, bool ONCE>
PIH_INLINE void prefetch(const void* p) {
  PIH_UNROLL
  for (int64_t at = 0; at < BYTES; at += 64) __builtin_prefetch((const char*)p + at, 0, ONCE ? 0 : 2);
}

// Columns [0, K) of ROWS rows from `weight`, TOKENS rows of x; Format::step does one piece of Format::STEP columns.
template <class Format, int ROWS, int TOKENS, int K, int ACCUMULATE>
PIH_INLINE void row_tile(const typename Format::type* weight, const char* x, int64_t x_stride, char* y, int64_t y_stride) {
  vf total[ROWS][TOKENS] = {};
  int64_t k = 0;
  // The tile takes its rows side by side, which a processor's own prefetchers lose at every page; the next tile's bytes are
  // asked for in the order in which they lie.
  for (; k + Format::STEP <= K; k += Format::STEP) {
    prefetch<ROWS * Format::STEP * sizeof(*weight), TOKENS == 1>(weight + ROWS * (K + k));
    Format::template step<ROWS, TOKENS, K>(weight + k, x + k * 4, x_stride, total);
  }
  PIH_UNROLL
  for (int t = 0; t < TOKENS; ++t)
    PIH_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      float value = sum(total[r][t]);
      if constexpr (K % Format::STEP != 0)
        for (int64_t c = k; c < K; ++c) value = fma(weight[r * K + c], ((const float*)(x + t * x_stride))[c], value);
      put<ACCUMULATE>((float*)(y + t * y_stride) + r, value);
    }
}

template <class Format, int ROWS, int TOKENS, int N, int K, int ACCUMULATE>
PIH_INLINE void row_tiles(const pih_call* call, int64_t first, int64_t last, int64_t t) {
  const pih_operand &x = call->operand[0], &y = call->operand[2];
  const typename Format::type* weight = (const typename Format::type*)call->operand[1].data;
  int64_t n = first;
  for (; n + ROWS <= last; n += ROWS)
    row_tile<Format, ROWS, TOKENS, K, ACCUMULATE>(weight + n * K, row<char>(x, t), x.stride, row<char>(y, t) + n * 4, y.stride);
  for (; n < last; ++n)
    row_tile<Format, 1, TOKENS, K, ACCUMULATE>(weight + n * K, row<char>(x, t), x.stride, row<char>(y, t) + n * 4, y.stride);
}

// Shares are cut at multiples of UNIT rows: whole tiles, and whole cache lines of y.
constexpr int UNIT = 16;

template <class Format, int N, int K, int ACCUMULATE>
PIH_INLINE void linear_rows(const pih_call* call, const pih_step* step, int part, int parts) {
  constexpr int64_t ROW_BYTES = K * sizeof(typename Format::type);
  constexpr int64_t BLOCK = BLOCK_BYTES / ROW_BYTES / UNIT * UNIT + UNIT;
  constexpr int64_t UNITS = (N + UNIT - 1) / UNIT;
  Range range = share(UNITS, part, parts);
  int64_t end = min(range.last * UNIT, N), rows = rows_of(call, step);
  for (int64_t first = range.first * UNIT; first < end; first += BLOCK) {
    int64_t last = min(first + BLOCK, end);
    if (rows == 1)
      row_tiles<Format, decode_rows(ROW_BYTES), 1, N, K, ACCUMULATE>(call, first, last, 0);
    else
      tile_tokens<TILE_TOKENS>(rows, [&](auto tokens, int64_t t) __attribute__((always_inline)) {
        row_tiles<Format, TILE_ROWS, decltype(tokens)::count, N, K, ACCUMULATE>(call, first, last, t);
      });
  }
}

}  // namespace pih
