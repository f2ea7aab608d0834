// Reads every byte of one weight and keeps a checksum: what the memory gives to a loop that does nothing else.
//
// weight [BYTES], y [1,1]: never the sum in practice; the store keeps the compiler from dropping the loads.
#pragma once
#include "vec.h"

namespace pih {

template <int64_t BYTES>
void read_bandwidth(const pih_call* call, const pih_step*, int part, int parts) {
  constexpr int64_t LINE = 256, LINES = BYTES / LINE;
  Range range = share(LINES, part, parts);
  vu total[LINE / sizeof(vu)] = {};
  for (int64_t line = range.first; line < range.last; ++line) {
    const char* p = (const char*)call->operand[0].data + line * LINE;
    PIH_UNROLL
    for (unsigned i = 0; i < LINE / sizeof(vu); ++i) total[i] ^= load_words(p + i * sizeof(vu));
  }
  for (unsigned i = 1; i < LINE / sizeof(vu); ++i) total[0] ^= total[i];
  uint32_t all = 0;
  for (int i = 0; i < W; ++i) all ^= total[0][i];
  if (all == 0x12345678) *(uint32_t*)call->operand[1].data = all;
}

}  // namespace pih
