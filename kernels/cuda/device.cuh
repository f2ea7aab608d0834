// What the kernels take from the device beyond CUDA C++ itself: every line of PTX of the pack, and nothing else.
// A software GPU replaces this one file by its own (tools/simgpu/include/device.cuh); the kernels' sources stay as they are.
#pragma once

namespace pih {

// Two values rounded to bf16 (to nearest, ties to even); `low` in the low half.
__device__ inline unsigned pack_bf16(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// 2^x to about 2 ulp; 2^-inf is 0.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// c += a b over one 16 x 8 x 16 tile, bf16 in, float32 sums. With g = lane / 4 and t = lane % 4:
// a[0..3]: rows g, g+8, g, g+8 at k = 2t (a[0], a[1]) and k = 2t+8 (a[2], a[3]), two values each;
// b[0..1]: column g at k = 2t and k = 2t+8; c[0..3]: row g columns 2t, 2t+1, then row g+8.
__device__ inline void mma_bf16(float (&c)[4], const uint4& a, unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// 16 bytes that are read once: past the L1 cache.
__device__ inline uint4 load_once(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

}  // namespace pih
