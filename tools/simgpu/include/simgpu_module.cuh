// Ends a kernel pack's translation unit where it is compiled for the software GPU: the way in.
#pragma once

// Where the indexes of a grid's blocks begin, for a test of a few blocks of a large one.
extern "C" __attribute__((visibility("default"))) unsigned simgpu_first[3];
unsigned simgpu_first[3];

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
  snprintf(launch.error, sizeof launch.error, "%s %p, block %d,%d,%d thread %d", misaligned ? "misaligned, code" : "address",
           info->si_addr, block->index.x, block->index.y, block->index.z, current->thread.x);
  siglongjmp(fault, misaligned ? 716 : 700);
}

// The blocks of a grid, in an order of the seed's: each has its turn.
struct Grid {
  const unsigned* size;
  unsigned long blocks, step, at, left;

  explicit Grid(const unsigned* size) : size(size), blocks(static_cast<unsigned long>(size[0]) * size[1] * size[2]), left(blocks) {
    step = next_random() % blocks + 1, at = next_random() % blocks;
    while (gcd(step, blocks) != 1) ++step;
  }
  Index next() {
    at = (at + step) % blocks, --left;
    const unsigned long index[3] = {at % size[0], at / size[0] % size[1], at / size[0] / size[1]};
    const auto from_first = [&](int axis) { return static_cast<int>(simgpu_first[axis] + index[axis]); };
    return {from_first(0), from_first(1), from_first(2)};
  }
};

// Runs all blocks of a grid, a few at a time, until one errs.
inline void run_grid(Grid grid, int fill) {
  static Block residents[RESIDENT];
  const size_t size = shared_end() - shared_begin();
  block = nullptr;
  for (Block& each : residents) each.alive = false, each.behind = 0;
  for (;;) {
    Block* next = nullptr;
    const int start = static_cast<int>(next_random() % RESIDENT);
    for (int i = 0; i < RESIDENT; ++i) {
      Block& each = residents[(start + i) % RESIDENT];
      if ((each.alive || grid.left) && (!next || each.behind < next->behind)) next = &each;
    }
    if (!next) return;
    for (Block& each : residents) each.behind -= each.behind > 0;
    next->behind = 0;
    if (block && block != next && block->alive) memcpy(block->shared, shared_begin(), size);
    if (!next->alive) {
      const int resident = static_cast<int>(next - residents);
      if (!next->shared) next->shared = static_cast<char*>(malloc(size));
      next->index = grid.next(), next->alive = true, next->fibers = fibers[resident];
      for (int i = 0; i < launch.threads; ++i) prepare(resident, i);
      memset(shared_begin(), fill, size);
    } else if (block != next) {
      memcpy(shared_begin(), next->shared, size);
    }
    block = next;
    // it, too, may be far ahead of the others, or far behind
    for (int turns = 1 << next_random() % 6; turns && block->alive && !block->behind; --turns) block->alive = run_block();
    if (launch.error[0]) return;
  }
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
    stacks = static_cast<char*>(mmap(nullptr, RESIDENT * MOST_THREADS * STACK, PROT_READ | PROT_WRITE,
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
  launch.random = seed * 0x9E3779B97F4A7C15ull + 1;
  launch.error[0] = 0;
  launch.threads = count;
  launch.body = body;
  launch.argument = &entry;
  volatile int result = 0;
  if (const int code = sigsetjmp(fault, 1)) {
    result = code;
  } else {
    run_grid(Grid(grid), seed % 2 ? 0xff : 0);
    if (launch.error[0]) result = 719;
  }
  sigaction(SIGSEGV, &segv, nullptr);
  sigaction(SIGBUS, &bus, nullptr);
  sigaction(SIGILL, &ill, nullptr);
  sigaltstack(&before, nullptr);
  if (result) snprintf(error, room, "%s", launch.error);
  return result;
}
