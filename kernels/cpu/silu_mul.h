// y = gate / (1 + exp(-gate)) * up.
//
// gate, up, y [T,COLUMNS] float32. Work is shared in pieces of 64 columns.
#pragma once
#include "vec.h"

namespace pih {

template <int COLUMNS>
void silu_mul(const pih_call* call, const pih_step* step, int part, int parts) {
  constexpr int PIECE = 64, PIECES = (COLUMNS + PIECE - 1) / PIECE;
  Range range = share(rows_of(call, step) * PIECES, part, parts);
  for (int64_t unit = range.first; unit < range.last; ++unit) {
    const float* gate = row<float>(call->operand[0], unit / PIECES);
    const float* up = row<float>(call->operand[1], unit / PIECES);
    float* y = row<float>(call->operand[2], unit / PIECES);
    int64_t i = unit % PIECES * PIECE, end = min(i + PIECE, COLUMNS);
    for (; i + W <= end; i += W) {
      vf g = load(gate + i);
      store(y + i, g / (splat(1.0f) + exp(-g)) * load(up + i));
    }
    for (; i < end; ++i) y[i] = gate[i] / (1.0f + exp(-gate[i])) * up[i];
  }
}

template <int COLUMNS>
void silu_mul_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  Range range = share(rows_of(call, step), part, parts);
  for (int64_t t = range.first; t < range.last; ++t) {
    const float* gate = row<float>(call->operand[0], t);
    const float* up = row<float>(call->operand[1], t);
    float* y = row<float>(call->operand[2], t);
    for (int i = 0; i < COLUMNS; ++i) y[i] = gate[i] / (1.0f + exp(-gate[i])) * up[i];
  }
}

}  // namespace pih
