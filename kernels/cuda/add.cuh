// add: y = y + x. Between ranks only: a plan of one rank adds in its linears. Two columns a thread. operands: x, y
#pragma once
#include "pack.cuh"

namespace pih {

template <int COLUMNS>
struct add {
  static_assert(COLUMNS % 2 == 0);
  static constexpr int THREADS = 256;
  static constexpr pih_launch launch = {PIH_ANY_ROWS, THREADS, 1, 0, (COLUMNS / 2 + THREADS - 1) / THREADS, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int row = blockIdx.x, i = blockIdx.y * THREADS + threadIdx.x;
    if (row >= rows_of(call, step) || i >= COLUMNS / 2) return;
    const float2 x = row_of<float2>(call.operand[0], row)[i], y = row_of<float2>(call.operand[1], row)[i];
    Float::pair(row_of<char>(call.operand[1], row), i, y.x + x.x, y.y + x.y);
  }
};

}  // namespace pih

#define PIH_ENTRIES_add(symbol, columns) PIH_ENTRY(symbol, pih::add<columns>)
