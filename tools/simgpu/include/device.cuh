// The software GPU's own device.cuh: CUDA C++'s words and kernels/cuda/device.cuh's functions, on the CPU.
//
// A CUDA thread is a fiber; the 32 of a warp meet at shuffles and mma, those of a block at __syncthreads. See simt.h.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "simt.h"

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __constant__
#define __launch_bounds__(...)
// What a block shares: one copy, that of the block which runs; filled before each with NaNs, or zeros by even seeds.
#define __shared__ static __attribute__((section("simgpu_shared")))

#define threadIdx (simt::current->thread)
#define blockIdx (simt::block->index)

// Copied member by member, through a pointer to the whole: so the compiler's check of its alignment sees each copy.
struct alignas(8) float2 {
  float x, y;
  float2() = default;
  float2(float first, float second) : x(first), y(second) {}
  float2(const float2& other) { *this = other; }
  float2& operator=(const float2& other) {
    const float2* from = &other;
    x = from->x, y = from->y;
    return *this;
  }
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
  uint4() = default;
  uint4(unsigned a, unsigned b, unsigned c, unsigned d) : x(a), y(b), z(c), w(d) {}
  uint4(const uint4& other) { *this = other; }
  uint4& operator=(const uint4& other) {
    const uint4* from = &other;
    x = from->x, y = from->y, z = from->z, w = from->w;
    return *this;
  }
};
inline float2 make_float2(float x, float y) { return {x, y}; }

inline float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return bits;
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

inline void __syncthreads(int line = __builtin_LINE()) { simt::meet_block(line); }
inline void __threadfence() {}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
  return simt::exchange(mask, value, [&](const T* all, int lane) { return all[lane ^ lane_mask]; });
}

// Fibers run one at a time: whatever is done without meeting others is atomic.
template <class T, class U>
T atomicAdd(T* place, U value) {
  const T before = *place;
  *place += static_cast<T>(value);
  simt::tell(place);
  return before;
}
template <class T, class U>
T atomicMax(T* place, U value) {
  const T before = *place;
  if (static_cast<T>(value) > before) *place = static_cast<T>(value);
  simt::tell(place);
  return before;
}

namespace pih {

inline unsigned bf16_bits(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

inline unsigned pack_bf16(float low, float high) { return bf16_bits(low) | bf16_bits(high) << 16; }

inline float exp2_fast(float x) { return exp2f(x); }

inline uint4 load_once(const void* from) { return *static_cast<const uint4*>(from); }

// All 32 lanes' fragments, and from them this lane's four sums, in order of k.
inline void mma_bf16(float (&c)[4], const uint4& a, unsigned b0, unsigned b1) {
  struct Fragment {
    unsigned a[4], b[2];
    float c[4];
  };
  struct Sums {
    float c[4];
  };
  const Fragment mine = {{a.x, a.y, a.z, a.w}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
  const Sums sums = simt::exchange<Fragment, Sums>(0xffffffffu, mine, [](const Fragment* all, int lane) {
    const auto half = [](unsigned pair, int index) { return __uint_as_float(index ? pair & 0xffff0000u : pair << 16); };
    Sums result;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i / 2) * 8, column = lane % 4 * 2 + i % 2;
      float sum = all[lane].c[i];
      for (int k = 0; k < 16; ++k) {
        const unsigned x = all[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], y = all[column * 4 + k % 8 / 2].b[k / 8];
        sum += half(x, k % 2) * half(y, k % 2);
      }
      result.c[i] = sum;
    }
    return result;
  });
  for (int i = 0; i < 4; ++i) c[i] = sums.c[i];
}

}  // namespace pih
