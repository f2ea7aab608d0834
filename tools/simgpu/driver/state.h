// What the driver is: devices, allocations, queued work, and which calls are to fail.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace simgpu {

constexpr int INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
              INVALID_CONTEXT = 201, NO_BINARY = 209, NOT_FOUND = 500,
              CONTEXT_IS_DESTROYED = 709, LAUNCH_FAILED = 719, STREAM_CAPTURE_UNSUPPORTED = 900;
constexpr int MOST = 4096, MOST_DEVICES = 16;

struct Allocation {
  char *map, *data;
  size_t mapped, size;
  int device;
  bool host;
};
struct Module {
  void* library;
  bool loaded;
};
struct Function {
  void* code;
  Module* module;
  bool ready;  // on the device, where a first launch brings it
  char name[256];
};
enum Kind { COPY_IN, COPY_OUT, LAUNCH, FILL, LOST };
struct Work {
  Work* next;
  uint64_t number;  // rising over all streams
  Kind kind;
  char *to, *from;
  size_t size;
  uint64_t digest;  // of what a copy to the device reads
  char* staged;     // what is freed when it is done
  unsigned char value;
  Function* function;
  unsigned grid[3], threads[3];
  unsigned char parameters[2][1024];
};
struct Queue {
  Work *first, *last;
};
struct Graph {
  Queue queue;
  int users;  // the graph itself, and what was instantiated of it
};
// blocking: one whose work and that of the device's default stream wait for each other.
struct Stream {
  bool alive, blocking, capturing, relaxed;
  int device;
  Queue queue;
  Graph* graph;
};
struct Event {
  bool alive;
  Stream* stream;
  uint64_t number;  // it stands for what its stream had before this
};
struct Device {
  int major, minor;
  size_t total, used;
  int retained;
};

struct State {
  bool ready;
  Device devices[MOST_DEVICES];
  int device_count, driver;
  char modules[1024], log[1024], fail[1024], hold[1024];
  uint64_t seed, launches, queued;
  int sticky;
  Allocation allocations[MOST];
  Stream streams[MOST_DEVICES + 64];  // first the default stream of each device
  Event events[256];
  int live_modules, live_graphs;
};
inline State state;
inline thread_local int current = -1;  // the device whose context the calling thread has, if one

template <class T>
T* make() {
  return static_cast<T*>(calloc(1, sizeof(T)));
}

inline const char* setting(const char* name, const char* otherwise) {
  static char found[2048];
  const char* all = getenv("PIH_SIMGPU");
  const size_t length = strlen(name);
  for (const char* at = all; at && *at; at = strchr(at, ';') ? strchr(at, ';') + 1 : nullptr) {
    if (!strncmp(at, name, length) && at[length] == '=') {
      const char* end = strchr(at, ';');
      snprintf(found, sizeof found, "%.*s", static_cast<int>(end ? end - at - length - 1 : strlen(at + length + 1)), at + length + 1);
      return found;
    }
  }
  return otherwise;
}

inline void say(const char* form, const char* a, const char* b) {
  FILE* file = state.log[0] ? fopen(state.log, "a") : stderr;
  if (!file) return;
  fprintf(file, form, a, b);
  if (file != stderr) fclose(file);
}

}  // namespace simgpu
