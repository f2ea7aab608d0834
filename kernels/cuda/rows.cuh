// gather: y[r] = x[rows[r]]. quantize: y = x rounded to bf16. A block a row. operands: x, y
#pragma once
#include "pack.cuh"

namespace pih {

template <int COLUMNS, class Put, bool WANTED>
struct copy_rows {
  static_assert(COLUMNS % 2 == 0);
  static constexpr int THREADS = 256;
  static constexpr pih_launch launch = {PIH_ANY_ROWS, THREADS, 1, 0, 1, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int row = blockIdx.x;
    if (row >= rows_of(call, step)) return;
    const float2* x = row_of<float2>(call.operand[0], WANTED ? step.rows[row] : row);
    for (int i = threadIdx.x; i < COLUMNS / 2; i += THREADS) Put::pair(row_of<char>(call.operand[1], row), i, x[i].x, x[i].y);
  }
};

template <int COLUMNS>
using gather = copy_rows<COLUMNS, Float, true>;
template <int COLUMNS>
using quantize_bf16 = copy_rows<COLUMNS, Bf16, false>;

}  // namespace pih

#define PIH_ENTRIES_gather(symbol, columns) PIH_ENTRY(symbol, pih::gather<columns>)
#define PIH_ENTRIES_quantize_bf16(symbol, columns) PIH_ENTRY(symbol, pih::quantize_bf16<columns>)
