// silu_mul: y = gate / (1 + exp(-gate)) * up, to eight roundings; the bf16 one is that, rounded.
#include <silu_mul.cuh>

#include "check.cuh"

template <int COLUMNS>
void silu_mul() {
  Step step({{0, 9}});
  Rows<float> both(9, 2 * COLUMNS), y(9, COLUMNS);
  Rows<unsigned short> rounded(9, COLUMNS);
  random(both, 20);
  const pih_operand gate = both.operand(), up = both.operand(COLUMNS);
  run<pih::silu_mul<COLUMNS>>(step, {gate, up, y.operand()});
  run<pih::silu_mul_bf16<COLUMNS>>(step, {gate, up, rounded.operand()});
  for (int row = 0; row < 9; ++row)
    for (int i = 0; i < COLUMNS; ++i) {
      const double x = both[row][i], wanted = x / (1 + exp(-x)) * both[row][COLUMNS + i];
      near("silu_mul", row, i, y[row][i], wanted, fabs(wanted) * 8 * FLOAT + LEAST);
      same("silu_mul_bf16", row, i, rounded[row][i], bf16_bits(y[row][i]));
    }
}

void test() {
  silu_mul<2>();
  silu_mul<96>();
  silu_mul<1026>();
}
