// The activation format "i16g32": groups of 32 values, 72 bytes each.
//
// A value is scale * q, q = 254 * high + low, both digits in -127..127 and |q| <= 32384 (one more would round to a high
// digit of 128). A group is 32 bytes of high digits, 32 bytes of low digits, float32 scale, int32 sum of q. Digits of
// 8 bits suit the byte dot products of both instruction sets; base 254 keeps -128 out.
#pragma once
#include "vec.h"

namespace pih {

constexpr int GROUP = 32;
constexpr int DIGIT_BASE = 254;
constexpr int DIGIT_MOST = 127 * DIGIT_BASE + 126;

struct Group {
  int8_t high[GROUP];
  int8_t low[GROUP];
  float scale;
  int32_t sum;
};
static_assert(sizeof(Group) == 72, "the report says 72 bytes a group");

}  // namespace pih
