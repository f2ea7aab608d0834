// Cubins and their kernels. A cubin is found by its digest: MODULES/<sha256>.so holds the same sources compiled for the CPU.
// It runs on devices of its major compute capability, from its minor one on. A kernel is loaded by its first launch, which
// only a relaxed capture lets pass.
#include <unistd.h>

#include "driver/call.h"
#include "driver/queue.h"
#include "sha256.h"

using namespace simgpu;

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
  const int sm = flags >> 8 & 255;
  if (sm / 10 != device.major || sm % 10 > device.minor) return NO_BINARY;
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

API cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
  WITHIN
  while (state.hold[0] && !access(state.hold, F_OK)) usleep(1000);
  Function* found = static_cast<Function*>(function);
  if (!found->module->loaded || !gx || !gy || !gz || gy > 65535 || gz > 65535 || bx * by * bz > 1024 || shared || extra)
    return INVALID_VALUE;
  using Sizes = void (*)(size_t*);
  size_t sizes[2];
  reinterpret_cast<Sizes>(dlsym(found->module->library, "simgpu_parameters"))(sizes);
  Stream* target = stream_of(stream);
  if (target->capturing && !target->relaxed && !found->ready) return STREAM_CAPTURE_UNSUPPORTED;
  found->ready = true;
  Work* work = make<Work>();
  work->kind = LAUNCH, work->function = found;
  const unsigned grid[3] = {gx, gy, gz}, threads[3] = {bx, by, bz};
  memcpy(work->grid, grid, sizeof grid), memcpy(work->threads, threads, sizeof threads);
  for (int i = 0; i < 2; ++i) memcpy(work->parameters[i], parameters[i], sizes[i]);
  return queue(target, work), 0;
}
