// libcuda.so.1 of the software GPU: the part of the CUDA driver API that backend/cuda calls, on host memory.
//
// Work is queued and done when something waits for it, as on a device, so that a copy whose source was overwritten too
// soon shows; what takes no stream goes through one of its own, which no other stream waits for. A cubin is found by its
// digest: MODULES/<sha256>.so holds the same sources compiled for the CPU. Every allocation ends at a guard page. A
// thread has the context that it made current, or none. A kernel is loaded by its first launch, which only a relaxed
// capture lets pass. It stands in for hardware in tests only.
//
// Set by PIH_SIMGPU, of the form `name=value;name=value`:
//   devices   sm_89:24000000000,sm_90:80000000000:5  each device's compute capability, its bytes, and how many of them
//                                                    others hold (default sm_89:24 GB)
//   driver    13000                                  the CUDA version that the driver says it serves
//   modules   /folder                                where compiled cubins lie; without it, this library holds the one
//   seed      1                                      of the order in which warps run
//   fail      cuMemAlloc_v2:3=2,cuLaunchKernel:9=719 the n-th call of a function gives this error; 214 and 7xx stay for good
//   log       /file                                  what was not given back when a context ends, and errors of kernels
#include <dlfcn.h>

#include "driver/errors.h"
#include "driver/memory.h"
#include "driver/queue.h"
#include "driver/state.h"
#include "sha256.h"

using namespace simgpu;

#define API extern "C" __attribute__((visibility("default"))) int

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
    state.driver = atoi(setting("driver", "13000"));
    state.seed = strtoull(setting("seed", "1"), nullptr, 10);
    char text[1024];
    snprintf(text, sizeof text, "%s", setting("devices", "sm_89:24000000000"));
    for (char* item = strtok(text, ","); item && state.device_count < 16; item = strtok(nullptr, ",")) {
      int sm;
      unsigned long total, used = 0;
      if (sscanf(item, "sm_%d:%lu:%lu", &sm, &total, &used) >= 2) state.devices[state.device_count++] = {sm / 10, sm % 10, total, used, 0};
    }
    state.streams[0].alive = true;
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
  int left = 0;
  for (const Allocation& item : state.allocations) left += item.map && item.device == device;
  for (const Stream& item : state.streams) left += item.alive && &item != state.streams;
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
API cuMemFree_v2(uint64_t address) {
  GIVE_BACK
  drain_all();
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
  drain_all();
  Allocation* found = find(address, 0);
  if (!found || !found->host || found->data != address) return INVALID_VALUE;
  return release(*found), state.sticky;
}

namespace {
bool on_device(uint64_t address, size_t size) {
  const Allocation* found = find(reinterpret_cast<void*>(address), size);
  return found && !found->host;
}
int copy(Kind kind, char* to, char* from, size_t size, Stream* stream) {
  Work* work = push(stream);
  work->kind = kind, work->to = to, work->from = from, work->size = size;
  return 0;
}
}  // namespace

API cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
  WITHIN
  if (!on_device(to, size)) return INVALID_VALUE;
  if (const int code = drain(&state.streams[0])) return code;
  return memcpy(reinterpret_cast<void*>(to), from, size), 0;
}
API cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
  WITHIN
  if (!on_device(from, size)) return INVALID_VALUE;
  if (const int code = drain(&state.streams[0])) return code;
  return memcpy(to, reinterpret_cast<void*>(from), size), 0;
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, void* stream) {
  WITHIN
  if (!on_device(to, size)) return INVALID_VALUE;
  return copy(COPY_IN, reinterpret_cast<char*>(to), const_cast<char*>(static_cast<const char*>(from)), size, static_cast<Stream*>(stream));
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) {
  WITHIN
  if (!on_device(from, size)) return INVALID_VALUE;
  return copy(COPY_OUT, static_cast<char*>(to), reinterpret_cast<char*>(from), size, static_cast<Stream*>(stream));
}
API cuMemsetD8_v2(uint64_t to, unsigned char value, size_t size) {
  WITHIN
  if (!on_device(to, size)) return INVALID_VALUE;
  // fresh pages of the host are zero already: writing them would only take memory
  if (!value && size >= (1u << 26)) return 0;
  Work* work = push(&state.streams[0]);
  return work->kind = FILL, work->to = reinterpret_cast<char*>(to), work->value = value, work->size = size, 0;
}

