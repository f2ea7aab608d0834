// linear: y[t,n] = sum_k weight[n,k] * x[t,k] [+ y], for decode (narrow entries) and prefill (wide), weights bf16 and int8.
// Float32 sums of exact products: off by no more than 2^-20 of the sum of their sizes. Every entry gives the same bits.
#include <linear.cuh>

#include "layouts.cuh"

template <class Weight, int N, int K, int ACCUMULATE>
struct Linear {
  Packed<Weight> weight{N, K};
  Rows<unsigned short> x;
  Rows<float> before, first;
  Step step;
  bool ran = false;

  explicit Linear(int tokens) : x(tokens, K), before(tokens, N), first(tokens, N), step({{0, tokens}}) {
    random(x), random(before);
  }

  template <class Kernel>
  void check(const char* name) {
    if (step.tokens > Kernel::launch.most_rows) return;
    Rows<float> y(step.tokens, N);
    y.fill([&](int row, int n) { return before[row][n]; });
    run<Kernel>(step, {x.operand(), weight.operand(), y.operand()});
    for (int row = 0; row < step.tokens; ++row)
      for (int n = 0; n < N; ++n) {
        if (ran) {
          same(name, row, n, y[row][n], first[row][n]);
          continue;
        }
        double sum = ACCUMULATE ? before[row][n] : 0, size = fabs(sum);
        for (int i = 0; i < K; ++i) {
          const double product = static_cast<double>(weight.value(n, i)) * bf16_value(x[row][i]);
          sum += product, size += fabs(product);
        }
        near(name, row, n, y[row][n], sum, size / (1 << 20));
        first[row][n] = y[row][n];
      }
    ran = true;
  }
};

template <class Weight, int N, int K, int ACCUMULATE>
void linear(int tokens) {
  Linear<Weight, N, K, ACCUMULATE> linear(tokens);
  linear.template check<pih::linear_wide<Weight, N, K, ACCUMULATE>>("linear, wide");
  linear.template check<pih::linear_narrow<Weight, N, K, ACCUMULATE, 4>>("linear, to 32 tokens");
  linear.template check<pih::linear_narrow<Weight, N, K, ACCUMULATE, 1>>("linear, to 8 tokens");
}

void test() {
  const int sizes[] = {1, 7, 8, 19, 32, 65};
  for (const int tokens : sizes) {
    linear<pih::Weight16, 80, 288, 0>(tokens);
    linear<pih::Weight16, 48, 512, 1>(tokens);
    linear<pih::Int8, 80, 288, 0>(tokens);
    linear<pih::Int8, 16, 96, 1>(tokens);
  }
}
