// Allocations on host memory, each at a guard page, and whether something was written beside one.
#pragma once

#include <sys/mman.h>

#include "driver/state.h"

namespace simgpu {

constexpr size_t PAGE = 4096;

inline Allocation* find(const void* address, size_t size) {
  const char* at = static_cast<const char*>(address);
  for (Allocation& item : state.allocations)
    if (item.map && at >= item.data && at + size <= item.data + item.size) return &item;
  return nullptr;
}

constexpr unsigned char GARBAGE = 0xff;

// The data end where a guard page begins, as nearly as 256-byte alignment lets them; all before that is filled with
// garbage, what lies beside the data so that a write there shows.
inline Allocation* allocate(size_t size, bool host) {
  for (Allocation& item : state.allocations) {
    if (item.map) continue;
    const size_t rounded = (size + 255) / 256 * 256, inside = (rounded + PAGE - 1) / PAGE * PAGE;
    void* map = mmap(nullptr, inside + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return nullptr;
    char* start = static_cast<char*>(map) + PAGE;
    mprotect(start, inside, PROT_READ | PROT_WRITE);
    item = {static_cast<char*>(map), start + inside - rounded, inside + 2 * PAGE, size, current, host};
    memset(start, GARBAGE, item.data - start);
    memset(item.data + size, GARBAGE, rounded - size);
    if (size < (1u << 26)) memset(item.data, GARBAGE, size);
    return &item;
  }
  return nullptr;
}

// Its addresses are never given out again, so that whoever still uses them faults.
inline void release(Allocation& item) {
  mmap(item.map, item.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  item = Allocation();
}

inline bool garbage(const char* from, const char* to) {
  while (from < to && static_cast<unsigned char>(*from) == GARBAGE) ++from;
  return from == to;
}

// Whether nothing was written beside an allocation.
inline bool intact() {
  for (const Allocation& item : state.allocations)
    if (item.map && !(garbage(item.map + PAGE, item.data) && garbage(item.data + item.size, item.map + item.mapped - PAGE)))
      return false;
  return true;
}

}  // namespace simgpu
