// Many threads in lockstep, on one CPU thread: what a block of CUDA threads is to a kernel.
//
// Each CUDA thread is a fiber with a stack of its own. A few blocks at a time are on their way, taken up in an order of the
// seed's; the scheduler picks a block and its warps at random, by the seed, and runs each until all its lanes wait: at a
// warp's operation, at the block's barrier, or at their end. Whatever order a missing barrier lets happen on a device can
// so happen here. A lane that never comes to where the others wait is an error.
#pragma once
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern "C" {
extern char __start_simgpu_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_simgpu_shared[] __attribute__((weak, visibility("hidden")));
}

namespace simt {

constexpr int MOST_THREADS = 1024, WARP = 32, RESIDENT = 8;
constexpr size_t STACK = 256 << 10;

struct Index {
  int x, y, z;
};

enum State { READY, AT_WARP, AT_BLOCK, DONE };

struct Fiber {
  void* stack_pointer;
  Index thread;
  State state;
  int operations;  // warp operations so far: lanes must agree
  size_t size;     // of what it brings to the one it waits at
  int line;        // of the barrier it waits at
  alignas(16) unsigned char given[64];
};

// One that is on its way. shared: what its threads share, kept while another block runs.
struct Block {
  Index index;
  bool alive;
  int behind;  // how many others it lets pass
  Fiber* fibers;
  char* shared;
};

struct Launch {
  int threads;
  void (*body)(void*);
  void* argument;
  uint64_t random;
  char error[256];
};

inline Fiber fibers[RESIDENT][MOST_THREADS];
inline Fiber* current;
inline Block* block;  // that of the current fiber
inline Launch launch;
inline void* scheduler;
inline char* stacks;
inline sigjmp_buf fault;

// Saves what a callee must keep on this stack, goes on where the other left off.
extern "C" void simt_switch(void** from, void* to);
__asm__(
    ".text\n.weak simt_switch\n.hidden simt_switch\n.type simt_switch,@function\nsimt_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n");

inline void fail(const char* what, int detail) {
  if (!launch.error[0])
    snprintf(launch.error, sizeof launch.error, "%s (line or lane %d), block %d,%d,%d thread %d", what, detail,
             block->index.x, block->index.y, block->index.z, current ? current->thread.x : -1);
}

inline void leave() { simt_switch(&current->stack_pointer, scheduler); }

inline uint64_t next_random() {
  launch.random ^= launch.random << 13, launch.random ^= launch.random >> 7, launch.random ^= launch.random << 17;
  return launch.random;
}

inline char* shared_begin() { return __start_simgpu_shared; }
inline char* shared_end() { return __stop_simgpu_shared; }

// Whatever is told to other blocks may reach them long before this one goes on.
inline void tell(const void* place) {
  if (place >= shared_begin() && place < shared_end()) return;
  block->behind = static_cast<int>(next_random() % 64);
  leave();
}

inline void meet_block(int line) {
  current->state = AT_BLOCK;
  current->line = line;
  leave();
}

// Every lane brings a value; each gets what `give(all values, its lane)` says. Lanes stay until all have read.
template <class T, class R = T, class Give>
R exchange(unsigned mask, const T& value, Give give) {
  static_assert(sizeof(T) <= sizeof current->given);
  if (mask != 0xffffffffu) fail("a warp operation whose mask is not the whole warp", static_cast<int>(mask));
  Fiber* me = current;
  memcpy(me->given, &value, sizeof value);
  me->size = sizeof value;
  me->state = AT_WARP;
  ++me->operations;
  leave();
  T all[WARP];
  const int lane = me->thread.x % WARP;
  for (int other = 0; other < WARP; ++other) memcpy(&all[other], (me - lane + other)->given, sizeof(T));
  const R result = give(all, lane);
  // nobody may overwrite what a slower lane has yet to read
  me->state = AT_WARP;
  ++me->operations;
  leave();
  return result;
}

inline void enter() {
  launch.body(launch.argument);
  current->state = DONE;
  leave();
  __builtin_trap();
}

inline void prepare(int resident, int index) {
  Fiber& fiber = fibers[resident][index];
  fiber = Fiber();
  fiber.thread = {index, 0, 0};
  void** top = reinterpret_cast<void**>(stacks + (resident * MOST_THREADS + index + 1) * STACK) - 2;
  *top = reinterpret_cast<void*>(&enter);
  fiber.stack_pointer = top - 6;
}

// Runs the lanes of a warp that can go on; true where any could.
inline bool run_warp(int warp) {
  bool ran = false;
  const int start = static_cast<int>(next_random() % WARP);
  for (int step = 0; step < WARP; ++step) {
    Fiber& fiber = block->fibers[warp * WARP + (start + step) % WARP];
    if (fiber.state != READY) continue;
    ran = true;
    current = &fiber;
    simt_switch(&scheduler, fiber.stack_pointer);
  }
  return ran;
}

// Lets a warp go on whose lanes have all come to the same operation.
inline bool release_warp(int warp) {
  Fiber* lanes = block->fibers + warp * WARP;
  int waiting = 0;
  for (int lane = 0; lane < WARP; ++lane) waiting += lanes[lane].state == AT_WARP;
  if (waiting == 0) return false;
  for (int lane = 0; lane < WARP; ++lane) {
    if (lanes[lane].state != AT_WARP || lanes[lane].operations != lanes[0].operations || lanes[lane].size != lanes[0].size) {
      current = &lanes[lane];
      fail("a warp operation that not all lanes reach", lane);
      return false;
    }
  }
  for (int lane = 0; lane < WARP; ++lane) lanes[lane].state = READY;
  return true;
}

// Lets the block go on whose threads have all come to the same barrier.
inline bool release_block() {
  Fiber* all = block->fibers;
  for (int i = 0; i < launch.threads; ++i) {
    if (all[i].state != AT_BLOCK || all[i].line != all[0].line) {
      current = &all[i];
      fail("a barrier that not all threads reach", all[i].line);
      return false;
    }
  }
  for (int i = 0; i < launch.threads; ++i) all[i].state = READY;
  return true;
}

// Runs some of the block's warps, each as far as it comes in a few turns; false where the block is done, or errs.
inline bool run_block() {
  const int warps = launch.threads / WARP, start = static_cast<int>(next_random() % warps);
  for (int left = static_cast<int>(next_random() % warps); left >= 0 && !launch.error[0] && !block->behind; --left) {
    const int warp = (start + left) % warps;
    // a warp may be far ahead of the others, or far behind
    for (uint64_t turns = next_random() % 64 + 1; turns && run_warp(warp); --turns)
      if (!release_warp(warp)) break;
  }
  if (launch.error[0]) return false;
  int done = 0;
  for (int i = 0; i < launch.threads; ++i) {
    if (block->fibers[i].state == READY) return true;
    done += block->fibers[i].state == DONE;
  }
  return done < launch.threads && release_block();
}

}  // namespace simt
