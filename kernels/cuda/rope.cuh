// rope: each head of x [T, H*D] is turned by table [T, D]: (a, b) -> (a cos - b sin, b cos + a sin). y is x.
// operands: x, table, y
// rope_table: a = float32(positions[t]) * inv_freq[i]; y[t] = cos(a[0..D/2)) then sin(a[0..D/2)).
// operands: inv_freq, y
#pragma once
#include "pack.cuh"

namespace pih {

template <int COLUMNS>
struct rope_table {
  static constexpr int THREADS = 64;
  static constexpr pih_launch launch = {PIH_ANY_ROWS, THREADS, 1, 0, (COLUMNS / 2 + THREADS - 1) / THREADS, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int row = blockIdx.x, i = blockIdx.y * THREADS + threadIdx.x;
    if (row >= rows_of(call, step) || i >= COLUMNS / 2) return;
    const float angle = static_cast<float>(step.positions[row]) * reinterpret_cast<const float*>(call.operand[0].data)[i];
    float* y = row_of<float>(call.operand[1], row);
    y[i] = cosf(angle);
    y[COLUMNS / 2 + i] = sinf(angle);
  }
};

// A head's pairs, spread over a warp: pair i of a lane is columns first(i) and first(i) + apart.
template <int D, int ADJACENT>
struct Pairs {
  static_assert(D % 2 == 0);
  static constexpr int count = (D / 2 + 31) / 32, apart = ADJACENT ? 1 : D / 2;
  float a[count], b[count];

  __device__ static int index(int i) { return i * 32 + threadIdx.x % 32; }
  __device__ static bool there(int i) { return D % 64 == 0 || index(i) < D / 2; }
  __device__ static int first(int i) { return ADJACENT ? 2 * index(i) : index(i); }

  __device__ explicit Pairs(const float* x) {
    for (int i = 0; i < count; ++i) {
      a[i] = there(i) ? x[first(i)] : 0.f;
      b[i] = there(i) ? x[first(i) + apart] : 0.f;
    }
  }
  __device__ void norm(const float* weight, float eps) {
    float sum = 0.f;
    for (int i = 0; i < count; ++i) sum += a[i] * a[i] + b[i] * b[i];
    const float scale = 1.f / sqrtf(warp_sum(sum) / D + eps);
    for (int i = 0; i < count; ++i)
      if (there(i)) a[i] *= scale * weight[first(i)], b[i] *= scale * weight[first(i) + apart];
  }
  __device__ void rotate(const float* table) {
    for (int i = 0; i < count; ++i) {
      if (!there(i)) continue;
      const float c = table[index(i)], s = table[D / 2 + index(i)], x = a[i], y = b[i];
      a[i] = x * c - y * s;
      b[i] = y * c + x * s;
    }
  }
  __device__ void store(float* y) const {
    for (int i = 0; i < count; ++i)
      if (there(i)) y[first(i)] = a[i], y[first(i) + apart] = b[i];
  }
};

template <int COLUMNS, int D, int ADJACENT>
struct rope {
  static constexpr int WARPS = 4;
  static constexpr pih_launch launch = {PIH_ANY_ROWS, WARPS * 32, 1, 0, (COLUMNS / D + WARPS - 1) / WARPS, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int row = blockIdx.x, head = blockIdx.y * WARPS + threadIdx.x / 32;
    if (row >= rows_of(call, step) || head >= COLUMNS / D) return;
    float* x = row_of<float>(call.operand[0], row) + head * D;
    Pairs<D, ADJACENT> pairs(x);
    pairs.rotate(row_of<float>(call.operand[1], row));
    pairs.store(x);
  }
};

}  // namespace pih

#define PIH_ENTRIES_rope(symbol, columns, head_dim, pairs) PIH_ENTRY(symbol, pih::rope<columns, head_dim, pairs>)
#define PIH_ENTRIES_rope_table(symbol, columns) PIH_ENTRY(symbol, pih::rope_table<columns>)
