// linear, weight bf16 or int8 in the layout mma16 (see weight.cuh), x in bf16: y[t,n] = sum_k weight[n,k] * x[t,k], added
// to y where ACCUMULATE. A row's scale multiplies its whole sum.
//
// K is cut into SLICES parts whose sums are added in order. The narrow entries give a slice to each warp, the wide one
// gives a warp all of them: the order of every sum is the same, and a row's result does not depend on its company.
#pragma once
#include "weight.cuh"

namespace pih {

constexpr int SLICES = 8;

template <int K>
__device__ inline int slice_begin(int slice) {
  return slice * (K / 32) / SLICES;
}

// What a warp computes: 16 rows of the weight by 8 * TILES tokens from `first`; lane 4g+t has rows g, g+8 of tokens 2t, 2t+1.
template <class Weight, int K, int TILES, bool ONCE>
struct Strip {
  const char* weight;       // this lane's place in the strip's first tile
  const char* values[TILES];  // and in the row of x that it reads for each tile of tokens
  float sum[TILES][4];

  __device__ Strip(const pih_call& call, int strip, int first, int tokens) {
    const int lane = threadIdx.x % 32;
    weight = call.operand[1].data + strip * Weight::template strip_bytes<K>() + lane * 16;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      const int token = first + tile * 8 + lane / 4;
      // a token past the end reads the last one: its sums are thrown away
      values[tile] = row_of<char>(call.operand[0], token < tokens ? token : tokens - 1) + lane % 4 * 16;
    }
  }

  __device__ void slice(int index) {
#pragma unroll
    for (int i = 0; i < TILES * 4; ++i) sum[i / 4][i % 4] = 0.f;
#pragma unroll (ONCE ? 4 : 2)
    for (int at = slice_begin<K>(index); at < slice_begin<K>(index + 1); ++at) {
      uint4 a, b;
      Weight::template load<ONCE>(weight + at * Weight::TILE_BYTES, a, b);
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
        const uint4 v = *reinterpret_cast<const uint4*>(values[tile] + at * 64);
        mma_bf16(sum[tile], a, v.x, v.y);
        mma_bf16(sum[tile], b, v.z, v.w);
      }
    }
  }
};

// Writes sum i of a tile of tokens to where it belongs.
template <class Weight, int K, int ACCUMULATE>
__device__ inline void put(const pih_call& call, int strip, int first, int tokens, int i, float value) {
  const int lane = threadIdx.x % 32, token = first + lane % 4 * 2 + i % 2, n = strip * 16 + lane / 4 + i / 2 * 8;
  if (token >= tokens) return;
  if (Weight::SCALED)
    value *= Weight::template scale<K>(call.operand[1].data + strip * Weight::template strip_bytes<K>(), n % 16);
  float* to = row_of<float>(call.operand[2], token) + n;
  *to = ACCUMULATE ? *to + value : value;
}

// Up to 8 * TILES tokens: a block for each 16 rows of the weight, a warp for each slice.
template <class Weight, int N, int K, int ACCUMULATE, int TILES>
struct linear_narrow {
  static_assert(N % 16 == 0 && K % 32 == 0);
  static constexpr pih_launch launch = {TILES * 8, SLICES * 32, TILES * 8, 0, N / 16, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    __shared__ float sums[SLICES][TILES * 4][32];
    const int tokens = rows_of(call, step), warp = threadIdx.x / 32, lane = threadIdx.x % 32, strip = blockIdx.y;
    Strip<Weight, K, TILES, true> mine(call, strip, 0, tokens);
    mine.slice(warp);
#pragma unroll
    for (int i = 0; i < TILES * 4; ++i) sums[warp][i][lane] = mine.sum[i / 4][i % 4];
    __syncthreads();
    for (int i = warp; i < TILES * 4; i += SLICES) {
      float total = sums[0][i][lane];
      for (int slice = 1; slice < SLICES; ++slice) total += sums[slice][i][lane];
      put<Weight, K, ACCUMULATE>(call, strip, i / 4 * 8, tokens, i % 4, total);
    }
  }
};

// Any number of tokens: 64 rows of the weight by 64 tokens a block, 16 by 64 a warp.
template <class Weight, int N, int K, int ACCUMULATE>
struct linear_wide {
  static constexpr int WARPS = 4, TILES = 8;
  static constexpr pih_launch launch = {PIH_ANY_ROWS, WARPS * 32, TILES * 8, 0, (N / 16 + WARPS - 1) / WARPS, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int tokens = rows_of(call, step), first = blockIdx.x * TILES * 8, strip = blockIdx.y * WARPS + threadIdx.x / 32;
    if (first >= tokens || strip >= N / 16) return;
    Strip<Weight, K, TILES, false> mine(call, strip, first, tokens);
    float total[TILES][4];
#pragma unroll 1
    for (int slice = 0; slice < SLICES; ++slice) {
      mine.slice(slice);
#pragma unroll
      for (int i = 0; i < TILES * 4; ++i) {
        float& value = total[i / 4][i % 4];
        value = slice ? value + mine.sum[i / 4][i % 4] : mine.sum[i / 4][i % 4];
      }
    }
#pragma unroll
    for (int i = 0; i < TILES * 4; ++i)
      put<Weight, K, ACCUMULATE>(call, strip, first + i / 4 * 8, tokens, i % 4, total[i / 4][i % 4]);
  }
};

}  // namespace pih

#define PIH_LINEAR(symbol, weight, n, k, accumulate)                              \
  PIH_ENTRY(symbol, pih::linear_narrow<weight, n, k, accumulate, 1>)              \
  PIH_ENTRY(symbol##_to32, pih::linear_narrow<weight, n, k, accumulate, 4>)       \
  PIH_ENTRY(symbol##_wide, pih::linear_wide<weight, n, k, accumulate>)
#define PIH_ENTRIES_linear_bf16(symbol, n, k, accumulate) PIH_LINEAR(symbol, pih::Weight16, n, k, accumulate)
#define PIH_ENTRIES_linear_int8(symbol, n, k, accumulate) PIH_LINEAR(symbol, pih::Int8, n, k, accumulate)
