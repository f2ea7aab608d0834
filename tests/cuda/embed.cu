// embed: y[t] = table[id(t)], exact; id(t) = ids[t] where >= 0, else the id last sampled in slot -ids[t]-1.
#include <embed.cuh>

#include "layouts.cuh"

template <class Weight, template <int, int> class Kernel>
void embed(const char* name) {
  constexpr int N = 80, K = 96;
  Packed<Weight> table(N, K);
  Rows<float> y(5, K);
  Step step({{0, 5}});
  const int ids[5] = {0, 79, -2, 17, 8}, wanted[5] = {0, 79, 44, 17, 8};
  memcpy(step.ids[0], ids, sizeof ids);
  step.sampled[0][1] = 44;
  run<Kernel<N, K>>(step, {table.operand(), y.operand()});
  for (int row = 0; row < 5; ++row)
    for (int i = 0; i < K; ++i) same(name, row, i, y[row][i], table.value(wanted[row], i));
}

void test() {
  embed<pih::Weight16, pih::embed_bf16>("embed_bf16");
  embed<pih::Int8, pih::embed_int8>("embed_int8");
}