API cuModuleLoadData(void** module, const void* image) {
  WITHIN
  const unsigned char* bytes = static_cast<const unsigned char*>(image);
  if (memcmp(bytes, "\x7f" "ELF", 4)) return INVALID_IMAGE;
  // an image ends with its section table
  uint64_t table;
  uint16_t entry, count;
  uint32_t flags;
  memcpy(&table, bytes + 40, 8), memcpy(&flags, bytes + 48, 4), memcpy(&entry, bytes + 58, 2), memcpy(&count, bytes + 60, 2);
  size_t size = table + static_cast<size_t>(entry) * count;
  uint64_t segments;
  uint16_t segment_entry, segment_count;
  memcpy(&segments, bytes + 32, 8), memcpy(&segment_entry, bytes + 54, 2), memcpy(&segment_count, bytes + 56, 2);
  if (segments + static_cast<size_t>(segment_entry) * segment_count > size) size = segments + static_cast<size_t>(segment_entry) * segment_count;
  const Device& device = state.devices[current];
  if (static_cast<int>(flags >> 8 & 255) != device.major * 10 + device.minor) return NO_BINARY;
  char digest[65], path[1200];
  sha256_hex(bytes, size, digest);
  Dl_info self;
  if (state.modules[0]) snprintf(path, sizeof path, "%s/%s.so", state.modules, digest);
  else if (dladdr(&state, &self)) snprintf(path, sizeof path, "%s", self.dli_fname);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return say("simgpu: no module %s: %s\n", path, dlerror()), INVALID_IMAGE;
  ++state.live_modules;
  Module* made = make<Module>();
  *made = {library, true};
  return *module = made, 0;
}
API cuModuleUnload(void* module) {
  GIVE_BACK
  --state.live_modules;
  return static_cast<Module*>(module)->loaded = false, state.sticky;
}
API cuModuleGetFunction(void** function, void* module, const char* name) {
  WITHIN
  void* code = dlsym(static_cast<Module*>(module)->library, name);
  if (!code) return NOT_FOUND;
  Function* made = make<Function>();
  made->code = code, made->module = static_cast<Module*>(module);
  snprintf(made->name, sizeof made->name, "%s", name);
  return *function = made, 0;
}
API cuStreamCreate(void** stream, unsigned) {
  WITHIN
  for (Stream& item : state.streams)
    if (!item.alive) return item = Stream(), item.alive = true, *stream = &item, 0;
  return OUT_OF_MEMORY;
}
API cuStreamDestroy_v2(void* stream) {
  GIVE_BACK
  static_cast<Stream*>(stream)->alive = false;
  return state.sticky;
}
API cuCtxSynchronize() {
  WITHIN
  return drain_all();
}
API cuStreamSynchronize(void* stream) {
  WITHIN
  return drain(static_cast<Stream*>(stream));
}
API cuEventCreate(void** event, unsigned) {
  WITHIN
  for (Event& item : state.events)
    if (!item.alive) return item = {true, false, nullptr}, *event = &item, 0;
  return OUT_OF_MEMORY;
}
API cuEventDestroy_v2(void* event) {
  GIVE_BACK
  static_cast<Event*>(event)->alive = false;
  return state.sticky;
}
API cuEventRecord(void* event, void* stream) {
  WITHIN
  Work* work = push(static_cast<Stream*>(stream));
  work->kind = RECORD, work->event = static_cast<Event*>(event);
  return work->event->pending = true, work->event->stream = static_cast<Stream*>(stream), 0;
}
API cuEventSynchronize(void* event) {
  WITHIN
  return static_cast<Event*>(event)->pending ? drain(static_cast<Event*>(event)->stream) : 0;
}
API cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
  WITHIN
  Function* found = static_cast<Function*>(function);
  if (!found->module->loaded || !gx || !gy || !gz || gy > 65535 || gz > 65535 || bx * by * bz > 1024 || shared || extra)
    return INVALID_VALUE;
  using Sizes = void (*)(size_t*);
  size_t sizes[2];
  reinterpret_cast<Sizes>(dlsym(found->module->library, "simgpu_parameters"))(sizes);
  Stream* queue = static_cast<Stream*>(stream);
  if (queue->capturing && !queue->relaxed && !found->ready) return STREAM_CAPTURE_UNSUPPORTED;
  found->ready = true;
  Work* work = push(queue);
  work->kind = LAUNCH, work->function = found;
  const unsigned grid[3] = {gx, gy, gz}, threads[3] = {bx, by, bz};
  memcpy(work->grid, grid, sizeof grid), memcpy(work->threads, threads, sizeof threads);
  for (int i = 0; i < 2; ++i) memcpy(work->parameters[i], parameters[i], sizes[i]);
  return 0;
}

API cuStreamBeginCapture_v2(void* stream, int mode) {
  WITHIN
  Stream* found = static_cast<Stream*>(stream);
  if (found->capturing || found == state.streams) return STREAM_CAPTURE_UNSUPPORTED;
  found->capturing = true, found->relaxed = mode == 2;
  return found->graph = make<Graph>(), 0;
}
API cuStreamEndCapture(void* stream, void** graph) {
  WITHIN
  Stream* found = static_cast<Stream*>(stream);
  if (!found->capturing) return STREAM_CAPTURE_UNSUPPORTED;
  found->capturing = false;
  ++state.live_graphs;
  found->graph->users = 1;
  return *graph = found->graph, 0;
}
API cuGraphInstantiateWithFlags(void** executable, void* graph, uint64_t) {
  WITHIN
  ++state.live_graphs;
  ++static_cast<Graph*>(graph)->users;
  return *executable = graph, 0;
}
API cuGraphLaunch(void* executable, void* stream) {
  WITHIN
  const Queue& queue = static_cast<Graph*>(executable)->queue;
  for (int i = 0; i < queue.count; ++i) *push(static_cast<Stream*>(stream)) = queue.items[i];
  return 0;
}

namespace {
int forget(void* graph) {
  Graph* found = static_cast<Graph*>(graph);
  --state.live_graphs;
  if (--found->users == 0) free(found->queue.items), free(found);
  return state.sticky;
}
}  // namespace

API cuGraphExecDestroy(void* executable) {
  GIVE_BACK
  drain_all();
  return forget(executable);
}
API cuGraphDestroy(void* graph) {
  GIVE_BACK
  return forget(graph);
}
