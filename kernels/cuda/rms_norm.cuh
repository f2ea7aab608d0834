// rms_norm: y = x / sqrt(mean(x^2) + eps) * weight, per group of COLUMNS / GROUPS columns; y may be x.
// rms_norm, quantize to bf16 and gather, rms_norm, quantize: one group, rounded; the norm itself is not kept.
#pragma once
#include "pack.cuh"

namespace pih {

constexpr int NORM_THREADS = 256;

template <int COLUMNS>
__device__ inline void norm_row(const float* x, const float* weight, unsigned* y, float eps) {
  static_assert(COLUMNS % 2 == 0);
  float sum = 0.f;
  for (int i = threadIdx.x; i < COLUMNS; i += NORM_THREADS) sum = fmaf(x[i], x[i], sum);
  const float scale = 1.f / sqrtf(block_sum<NORM_THREADS>(sum) / COLUMNS + eps);
  for (int i = threadIdx.x; i < COLUMNS / 2; i += NORM_THREADS)
    y[i] = pack_bf16(x[2 * i] * scale * weight[2 * i], x[2 * i + 1] * scale * weight[2 * i + 1]);
}

// operands: x, weight, y. A warp a group.
template <int COLUMNS, int GROUPS, unsigned EPS>
struct rms_norm {
  static constexpr int WARPS = NORM_THREADS / 32, D = COLUMNS / GROUPS;
  static constexpr pih_launch launch = {PIH_ANY_ROWS, NORM_THREADS, 1, 0, (GROUPS + WARPS - 1) / WARPS, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int row = blockIdx.x, group = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows_of(call, step) || group >= GROUPS) return;
    const float* x = row_of<float>(call.operand[0], row) + group * D;
    const float* weight = reinterpret_cast<const float*>(call.operand[1].data);
    float* y = row_of<float>(call.operand[2], row) + group * D;
    float sum = 0.f;
    for (int i = lane; i < D; i += 32) sum = fmaf(x[i], x[i], sum);
    const float scale = 1.f / sqrtf(warp_sum(sum) / D + bits_float(EPS));
    for (int i = lane; i < D; i += 32) y[i] = x[i] * scale * weight[i];
  }
};

// operands: x, weight, y
template <int COLUMNS, unsigned EPS>
struct rms_norm_bf16 {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, NORM_THREADS, 1, 0, 1, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int row = blockIdx.x;
    if (row >= rows_of(call, step)) return;
    norm_row<COLUMNS>(row_of<float>(call.operand[0], row), reinterpret_cast<const float*>(call.operand[1].data),
                      row_of<unsigned>(call.operand[2], row), bits_float(EPS));
  }
};

// operands: x, weight, y
template <int COLUMNS, unsigned EPS>
struct gather_rms_norm_bf16 {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, NORM_THREADS, 1, 0, 1, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int row = blockIdx.x;
    if (row >= rows_of(call, step)) return;
    norm_row<COLUMNS>(row_of<float>(call.operand[0], step.rows[row]), reinterpret_cast<const float*>(call.operand[1].data),
                      row_of<unsigned>(call.operand[2], row), bits_float(EPS));
  }
};

}  // namespace pih

#define PIH_ENTRIES_rms_norm(symbol, columns, groups, eps) PIH_ENTRY(symbol, pih::rms_norm<columns, groups, eps>)
#define PIH_ENTRIES_rms_norm_bf16(symbol, columns, eps) PIH_ENTRY(symbol, pih::rms_norm_bf16<columns, eps>)
#define PIH_ENTRIES_gather_rms_norm_bf16(symbol, columns, eps) PIH_ENTRY(symbol, pih::gather_rms_norm_bf16<columns, eps>)
