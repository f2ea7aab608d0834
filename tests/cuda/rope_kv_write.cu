// rope_table, rope, kv_write, and the two fused with or without the norm of each head: q is turned in place, k and v go
// to the cache, rounded to bf16, and nothing else of the cache is touched.
#include <rope_kv_write.cuh>

#include "layouts.cuh"

// Head `head` of row, normed where there is a weight, then turned: what column i of it becomes, and how far that may be off.
struct Turned {
  Rows<float>&x, &table;
  int d, adjacent;
  Rows<float>* weight = nullptr;

  double before(int row, int first, int i) const {
    if (!weight) return x[row][first + i];
    double sum = 0;
    for (int at = 0; at < d; ++at) sum += static_cast<double>(x[row][first + at]) * x[row][first + at];
    return x[row][first + i] / sqrt(sum / d + EPS) * (*weight)[0][i];
  }
  double wanted(int row, int first, int i, double* error) const {
    const int pair = adjacent ? i / 2 : i % (d / 2), second = adjacent ? i % 2 : i / (d / 2), apart = adjacent ? 1 : d / 2;
    const int at = adjacent ? 2 * pair : pair;
    const double a = before(row, first, at), b = before(row, first, at + apart), c = table[row][pair], s = table[row][d / 2 + pair];
    const double left = second ? b * c : a * c, right = second ? a * s : -b * s;
    *error = (2 + 12 * (weight != nullptr)) * FLOAT * (fabs(left) + fabs(right)) + LEAST;
    return left + right;
  }
};

void table_of(Rows<float>& table, const Step& step, Rows<int>& positions) {
  const int half = table.columns / 2;
  for (int row = 0; row < step.tokens; ++row)
    for (int i = 0; i < half; ++i) {
      const double angle = positions[0][row] * pow(1e4, -static_cast<double>(i) / half);
      table[row][i] = static_cast<float>(cos(angle)), table[row][half + i] = static_cast<float>(sin(angle));
    }
}

template <int COLUMNS>
void rope_table() {
  Step step({{0, 3}, {900, 6}});
  Rows<float> frequencies(1, COLUMNS / 2), y(9, COLUMNS);
  frequencies.fill([](int, int i) { return pow(1e4, -2.0 * i / COLUMNS); });
  run<pih::rope_table<COLUMNS>>(step, {frequencies.operand(), y.operand()});
  for (int row = 0; row < 9; ++row)
    for (int i = 0; i < COLUMNS; ++i) {
      const float angle = static_cast<float>(step.positions[0][row]) * frequencies[0][i % (COLUMNS / 2)];
      const double wanted = i < COLUMNS / 2 ? cos(static_cast<double>(angle)) : sin(static_cast<double>(angle));
      near("rope_table", row, i, y[row][i], wanted, 1.0 / (1 << 22));
    }
}

template <int HEADS, int D, int ADJACENT>
void rope() {
  Step step({{0, 3}, {900, 6}});
  Rows<float> x(9, HEADS * D), y(9, HEADS * D), table(9, D);
  random(x);
  y.fill([&](int row, int i) { return x[row][i]; });
  table_of(table, step, step.positions);
  run<pih::rope<HEADS * D, D, ADJACENT>>(step, {y.operand(), table.operand(), y.operand()});
  for (int row = 0; row < 9; ++row)
    for (int i = 0; i < HEADS * D; ++i) {
      double error;
      const double wanted = Turned{x, table, D, ADJACENT}.wanted(row, i / D * D, i % D, &error);
      near("rope", row, i, y[row][i], wanted, error);
    }
}

template <int KV_HEADS, int D>
void kv_write() {
  Step step({{30, 5}, {0, 16}});
  Rows<float> k(step.tokens, KV_HEADS * D), v(step.tokens, KV_HEADS * D);
  Cache cache(step.pages, KV_HEADS, D), wanted(step.pages, KV_HEADS, D);
  random(k), random(v);
  run<pih::kv_write<KV_HEADS, D>>(step, {k.operand(), v.operand(), cache.operand()});
  for (int row = 0; row < step.tokens; ++row)
    for (int i = 0; i < KV_HEADS * D; ++i) {
      wanted.k(step.slots[0][row], i / D, i % D) = bf16_bits(k[row][i]);
      wanted.v(step.slots[0][row], i / D, i % D) = bf16_bits(v[row][i]);
    }
  for (int part = 0; part < 2; ++part)
    for (int i = 0; i < cache.bits.columns; ++i) same("kv_write", part, i, cache.bits[part][i], wanted.bits[part][i]);
}

template <class Kernel, int HEADS, int KV_HEADS, int D, int ADJACENT, bool NORM>
void fused(const char* name) {
  constexpr int Q = HEADS * D, KV = KV_HEADS * D;
  Step step({{30, 5}, {0, 4}});
  Rows<float> x(9, Q + 2 * KV), y(9, Q + 2 * KV), table(9, D), weight_q(1, D), weight_k(1, D);
  Cache cache(step.pages, KV_HEADS, D), wanted(step.pages, KV_HEADS, D);
  random(x), random(weight_q), random(weight_k);
  y.fill([&](int row, int i) { return x[row][i]; });
  table_of(table, step, step.positions);
  const pih_operand both = y.operand(), k = y.operand(Q), v = y.operand(Q + KV);
  if constexpr (NORM)
    run<Kernel>(step, {weight_q.operand(), weight_k.operand(), both, table.operand(), k, v, cache.operand()});
  else
    run<Kernel>(step, {both, table.operand(), k, v, cache.operand()});
  for (int row = 0; row < 9; ++row) {
    const int slot = step.slots[0][row];
    for (int i = 0; i < Q + KV; ++i) {
      double error;
      const Turned turned = {x, table, D, ADJACENT, !NORM ? nullptr : i < Q ? &weight_q : &weight_k};
      const double right = turned.wanted(row, i / D * D, i % D, &error);
      if (i < Q) {
        near(name, row, i, y[row][i], right, error);
        continue;
      }
      same(name, row, i, y[row][i], x[row][i]);  // k stays as it was
      const unsigned short kept = cache.k(slot, i / D - HEADS, i % D);
      near(name, row, i, bf16_value(kept), right, error + BF16 * (fabs(right) + error));
      wanted.k(slot, i / D - HEADS, i % D) = kept;
      wanted.v(slot, i / D - HEADS, i % D) = bf16_bits(x[row][i + KV]);
    }
  }
  for (int part = 0; part < 2; ++part)
    for (int i = 0; i < cache.bits.columns; ++i) same(name, part, i, cache.bits[part][i], wanted.bits[part][i]);
}

template <int HEADS, int KV_HEADS, int D, int ADJACENT>
void rope_kv_write() {
  constexpr int COLUMNS = (HEADS + KV_HEADS) * D;
  fused<pih::rope_kv_write<COLUMNS, KV_HEADS, D, ADJACENT>, HEADS, KV_HEADS, D, ADJACENT, false>("rope_kv_write");
  fused<pih::norm_rope_kv_write<COLUMNS, KV_HEADS, D, ADJACENT, EPS_BITS>, HEADS, KV_HEADS, D, ADJACENT, true>("norm_rope_kv_write");
}

void test() {
  rope_table<64>();
  rope_table<160>();
  rope<2, 32, 0>();
  rope<5, 128, 1>();
  kv_write<3, 64>();
  kv_write<2, 128>();
  rope_kv_write<8, 2, 128, 0>();
  rope_kv_write<3, 3, 64, 1>();
}
