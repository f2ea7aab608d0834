// sample: the id that the op's formula (runtime/pih_runtime/ops.py) takes, by a sort and sums in double. Where the draw
// lies within 1e-6 of the border of two ids, either is right.
#include <sample.cuh>

#include "check.cuh"

constexpr int V = 1000;

double uniform(unsigned long long seed, int position) {
  unsigned long long z = seed + (position + 1ull) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return static_cast<double>((z ^ (z >> 31)) >> 40) / (1 << 24);
}

const float* compared_logits;

int falling(const void* left, const void* right) {
  const int a = *static_cast<const int*>(left), b = *static_cast<const int*>(right);
  if (compared_logits[a] != compared_logits[b]) return compared_logits[a] < compared_logits[b] ? 1 : -1;
  return a - b;
}

void check(int row, const float* logits, const pih_sampling& wish, int position, int id) {
  int order[V];
  double p[V], sum = 0, kept = 0;
  for (int i = 0; i < V; ++i) order[i] = i;
  compared_logits = logits;
  qsort(order, V, sizeof *order, falling);
  if (wish.temperature == 0) return same("sample, greedy", row, 0, id, order[0]);
  int count = wish.top_k > 0 && wish.top_k < V ? wish.top_k : V;
  for (int i = 0; i < count; ++i) sum += p[i] = exp((static_cast<double>(logits[order[i]]) - logits[order[0]]) / wish.temperature);
  for (int i = 0; i < count; ++i) {
    kept += p[i] /= sum;
    if (kept >= wish.top_p) count = i + 1;
  }
  while (p[count - 1] < wish.min_p * p[0]) kept -= p[--count];
  const double draw = uniform(wish.seed, position) * kept;
  double before = 0;
  for (int i = 0; i < count; before += p[i++])
    if (order[i] == id) return near("sample, draw", row, id, draw, before + p[i] / 2, p[i] / 2 + 1e-6);
  near("sample, an id that is not kept", row, id, id, -1, 0);
}

void test() {
  const pih_sampling wishes[] = {{0, 0, 1, 0, 0},       {1, 0, 1, 0, 1},       {1, 20, 1, 0, 2},        {1, 0, 0.9f, 0, 3},
                                 {0.9f, 0, 1, 0.1f, 4}, {2, 50, 0.8f, 0.05f, 5}, {0.01f, 0, 0.5f, 0, 6}, {1, 1, 1, 0, 7}};
  constexpr int ROWS = sizeof wishes / sizeof *wishes;
  const float scales[] = {4, 0};  // with 0 all logits are equal, and the lowest id goes first
  for (const float scale : scales)
    for (int start = 0; start < 5; ++start) {
      Step step({{start, 3}, {40, ROWS}}, ROWS);
      Rows<float> logits(ROWS, V);
      random(logits, scale);
      memcpy(step.sampling[0], wishes, sizeof wishes);
      run<pih::sample<V>>(step, {logits.operand()}, WANTED);
      for (int row = 0; row < ROWS; ++row) {
        check(row, logits[row], wishes[row], step.positions[0][step.rows[0][row]], step.sampled[0][step.row_slots[0][row]]);
        same("sample, another slot", row, 0, step.sampled[0][step.row_slots[0][row] + 1], -1);
      }
    }
}
