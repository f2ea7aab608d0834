// Work that was queued, and its doing: as late as the driver's reference lets a slow device do it, so that whatever relies
// on more than it waits for goes wrong.
#pragma once

#include <dlfcn.h>

#include "driver/memory.h"

namespace simgpu {

// Null stands for the default stream of the thread's device.
inline Stream* stream_of(void* handle) { return handle ? static_cast<Stream*>(handle) : &state.streams[current]; }

inline uint64_t digest_of(const Work& work) {
  uint64_t digest = 14695981039346656037ull;
  for (size_t i = 0; i < work.size; ++i) digest = (digest ^ static_cast<unsigned char>(work.from[i])) * 1099511628211ull;
  return digest;
}

inline void append(Queue& queue, Work* work) {
  work->next = nullptr;
  (queue.first ? queue.last->next : queue.first) = work;
  queue.last = work;
}

// Takes the work over. Until it is done, what a copy reads must stay, and what it writes on the host is garbage.
inline void queue(Stream* stream, Work* work) {
  if (stream->capturing) return append(stream->graph->queue, work);
  work->number = state.queued++;
  if (work->kind == COPY_IN) work->digest = digest_of(*work);
  if (work->kind == COPY_OUT) memset(work->to, GARBAGE, work->size);
  append(stream->queue, work);
}

inline int fault(int code, const char* subject, const char* what) {
  say("simgpu: %s%s\n", subject, what);
  if (lasting(code)) state.sticky = code;
  return code;
}

inline int launch(const Work& work) {
  using Run = int (*)(void*, const unsigned*, const unsigned*, void**, uint64_t, char*, size_t);
  const Run simgpu_run = reinterpret_cast<Run>(dlsym(work.function->module->library, "simgpu_run"));
  char name[300], error[300] = "";
  snprintf(name, sizeof name, "kernel %s: ", work.function->name);
  if (!work.function->module->loaded) return fault(LAUNCH_FAILED, name, "its module was unloaded");
  void* parameters[2] = {const_cast<unsigned char*>(work.parameters[0]), const_cast<unsigned char*>(work.parameters[1])};
  int code = simgpu_run(work.function->code, work.grid, work.threads, parameters, state.seed + state.launches++, error, sizeof error);
  if (!code && !intact()) {
    code = 700;
    snprintf(error, sizeof error, "a write beside an allocation");
  }
  return code ? fault(code, name, error) : 0;
}

inline int run(const Work& work) {
  switch (work.kind) {
    case COPY_IN:
      if (digest_of(work) != work.digest) return fault(LAUNCH_FAILED, "", "what a copy reads was written before the copy was done");
      [[fallthrough]];
    case COPY_OUT:
      return memcpy(work.to, work.from, work.size), 0;
    case FILL:
      return memset(work.to, work.value, work.size), 0;
    case LAUNCH:
      return launch(work);
    case LOST:
      return fault(700, "", "memory was given back before a copy of it was done");
  }
  return 0;
}

// Does what a stream has from before a number, and what that waits for.
inline int run_until(Stream* stream, uint64_t number) {
  while (!state.sticky && stream->queue.first && stream->queue.first->number < number) {
    Work* work = stream->queue.first;
    Stream* standard = &state.streams[stream->device];
    if (stream == standard) {
      for (Stream& other : state.streams)
        if (other.blocking && other.device == stream->device) run_until(&other, work->number);
    } else if (stream->blocking) {
      run_until(standard, work->number);
    }
    if (state.sticky) break;
    stream->queue.first = work->next;
    const int code = run(*work);
    free(work->staged), free(work);
    if (code) return code;
  }
  return state.sticky;
}

inline int drain(Stream* stream) { return run_until(stream, state.queued); }

// A stream that was destroyed does its work, too.
inline int drain_device(int device) {
  for (Stream& stream : state.streams)
    if (stream.device == device)
      if (const int code = drain(&stream)) return code;
  return state.sticky;
}

// Copies of memory that is given back find nothing there.
inline void lose(const Allocation& item) {
  const auto within = [&](const char* at) { return at >= item.data && at < item.data + item.size; };
  for (Stream& stream : state.streams)
    for (Work* work = stream.queue.first; work; work = work->next)
      if (within(work->to) || within(work->from)) work->kind = LOST;
}

}  // namespace simgpu
