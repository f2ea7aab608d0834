// Kernels that do what no kernel may, for the tests of the software GPU.
#pragma once
#include "pack.cuh"

namespace pih {

// y[i] = x[i + SHIFT] for COUNT of a block's 64 threads.
template <int SHIFT, int COUNT>
struct toy_copy {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, 64, 1, 0, 1, 1};
  static __device__ void run(const pih_call& call, const pih_step&) {
    const int i = threadIdx.x;
    if (i < COUNT) row_of<float>(call.operand[1], 0)[i] = row_of<float>(call.operand[0], 0)[i + SHIFT];
  }
};

// y[0] = x[1], as two floats at a time.
struct toy_misaligned {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, 32, 1, 0, 1, 1};
  static __device__ void run(const pih_call& call, const pih_step&) {
    *row_of<float2>(call.operand[1], 0) = *reinterpret_cast<float2*>(row_of<float>(call.operand[0], 0) + 1);
  }
};

// A barrier for COUNT of 64 threads.
template <int COUNT>
struct toy_barrier {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, 64, 1, 0, 1, 1};
  static __device__ void run(const pih_call&, const pih_step&) {
    if (static_cast<int>(threadIdx.x) < COUNT) __syncthreads();
  }
};

// Threads of a block at two barriers.
struct toy_two_barriers {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, 64, 1, 0, 1, 1};
  static __device__ void run(const pih_call&, const pih_step&) {
    if (threadIdx.x < 32)
      __syncthreads();
    else
      __syncthreads();
  }
};

// A sum over the first COUNT lanes of 32.
template <int COUNT>
struct toy_sum {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, 32, 1, 0, 1, 1};
  static __device__ void run(const pih_call& call, const pih_step&) {
    if (static_cast<int>(threadIdx.x) < COUNT) row_of<float>(call.operand[1], 0)[threadIdx.x] = warp_sum(1.f);
  }
};

// y = what lies in shared memory that nobody wrote.
struct toy_shared {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, 32, 1, 0, 1, 1};
  static __device__ void run(const pih_call& call, const pih_step&) {
    __shared__ float held[32];
    row_of<float>(call.operand[1], 0)[threadIdx.x] = held[threadIdx.x];
    held[threadIdx.x] = 1.f;
  }
};

// y[i] = 31 - i, handed over in shared memory by another warp, without a barrier.
struct toy_race {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, 64, 1, 0, 1, 1};
  static __device__ void run(const pih_call& call, const pih_step&) {
    __shared__ float held[64];
    held[threadIdx.x] = static_cast<float>(threadIdx.x);
    row_of<float>(call.operand[1], 0)[threadIdx.x] = held[63 - threadIdx.x];
  }
};

// Three blocks write 64 ones each; whichever ends last adds them up, and must know that all were written: where WAITS it does.
template <bool WAITS>
struct toy_last {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, 64, 1, 0, 3, 1, 1};
  static __device__ void run(const pih_call& call, const pih_step& step) {
    __shared__ bool last;
    float* y = row_of<float>(call.operand[1], 0);
    const int i = threadIdx.x;
    y[blockIdx.y * 64 + i] = 1.f;
    __threadfence();
    if (WAITS) __syncthreads();
    if (i == 0) last = atomicAdd(reinterpret_cast<unsigned*>(step.scratch), 1u) == 2;
    __syncthreads();
    if (last) y[192 + i] = y[i] + y[64 + i] + y[128 + i];
  }
};

}  // namespace pih

#define PIH_ENTRIES_toy_copy(symbol, shift, count) PIH_ENTRY(symbol, pih::toy_copy<shift, count>)
#define PIH_ENTRIES_toy_misaligned(symbol) PIH_ENTRY(symbol, pih::toy_misaligned)
#define PIH_ENTRIES_toy_barrier(symbol, count) PIH_ENTRY(symbol, pih::toy_barrier<count>)
#define PIH_ENTRIES_toy_two_barriers(symbol) PIH_ENTRY(symbol, pih::toy_two_barriers)
#define PIH_ENTRIES_toy_sum(symbol, count) PIH_ENTRY(symbol, pih::toy_sum<count>)
#define PIH_ENTRIES_toy_shared(symbol) PIH_ENTRY(symbol, pih::toy_shared)
#define PIH_ENTRIES_toy_race(symbol) PIH_ENTRY(symbol, pih::toy_race)
#define PIH_ENTRIES_toy_last(symbol, waits) PIH_ENTRY(symbol, pih::toy_last<waits>)
