// embed from a table in the layout mma16 (see weight.cuh), which a tied head shares: y[t] = table[id(t)], in float32.
// id(t) = ids[t] where >= 0, else the id last sampled in slot -ids[t]-1, which never left the device.
#pragma once
#include "weight.cuh"

namespace pih {

constexpr int EMBED_THREADS = 128;

__device__ inline int id_at(const pih_step& step, int token) {
  const int id = step.ids[token];
  return id < 0 ? step.sampled[-id - 1] : id;
}

template <int N, int K>
struct embed_bf16 {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, EMBED_THREADS, 1, 0, 1, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int token = blockIdx.x;
    if (token >= rows_of(call, step)) return;
    const int id = id_at(step, token);
    // row id: rows g and g+8 of a tile lie in the same lanes, the latter in the odd words
    const char* row = call.operand[0].data + id / 16 * Weight16::strip_bytes<K>() + id % 8 * 64 + id / 8 % 2 * 4;
    float2* y = row_of<float2>(call.operand[1], token);
    for (int pair = threadIdx.x; pair < K / 2; pair += EMBED_THREADS) {
      const int block = pair / 16, t = pair / 4 % 4, half = pair / 2 % 2, word = pair % 2;
      const char* lane = row + block * Weight16::TILE_BYTES + half * (Weight16::TILE_BYTES / 2) + t * 16;
      const unsigned both = *reinterpret_cast<const unsigned*>(lane + word * 8);
      y[pair] = make_float2(low_bf16(both), high_bf16(both));
    }
  }
};

template <int N, int K>
struct embed_int8 {
  static constexpr pih_launch launch = {PIH_ANY_ROWS, EMBED_THREADS, 1, 0, 1, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    const int token = blockIdx.x;
    if (token >= rows_of(call, step)) return;
    const int id = id_at(step, token);
    const char* strip = call.operand[0].data + id / 16 * Int8::strip_bytes<K>();
    const float scale = Int8::scale<K>(strip, id % 16);
    const char* row = strip + id % 8 * 64 + id / 8 % 2 * 2;
    float2* y = row_of<float2>(call.operand[1], token);
    for (int pair = threadIdx.x; pair < K / 2; pair += EMBED_THREADS) {
      const int block = pair / 16, t = pair / 4 % 4, half = pair / 2 % 2, word = pair % 2;
      const char* lane = row + block * Int8::TILE_BYTES + t * 16;
      const unsigned both = *reinterpret_cast<const unsigned short*>(lane + half * 8 + word * 4);
      y[pair] = make_float2(Int8::value(both, 0) * scale, Int8::value(both, 1) * scale);
    }
  }
};

}  // namespace pih

#define PIH_ENTRIES_embed_bf16(symbol, n, k) PIH_ENTRY(symbol, pih::embed_bf16<n, k>)
#define PIH_ENTRIES_embed_int8(symbol, n, k) PIH_ENTRY(symbol, pih::embed_int8<n, k>)
