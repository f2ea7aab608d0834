// attention over the paged cache that kv_write.cuh writes. With quantize: rounded to bf16, not kept in float32.
// operands: q, cache, y
//
// 16 rows of an m16n8k16 are the query heads of one kv head, of as many tokens as fit. Positions go in chunks of CHUNK,
// within a chunk each of the warps takes every fourth page; an online softmax a warp, warps merged in their order,
// then chunks in theirs. The split entries give each chunk a block, and whichever block ends last merges; the whole
// one walks the chunks: the same sums in the same order, whatever the step.
//
// A NaN in q or among the keys that a row sees makes that row NaN. What is not finite among the values reaches every row
// whose page holds it, also the rows of the same step whose positions lie before it.
#pragma once
#include "kv_write.cuh"

namespace pih {

constexpr int CHUNK = 256, ATTENTION_WARPS = 4, ATTENTION_THREADS = ATTENTION_WARPS * 32;
#define MINUS_INFINITY __uint_as_float(0xff800000u)

// A softmax on its way: `most` the largest score (base 2), `sum` of the weights, `value` their sum of values.
template <int COLUMNS>
struct Softmax {
  float most, sum = 0.f;
  float value[COLUMNS] = {};

  __device__ Softmax() { most = MINUS_INFINITY; }

  __device__ void merge(float other_most, float other_sum, const float* other) {
    if (other_sum == 0.f) return;
    const float now = fmaxf(most, other_most), mine = exp2_fast(most - now), theirs = exp2_fast(other_most - now);
    most = now;
    sum = sum * mine + other_sum * theirs;
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) value[i] = value[i] * mine + other[i] * theirs;
  }
};

template <int HEADS, int KV_HEADS, int D, unsigned SCALE, class Put>
struct Attention {
  static_assert(HEADS % KV_HEADS == 0 && HEADS / KV_HEADS <= 16 && D % 32 == 0 && D <= 128);
  static constexpr int GROUP = HEADS / KV_HEADS, TOKENS = 16 / GROUP;
  // a thread keeps SHARE columns of one of the 16 rows when results are merged
  static constexpr int SHARE = D / 8;

  struct Shared {
    float most[ATTENTION_WARPS][16], sum[ATTENTION_WARPS][16];
    float value[ATTENTION_WARPS][16][D];
  };

  const pih_call& call;
  const pih_step& step;
  int sequence, first, tokens, kv_head;  // this block's tokens are first .. first + tokens - 1

  __device__ int position(int row) const {
    return row / GROUP < tokens && row < TOKENS * GROUP ? step.positions[first + row / GROUP] : -1;
  }

  // All rows over one chunk; every thread gets its share of its row, threadIdx.x / 8.
  __device__ void chunk(int index, Softmax<SHARE>& result, Shared& shared) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int last = step.positions[first + tokens - 1], at[2] = {position(g), position(g + 8)};
    uint4 q[D / 32][2];
    load_q(q);
    float most[2] = {MINUS_INFINITY, MINUS_INFINITY}, sum[2] = {}, value[D / 8][4] = {};
    const int end = min((index + 1) * (CHUNK / PAGE), last / PAGE + 1);
    for (int block = index * (CHUNK / PAGE) + warp; block < end; block += ATTENTION_WARPS) {
      const int page = step.page_table[sequence * step.counts[3] + block];
      const char* keys = call.operand[1].data + (static_cast<int64>(page) * KV_HEADS + kv_head) * PAGE * D * 2;
      float score[2][4] = {};
#pragma unroll
      for (int i = 0; i < D / 32; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint4 k = *reinterpret_cast<const uint4*>(keys + ((half * 8 + g) * D + i * 32 + t * 8) * 2);
          mma_bf16(score[half], q[i][0], k.x, k.y);
          mma_bf16(score[half], q[i][1], k.z, k.w);
        }
      }
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float& s0 = score[0][row * 2], &s1 = score[0][row * 2 + 1], &s2 = score[1][row * 2], &s3 = score[1][row * 2 + 1];
        const int place = block * PAGE + t * 2;
        const float scale = bits_float(SCALE) * 1.4426950408889634f;
        s0 = place <= at[row] ? s0 * scale : MINUS_INFINITY;
        s1 = place + 1 <= at[row] ? s1 * scale : MINUS_INFINITY;
        s2 = place + 8 <= at[row] ? s2 * scale : MINUS_INFINITY;
        s3 = place + 9 <= at[row] ? s3 * scale : MINUS_INFINITY;
        float now = fmaxf(fmaxf(s0, s1), fmaxf(s2, s3));
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
        now = fmaxf(now, most[row]);
        const float base = now == MINUS_INFINITY ? 0.f : now, shrink = exp2_fast(most[row] - base);
        s0 = exp2_fast(s0 - base), s1 = exp2_fast(s1 - base), s2 = exp2_fast(s2 - base), s3 = exp2_fast(s3 - base);
        most[row] = now;
        sum[row] = sum[row] * shrink + ((s0 + s1) + (s2 + s3));
#pragma unroll
        for (int i = 0; i < D / 8; ++i) value[i][row * 2] *= shrink, value[i][row * 2 + 1] *= shrink;
      }
      uint4 p;
      p.x = pack_bf16(score[0][0], score[0][1]), p.y = pack_bf16(score[0][2], score[0][3]);
      p.z = pack_bf16(score[1][0], score[1][1]), p.w = pack_bf16(score[1][2], score[1][3]);
      const char* values = keys + call.operand[1].stride;
