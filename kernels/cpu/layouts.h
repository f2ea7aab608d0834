// How weights lie in the packed file: one element by row and column, and a piece of 32 columns of a row.
//
// f32 "rows"     row-major.
// bf16 "pair16"  row-major; in each 32 columns, 32-bit word i holds column i (low half), column 16 + i (high half).
// q8_0 "tile16"  blocks of 16 rows x 32 columns, [N/16][K/32], 544 bytes: 16 float16 scales, then 8 vectors of
//                64 bytes; byte 4r + j of vector v is row r, column 4v + j. Value = scale * signed byte.
// q4_1 "tile16"  blocks likewise, 320 bytes: 16 float16 scales, 16 float16 minima, then 4 vectors of 64 bytes;
//                byte 4r + j of vector v holds row r, column 4v + j (low nibble) and column 16 + 4v + j (high nibble).
//                Value = scale * nibble + minimum.
// Rows are padded to whole tiles in the file; kernels write N columns.
#pragma once
#include "i16g32.h"
#include "vec.h"

namespace pih {

constexpr int TILE = 16;
constexpr int Q8_BLOCK = 544;
constexpr int Q4_BLOCK = 320;

constexpr int64_t tiles(int64_t n) { return (n + TILE - 1) / TILE; }

template <int K, int BYTES>
PIH_INLINE const uint8_t* block_of(const void* weight, int64_t n, int64_t k) {
  return (const uint8_t*)weight + (n / TILE * (K / GROUP) + k / GROUP) * BYTES;
}

PIH_INLINE float f16_at(const uint8_t* p, int64_t index) { return from_f16(((const uint16_t*)p)[index]); }

template <int K>
PIH_INLINE float element_f32(const void* weight, int64_t n, int64_t k) {
  return ((const float*)weight)[n * K + k];
}

template <int K>
PIH_INLINE float element_bf16(const void* weight, int64_t n, int64_t k) {
  const uint16_t* words = (const uint16_t*)weight + n * K + k / 32 * 32;
  return from_bf16(words[k % 16 * 2 + k % 32 / 16]);
}

template <int K>
PIH_INLINE float element_q8_0(const void* weight, int64_t n, int64_t k) {
  const uint8_t* block = block_of<K, Q8_BLOCK>(weight, n, k);
  int64_t r = n % TILE, c = k % GROUP;
  return f16_at(block, r) * (float)(int8_t)block[32 + c / 4 * 64 + r * 4 + c % 4];
}

template <int K>
PIH_INLINE float element_q4_1(const void* weight, int64_t n, int64_t k) {
  const uint8_t* block = block_of<K, Q4_BLOCK>(weight, n, k);
  int64_t r = n % TILE, c = k % GROUP;
  uint8_t byte = block[64 + c % 16 / 4 * 64 + r * 4 + c % 4];
  return fma(f16_at(block, r), (float)(c < 16 ? byte & 15 : byte >> 4), f16_at(block, TILE + r));
}

template <int K>
PIH_INLINE void expand_bf16(const void* weight, int64_t n, int64_t k, float* y) {
  const uint16_t* words = (const uint16_t*)weight + n * K + k;
  for (int i = 0; i < 16; i += W) {
    vu pair = load_words(words + 2 * i);
    store(y + i, low_bf16(pair));
    store(y + 16 + i, high_bf16(pair));
  }
}

template <int K>
PIH_INLINE void expand_q8_0(const void* weight, int64_t n, int64_t k, float* y) {
  const uint8_t* block = block_of<K, Q8_BLOCK>(weight, n, k);
  float scale = f16_at(block, n % TILE);
  const int8_t* values = (const int8_t*)block + 32 + n % TILE * 4;
  for (int c = 0; c < 32; ++c) y[c] = scale * (float)values[c / 4 * 64 + c % 4];
}

template <int K>
PIH_INLINE void expand_q4_1(const void* weight, int64_t n, int64_t k, float* y) {
  const uint8_t* block = block_of<K, Q4_BLOCK>(weight, n, k);
  float scale = f16_at(block, n % TILE), minimum = f16_at(block, TILE + n % TILE);
  const uint8_t* bytes = block + 64 + n % TILE * 4;
  for (int c = 0; c < 16; ++c) {
    uint8_t byte = bytes[c / 4 * 64 + c % 4];
    y[c] = fma(scale, (float)(byte & 15), minimum);
    y[16 + c] = fma(scale, (float)(byte >> 4), minimum);
  }
}

}  // namespace pih
