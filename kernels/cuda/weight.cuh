// Weights in the layout mma16: tiles of 16 rows x 32 columns, ordered [N/16][K/32]; a tile is two halves, each what the lanes
// of one m16n8k16 take as its A operand. Lane 4g+t holds rows g and g+8 at columns 8t..8t+7, four in each half: which of
// the 16 k of an mma is which column is free as long as both operands agree, and so x is read 16 bytes at a time too.
//
// bf16: [half 2][lane 32][16 bytes]. int8: [lane 32][half 2][8 bytes], each a value with 128 added; after a strip's tiles
// its 16 rows' float32 scales.
#pragma once
#include "pack.cuh"

namespace pih {

template <bool ONCE>
__device__ inline uint4 load_weight(const char* from) {
  return ONCE ? load_once(from) : *reinterpret_cast<const uint4*>(from);
}

struct Weight16 {
  static constexpr int TILE_BYTES = 1024;
  static constexpr bool SCALED = false;

  template <int K>
  static constexpr __device__ int64 strip_bytes() {
    return static_cast<int64>(K / 32) * TILE_BYTES;
  }
  // A tile's two A operands, from this lane's place in it.
  template <bool ONCE>
  static __device__ void load(const char* from, uint4& a, uint4& b) {
    a = load_weight<ONCE>(from), b = load_weight<ONCE>(from + TILE_BYTES / 2);
  }
  template <int K>
  static __device__ float scale(const char*, int) {
    return 1.f;
  }
};

struct Int8 {
  static constexpr int TILE_BYTES = 512;
  static constexpr bool SCALED = true;

  template <int K>
  static constexpr __device__ int64 strip_bytes() {
    return static_cast<int64>(K / 32) * TILE_BYTES + 64;
  }
  // Byte i of a word as the number that it stands for: in the low bits of 2^23, where floats are whole numbers.
  static __device__ float value(unsigned word, int i) {
    return __uint_as_float(0x4b000000u | (word >> 8 * i & 255u)) - 8388736.f;
  }
  // Two of a word's bytes as bf16, exactly: they are whole numbers below 2^8.
  static __device__ unsigned pair(unsigned word, int i) { return pack_bf16(value(word, i), value(word, i + 1)); }

  template <bool ONCE>
  static __device__ void load(const char* from, uint4& a, uint4& b) {
    const uint4 v = load_weight<ONCE>(from);
    a.x = pair(v.x, 0), a.y = pair(v.x, 2), a.z = pair(v.y, 0), a.w = pair(v.y, 2);
    b.x = pair(v.z, 0), b.y = pair(v.z, 2), b.z = pair(v.w, 0), b.w = pair(v.w, 2);
  }
  // Of one of a strip's 16 rows.
  template <int K>
  static __device__ float scale(const char* strip, int row) {
    return reinterpret_cast<const float*>(strip + static_cast<int64>(K / 32) * TILE_BYTES)[row];
  }
};

}  // namespace pih
