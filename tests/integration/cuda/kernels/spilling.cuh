// A kernel that holds COUNT numbers at once: past a thread's 255 registers, they spill.
#pragma once
#include "pack.cuh"

namespace pih {

template <int COUNT>
struct toy_held {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, 64, 1, 0, 1, 1};
  static __device__ void run(const pih_call& call, const pih_step&) {
    const float* x = row_of<float>(call.operand[0], 0);
    float held[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) held[i] = x[i * 64 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COUNT; ++i) row_of<float>(call.operand[1], 0)[i * 64 + threadIdx.x] = held[COUNT - 1 - i];
  }
};

}  // namespace pih

#define PIH_ENTRIES_toy_held(symbol, count) PIH_ENTRY(symbol, pih::toy_held<count>)
