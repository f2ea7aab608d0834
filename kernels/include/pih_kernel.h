// The kernel pack ABI: what a pack exports and what a kernel is given.
// Freestanding C++20; no libc, no allocation, no global state but the team a host passes in.
// Mirrored by the backend's ctypes structures; PIH_ABI changes when any layout here does.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define PIH_ABI 1
#define PIH_MAX_OPERANDS 4

// A buffer view: `data` its first value, `stride` bytes between rows, `columns` values a row.
// A weight: `data` its bytes in the packed file, the rest 0.
// One layer of a cache: `data` its K block, `stride` bytes from the K block to the V block.
struct pih_operand {
  void* data;
  int64_t stride;
  int64_t columns;
};

struct pih_sampling {
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  uint64_t seed;
};

// One ragged batch; fields as in pih_runtime/step.py.
struct pih_step {
  int32_t tokens;         // T
  int32_t seqs;           // S
  int32_t wanted;         // R
  int32_t pages_per_seq;  // P, row length of page_table
  const int32_t* ids;
  const int32_t* positions;
  const int32_t* seq_start;
  const int32_t* page_table;
  const int32_t* slots;
  const int32_t* rows;
  const int32_t* row_slots;
  const pih_sampling* sampling;
  int32_t* seq_of;        // [T] scratch: sequence of each token, filled by the executor
  int32_t* sampled;       // [slots] last sampled id of each slot; kept between steps
  float* scratch;         // [parts][scratch_floats] private to each share of a call that uses it
  int64_t scratch_floats;
};

struct pih_call;
// Runs share `part` of `parts`. Every output value is computed within one share, in an order that depends
// neither on T nor on `parts`: a row's result does not depend on its company.
typedef void (*pih_kernel)(const pih_call*, const pih_step*, int part, int parts);

struct pih_call {
  pih_kernel kernel;
  int32_t wanted;  // 0: the call runs over the step's T tokens; 1: over its R wanted rows
  int32_t parts;   // shares the call is cut into, at least 1; a free thread takes the next one
  int32_t alone;   // up to this many rows one thread does it all, and the calls after it of which this holds too
  pih_operand operand[PIH_MAX_OPERANDS];
};

#define PIH_EXPORT extern "C" __attribute__((visibility("default")))

struct pih_team;
// Exports of every pack:
//   int  pih_abi(void)
//   const char* pih_isa(void)
//   int64_t pih_team_bytes(void)                  memory a host gives for a team, zeroed, 64-byte aligned
//   void pih_thread(pih_team*, int thread)        a host thread enters for thread >= 1 and returns after pih_stop
//   void pih_run(pih_team*, int threads, const pih_call*, int calls, const pih_step*)   thread 0; returns when done
//   void pih_stop(pih_team*)
// and one symbol of type pih_kernel for each binding.
