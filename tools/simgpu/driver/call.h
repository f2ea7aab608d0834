// What every function of the driver does first: see whether it is to fail, and whether the thread has a context.
#pragma once

#include "driver/state.h"

#define API extern "C" __attribute__((visibility("default"))) int

namespace simgpu {

struct Call {
  const char* name;
  int count;
};
inline Call calls[64];

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
