// Draws the next id of each wanted row; pih_runtime/ops.py says exactly how.
//
// logits [R,V] float32. A candidate is one 64-bit key, so that one comparison orders by (logit / temperature falling, id
// rising). Candidates lie in a heap and leave it in order, only as far as the draw needs them. Terms of the
// softmax are float32, sums float64. Scratch: V keys. Work is shared by row.
#pragma once
#include "vec.h"

namespace pih {

typedef double vd __attribute__((vector_size(W * 8)));

// Larger float, then lower id: larger key. Negative floats order backwards by their bits.
PIH_INLINE uint64_t key_of(float value, uint32_t id) {
  uint32_t bits = __builtin_bit_cast(uint32_t, value + 0.0f);
  bits = bits >> 31 ? ~bits : bits | 0x80000000u;
  return (uint64_t)bits << 32 | (uint32_t)~id;
}

PIH_INLINE int32_t id_of(uint64_t key) { return (int32_t)~(uint32_t)key; }

PIH_INLINE float value_of(uint64_t key) {
  uint32_t bits = (uint32_t)(key >> 32);
  return __builtin_bit_cast(float, bits >> 31 ? bits & 0x7fffffffu : ~bits);
}

// Moves heap[hole] down to its place; `Before(a, b)`: a stands nearer to the root than b.
template <class F>
PIH_INLINE void sift(uint64_t* heap, int64_t count, int64_t hole, F before) {
  uint64_t key = heap[hole];
  for (int64_t child; (child = 2 * hole + 1) < count; hole = child) {
    if (child + 1 < count && before(heap[child + 1], heap[child])) ++child;
    if (!before(heap[child], key)) break;
    heap[hole] = heap[child];
  }
  heap[hole] = key;
}

template <class F>
PIH_INLINE void heapify(uint64_t* heap, int64_t count, F before) {
  for (int64_t i = count / 2 - 1; i >= 0; --i) sift(heap, count, i, before);
}

constexpr auto larger = [](uint64_t a, uint64_t b) { return a > b; };
constexpr auto smaller = [](uint64_t a, uint64_t b) { return a < b; };

// SplitMix64 of seed and position, top 24 bits, in [0, 1).
PIH_INLINE double uniform(uint64_t seed, int64_t position) {
  uint64_t z = seed + (uint64_t)(position + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return (double)(z >> 40) / (1 << 24);
}

template <int V>
PIH_INLINE float largest_logit(const float* logits) {
  vf most = splat(logits[0]);
  int i = 0;
  for (; i + W <= V; i += W) most = max(most, load(logits + i));
  float top = largest(most);
  for (; i < V; ++i) top = max(top, logits[i]);
  return top;
}

template <int V>
PIH_INLINE int32_t greedy(const float* logits) {
  float top = largest_logit<V>(logits);
  for (int32_t id = 0; id < V; ++id)
    if (logits[id] == top) return id;
  return 0;
}

// The `count` largest keys in any order; a heap with the smallest at its root while there are more to see.
template <int V>
PIH_INLINE void keep_largest(const float* logits, float temperature, int64_t count, uint64_t* heap) {
  for (int64_t i = 0; i < count; ++i) heap[i] = key_of(logits[i] / temperature, (uint32_t)i);
  if (count < V) heapify(heap, count, smaller);
  for (int64_t i = count; i < V; ++i) {
    // A later id loses a tie, so only a strictly larger value can enter.
    if (logits[i] <= logits[id_of(heap[0])]) continue;
    uint64_t key = key_of(logits[i] / temperature, (uint32_t)i);
    if (key > heap[0]) heap[0] = key, sift(heap, count, 0, smaller);
  }
}

PIH_INLINE float term(uint64_t key, float top) { return exp(value_of(key) - top); }

// Sum of the terms that reach `least`, in the order they lie.
PIH_INLINE double sum_of_terms(const uint64_t* keys, int64_t count, float top, float least) {
  vd total = {};
  int64_t i = 0;
  for (; i + W <= count; i += W) {
    vf values;
    for (int j = 0; j < W; ++j) values[j] = value_of(keys[i + j]);
    vf e = exp(values - splat(top));
    total += __builtin_convertvector(e >= splat(least) ? e : vf{}, vd);
  }
  double result = 0;
  for (int j = 0; j < W; ++j) result += total[j];
  for (; i < count; ++i) result += term(keys[i], top) >= least ? (double)term(keys[i], top) : 0.0;
  return result;
}

template <int V>
PIH_INLINE int32_t draw(const float* logits, const pih_sampling& sampling, double u, uint64_t* heap) {
  int64_t count = sampling.top_k > 0 ? min(sampling.top_k, V) : V;
  keep_largest<V>(logits, sampling.temperature, count, heap);
  heapify(heap, count, larger);
  float top = value_of(heap[0]), least = sampling.min_p;
  double kept;
  if (sampling.top_p < 1.0f) {
    // The shortest prefix that reaches top_p, of which the terms below min_p fall away: also a prefix.
    double enough = (double)sampling.top_p * sum_of_terms(heap, count, top, 0.0f), reached = 0;
    kept = 0;
    int64_t left = count;
    do {
      uint64_t key = heap[0];
      float e = term(key, top);
      reached += e;
      if (e >= least) kept += e;
      // What has left the heap lies behind it, last first.
      heap[0] = heap[--left];
      sift(heap, left, 0, larger);
      heap[left] = key;
    } while (left > 0 && reached < enough);
    double target = u * kept, prefix = 0;
    int32_t id = id_of(heap[count - 1]);
    for (int64_t i = count - 1; i >= left; --i) {
      float e = term(heap[i], top);
      if (e < least) break;
      id = id_of(heap[i]);
      prefix += e;
      if (prefix > target) break;
    }
    return id;
  }
  kept = sum_of_terms(heap, count, top, least);
  double target = u * kept, prefix = 0;
  int32_t id = id_of(heap[0]);
  for (int64_t left = count; left > 0;) {
    float e = term(heap[0], top);
    if (e < least) break;
    id = id_of(heap[0]);
    prefix += e;
    if (prefix > target) break;
    heap[0] = heap[--left];
    sift(heap, left, 0, larger);
  }
  return id;
}

template <int V>
void sample(const pih_call* call, const pih_step* step, int part, int parts) {
  Range range = share(step->wanted, part, parts);
  for (int64_t r = range.first; r < range.last; ++r) {
    const float* logits = row<float>(call->operand[0], r);
    const pih_sampling& sampling = step->sampling[r];
    uint64_t* heap = (uint64_t*)(step->scratch + part * step->scratch_floats);
    step->sampled[step->row_slots[r]] =
        sampling.temperature > 0.0f
            ? draw<V>(logits, sampling, uniform(sampling.seed, step->positions[step->rows[r]]), heap)
            : greedy<V>(logits);
  }
}

// The definition read aloud: the next candidate in order is the largest key below the last one.
template <int V>
PIH_INLINE uint64_t next_key(const float* logits, float temperature, uint64_t below) {
  uint64_t found = 0;
  for (int32_t id = 0; id < V; ++id) {
    uint64_t key = key_of(logits[id] / temperature, (uint32_t)id);
    if (key < below && key > found) found = key;
  }
  return found;
}

template <int V>
void sample_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  Range range = share(step->wanted, part, parts);
  for (int64_t r = range.first; r < range.last; ++r) {
    const float* logits = row<float>(call->operand[0], r);
    const pih_sampling& sampling = step->sampling[r];
    bool greedily = sampling.temperature <= 0.0f;
    float temperature = greedily ? 1.0f : sampling.temperature;
    int64_t most = greedily ? 1 : sampling.top_k > 0 ? min(sampling.top_k, V) : V;
    uint64_t first = next_key<V>(logits, temperature, ~0ull), key = first;
    double total = 0, reached = 0, kept = 0, prefix = 0;
    for (int64_t i = 0; i < most; ++i, key = next_key<V>(logits, temperature, key)) total += term(key, value_of(first));
    double enough = sampling.top_p < 1.0f ? (double)sampling.top_p * total : total * 2;
    int64_t count = 0;
    for (key = first; count < most; key = next_key<V>(logits, temperature, key)) {
      float e = term(key, value_of(first));
      if (count > 0 && (reached >= enough || e < sampling.min_p)) break;
      reached += e, kept += e, ++count;
    }
    double target = uniform(sampling.seed, step->positions[step->rows[r]]) * kept;
    for (key = first; count > 0; --count, key = next_key<V>(logits, temperature, key)) {
      step->sampled[step->row_slots[r]] = id_of(key);
      prefix += term(key, value_of(first));
      if (prefix > target) break;
    }
  }
}

}  // namespace pih
