// Captured work, and its launches; nothing of a launch is needed any more when its graph is destroyed.
#include "driver/call.h"
#include "driver/queue.h"

using namespace simgpu;

API cuStreamBeginCapture_v2(void* stream, int mode) {
  WITHIN
  Stream* found = stream_of(stream);
  if (found->capturing || found == stream_of(nullptr)) return STREAM_CAPTURE_UNSUPPORTED;
  found->capturing = true, found->relaxed = mode == 2;
  return found->graph = make<Graph>(), 0;
}
API cuStreamEndCapture(void* stream, void** graph) {
  WITHIN
  Stream* found = stream_of(stream);
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
  for (const Work* work = static_cast<Graph*>(executable)->queue.first; work; work = work->next) {
    Work* again = make<Work>();
    *again = *work;
    queue(stream_of(stream), again);
  }
  return 0;
}

namespace {
int forget(void* graph) {
  Graph* found = static_cast<Graph*>(graph);
  --state.live_graphs;
  if (--found->users) return state.sticky;
  for (Work* work = found->queue.first; work;) {
    Work* next = work->next;
    free(work), work = next;
  }
  free(found);
  return state.sticky;
}
}  // namespace

API cuGraphExecDestroy(void* executable) {
  GIVE_BACK
  return forget(executable);
}
API cuGraphDestroy(void* graph) {
  GIVE_BACK
  return forget(graph);
}
