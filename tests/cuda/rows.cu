// gather, quantize and add: copied, rounded to nearest even, and rounded once, all to the bit.
#include <add.cuh>
#include <rows.cuh>

#include "check.cuh"

template <int COLUMNS>
void rows() {
  Step step({{0, 9}}, 4);
  Rows<float> x(9, COLUMNS), gathered(4, COLUMNS), y(9, COLUMNS), before(9, COLUMNS);
  Rows<unsigned short> rounded(9, COLUMNS);
  random(x), random(before);
  y.fill([&](int row, int i) { return before[row][i]; });
  run<pih::gather<COLUMNS>>(step, {x.operand(), gathered.operand()}, WANTED);
  run<pih::quantize_bf16<COLUMNS>>(step, {x.operand(), rounded.operand()});
  run<pih::add<COLUMNS>>(step, {x.operand(), y.operand()});
  for (int i = 0; i < COLUMNS; ++i) {
    for (int row = 0; row < 4; ++row) same("gather", row, i, gathered[row][i], x[step.rows[0][row]][i]);
    for (int row = 0; row < 9; ++row) {
      same("quantize", row, i, rounded[row][i], bf16_bits(x[row][i]));
      same("add", row, i, y[row][i], before[row][i] + x[row][i]);
    }
  }
}

void test() {
  rows<2>();
  rows<96>();
  rows<514>();
}
