// Where values lie in the layouts that kernels read, by their documented formulas and apart from the code that makes them.
#pragma once
#include "check.cuh"
#include <kv_write.cuh>
#include <weight.cuh>

// mma16 (kernels/cuda/weight.cuh): the lane that holds row and column of a 16 x 32 tile, its half, and which of eight.
struct Place {
  int tile, half, lane, value;

  Place(int row, int column, int k)
      : tile(row / 16 * (k / 32) + column / 32),
        half(column / 4 % 2),
        lane(row % 8 * 4 + column % 32 / 8),
        value(column % 2 + row / 8 % 2 * 2 + column / 2 % 2 * 4) {}
};

// A weight of n x k random values in a layout; value(row, column) is what stands there.
template <class Layout>
struct Packed;

template <>
struct Packed<pih::Weight16> {
  int k;
  Rows<unsigned short> bits;

  Packed(int n, int k) : k(k), bits(1, n * k) { random(bits, 0.1f); }
  float value(int row, int column) {
    const Place at(row, column, k);
    return bf16_value(bits[0][((at.tile * 2 + at.half) * 32 + at.lane) * 8 + at.value]);
  }
  pih_operand operand() const { return bits.operand(); }
};

template <>
struct Packed<pih::Int8> {
  int k;
  Rows<unsigned char> bytes;

  Packed(int n, int k) : k(k), bytes(1, n / 16 * strip()) {
    bytes.fill([](int, int) { return 128 + static_cast<int>(random_value() * 127); });
    for (int row = 0; row < n; ++row) {
      const float scale = random_value();
      memcpy(scale_at(row), &scale, 4);
    }
  }
  int strip() const { return k * 16 + 64; }
  unsigned char* scale_at(int row) { return bytes[0] + row / 16 * strip() + k * 16 + row % 16 * 4; }
  float value(int row, int column) {
    const Place at(row, column, k);
    float scale;
    memcpy(&scale, scale_at(row), 4);
    const int tile = at.tile % (k / 32);
    return scale * (bytes[0][row / 16 * strip() + ((tile * 32 + at.lane) * 2 + at.half) * 8 + at.value] - 128);
  }
  pih_operand operand() const { return bytes.operand(); }
};

// One layer of a paged cache (kernels/cuda/kv_write.cuh), all of it NaNs at first.
struct Cache {
  int kv_heads, d;
  Rows<unsigned short> bits;

  Cache(int pages, int kv_heads, int d) : kv_heads(kv_heads), d(d), bits(2, pages * kv_heads * 16 * d) {}
  unsigned short& k(int slot, int head, int column) {
    return bits[0][((slot / 16 * kv_heads + head) * 16 + slot % 16) * d + column];
  }
  unsigned short& v(int slot, int head, int column) {
    const int position = slot % 16, tile = column / 16, half = column % 16 / 8, lane = column % 8 * 4 + position % 8 / 2;
    return bits[1][(slot / 16 * kv_heads + head) * 16 * d + ((tile * 32 + lane) * 2 + half) * 4 + position / 8 * 2 + position % 2];
  }
  pih_operand operand() const { return bits.operand(); }
};
