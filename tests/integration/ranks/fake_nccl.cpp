// libnccl.so.2 for tests: the functions that transport/nccl calls, on host memory, between threads of one process.
// Signatures as in nccl.h. Only what a test checks: i32 and f32. A stream is a counter of what was queued on it.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT extern "C" __attribute__((visibility("default")))
namespace {
struct Id { char internal[128]; };
struct Comm { int rank; };
constexpr int MOST = 8;
int ranks = 0, arrived = 0, generation = 0;
bool aborted = false;
const void* brought[MOST];
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

bool meet() {
  const int mine = generation;
  if (++arrived == ranks) {
    arrived = 0;
    ++generation;
    pthread_cond_broadcast(&moved);
  }
  while (generation == mine && !aborted) pthread_cond_wait(&moved, &mutex);
  return !aborted;
}

// `use` runs once every rank has brought its values; 3 where the group was aborted.
template <class F>
int together(const Comm* comm, const void* values, F use) {
  pthread_mutex_lock(&mutex);
  brought[comm->rank] = values;
  bool done = meet();
  if (done) use();
  done = done && meet();
  pthread_mutex_unlock(&mutex);
  return done ? 0 : 3;
}

int width(int type) { return type == 7 || type == 2 ? 4 : type == 1 ? 1 : 2; }

void add(int type, void* into, size_t from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank)
      sum += type == 7 ? static_cast<const float*>(brought[rank])[from + i]
                       : static_cast<const int32_t*>(brought[rank])[from + i];
    if (type == 7) static_cast<float*>(into)[i] = static_cast<float>(sum);
    else static_cast<int32_t*>(into)[i] = static_cast<int32_t>(sum);
  }
}
}  // namespace

EXPORT int ncclGetVersion(int* version) { return *version = 23102, 0; }
EXPORT const char* ncclGetErrorString(int code) { return code == 3 ? "internal error" : "invalid argument"; }
EXPORT int ncclGetUniqueId(Id* id) { return memset(id, 7, sizeof *id), 0; }
EXPORT int ncclCommInitRank(Comm** comm, int size, Id id, int rank) {
  if (id.internal[127] != 7 || rank < 0 || rank >= size) return 4;
  ranks = size;
  *comm = static_cast<Comm*>(malloc(sizeof(Comm)));
  (*comm)->rank = rank;
  return 0;
}
EXPORT int ncclCommDestroy(Comm* comm) { return free(comm), 0; }
EXPORT int ncclCommAbort(Comm* comm) {
  pthread_mutex_lock(&mutex);
  aborted = true;
  pthread_cond_broadcast(&moved);
  pthread_mutex_unlock(&mutex);
  return free(comm), 0;
}
EXPORT int ncclAllReduce(const void* send, void* receive, size_t count, int type, int op, Comm* comm, int* stream) {
  if (op != 0) return 4;
  ++*stream;
  const size_t size = count * width(type);
  void* sum = malloc(size);  // in place, a rank's values are read until all have them
  const int code = together(comm, send, [&] { add(type, sum, 0, count); });
  if (code == 0) memcpy(receive, sum, size);
  free(sum);
  return code;
}
EXPORT int ncclAllGather(const void* send, void* receive, size_t count, int type, Comm* comm, int* stream) {
  ++*stream;
  const size_t size = count * width(type);
  return together(comm, send, [&] {
    for (int rank = 0; rank < ranks; ++rank)
      memcpy(static_cast<char*>(receive) + rank * size, brought[rank], size);
  });
}
EXPORT int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int op, Comm* comm, int* stream) {
  if (op != 0) return 4;
  ++*stream;
  return together(comm, send, [&] { add(type, receive, comm->rank * count, count); });
}
EXPORT int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, Comm* comm, int* stream) {
  ++*stream;
  const size_t size = count * width(type);
  return together(comm, send, [&] {
    if (comm->rank != root) memcpy(receive, brought[root], size);
  });
}
