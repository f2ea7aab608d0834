// rms_norm: y = x / sqrt(mean(x^2) + eps) * weight, per group of columns; off by no more than sqrt(columns) + 8 roundings.
#include <rms_norm.cuh>

#include "check.cuh"

double normed(Rows<float>& x, Rows<float>& weight, int row, int column, int d) {
  const int first = column / d * d;
  double sum = 0;
  for (int i = 0; i < d; ++i) sum += static_cast<double>(x[row][first + i]) * x[row][first + i];
  return x[row][column] / sqrt(sum / d + EPS) * weight[0][column - first];
}

template <int COLUMNS, int GROUPS>
void rms_norm() {
  constexpr int D = COLUMNS / GROUPS;
  Step step({{0, 9}});
  Rows<float> x(9, COLUMNS), weight(1, D), y(9, COLUMNS);
  random(x), random(weight);
  run<pih::rms_norm<COLUMNS, GROUPS, EPS_BITS>>(step, {x.operand(), weight.operand(), y.operand()});
  for (int row = 0; row < 9; ++row)
    for (int i = 0; i < COLUMNS; ++i) {
      const double wanted = normed(x, weight, row, i, D);
      near("rms_norm", row, i, y[row][i], wanted, fabs(wanted) * (sqrt(D) + 8) * FLOAT + LEAST);
    }
}

template <int COLUMNS>
void rounded() {
  Step step({{0, 9}}, 4);
  Rows<float> x(9, COLUMNS), weight(1, COLUMNS);
  Rows<unsigned short> all(9, COLUMNS), some(4, COLUMNS);
  random(x), random(weight);
  run<pih::rms_norm_bf16<COLUMNS, EPS_BITS>>(step, {x.operand(), weight.operand(), all.operand()});
  run<pih::gather_rms_norm_bf16<COLUMNS, EPS_BITS>>(step, {x.operand(), weight.operand(), some.operand()}, WANTED);
  for (int row = 0; row < 9; ++row)
    for (int i = 0; i < COLUMNS; ++i) {
      const double wanted = normed(x, weight, row, i, COLUMNS);
      near("rms_norm_bf16", row, i, bf16_value(all[row][i]), wanted, fabs(wanted) * (BF16 + (sqrt(COLUMNS) + 8) * FLOAT) + LEAST);
    }
  for (int row = 0; row < 4; ++row)
    for (int i = 0; i < COLUMNS; ++i) same("gather_rms_norm_bf16", row, i, some[row][i], all[step.rows[0][row]][i]);
}

void test() {
  rms_norm<128, 4>();
  rms_norm<1152, 9>();
  rms_norm<258, 1>();
  rounded<64>();
  rounded<1026>();
}
