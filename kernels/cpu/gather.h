// y[r] = x[rows[r]]: the tokens whose logits are wanted.
//
// x [T,COLUMNS], y [R,COLUMNS] float32.
#pragma once
#include "vec.h"

namespace pih {

template <int COLUMNS>
void gather(const pih_call* call, const pih_step* step, int part, int parts) {
  Range range = share(step->wanted, part, parts);
  for (int64_t r = range.first; r < range.last; ++r)
    __builtin_memcpy(row<float>(call->operand[1], r), row<float>(call->operand[0], step->rows[r]), COLUMNS * sizeof(float));
}

template <int COLUMNS>
void gather_ref(const pih_call* call, const pih_step* step, int part, int parts) {
  Range range = share(step->wanted, part, parts);
  for (int64_t r = range.first; r < range.last; ++r)
    for (int i = 0; i < COLUMNS; ++i)
      row<float>(call->operand[1], r)[i] = row<float>(call->operand[0], step->rows[r])[i];
}

}  // namespace pih
