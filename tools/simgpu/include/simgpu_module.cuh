// Ends a kernel pack's translation unit where it is compiled for the software GPU: the way in.
#pragma once

extern "C" {
extern char __start_simgpu_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_simgpu_shared[] __attribute__((weak, visibility("hidden")));
}

namespace simt {

struct Entry {
  void (*function)(pih_call, pih_step);
  pih_call call;
  pih_step step;
};

inline void body(void* argument) {
  const Entry* entry = static_cast<const Entry*>(argument);
  entry->function(entry->call, entry->step);
}

inline void on_fault(int, siginfo_t* info, void*) {
  snprintf(block.error, sizeof block.error, "address %p, block %d,%d,%d thread %d", info->si_addr, block.index.x,
           block.index.y, block.index.z, current->thread.x);
  siglongjmp(fault, 1);
}

}  // namespace simt

// Bytes of a kernel's parameters, so that a launch can be kept for later.
extern "C" __attribute__((visibility("default"))) void simgpu_parameters(size_t* sizes) {
  sizes[0] = sizeof(pih_call);
  sizes[1] = sizeof(pih_step);
}

// Runs one launch to its end; 0, or 700 (an access outside all memory) or 719 (threads that never meet), with the reason.
extern "C" __attribute__((visibility("default"))) int simgpu_run(void* function, const unsigned* grid, const unsigned* threads,
                                                                  void** parameters, uint64_t seed, char* error, size_t room) {
  using namespace simt;
  if (!stacks) {
    stacks = static_cast<char*>(mmap(nullptr, MOST_THREADS * STACK, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  const int count = static_cast<int>(threads[0] * threads[1] * threads[2]);
  if (count < WARP || count > MOST_THREADS || count % WARP || threads[1] != 1 || threads[2] != 1) {
    snprintf(error, room, "%d threads are no whole number of warps", count);
    return 1;
  }
  Entry entry = {reinterpret_cast<void (*)(pih_call, pih_step)>(function), *static_cast<pih_call*>(parameters[0]),
                 *static_cast<pih_step*>(parameters[1])};
  static char signal_stack[64 << 10];
  stack_t other = {signal_stack, 0, sizeof signal_stack}, before;
  struct sigaction caught = {}, segv, bus;
  caught.sa_sigaction = on_fault;
  caught.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaltstack(&other, &before);
  sigaction(SIGSEGV, &caught, &segv);
  sigaction(SIGBUS, &caught, &bus);
  block.random = seed * 0x9E3779B97F4A7C15ull + 1;
  block.error[0] = 0;
  block.threads = count;
  block.body = body;
  block.argument = &entry;
  volatile int result = 0;
  if (sigsetjmp(fault, 1)) {
    result = 700;
  } else {
    const unsigned long blocks = static_cast<unsigned long>(grid[0]) * grid[1] * grid[2];
    for (unsigned long i = 0; i < blocks && !block.error[0]; ++i) {
      block.index = {static_cast<int>(i % grid[0]), static_cast<int>(i / grid[0] % grid[1]), static_cast<int>(i / grid[0] / grid[1])};
      if (__start_simgpu_shared) memset(__start_simgpu_shared, 0xff, __stop_simgpu_shared - __start_simgpu_shared);
      run_block();
    }
    if (block.error[0]) result = 719;
  }
  sigaction(SIGSEGV, &segv, nullptr);
  sigaction(SIGBUS, &bus, nullptr);
  sigaltstack(&before, nullptr);
  if (result) snprintf(error, room, "%s", block.error);
  return result;
}
