// libcuda.so.1 of the software GPU: the part of the CUDA driver API that backend/cuda calls, on host memory. Here: devices
// and contexts. A thread has the context that it made current, or none. It stands in for hardware in tests only.
//
// Set by PIH_SIMGPU, of the form `name=value;name=value`:
//   devices   sm_89:24000000000,sm_90:80000000000:5  each device's compute capability, its bytes, and how many of them
//                                                    others hold (default sm_89:24 GB)
//   driver    13000                                  the CUDA version that the driver says it serves
//   modules   /folder                                where compiled cubins lie; without it, this library holds the one
//   seed      1                                      of the order in which warps run
//   fail      cuMemAlloc_v2:3=2,cuLaunchKernel:9=719 the n-th call of a function gives this error; 214 and 7xx stay for good
//   hold      /file                                  as long as it is there, a launch waits
//   log       /file                                  what was not given back when a context ends, and errors of kernels
#include "driver/call.h"
#include "driver/errors.h"
#include "driver/queue.h"

using namespace simgpu;

API cuGetErrorName(int code, const char** name) {
  for (const auto& item : ERRORS)
    if (item.code == code) return *name = item.name, 0;
  return *name = nullptr, INVALID_VALUE;
}

API cuGetErrorString(int code, const char** text) {
  for (const auto& item : ERRORS)
    if (item.code == code) return *text = item.text, 0;
  return *text = nullptr, INVALID_VALUE;
}

API cuInit(unsigned) {
  if (!state.ready) {
    snprintf(state.modules, sizeof state.modules, "%s", setting("modules", ""));
    snprintf(state.log, sizeof state.log, "%s", setting("log", ""));
    snprintf(state.fail, sizeof state.fail, "%s", setting("fail", ""));
    snprintf(state.hold, sizeof state.hold, "%s", setting("hold", ""));
    state.driver = atoi(setting("driver", "13000"));
    state.seed = strtoull(setting("seed", "1"), nullptr, 10);
    char text[1024];
    snprintf(text, sizeof text, "%s", setting("devices", "sm_89:24000000000"));
    for (char* item = strtok(text, ","); item && state.device_count < MOST_DEVICES; item = strtok(nullptr, ",")) {
      int sm;
      unsigned long total, used = 0;
      if (sscanf(item, "sm_%d:%lu:%lu", &sm, &total, &used) < 2) continue;
      state.streams[state.device_count].device = state.device_count;
      state.devices[state.device_count++] = {sm / 10, sm % 10, total, used, 0};
    }
    state.ready = true;
  }
  BEGIN
  return state.device_count ? 0 : NO_DEVICE;
}

API cuDriverGetVersion(int* version) {
  BEGIN
  return *version = state.driver, 0;
}
API cuDeviceGetCount(int* count) {
  BEGIN
  return *count = state.device_count, 0;
}
API cuDeviceGet(int* device, int ordinal) {
  BEGIN
  if (ordinal < 0 || ordinal >= state.device_count) return INVALID_DEVICE;
  return *device = ordinal, 0;
}
API cuDeviceGetName(char* name, int room, int device) {
  BEGIN
  const Device& found = state.devices[device];
  return snprintf(name, room, "simgpu %d (sm_%d%d)", device, found.major, found.minor), 0;
}
API cuDeviceGetAttribute(int* value, int attribute, int device) {
  BEGIN
  *value = attribute == 75 ? state.devices[device].major : attribute == 76 ? state.devices[device].minor : 0;
  return 0;
}
API cuDeviceTotalMem_v2(size_t* bytes, int device) {
  BEGIN
  return *bytes = state.devices[device].total, 0;
}

API cuDevicePrimaryCtxRetain(void** context, int device) {
  BEGIN
  ++state.devices[device].retained;
  return *context = &state.devices[device], 0;
}
API cuDevicePrimaryCtxRelease_v2(int device) {
  if (const int code = begin(__func__); code && !lasting(code)) return code;
  drain_device(device);
  int left = 0;
  for (const Allocation& item : state.allocations) left += item.map && item.device == device;
  for (const Stream& item : state.streams) left += item.alive;
  for (const Event& item : state.events) left += item.alive;
  left += state.live_modules + state.live_graphs;
  char text[32];
  snprintf(text, sizeof text, "%d", left);
  say("simgpu: context released, %s things not given back%s\n", text, "");
  return --state.devices[device].retained, 0;
}
API cuCtxSetCurrent(void* context) {
  BEGIN
  current = context ? static_cast<int>(static_cast<Device*>(context) - state.devices) : -1;
  return 0;
}

API cuCtxSynchronize() {
  WITHIN
  return drain_device(current);
}
