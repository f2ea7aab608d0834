// Causal attention over the paged cache: y = softmax(scale * q.k) v for each token and head.
//
// q, y [T,HEADS*D] float32; head h sees kv head h / (HEADS / KV_HEADS). Cache: K block [page][kv_head][PAGE][D], V block
// `stride` bytes further, float32 (KV 0) or bf16 (KV 1). Position p of a sequence lies in its page p / PAGE.
// Online softmax, one page after the other from position 0, so a token's result does not depend on how the
// text was cut into steps. Work is shared by token and head; heads of one kv head read it together.
#pragma once
#include "kv_write.h"
#include "vec.h"

namespace pih {

constexpr float MASKED = -1e30f;
constexpr int HEADS_TOGETHER = 4;

// Lane i of the result is the sum of the lanes of v[i]: neighbours are added until one vector is left.
PIH_INLINE vf sums(vf (&v)[W]) {
  PIH_UNROLL
  for (int left = W / 2; left; left /= 2)
    PIH_UNROLL
    for (int i = 0; i < left; ++i) {
      vf a = v[2 * i], b = v[2 * i + 1];
#if defined(__AVX512F__)
      v[i] = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
             __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#else
      v[i] = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14) + __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#endif
    }
  return v[0];
}

// scale * q.k of G heads with the PAGE keys of one page.
template <int G, int D, int PAGE, class S>
PIH_INLINE void page_scores(const float* q, const typename S::type* k, float scale, float (&scores)[G][PAGE]) {
  for (int first = 0; first < PAGE; first += W) {
    vf products[G][W];
    for (int j = 0; j < W; ++j) {
      const typename S::type* key = k + (first + j) * D;
      vf total[G] = {};
      PIH_UNROLL
      for (int d = 0; d < D; d += W) {
        vf piece = S::unpack_vector(key + d);
        PIH_UNROLL
        for (int g = 0; g < G; ++g) total[g] = fma(load(q + g * D + d), piece, total[g]);
      }
      PIH_UNROLL
      for (int g = 0; g < G; ++g) products[g][j] = total[g];
    }
    PIH_UNROLL
    for (int g = 0; g < G; ++g) store(scores[g] + first, sums(products[g]) * splat(scale));
  }
}

// out = out * keep + sum over `count` values of one page, weighted by `p`.
template <int G, int D, int PAGE, class S>
PIH_INLINE void page_values(const typename S::type* v, const float (&p)[G][PAGE], const float (&keep)[G], int64_t count, float* out) {
  constexpr int SLICE = D % (4 * W) == 0 ? 4 : D % (2 * W) == 0 ? 2 : 1;
  for (int d = 0; d < D; d += SLICE * W) {
    vf total[G][SLICE];
    PIH_UNROLL
    for (int g = 0; g < G; ++g)
      PIH_UNROLL
      for (int i = 0; i < SLICE; ++i) total[g][i] = load(out + g * D + d + i * W) * splat(keep[g]);
    for (int64_t j = 0; j < count; ++j)
      PIH_UNROLL
      for (int i = 0; i < SLICE; ++i) {
        vf piece = S::unpack_vector(v + j * D + d + i * W);
        PIH_UNROLL
        for (int g = 0; g < G; ++g) total[g][i] = fma(splat(p[g][j]), piece, total[g][i]);
      }
    PIH_UNROLL
    for (int g = 0; g < G; ++g)
      PIH_UNROLL
      for (int i = 0; i < SLICE; ++i) store(out + g * D + d + i * W, total[g][i]);
  }
}

// G neighbouring heads of one token that share a kv head; `k`, `v` point at that head in page 0.
template <int G, int KV_HEADS, int D, int PAGE, class S>
void attend(const float* q, const typename S::type* k, const typename S::type* v, const int32_t* pages, int64_t length,
            float scale, float* y) {
  constexpr int64_t PAGE_STRIDE = (int64_t)KV_HEADS * PAGE * D;
  float out[G * D] = {}, top[G], total[G];
  for (int g = 0; g < G; ++g) top[g] = MASKED, total[g] = 0;
  for (int64_t first = 0; first < length; first += PAGE) {
    int64_t count = min(PAGE, length - first), page = pages[first / PAGE];
    alignas(64) float p[G][PAGE];
    float keep[G];
    page_scores<G, D, PAGE, S>(q, k + page * PAGE_STRIDE, scale, p);
    for (int g = 0; g < G; ++g) {
      for (int64_t j = count; j < PAGE; ++j) p[g][j] = MASKED;
      vf most = load(p[g]);
      for (int j = W; j < PAGE; j += W) most = max(most, load(p[g] + j));
      float next = max(top[g], largest(most));
      keep[g] = exp(top[g] - next);
      top[g] = next;
      vf added = {};
      for (int j = 0; j < PAGE; j += W) {
        vf e = exp(load(p[g] + j) - splat(next));
        store(p[g] + j, e);
        added += e;
      }
      total[g] = fma(total[g], keep[g], sum(added));
    }
    page_values<G, D, PAGE, S>(v + page * PAGE_STRIDE, p, keep, count, out);
  }
  for (int g = 0; g < G; ++g)
    for (int d = 0; d < D; ++d) y[g * D + d] = out[g * D + d] / total[g];
}

