// kv_write: cache row slots[t] of this layer = k[t], v[t], rounded to bf16. operands: k, v, cache
//
// A page of the cache, of one kv head, 16 positions by D, bf16. K: [position][D]. V as the second operand of an
// m16n8k16 is read: [D/16][lane 4g+t][n-tile 2][position 2t, 2t+1, 2t+8, 2t+9] with D index 16i + 8 * n-tile + g.
#pragma once
#include "pack.cuh"

namespace pih {

constexpr int PAGE = 16;

// Where value d at a position of a page lies in its V block, counted in values.
__device__ inline int v_place(int position, int d) {
  return d / 16 * 256 + (d % 8 * 4 + position % 8 / 2) * 8 + d % 16 / 8 * 4 + position / 8 * 2 + position % 2;
}

// The page of a slot, and in it a token's values of all kv heads.
template <int KV_HEADS, int D>
struct Page {
  unsigned short *k, *v;
  int position;

  __device__ Page(const pih_operand& cache, int slot) : position(slot % PAGE) {
    k = reinterpret_cast<unsigned short*>(cache.data) + static_cast<int64>(slot / PAGE) * KV_HEADS * PAGE * D;
    v = k + cache.stride / 2;
  }
  __device__ void put_k(int head, int d, float value) { k[(head * PAGE + position) * D + d] = to_bf16(value); }
  __device__ void put_v(int head, int d, float value) { v[head * PAGE * D + v_place(position, d)] = to_bf16(value); }
};

template <int KV_HEADS, int D>
struct kv_write {
  static_assert(D % 16 == 0);
  static constexpr int THREADS = 256;
  static constexpr pih_launch launch = {PIH_ANY_ROWS, THREADS, 1, 0, 1, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int token = blockIdx.x;
    if (token >= rows_of(call, step)) return;
    Page<KV_HEADS, D> page(call.operand[2], step.slots[token]);
    const float *k = row_of<float>(call.operand[0], token), *v = row_of<float>(call.operand[1], token);
    for (int i = threadIdx.x; i < KV_HEADS * D; i += THREADS) {
      page.put_k(i / D, i % D, k[i]);
      page.put_v(i / D, i % D, v[i]);
    }
  }
};

}  // namespace pih

#define PIH_ENTRIES_kv_write(symbol, kv_heads, head_dim) PIH_ENTRY(symbol, pih::kv_write<kv_heads, head_dim>)
