// attention over the paged cache: y = softmax(scale * q.k) v, decode split over chunks of positions and prefill in tiles.
// Weights are rounded to bf16: off by no more than 2^-8 of the sum of the sizes that are added. Both entries give the
// same bits.
#include <attention.cuh>

#include "layouts.cuh"

constexpr unsigned SCALE_BITS = 0x3e800000u;
constexpr double SCALE = 0.25;
constexpr int POSITIONS = 768, SEQS = 4;

template <int HEADS, int KV_HEADS, int D>
struct Texts {
  Step step;
  Cache cache;
  Rows<float> q, y;

  template <int S>
  explicit Texts(const Sequence (&sequences)[S])
      : step(sequences), cache(step.pages, KV_HEADS, D), q(step.tokens, HEADS * D), y(step.tokens, HEADS * D) {
    random(q);
    for (int i = 0; i < S; ++i)
      for (int position = 0; position < sequences[i].start + sequences[i].tokens; ++position)
        for (int column = 0; column < KV_HEADS * D; ++column) {
          cache.k(slot(i, position), column / D, column % D) = bf16_bits(random_value());
          cache.v(slot(i, position), column / D, column % D) = bf16_bits(random_value());
        }
  }
  int slot(int sequence, int position) {
    return step.page_table[0][sequence * step.pages_per_seq + position / 16] * 16 + position % 16;
  }

  // Of one row and head.
  void check(const char* name, int sequence, int row, int head) {
    static double weight[POSITIONS];
    const int positions = step.positions[0][row] + 1, kv_head = head / (HEADS / KV_HEADS);
    double most = -INFINITY, sum = 0;
    for (int position = 0; position < positions; ++position) {
      double score = 0;
      for (int i = 0; i < D; ++i) {
        const double query = bf16_value(bf16_bits(q[row][head * D + i]));
        score += query * bf16_value(cache.k(slot(sequence, position), kv_head, i));
      }
      weight[position] = SCALE * score;
      most = fmax(most, weight[position]);
    }
    for (int position = 0; position < positions; ++position) sum += weight[position] = exp(weight[position] - most);
    for (int i = 0; i < D; ++i) {
      double wanted = 0, size = 0;
      for (int position = 0; position < positions; ++position) {
        const double value = weight[position] / sum * bf16_value(cache.v(slot(sequence, position), kv_head, i));
        wanted += value, size += fabs(value);
      }
      near(name, row, head * D + i, y[row][head * D + i], wanted, size * BF16 + LEAST);
    }
  }
  void check(const char* name) {
    for (int sequence = 0; sequence < step.seqs; ++sequence)
      for (int row = step.seq_start[0][sequence]; row < step.seq_start[0][sequence + 1]; ++row)
        for (int head = 0; head < HEADS; ++head) check(name, sequence, row, head);
  }
};

template <int HEADS, int KV_HEADS, int D>
void attention() {
  using Whole = pih::attention_whole<HEADS, KV_HEADS, D, SCALE_BITS, pih::Float>;
  using Split = pih::attention_split<HEADS, KV_HEADS, D, SCALE_BITS, POSITIONS, SEQS, pih::Float>;
  using Rounded = pih::attention_split<HEADS, KV_HEADS, D, SCALE_BITS, POSITIONS, SEQS, pih::Bf16>;

  Texts<HEADS, KV_HEADS, D> prefill({{0, 33}, {250, 12}, {5, 1}});
  run<Whole>(prefill.step, {prefill.q.operand(), prefill.cache.operand(), prefill.y.operand()});
  prefill.check("attention, prefill");

  Texts<HEADS, KV_HEADS, D> decode({{32, 1}, {699, 1}, {0, 1}, {255, 1}});
  const pih_operand q = decode.q.operand(), cache = decode.cache.operand(), y = decode.y.operand();
  run<Split>(decode.step, {q, cache, y});
  decode.check("attention, decode");
  Rows<float> again(4, HEADS * D), whole(4, HEADS * D);
  Rows<unsigned short> rounded(4, HEADS * D);
  run<Split>(decode.step, {q, cache, again.operand()});
  run<Whole>(decode.step, {q, cache, whole.operand()});
  run<Rounded>(decode.step, {q, cache, rounded.operand()});
  for (int row = 0; row < 4; ++row)
    for (int i = 0; i < HEADS * D; ++i) {
      same("attention, decode again", row, i, again[row][i], decode.y[row][i]);
      same("attention, decode as prefill", row, i, whole[row][i], decode.y[row][i]);
      same("attention, rounded", row, i, rounded[row][i], bf16_bits(decode.y[row][i]));
    }
}

void test() {
  attention<4, 2, 128>();
  attention<6, 2, 64>();
  attention<16, 1, 32>();
}
