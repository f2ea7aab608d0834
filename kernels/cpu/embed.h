// y[t] = table[id(t)]; id(t) = ids[t], or the id last sampled in slot -ids[t]-1 where ids[t] < 0.
//
// table [N,K] in any weight layout, y [T,K] float32. The host has checked the ids.
#pragma once
#include "layouts.h"
#include "vec.h"

namespace pih {

// `fill(table, id, y)` writes one row; tokens are shared among the parts.
template <class F>
PIH_INLINE void embed_rows(const pih_call* call, const pih_step* step, int part, int parts, F fill) {
  Range range = share(step->tokens, part, parts);
  for (int64_t t = range.first; t < range.last; ++t) {
    int32_t id = step->ids[t];
    fill(call->operand[0].data, id >= 0 ? id : step->sampled[-id - 1], row<float>(call->operand[1], t));
  }
}

#define PIH_EMBED(FORMAT)                                                                             \
  template <int N, int K>                                                                             \
  void embed_##FORMAT(const pih_call* call, const pih_step* step, int part, int parts) {              \
    embed_rows(call, step, part, parts, [](const void* table, int64_t id, float* y) {                 \
      for (int k = 0; k < K; k += 32) expand_##FORMAT<K>(table, id, k, y + k);                        \
    });                                                                                               \
  }                                                                                                   \
  template <int N, int K>                                                                             \
  void embed_##FORMAT##_ref(const pih_call* call, const pih_step* step, int part, int parts) {        \
    embed_rows(call, step, part, parts, [](const void* table, int64_t id, float* y) {                 \
      for (int k = 0; k < K; ++k) y[k] = element_##FORMAT<K>(table, id, k);                           \
    });                                                                                               \
  }

PIH_EMBED(bf16)
PIH_EMBED(q8_0)
PIH_EMBED(q4_1)

template <int N, int K>
void embed_f32(const pih_call* call, const pih_step* step, int part, int parts) {
  embed_rows(call, step, part, parts, [](const void* table, int64_t id, float* y) {
    __builtin_memcpy(y, (const float*)table + id * K, K * sizeof(float));
  });
}

template <int N, int K>
void embed_f32_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  embed_rows(call, step, part, parts, [](const void* table, int64_t id, float* y) {
    for (int k = 0; k < K; ++k) y[k] = element_f32<K>(table, id, k);
  });
}

#undef PIH_EMBED

}  // namespace pih
