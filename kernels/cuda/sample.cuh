// sample: the next id of each wanted row by its sampling parameters, as pih_runtime/ops.py says; a block a row.
//
// Logits are ordered by rank: 64 bits, the logit's order-keeping bits above the id's complement, so that no two are equal.
// A softmax term is a whole number of 2^-40 of the largest: sums are exact in any order, and atomics may make them.
// What is asked of the order (the k-th, the prefix that holds so much) is found digit by digit, without sorting.
// Where no term is a number, the largest logit being a NaN or infinite, that logit's id is taken.
#pragma once
#include "pack.cuh"

namespace pih {

constexpr int SAMPLE_THREADS = 1024;

__device__ inline uint64 splitmix(uint64 seed, int position) {
  uint64 z = seed + (static_cast<uint64>(position) + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

__device__ inline uint64 rank_of(float logit, int id) {
  // adding zero makes -0 and 0 equal, as numbers are
  const unsigned bits = __float_as_uint(logit + 0.f), key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64>(key) << 32 | (0xffffffffu - static_cast<unsigned>(id));
}

__device__ inline int id_of(uint64 rank) { return static_cast<int>(0xffffffffu - static_cast<unsigned>(rank)); }

template <int V>
struct sample {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, SAMPLE_THREADS, 1, 0, 1, 1};

  struct Shared {
    uint64 bins[256];
    uint64 value;
    uint64 left;
    int digit;
  };

  const float* logits;
  float most, temperature;
  Shared& shared;

  __device__ uint64 mass(float logit) const {
    const float term = expf((logit - most) / temperature);
    return term >= 0.f ? static_cast<uint64>(term * 1099511627776.f) : 0;
  }

  __device__ uint64 block_most(uint64 v) const {
    if (threadIdx.x == 0) shared.value = 0;
    __syncthreads();
    for (int distance = 16; distance; distance /= 2) {
      const uint64 other = __shfl_xor_sync(0xffffffffu, v, distance);
      v = other > v ? other : v;
    }
    if (threadIdx.x % 32 == 0) atomicMax(&shared.value, v);
    __syncthreads();
    return shared.value;
  }

  // Sum of the masses of the ranks from `least` on that are not below `small`.
  __device__ uint64 total(uint64 least, uint64 small) const {
    __syncthreads();  // whoever still reads what was there before
    if (threadIdx.x == 0) shared.value = 0;
    __syncthreads();
    uint64 sum = 0;
    for (int id = threadIdx.x; id < V; id += SAMPLE_THREADS) {
      const uint64 m = mass(logits[id]);
      if (rank_of(logits[id], id) >= least && m >= small) sum += m;
    }
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) atomicAdd(&shared.value, sum);
    __syncthreads();
    return shared.value;
  }

  // The rank at which the sum over falling ranks, of masses or where COUNT of ones, first reaches `wanted`; `least` if
  // it never does. Counted are the ranks from `least` on whose mass is not below `small`.
  template <bool COUNT>
  __device__ uint64 reach(uint64 wanted, uint64 least, uint64 small) const {
    uint64 prefix = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
      for (int bin = threadIdx.x; bin < 256; bin += SAMPLE_THREADS) shared.bins[bin] = 0;
      __syncthreads();
      for (int id = threadIdx.x; id < V; id += SAMPLE_THREADS) {
        const uint64 rank = rank_of(logits[id], id);
        if (shift < 56 && rank >> (shift + 8) != prefix) continue;
        const uint64 m = mass(logits[id]);
        if (rank >= least && m >= small) atomicAdd(&shared.bins[rank >> shift & 255], COUNT ? 1ull : m);
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        int digit = 255;
        uint64 left = wanted;
        while (digit >= 0 && shared.bins[digit] < left) left -= shared.bins[digit--];
        shared.digit = digit;
        shared.left = left;
      }
      __syncthreads();
      const int digit = shared.digit;  // which the next digit's barriers keep as long as anyone reads it
      wanted = shared.left;
      if (digit < 0) return least;
      prefix = prefix << 8 | static_cast<uint64>(digit);
    }
    return prefix;
  }

  static __device__ void run(const pih_call& call, const pih_step& step) {
    __shared__ Shared shared;
    const int row = blockIdx.x;
    if (row >= rows_of(call, step)) return;
    const pih_sampling wish = step.sampling[row];
    sample self{row_of<float>(call.operand[0], row), 0.f, wish.temperature, shared};
    uint64 best = 0;
    for (int id = threadIdx.x; id < V; id += SAMPLE_THREADS) {
      const uint64 rank = rank_of(self.logits[id], id);
      best = rank > best ? rank : best;
    }
    best = self.block_most(best);
    int chosen = id_of(best);
    if (wish.temperature > 0.f) {
      self.most = self.logits[chosen];
      uint64 least = 0, small = 0;
      if (wish.top_k > 0 && wish.top_k < V) least = self.template reach<true>(wish.top_k, 0, 0);
      if (wish.top_p < 1.f) {
        const uint64 wanted = static_cast<uint64>(ceil(static_cast<double>(wish.top_p) * static_cast<double>(self.total(least, 0))));
        least = self.template reach<false>(wanted ? wanted : 1, least, 0);
      }
      if (wish.min_p > 0.f) small = static_cast<uint64>(ceil(static_cast<double>(wish.min_p) * 1099511627776.));
      const uint64 kept = self.total(least, small);
      const uint64 draw = splitmix(wish.seed, step.positions[step.rows[row]]) >> 40;
      const uint64 wanted = (__umul64hi(draw, kept) << 40 | draw * kept >> 24) + 1;
      if (kept) chosen = id_of(self.template reach<false>(wanted, least, small));
    }
    if (threadIdx.x == 0) step.sampled[step.row_slots[row]] = chosen;
  }
};

}  // namespace pih

#define PIH_ENTRIES_sample(symbol, v) PIH_ENTRY(symbol, pih::sample<v>)
