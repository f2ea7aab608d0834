// Memory and its copies. What takes no stream goes through the device's default one, which streams wait for unless they were
// created not to.
#include "driver/call.h"
#include "driver/queue.h"

using namespace simgpu;

API cuMemGetInfo_v2(size_t* free, size_t* total) {
  WITHIN
  const Device& device = state.devices[current];
  return *total = device.total, *free = device.total - device.used, 0;
}
API cuMemAlloc_v2(uint64_t* address, size_t size) {
  WITHIN
  Device& device = state.devices[current];
  if (size == 0) return INVALID_VALUE;
  if (size > device.total - device.used) return OUT_OF_MEMORY;
  Allocation* made = allocate(size, false);
  if (!made) return OUT_OF_MEMORY;
  device.used += size;
  return *address = reinterpret_cast<uint64_t>(made->data), 0;
}
// Freeing memory of the device waits for all of its streams; of the host, for nothing.
API cuMemFree_v2(uint64_t address) {
  GIVE_BACK
  drain_device(current);
  Allocation* found = find(reinterpret_cast<void*>(address), 0);
  if (!found || found->host || found->data != reinterpret_cast<char*>(address)) return INVALID_VALUE;
  state.devices[found->device].used -= found->size;
  return release(*found), state.sticky;
}
API cuMemHostAlloc(void** address, size_t size, unsigned) {
  WITHIN
  Allocation* made = size ? allocate(size, true) : nullptr;
  return made ? (*address = made->data, 0) : OUT_OF_MEMORY;
}
API cuMemFreeHost(void* address) {
  GIVE_BACK
  Allocation* found = find(address, 0);
  if (!found || !found->host || found->data != address) return INVALID_VALUE;
  lose(*found);
  return release(*found), state.sticky;
}

namespace {

bool on_device(uint64_t address, size_t size) {
  const Allocation* found = find(reinterpret_cast<void*>(address), size);
  return found && !found->host;
}

int copy(Kind kind, void* to, const void* from, size_t size, Stream* stream, char* staged = nullptr) {
  Work* work = make<Work>();
  work->kind = kind, work->size = size, work->staged = staged;
  work->to = static_cast<char*>(to), work->from = static_cast<char*>(const_cast<void*>(from));
  return queue(stream, work), 0;
}

// What is not page-locked has been read when this returns, and may still be on its way.
int copy_pageable_in(uint64_t to, const void* from, size_t size, Stream* stream) {
  char* staged = static_cast<char*>(malloc(size));
  memcpy(staged, from, size);
  return copy(COPY_IN, reinterpret_cast<void*>(to), staged, size, stream, staged);
}

}  // namespace

API cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
  WITHIN
  if (!on_device(to, size)) return INVALID_VALUE;
  Stream* stream = stream_of(nullptr);
  if (const int code = drain(stream)) return code;
  if (find(from, size)) return memcpy(reinterpret_cast<void*>(to), from, size), 0;
  return copy_pageable_in(to, from, size, stream);
}
API cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
  WITHIN
  if (!on_device(from, size)) return INVALID_VALUE;
  copy(COPY_OUT, to, reinterpret_cast<void*>(from), size, stream_of(nullptr));
  return drain(stream_of(nullptr));
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, void* stream) {
  WITHIN
  if (!on_device(to, size)) return INVALID_VALUE;
  if (!find(from, size)) return copy_pageable_in(to, from, size, stream_of(stream));
  return copy(COPY_IN, reinterpret_cast<void*>(to), from, size, stream_of(stream));
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) {
  WITHIN
  if (!on_device(from, size)) return INVALID_VALUE;
  const int code = copy(COPY_OUT, to, reinterpret_cast<void*>(from), size, stream_of(stream));
  // What is not page-locked has arrived when this returns: whoever asked may give it back at once.
  return code || find(to, size) || stream_of(stream)->capturing ? code : drain(stream_of(stream));
}
API cuMemsetD8_v2(uint64_t to, unsigned char value, size_t size) {
  WITHIN
  if (!on_device(to, size)) return INVALID_VALUE;
  // fresh pages of the host are zero already: writing them would only take memory
  if (!value && size >= (1u << 26)) return 0;
  Work* work = make<Work>();
  work->kind = FILL, work->to = reinterpret_cast<char*>(to), work->value = value, work->size = size;
  return queue(stream_of(nullptr), work), 0;
}
