// The ABI of a CUDA kernel pack: what a kernel is given, and how an entry says how it wants to be launched.
// Mirrored by the backend's ctypes structures (plugins/backend/cuda); PIH_ABI changes when any layout here does.
#pragma once
#include <device.cuh>

#define PIH_ABI 1
#define PIH_MAX_OPERANDS 12

using int64 = long long;
using uint64 = unsigned long long;

// A buffer view: `data` its first value, `stride` bytes between rows, `columns` values a row.
// A weight: `data` its bytes, the rest 0.
// One layer of a cache: `data` its K block, `stride` bytes from the K block to the V block.
struct pih_operand {
  char* data;
  int64 stride;
  int64 columns;
};

// `axis`: which of the step's counts is the call's number of rows: 0 its T tokens, 2 its R wanted rows.
struct pih_call {
  pih_operand operand[PIH_MAX_OPERANDS];
  int axis;
};

struct pih_sampling {
  float temperature;
  int top_k;
  float top_p;
  float min_p;
  uint64 seed;
};

// One ragged batch; fields as in pih_runtime/step.py. All of it lies on the device at addresses that never change, so
// that a captured graph of launches serves every step: counts = {T, S, R, pages_per_seq} are read there too.
struct pih_step {
  const int* counts;
  const int* ids;
  const int* positions;
  const int* seq_start;
  const int* page_table;
  const int* slots;
  const int* rows;
  const int* row_slots;
  const pih_sampling* sampling;
  int* sampled;    // [slots] last sampled id of each slot; kept between steps
  float* scratch;  // zero when the worker starts; whoever dirties a counter in it zeroes it again
};

// How an entry is launched. A call that runs over `rows` rows of a step of S sequences takes the first entry with
// rows <= most_rows, with a grid of ceil(rows / rows_per_block) + blocks_per_seq * S by y by z blocks. `scratch`: float32
// values of the step's scratch that it uses.
struct pih_launch {
  int most_rows;
  int threads;
  int rows_per_block;
  int blocks_per_seq;
  int y;
  int z;
  int scratch;
};

#define PIH_ANY_ROWS 0x7fffffff

// Blocks that an SM is to have room for: one of the largest possible, whose registers would spill where two are asked
// for; else as many as the compiler finds best.
constexpr int pih_least_blocks(const pih_launch& launch) { return launch.threads == 1024 ? 1 : 0; }

// Exports one entry of a binding, and its launch under `pih_launch_` + its name, which the backend reads. A template's
// struct gives both: `static constexpr pih_launch launch` and `static __device__ void run(call, step)`.
#define PIH_ENTRY(name, ...)                                                                                 \
  extern "C" __constant__ pih_launch pih_launch_##name = __VA_ARGS__::launch;                                \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__::launch.threads, pih_least_blocks(__VA_ARGS__::launch)) \
      name(const pih_call call, const pih_step step) {                                                       \
    __VA_ARGS__::run(call, step);                                                                            \
  }

namespace pih {

__device__ inline float bits_float(unsigned bits) { return __uint_as_float(bits); }

__device__ inline float low_bf16(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_bf16(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ inline unsigned short to_bf16(float value) { return static_cast<unsigned short>(pack_bf16(value, 0.f)); }

// How a row of values is written, by pairs: as float32, or rounded to bf16.
struct Float {
  __device__ static void pair(char* row, int index, float first, float second) {
    reinterpret_cast<float2*>(row)[index] = make_float2(first, second);
  }
};
struct Bf16 {
  __device__ static void pair(char* row, int index, float first, float second) {
    reinterpret_cast<unsigned*>(row)[index] = pack_bf16(first, second);
  }
};

template <class T>
__device__ inline T* row_of(const pih_operand& view, int row) {
  return reinterpret_cast<T*>(view.data + view.stride * row);
}

__device__ inline int rows_of(const pih_call& call, const pih_step& step) { return step.counts[call.axis]; }

__device__ inline float warp_sum(float v) {
  for (int distance = 16; distance; distance /= 2) v += __shfl_xor_sync(0xffffffffu, v, distance);
  return v;
}

__device__ inline float warp_max(float v) {
  for (int distance = 16; distance; distance /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, distance));
  return v;
}

// Sum over the block's THREADS, in one fixed order, known to all of them. Once in a kernel: what is shared is not kept
// from the next.
template <int THREADS>
__device__ inline float block_sum(float v) {
  __shared__ float part[THREADS / 32];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0.f;
  for (int warp = 0; warp < THREADS / 32; ++warp) v += part[warp];
  return v;
}

}  // namespace pih