template <int G, int KV_HEADS, int D, int PAGE, class S, class... Rest>
PIH_INLINE void attend_up_to(int64_t heads, Rest... rest) {
  if constexpr (G > 1) {
    if (heads < G) return attend_up_to<G - 1, KV_HEADS, D, PAGE, S>(heads, rest...);
  }
  attend<G, KV_HEADS, D, PAGE, S>(rest...);
}

template <int HEADS, int KV_HEADS, int D, int PAGE, int KV, uint32_t SCALE>
void attention(const pih_call* call, const pih_step* step, int part, int parts) {
  typedef Stored<KV> S;
  typedef const typename S::type T;
  static_assert(D % 16 == 0 && PAGE % 16 == 0 && HEADS % KV_HEADS == 0);
  constexpr int GROUP = HEADS / KV_HEADS, MOST = GROUP < HEADS_TOGETHER ? GROUP : HEADS_TOGETHER;
  T* k = (T*)call->operand[1].data;
  T* v = (T*)((char*)call->operand[1].data + call->operand[1].stride);
  Range range = share((int64_t)step->tokens * HEADS, part, parts);
  for (int64_t unit = range.first; unit < range.last;) {
    int64_t t = unit / HEADS, head = unit % HEADS, kv_head = head / GROUP;
    int64_t heads = min(min(MOST, range.last - unit), (kv_head + 1) * GROUP - head);
    const int32_t* pages = step->page_table + (int64_t)step->seq_of[t] * step->pages_per_seq;
    attend_up_to<MOST, KV_HEADS, D, PAGE, S>(heads, row<float>(call->operand[0], t) + head * D, k + kv_head * PAGE * D,
                                             v + kv_head * PAGE * D, pages, (int64_t)step->positions[t] + 1,
                                             from_bits(SCALE), row<float>(call->operand[2], t) + head * D);
    unit += heads;
  }
}

// Three passes over the positions: the largest score, then the sum of exponentials, then the weighted values.
template <int HEADS, int KV_HEADS, int D, int PAGE, int KV, uint32_t SCALE>
void attention_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  typedef Stored<KV> S;
  typedef const typename S::type T;
  T* k = (T*)call->operand[1].data;
  T* v = (T*)((char*)call->operand[1].data + call->operand[1].stride);
  Range range = share((int64_t)step->tokens * HEADS, part, parts);
  for (int64_t unit = range.first; unit < range.last; ++unit) {
    int64_t t = unit / HEADS, head = unit % HEADS, kv_head = head / (HEADS / KV_HEADS), length = step->positions[t] + 1;
    const int32_t* pages = step->page_table + (int64_t)step->seq_of[t] * step->pages_per_seq;
    const float* q = row<float>(call->operand[0], t) + head * D;
    float* y = row<float>(call->operand[2], t) + head * D;
    auto at = [&](int64_t p) { return ((pages[p / PAGE] * (int64_t)KV_HEADS + kv_head) * PAGE + p % PAGE) * D; };
    auto score = [&](int64_t p) {
      double dot = 0;
      for (int d = 0; d < D; ++d) dot += (double)q[d] * S::unpack(k[at(p) + d]);
      return (float)(dot * from_bits(SCALE));
    };
    float top = MASKED;
    double total = 0, out[D] = {};
    for (int64_t p = 0; p < length; ++p) top = max(top, score(p));
    for (int64_t p = 0; p < length; ++p) total += exp(score(p) - top);
    for (int64_t p = 0; p < length; ++p)
      for (int d = 0; d < D; ++d) out[d] += exp(score(p) - top) / total * S::unpack(v[at(p) + d]);
    for (int d = 0; d < D; ++d) y[d] = (float)out[d];
  }
}

}  // namespace pih
