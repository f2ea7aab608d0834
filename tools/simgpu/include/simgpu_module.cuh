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

inline unsigned long gcd(unsigned long a, unsigned long b) {
  while (b) {
    const unsigned long rest = a % b;
    a = b, b = rest;
  }
  return a;
}

// The compiler traps where an address is not a multiple of what is read or written there.
inline void on_fault(int signal, siginfo_t* info, void*) {
  const bool misaligned = signal == SIGILL;
  snprintf(block.error, sizeof block.error, "%s %p, block %d,%d,%d thread %d", misaligned ? "misaligned, code" : "address",
           info->si_addr, block.index.x, block.index.y, block.index.z, current->thread.x);
  siglongjmp(fault, misaligned ? 716 : 700);
}

}  // namespace simt

// Bytes of a kernel's parameters, so that a launch can be kept for later.
extern "C" __attribute__((visibility("default"))) void simgpu_parameters(size_t* sizes) {
  sizes[0] = sizeof(pih_call);
  sizes[1] = sizeof(pih_step);
}

// Runs one launch to its end; 0, or 700 (an access outside all memory), 716 (a misaligned one) or 719 (threads that never
// meet), with the reason.
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
  struct sigaction caught = {}, segv, bus, ill;
  caught.sa_sigaction = on_fault;
  caught.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaltstack(&other, &before);
  sigaction(SIGSEGV, &caught, &segv);
  sigaction(SIGBUS, &caught, &bus);
  sigaction(SIGILL, &caught, &ill);
  block.random = seed * 0x9E3779B97F4A7C15ull + 1;
  block.error[0] = 0;
  block.threads = count;
  block.body = body;
  block.argument = &entry;
  volatile int result = 0;
  if (const int code = sigsetjmp(fault, 1)) {
    result = code;
  } else {
    const unsigned long blocks = static_cast<unsigned long>(grid[0]) * grid[1] * grid[2];
    unsigned long step = next_random() % blocks + 1, at = next_random() % blocks;
    while (gcd(step, blocks) != 1) ++step;  // so that each block has its turn, in an order of the seed's
    for (unsigned long left = blocks; left && !block.error[0]; --left) {
      const unsigned long i = at = (at + step) % blocks;
      block.index = {static_cast<int>(i % grid[0]), static_cast<int>(i / grid[0] % grid[1]), static_cast<int>(i / grid[0] / grid[1])};
      if (__start_simgpu_shared) memset(__start_simgpu_shared, seed % 2 ? 0xff : 0, __stop_simgpu_shared - __start_simgpu_shared);
      run_block();
    }
    if (block.error[0]) result = 719;
  }
  sigaction(SIGSEGV, &segv, nullptr);
  sigaction(SIGBUS, &bus, nullptr);
  sigaction(SIGILL, &ill, nullptr);
  sigaltstack(&before, nullptr);
  if (result) snprintf(error, room, "%s", block.error);
  return result;
}
