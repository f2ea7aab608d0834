// Vectors of float32 and the few operations that kernels share: W lanes, 16 with AVX-512, 8 with AVX2.
//
// Everything is spelled out (fma, the order of each reduction): packs are compiled with contraction off,
// so that a value is the same whichever tile, thread or instruction selection computes it.
#pragma once
#include <immintrin.h>
#include <pih_kernel.h>

#define PIH_UNROLL _Pragma("clang loop unroll(full)")
#define PIH_INLINE static inline __attribute__((always_inline))

namespace pih {

#if defined(__AVX512F__)
constexpr int W = 16;
#else
constexpr int W = 8;
#endif

typedef float vf __attribute__((vector_size(W * 4)));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef uint32_t vu __attribute__((vector_size(W * 4)));
typedef uint16_t vh __attribute__((vector_size(W * 2)));
typedef float vf_any __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(W * 4), aligned(1), may_alias));
typedef uint16_t vh_any __attribute__((vector_size(W * 2), aligned(2), may_alias));

typedef int32_t word_any __attribute__((aligned(1), may_alias));

typedef int64_t double_word_any __attribute__((aligned(1), may_alias));

PIH_INLINE int64_t load_double_word(const void* p) { return *(const double_word_any*)p; }
PIH_INLINE int32_t load_word(const void* p) { return *(const word_any*)p; }
PIH_INLINE vf splat(float x) { return x - vf{}; }
PIH_INLINE vf load(const float* p) { return *(const vf_any*)p; }
PIH_INLINE void store(float* p, vf v) { *(vf_any*)p = v; }
PIH_INLINE vf fma(vf a, vf b, vf c) { return __builtin_elementwise_fma(a, b, c); }
PIH_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
PIH_INLINE vf max(vf a, vf b) { return __builtin_elementwise_max(a, b); }
PIH_INLINE float max(float a, float b) { return a > b ? a : b; }
PIH_INLINE vf round_even(vf a) { return __builtin_elementwise_roundeven(a); }
PIH_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

// The lanes of `v` folded in halves: 16 -> 8 -> 4 -> 2 -> 1.
template <class F>
PIH_INLINE float fold(vf v, F f) {
#if defined(__AVX512F__)
  __m256 a = f(_mm512_castps512_ps256((__m512)v), _mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)v, 1)));
#else
  __m256 a = (__m256)v;
#endif
  __m128 b = f(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  __m128 c = f(b, _mm_movehl_ps(b, b));
  __m128 d = f(c, _mm_shuffle_ps(c, c, 1));
  return d[0];
}

PIH_INLINE float sum(vf v) {
  return fold(v, [](auto a, auto b) { return a + b; });
}

PIH_INLINE float largest(vf v) {
  return fold(v, [](auto a, auto b) { return __builtin_elementwise_max(a, b); });
}

// bfloat16 in the low 16 bits of each lane's word, and in the high ones.
PIH_INLINE vu load_words(const void* p) { return *(const vu_any*)p; }
PIH_INLINE vf low_bf16(vu w) { return (vf)(w << 16); }
PIH_INLINE vf high_bf16(vu w) { return (vf)(w & 0xffff0000u); }
PIH_INLINE vf load_bf16(const uint16_t* p) { return (vf)(__builtin_convertvector(*(const vh_any*)p, vu) << 16); }
PIH_INLINE float from_bf16(uint16_t v) { return __builtin_bit_cast(float, (uint32_t)v << 16); }
PIH_INLINE float from_f16(uint16_t v) { return (float)__builtin_bit_cast(_Float16, v); }

// Rounded to nearest even; a NaN stays one (0x7fff bits are added to finite values only).
PIH_INLINE uint16_t to_bf16(float f) {
  uint32_t u = __builtin_bit_cast(uint32_t, f);
  if (f != f) return (uint16_t)(u >> 16) | 0x40;
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// e^x to about 1e-7 relative; 0 below -87, where the result would leave the normal range; x above 88 counts as 88.
// x = n ln2 + r with |r| <= ln2 / 2, Taylor to r^7 (the rest is below 6e-9), 2^n through the exponent bits.
template <class V, class I>
PIH_INLINE V exp_of(V x) {
  V top = x > 88.0f ? (V{} + 88.0f) : x;
  V n = __builtin_elementwise_roundeven(top * 1.44269504f);
  V r = __builtin_elementwise_fma(n, V{} - 0.693359375f, top);
  r = __builtin_elementwise_fma(n, V{} + 2.12194440e-4f, r);
  V p = V{} + 1.0f / 5040;
  p = __builtin_elementwise_fma(p, r, V{} + 1.0f / 720);
  p = __builtin_elementwise_fma(p, r, V{} + 1.0f / 120);
  p = __builtin_elementwise_fma(p, r, V{} + 1.0f / 24);
  p = __builtin_elementwise_fma(p, r, V{} + 1.0f / 6);
  p = __builtin_elementwise_fma(p, r, V{} + 0.5f);
  p = __builtin_elementwise_fma(p, r, V{} + 1.0f);
  p = __builtin_elementwise_fma(p, r, V{} + 1.0f);
  I bits = (I)p + (__builtin_convertvector(n, I) << 23);
  return x < -87.0f ? V{} : (V)bits;
}

PIH_INLINE vf exp(vf x) { return exp_of<vf, vi>(x); }

// The same steps on one value (one lane of four), so the same bits.
PIH_INLINE float exp(float x) {
  typedef float v4 __attribute__((vector_size(16)));
  typedef int32_t i4 __attribute__((vector_size(16)));
  return exp_of<v4, i4>(v4{x, 0, 0, 0})[0];
}

// How many rows a call runs over.
PIH_INLINE int64_t rows_of(const pih_call* call, const pih_step* step) { return call->wanted ? step->wanted : step->tokens; }

template <class T>
PIH_INLINE T* row(const pih_operand& view, int64_t index) {
  return (T*)((char*)view.data + index * view.stride);
}

// Units [first, last) of `count` that share `part` of `parts` does.
struct Range {
  int64_t first, last;
};
PIH_INLINE Range share(int64_t count, int part, int parts) { return {count * part / parts, count * (part + 1) / parts}; }

PIH_INLINE float from_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }

}  // namespace pih
