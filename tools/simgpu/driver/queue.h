// Work that was queued in a stream, and its doing when something waits for it.
#pragma once

#include <dlfcn.h>
#include <stddef.h>

#include "driver/memory.h"

namespace simgpu {

inline Work* push(Stream* stream) {
  Queue& queue = stream->capturing ? stream->graph->queue : stream->queue;
  if (queue.count == queue.room) {
    queue.room = queue.room ? queue.room * 2 : 64;
    queue.items = static_cast<Work*>(realloc(queue.items, queue.room * sizeof(Work)));
  }
  Work* work = &queue.items[queue.count++];
  memset(static_cast<void*>(work), 0, offsetof(Work, parameters));
  work->event = nullptr;
  return work;
}

inline int run(const Work& work) {
  switch (work.kind) {
    case COPY_IN:
    case COPY_OUT:
      memcpy(work.to, work.from, work.size);
      return 0;
    case RECORD:
      work.event->pending = false;
      return 0;
    case FILL:
      memset(work.to, work.value, work.size);
      return 0;
    case LAUNCH:
      break;
  }
  using Run = int (*)(void*, const unsigned*, const unsigned*, void**, uint64_t, char*, size_t);
  const Run simgpu_run = reinterpret_cast<Run>(dlsym(work.function->module->library, "simgpu_run"));
  char error[300] = "";
  void* parameters[2] = {const_cast<unsigned char*>(work.parameters[0]), const_cast<unsigned char*>(work.parameters[1])};
  int code = simgpu_run(work.function->code, work.grid, work.threads, parameters, state.seed + state.launches++, error, sizeof error);
  if (!code && !intact()) {
    code = 700;
    snprintf(error, sizeof error, "a write beside an allocation");
  }
  if (code) say("simgpu: kernel %s: %s\n", work.function->name, error);
  if (lasting(code)) state.sticky = code;
  return code;
}

inline int drain(Stream* stream) {
  if (state.sticky) return state.sticky;
  for (int i = 0; i < stream->queue.count; ++i)
    if (const int code = run(stream->queue.items[i])) {
      stream->queue.count = 0;
      return code;
    }
  stream->queue.count = 0;
  return 0;
}

inline int drain_all() {
  for (Stream& stream : state.streams)
    if (stream.alive && !stream.capturing)
      if (const int code = drain(&stream)) return code;
  return 0;
}

}  // namespace simgpu