#pragma unroll
      for (int i = 0; i < D / 16; ++i) {
        uint4 v = *reinterpret_cast<const uint4*>(values + i * 512 + lane * 16);
        if (block == last / PAGE) v = only_written(v, block * PAGE + t * 2, last);
        mma_bf16(value[2 * i], p, v.x, v.y);
        mma_bf16(value[2 * i + 1], p, v.z, v.w);
      }
    }
    gather(most, sum, value, shared);
    const int row = threadIdx.x / 8, part = threadIdx.x % 8 * SHARE;
    for (int other = 0; other < ATTENTION_WARPS; ++other)
      result.merge(shared.most[other][row], shared.sum[other][row], shared.value[other][row] + part);
  }

  // Zeros for positions past the last: what lies there is no weight times anything, be it a NaN of another sequence.
  static __device__ uint4 only_written(uint4 v, int place, int last) {
    const unsigned low = (place <= last ? 0xffffu : 0) | (place + 1 <= last ? 0xffff0000u : 0);
    const unsigned high = (place + 8 <= last ? 0xffffu : 0) | (place + 9 <= last ? 0xffff0000u : 0);
    v.x &= low, v.y &= high, v.z &= low, v.w &= high;
    return v;
  }

  __device__ void load_q(uint4 (&q)[D / 32][2]) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float* x[2];
    for (int side = 0; side < 2; ++side) {
      const int row = g + side * 8;
      const bool there = row / GROUP < tokens && row < TOKENS * GROUP;
      x[side] = there ? row_of<float>(call.operand[0], first + row / GROUP) + (kv_head * GROUP + row % GROUP) * D : nullptr;
    }
#pragma unroll
    for (int i = 0; i < D / 32; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = i * 32 + t * 8 + half * 4;
        uint4 v = {0, 0, 0, 0};
        if (x[0]) v.x = pack_bf16(x[0][at], x[0][at + 1]), v.z = pack_bf16(x[0][at + 2], x[0][at + 3]);
        if (x[1]) v.y = pack_bf16(x[1][at], x[1][at + 1]), v.w = pack_bf16(x[1][at + 2], x[1][at + 3]);
        q[i][half] = v;
      }
    }
  }

  // Each warp's results to where all threads see them; a row's sum is spread over the four lanes that share it.
  __device__ void gather(const float (&most)[2], float (&sum)[2], const float (&value)[D / 8][4], Shared& shared) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    __syncthreads();  // whoever still reads the chunk before
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = g + side * 8;
      sum[side] += __shfl_xor_sync(0xffffffffu, sum[side], 1);
      sum[side] += __shfl_xor_sync(0xffffffffu, sum[side], 2);
      shared.most[warp][row] = most[side];
      shared.sum[warp][row] = sum[side];
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        shared.value[warp][row][i * 8 + t * 2] = value[i][side * 2];
        shared.value[warp][row][i * 8 + t * 2 + 1] = value[i][side * 2 + 1];
      }
    }
    __syncthreads();
  }

  __device__ void write(const Softmax<SHARE>& result) const {
    const int row = threadIdx.x / 8;
    if (row / GROUP >= tokens || row >= TOKENS * GROUP) return;
    char* y = row_of<char>(call.operand[2], first + row / GROUP);
    const int pair = ((kv_head * GROUP + row % GROUP) * D + threadIdx.x % 8 * SHARE) / 2;
#pragma unroll
    for (int i = 0; i < SHARE / 2; ++i)
      Put::pair(y, pair + i, result.value[2 * i] / result.sum, result.value[2 * i + 1] / result.sum);
  }
};

