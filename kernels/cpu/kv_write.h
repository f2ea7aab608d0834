// Cache row slots[t] of this layer = k[t], v[t], rounded to the cache's dtype (KV 0: float32, 1: bf16).
//
// k, v [T,KV_HEADS*D] float32. The layer's K block [page][kv_head][PAGE][D], its V block `stride` bytes further.
// slots[t] = page * PAGE + place in the page. Work is shared by token and head.
#pragma once
#include "vec.h"

namespace pih {

template <int KV>
struct Stored;
template <>
struct Stored<0> {
  typedef float type;
  PIH_INLINE float pack(float x) { return x; }
  PIH_INLINE float unpack(float x) { return x; }
  PIH_INLINE vf unpack_vector(const float* p) { return load(p); }
};
template <>
struct Stored<1> {
  typedef uint16_t type;
  PIH_INLINE uint16_t pack(float x) { return to_bf16(x); }
  PIH_INLINE float unpack(uint16_t x) { return from_bf16(x); }
  PIH_INLINE vf unpack_vector(const uint16_t* p) { return load_bf16(p); }
};

template <int KV_HEADS, int D, int PAGE, int KV>
void kv_write(const pih_call* call, const pih_step* step, int part, int parts) {
  typedef Stored<KV> S;
  typedef typename S::type T;
  T* k_block = (T*)call->operand[2].data;
  T* v_block = (T*)((char*)call->operand[2].data + call->operand[2].stride);
  Range range = share((int64_t)step->tokens * KV_HEADS, part, parts);
  for (int64_t unit = range.first; unit < range.last; ++unit) {
    int64_t t = unit / KV_HEADS, head = unit % KV_HEADS, slot = step->slots[t];
    int64_t at = ((slot / PAGE * KV_HEADS + head) * PAGE + slot % PAGE) * D;
    const float* k = row<float>(call->operand[0], t) + head * D;
    const float* v = row<float>(call->operand[1], t) + head * D;
    for (int i = 0; i < D; ++i) k_block[at + i] = S::pack(k[i]);
    for (int i = 0; i < D; ++i) v_block[at + i] = S::pack(v[i]);
  }
}

// One path: the compiler's vectors of this loop move as many bytes as any.
template <int KV_HEADS, int D, int PAGE, int KV>
void kv_write_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  kv_write<KV_HEADS, D, PAGE, KV>(call, step, part, parts);
}

}  // namespace pih
