// What every pack begins with: its identity, and the memory functions that a compiler may call in any code.
#pragma once
#include <pih_kernel.h>

#include "team.h"

#define PIH_PACK(isa)                             \
  PIH_EXPORT int pih_abi(void) { return PIH_ABI; } \
  PIH_EXPORT const char* pih_isa(void) { return isa; }

// Exports one instance of a kernel template under its symbol.
#define PIH_KERNEL(symbol, ...)                                                                   \
  PIH_EXPORT void symbol(const pih_call* call, const pih_step* step, int part, int parts) {       \
    pih::__VA_ARGS__(call, step, part, parts);                                                    \
  }

extern "C" {

void* memcpy(void* to, const void* from, size_t count) {
  void* result = to;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
  return result;
}

void* memset(void* to, int value, size_t count) {
  void* result = to;
  asm volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(value) : "memory");
  return result;
}
}