// A block for each token, kv head and chunk; SEQS tokens at most, which a step of decodes has.
template <int HEADS, int KV_HEADS, int D, unsigned SCALE, int POSITIONS, int SEQS, class Put>
struct attention_split {
  using Head = Attention<HEADS, KV_HEADS, D, SCALE, Put>;
  static constexpr int CHUNKS = POSITIONS / CHUNK, RECORD = D + 2;
  static constexpr int RECORDS = SEQS * HEADS * CHUNKS;
  static constexpr int SCRATCH = RECORDS * RECORD + SEQS * KV_HEADS;
  static_assert(POSITIONS % CHUNK == 0 && SCRATCH <= HEADS * POSITIONS * SEQS);
  static constexpr pih_launch launch = {SEQS, ATTENTION_THREADS, 1, 0, KV_HEADS, CHUNKS, SCRATCH};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    __shared__ typename Head::Shared shared;
    __shared__ bool last;
    const int token = blockIdx.x, chunk = blockIdx.z;
    if (token >= step.counts[0] || chunk * CHUNK > step.positions[token]) return;
    int sequence = 0;
    while (step.seq_start[sequence + 1] <= token) ++sequence;
    const Head head{call, step, sequence, token, 1, static_cast<int>(blockIdx.y)};
    Softmax<Head::SHARE> result;
    head.chunk(chunk, result, shared);
    const int chunks = step.positions[token] / CHUNK + 1;
    if (chunks > 1) {
      const int row = threadIdx.x / 8, part = threadIdx.x % 8, place = token * KV_HEADS + blockIdx.y;
      float* records = step.scratch + static_cast<int64>(place) * CHUNKS * Head::GROUP * RECORD;
      if (row < Head::GROUP) {
        float* record = records + (chunk * Head::GROUP + row) * RECORD;
        if (part == 0) record[0] = result.most, record[1] = result.sum;
        for (int i = 0; i < Head::SHARE; ++i) record[2 + part * Head::SHARE + i] = result.value[i];
      }
      __threadfence();
      __syncthreads();
      unsigned* counter = reinterpret_cast<unsigned*>(step.scratch + static_cast<int64>(RECORDS) * RECORD) + place;
      if (threadIdx.x == 0) last = atomicAdd(counter, 1u) == static_cast<unsigned>(chunks - 1);
      __syncthreads();
      if (!last) return;
      __threadfence();
      if (threadIdx.x == 0) *counter = 0;
      result = Softmax<Head::SHARE>();
      if (row < Head::GROUP) {
        for (int i = 0; i < chunks; ++i) {
          const float* record = records + (i * Head::GROUP + row) * RECORD;
          result.merge(record[0], record[1], record + 2 + part * Head::SHARE);
        }
      }
    }
    head.write(result);
  }
};

// A block for as many tokens of one sequence as fit 16 rows, and each kv head.
template <int HEADS, int KV_HEADS, int D, unsigned SCALE, class Put>
struct attention_whole {
  using Head = Attention<HEADS, KV_HEADS, D, SCALE, Put>;
  static constexpr pih_launch launch = {PIH_ANY_ROWS, ATTENTION_THREADS, Head::TOKENS, 1, KV_HEADS, 1};

  static __device__ void run(const pih_call& call, const pih_step& step) {
    __shared__ typename Head::Shared shared;
    int tile = blockIdx.x, sequence = 0;
    for (;; ++sequence) {
      if (sequence == step.counts[1]) return;
      const int tiles = (step.seq_start[sequence + 1] - step.seq_start[sequence] + Head::TOKENS - 1) / Head::TOKENS;
      if (tile < tiles) break;
      tile -= tiles;
    }
    const int first = step.seq_start[sequence] + tile * Head::TOKENS;
    const int tokens = min(Head::TOKENS, step.seq_start[sequence + 1] - first);
    const Head head{call, step, sequence, first, tokens, static_cast<int>(blockIdx.y)};
    Softmax<Head::SHARE> result;
    for (int chunk = 0; chunk * CHUNK <= step.positions[first + tokens - 1]; ++chunk) {
      Softmax<Head::SHARE> part;
      head.chunk(chunk, part, shared);
      result.merge(part.most, part.sum, part.value);
    }
    head.write(result);
  }
};

}  // namespace pih

#define PIH_ATTENTION(symbol, heads, kv_heads, head_dim, scale, positions, seqs, put)                \
  PIH_ENTRY(symbol, pih::attention_split<heads, kv_heads, head_dim, scale, positions, seqs, put>)   \
  PIH_ENTRY(symbol##_whole, pih::attention_whole<heads, kv_heads, head_dim, scale, put>)
#define PIH_ENTRIES_attention(symbol, heads, kv_heads, head_dim, scale, positions, seqs) \
  PIH_ATTENTION(symbol, heads, kv_heads, head_dim, scale, positions, seqs, pih::Float)
#define PIH_ENTRIES_attention_bf16(symbol, heads, kv_heads, head_dim, scale, positions, seqs) \
  PIH_ATTENTION(symbol, heads, kv_heads, head_dim, scale, positions, seqs, pih::Bf16)
