// The executor: a team of host threads runs the calls of a step one after the other.
//
// Shape: thread 0 is the caller of pih_run, threads 1.. sit in pih_thread. Each call is cut into parts;
// a free thread takes the next part, and one barrier ends the call. Neighbouring calls too short to be worth a
// barrier are one part. Who waits spins for a bounded
// time, then sleeps on a futex: when a neighbour takes a core, spinning would take the other one too.
// No libc: two raw system calls.
#pragma once
#include <pih_kernel.h>

#include "vec.h"

// Counters that several threads write lie on cache lines of their own.
struct pih_team {
  alignas(64) uint32_t job;      // rises with every job, and with stop
  uint32_t job_sleepers;
  int32_t threads;               // the same in every job of a team
  int32_t count;
  uint32_t stopped;
  const pih_call* calls;
  const pih_step* step;
  alignas(64) uint32_t phase;    // rises when all threads have ended a call
  uint32_t phase_sleepers;
  alignas(64) uint32_t arrived;  // threads that have ended the current call
  alignas(64) uint32_t taken;    // parts taken of the current call
};

namespace pih {

constexpr int SPIN_LEAST = 32;
constexpr int SPIN_MOST = 4096;

PIH_INLINE long futex(uint32_t* word, int operation, uint32_t value) {
  long result;
  register long timeout asm("r10") = 0;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(202L), "D"(word), "S"((long)operation), "d"((long)value), "r"(timeout)
               : "rcx", "r11", "memory");
  return result;
}

PIH_INLINE void futex_wait(uint32_t* word, uint32_t value) { futex(word, 128, value); }    // FUTEX_WAIT_PRIVATE
PIH_INLINE void futex_wake_all(uint32_t* word) { futex(word, 129, 0x7fffffff); }           // FUTEX_WAKE_PRIVATE

PIH_INLINE uint32_t get(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

// Waits until *word is no longer `old`. A wait that spinning did not end makes the next one spin less.
PIH_INLINE void wait_change(uint32_t* word, uint32_t* sleepers, uint32_t old, int* spin) {
  for (int i = 0; i < *spin; ++i) {
    if (get(word) != old) {
      if (*spin < SPIN_MOST) *spin *= 2;
      return;
    }
    __builtin_ia32_pause();
  }
  if (*spin > SPIN_LEAST) *spin /= 2;
  __atomic_add_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
  while (get(word) == old) futex_wait(word, old);
  __atomic_sub_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
}

PIH_INLINE void announce(uint32_t* word, uint32_t* sleepers) {
  __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
  if (get(sleepers)) futex_wake_all(word);
}

// The last thread to arrive opens the next phase; until then nobody else touches the counters.
PIH_INLINE void barrier(pih_team* team, int* spin) {
  uint32_t phase = get(&team->phase);
  if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_SEQ_CST) == (uint32_t)team->threads) {
    team->arrived = 0;
    team->taken = 0;
    announce(&team->phase, &team->phase_sleepers);
  } else {
    wait_change(&team->phase, &team->phase_sleepers, phase, spin);
  }
}

// While a thread computes, results below the normal range of float32 count as zero: values that small mean nothing
// here, and the processor takes a hundred times longer over each.
constexpr uint32_t FLUSH_TO_ZERO = 0x8040;

PIH_INLINE int parts_of(const pih_call* call, const pih_step* step) {
  return rows_of(call, step) <= call->alone ? 1 : call->parts;
}

// A job's fields are read once: when this thread leaves the last barrier, the next job may be on its way.
static void work(pih_team* team, int* spin) {
  const pih_call* call = team->calls;
  const pih_call* end = call + team->count;
  const pih_step* step = team->step;
  uint32_t before = _mm_getcsr();
  _mm_setcsr(before | FLUSH_TO_ZERO);
  while (call != end) {
    int parts = parts_of(call, step);
    const pih_call* next = call + 1;
    if (parts == 1)
      while (next != end && parts_of(next, step) == 1) ++next;
    for (;;) {
      uint32_t part = __atomic_fetch_add(&team->taken, 1, __ATOMIC_RELAXED);
      if (part >= (uint32_t)parts) break;
      for (const pih_call* one = call; one != next; ++one) one->kernel(one, step, (int)part, parts);
    }
    barrier(team, spin);
    call = next;
  }
  _mm_setcsr(before);
}

}  // namespace pih

PIH_EXPORT int64_t pih_team_bytes(void) { return sizeof(pih_team); }

PIH_EXPORT void pih_thread(pih_team* team, int thread) {
  uint32_t seen = 0;
  int spin = pih::SPIN_MOST, idle = pih::SPIN_MOST;
  for (;;) {
    pih::wait_change(&team->job, &team->job_sleepers, seen, &idle);
    seen = pih::get(&team->job);
    if (pih::get(&team->stopped)) return;
    if (thread < team->threads) pih::work(team, &spin);
  }
}

PIH_EXPORT void pih_run(pih_team* team, int threads, const pih_call* calls, int count, const pih_step* step) {
  for (int32_t sequence = 0; sequence < step->seqs; ++sequence)
    for (int32_t token = step->seq_start[sequence]; token < step->seq_start[sequence + 1]; ++token)
      step->seq_of[token] = sequence;
  int spin = pih::SPIN_MOST;
  team->threads = threads;
  team->calls = calls;
  team->count = count;
  team->step = step;
  if (threads > 1) pih::announce(&team->job, &team->job_sleepers);
  pih::work(team, &spin);
}

PIH_EXPORT void pih_stop(pih_team* team) {
  __atomic_store_n(&team->stopped, 1, __ATOMIC_SEQ_CST);
  pih::announce(&team->job, &team->job_sleepers);
}
