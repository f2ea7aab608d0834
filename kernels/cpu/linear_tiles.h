// Weights in layout "tile16" times activations in "i16g32": the tile loops that linear_q4_1 and linear_q8_0 share.
//
// weight [N/16][K/32] blocks, x [T,K/32] groups, y [T,N] float32. A lane is a weight row. In each block the integer
// dot products are exact; their scaled float32 values are added in order of k, so no tile size changes a result.
#pragma once
#include "i16g32.h"
#include "layouts.h"
#include "linear.h"

namespace pih {

// Tokens whose sums fit the registers beside a block's unpacked weights.
constexpr int GROUP_TOKENS = 4;
// Weight tiles read side by side in decoding, where memory is what is waited for.
constexpr int TILE_STREAMS = 2;
constexpr int LANES = TILE / W;

// Four digits of one group to every lane.
#if defined(__AVX512F__)
PIH_INLINE __m512i four(const int8_t* digits) { return _mm512_set1_epi32(load_word(digits)); }
#else
PIH_INLINE __m256i four(const int8_t* digits) { return _mm256_set1_epi32(load_word(digits)); }
#endif

// 16 float16 as LANES vectors.
PIH_INLINE vf load_f16(const uint8_t* p) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#else
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#endif
}

// STREAMS tiles from `weight` x TOKENS rows of x, over all K.
template <class Format, int STREAMS, int TOKENS, int K, int ACCUMULATE>
PIH_INLINE void group_tile(const uint8_t* weight, const char* x, int64_t x_stride, char* y, int64_t y_stride, int64_t columns) {
  constexpr int64_t TILE_BYTES = (int64_t)K / GROUP * Format::BLOCK;
  vf total[STREAMS][TOKENS][LANES] = {};
  for (int64_t b = 0; b < K / GROUP; ++b) {
    const Group* group[TOKENS];
    PIH_UNROLL
    for (int t = 0; t < TOKENS; ++t) group[t] = (const Group*)(x + t * x_stride) + b;
    PIH_UNROLL
    for (int s = 0; s < STREAMS; ++s) {
      const uint8_t* block = weight + s * TILE_BYTES + b * Format::BLOCK;
      // The same place in the tiles that come next, to the L2 cache.
      if (TOKENS == 1)
        for (int line = 0; line < Format::BLOCK; line += 64) __builtin_prefetch(block + line + STREAMS * TILE_BYTES, 0, 2);
      Format::template step<TOKENS>(block, group, total[s]);
    }
  }
  PIH_UNROLL
  for (int s = 0; s < STREAMS; ++s)
    PIH_UNROLL
    for (int t = 0; t < TOKENS; ++t)
      PIH_UNROLL
      for (int lane = 0; lane < LANES; ++lane) {
        float* out = (float*)(y + t * y_stride) + s * TILE + lane * W;
        int64_t left = columns - s * TILE - lane * W;
        vf value = total[s][t][lane];
        if (left >= W)
          store(out, ACCUMULATE ? load(out) + value : value);
        else
          for (int i = 0; i < left; ++i) put<ACCUMULATE>(out + i, value[i]);
      }
}

template <class Format, int STREAMS, int TOKENS, int N, int K, int ACCUMULATE>
PIH_INLINE void group_tiles(const pih_call* call, int64_t first, int64_t last, int64_t t) {
  constexpr int64_t TILE_BYTES = (int64_t)K / GROUP * Format::BLOCK;
  const pih_operand &x = call->operand[0], &y = call->operand[2];
  const uint8_t* weight = (const uint8_t*)call->operand[1].data;
  int64_t n = first;
  for (; n + STREAMS <= last; n += STREAMS)
    group_tile<Format, STREAMS, TOKENS, K, ACCUMULATE>(weight + n * TILE_BYTES, row<char>(x, t), x.stride,
                                                       row<char>(y, t) + n * TILE * 4, y.stride, N - n * TILE);
  for (; n < last; ++n)
    group_tile<Format, 1, TOKENS, K, ACCUMULATE>(weight + n * TILE_BYTES, row<char>(x, t), x.stride,
                                                 row<char>(y, t) + n * TILE * 4, y.stride, N - n * TILE);
}

template <class Format, int N, int K, int ACCUMULATE>
PIH_INLINE void linear_tiles(const pih_call* call, const pih_step* step, int part, int parts) {
  static_assert(K % GROUP == 0, "tile16 holds whole groups of 32 columns");
  constexpr int64_t BLOCK = BLOCK_BYTES / (K / GROUP * Format::BLOCK) + TILE_STREAMS;
  Range range = share(tiles(N), part, parts);
  int64_t rows = rows_of(call, step);
  for (int64_t first = range.first; first < range.last; first += BLOCK) {
    int64_t last = min(first + BLOCK, range.last);
    if (rows == 1)
      group_tiles<Format, TILE_STREAMS, 1, N, K, ACCUMULATE>(call, first, last, 0);
    else
      tile_tokens<GROUP_TOKENS>(rows, [&](auto tokens, int64_t t) __attribute__((always_inline)) {
        group_tiles<Format, 1, decltype(tokens)::count, N, K, ACCUMULATE>(call, first, last, t);
      });
  }
}

PIH_INLINE float i16g32_activation(const pih_operand& x, int64_t t, int64_t k) {
  const Group& group = row<Group>(x, t)[k / 32];
  return (float)(group.high[k % 32] * DIGIT_BASE + group.low[k % 32]) * group.scale;
}

}  // namespace pih
