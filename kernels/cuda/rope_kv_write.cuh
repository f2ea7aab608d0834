// [rms_norm of each head of q, and of k,] rope of both, kv_write: q is changed in place, k and v go to the cache; k's own
// place is not written again. operands: [weight of q, weight of k,] q beside k, table, k, v, cache
#pragma once
#include "kv_write.cuh"
#include "rope.cuh"

namespace pih {

// COLUMNS: of q beside k. A warp a head.
template <int COLUMNS, int KV_HEADS, int D, int ADJACENT, bool NORM, unsigned EPS>
struct rope_kv_write_rows {
  static constexpr int THREADS = 256, HEADS = COLUMNS / D - KV_HEADS;
  static constexpr pih_launch launch = {PIH_ANY_ROWS, THREADS, 1, 0, 1, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int token = blockIdx.x;
    if (token >= rows_of(call, step)) return;
    const pih_operand* operand = call.operand + (NORM ? 2 : 0);
    float *both = row_of<float>(operand[0], token), *k = row_of<float>(operand[2], token);
    const float *table = row_of<float>(operand[1], token), *v = row_of<float>(operand[3], token);
    float* q = both == k ? both + KV_HEADS * D : both;
    Page<KV_HEADS, D> page(operand[4], step.slots[token]);
    for (int head = threadIdx.x / 32; head < HEADS + KV_HEADS; head += THREADS / 32) {
      const bool is_q = head < HEADS;
      Pairs<D, ADJACENT> x(is_q ? q + head * D : k + (head - HEADS) * D);
      if (NORM) x.norm(reinterpret_cast<const float*>(call.operand[is_q ? 0 : 1].data), bits_float(EPS));
      x.rotate(table);
      if (is_q) x.store(q + head * D);
      else
        for (int i = 0; i < x.count; ++i) {
          if (!x.there(i)) continue;
          page.put_k(head - HEADS, x.first(i), x.a[i]);
          page.put_k(head - HEADS, x.first(i) + x.apart, x.b[i]);
        }
    }
    for (int i = threadIdx.x; i < KV_HEADS * D; i += THREADS) page.put_v(i / D, i % D, v[i]);
  }
};

template <int COLUMNS, int KV_HEADS, int D, int ADJACENT>
using rope_kv_write = rope_kv_write_rows<COLUMNS, KV_HEADS, D, ADJACENT, false, 0u>;
template <int COLUMNS, int KV_HEADS, int D, int ADJACENT, unsigned EPS>
using norm_rope_kv_write = rope_kv_write_rows<COLUMNS, KV_HEADS, D, ADJACENT, true, EPS>;

}  // namespace pih

#define PIH_ENTRIES_rope_kv_write(symbol, columns, kv_heads, head_dim, pairs) \
  PIH_ENTRY(symbol, pih::rope_kv_write<columns, kv_heads, head_dim, pairs>)
#define PIH_ENTRIES_norm_rope_kv_write(symbol, columns, kv_heads, head_dim, pairs, eps) \
  PIH_ENTRY(symbol, pih::norm_rope_kv_write<columns, kv_heads, head_dim, pairs, eps>)
