// silu_mul: y = gate / (1 + exp(-gate)) * up. With quantize: rounded to bf16, the product itself is not kept.
// operands: gate, up, y
#pragma once
#include "pack.cuh"

namespace pih {

__device__ inline float silu(float x) { return x / (1.f + expf(-x)); }

// Two columns a thread; put(row of y, pair, values).
template <int COLUMNS, class Put>
struct silu_mul_pairs {
  static_assert(COLUMNS % 2 == 0);
  static constexpr int THREADS = 256;
  static constexpr pih_launch launch = {PIH_ANY_ROWS, THREADS, 1, 0, (COLUMNS / 2 + THREADS - 1) / THREADS, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int row = blockIdx.x, i = blockIdx.y * THREADS + threadIdx.x;
    if (row >= rows_of(call, step) || i >= COLUMNS / 2) return;
    const float2 gate = row_of<float2>(call.operand[0], row)[i], up = row_of<float2>(call.operand[1], row)[i];
    Put::pair(row_of<char>(call.operand[2], row), i, silu(gate.x) * up.x, silu(gate.y) * up.y);
  }
};

template <int COLUMNS>
using silu_mul = silu_mul_pairs<COLUMNS, Float>;
template <int COLUMNS>
using silu_mul_bf16 = silu_mul_pairs<COLUMNS, Bf16>;

}  // namespace pih

#define PIH_ENTRIES_silu_mul(symbol, columns) PIH_ENTRY(symbol, pih::silu_mul<columns>)
#define PIH_ENTRIES_silu_mul_bf16(symbol, columns) PIH_ENTRY(symbol, pih::silu_mul_bf16<columns>)
