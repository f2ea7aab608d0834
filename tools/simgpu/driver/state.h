// What the driver is: devices, allocations, queued work, and which calls are to fail.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace simgpu {

constexpr int INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
              INVALID_CONTEXT = 201, NO_BINARY = 209, NOT_FOUND = 500,
              CONTEXT_IS_DESTROYED = 709, STREAM_CAPTURE_UNSUPPORTED = 900;
constexpr int MOST = 4096;

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
enum Kind { COPY_IN, COPY_OUT, LAUNCH, RECORD, FILL };
struct Stream;
struct Event {
  bool alive, pending;
  Stream* stream;
};
struct Work {
  Kind kind;
  char *to, *from;
  size_t size;
  unsigned char value;
  Function* function;
  unsigned grid[3], threads[3];
  unsigned char parameters[2][1024];
  Event* event;
};
struct Queue {
  Work* items;
  int count, room;
};
struct Graph {
  Queue queue;
  int users;  // the graph itself, and what was instantiated of it
};
struct Stream {
  bool alive, capturing, relaxed;
  Queue queue;
  Graph* graph;
};
struct Device {
  int major, minor;
  size_t total, used;
  int retained;
};

struct State {
  bool ready;
  Device devices[16];
  int device_count, driver;
  char modules[1024], log[1024], fail[1024];
  uint64_t seed, launches;
  int sticky;
  Allocation allocations[MOST];
  Stream streams[64];
  Event events[256];
  int live_modules, live_graphs;
};
inline State state;
inline thread_local int current = -1;  // the device whose context the calling thread has, if one

struct Call {
  const char* name;
  int count;
};
inline Call calls[64];

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

// Errors after which a context does nothing any more.
inline bool lasting(int code) {
  return code == 214 || (code >= 700 && code < 800);
}

// Every function begins here: whether this call of it is to fail, or an earlier one has ended everything.
inline int begin(const char* name) {
  Call* call = calls;
  while (call->name && strcmp(call->name, name)) ++call;
  call->name = name;
  ++call->count;
  char text[1024];
  snprintf(text, sizeof text, "%s", state.fail);
  for (char* item = strtok(text, ","); item; item = strtok(nullptr, ",")) {
    char function[128];
    int nth, code;
    if (sscanf(item, "%127[^:]:%d=%d", function, &nth, &code) == 3 && !strcmp(function, name) && nth == call->count) {
      if (lasting(code)) state.sticky = code;
      return code;
    }
  }
  return state.sticky;
}
#define BEGIN                                \
  if (const int code_ = begin(__func__)) {   \
    return code_;                            \
  }

// Whether the calling thread has a context that still lives.
inline int context() {
  if (current < 0) return INVALID_CONTEXT;
  return state.devices[current].retained ? 0 : CONTEXT_IS_DESTROYED;
}
// Most functions begin here: as `begin`, and the thread needs a context.
#define WITHIN                               \
  BEGIN                                      \
  if (const int code_ = context()) {         \
    return code_;                            \
  }
// What gives something back does so after an error that ended everything, too.
#define GIVE_BACK                                                           \
  if (const int code_ = begin(__func__); code_ && !lasting(code_)) {        \
    return code_;                                                           \
  }                                                                         \
  if (const int code_ = context()) {                                        \
    return code_;                                                           \
  }

}  // namespace simgpu
