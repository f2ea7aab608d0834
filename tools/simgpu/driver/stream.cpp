// Streams, and events, which stand for what their stream had when they were recorded: for nothing that came later.
#include "driver/call.h"
#include "driver/queue.h"

using namespace simgpu;

API cuStreamCreate(void** stream, unsigned flags) {
  WITHIN
  for (Stream* item = state.streams + MOST_DEVICES; item < state.streams + sizeof state.streams / sizeof *item; ++item)
    if (!item->alive && !item->queue.first) {
      *item = Stream();
      item->alive = true, item->blocking = !(flags & 1), item->device = current;
      return *stream = item, 0;
    }
  return OUT_OF_MEMORY;
}
// Its work is done all the same, whenever that is.
API cuStreamDestroy_v2(void* stream) {
  GIVE_BACK
  static_cast<Stream*>(stream)->alive = false;
  return state.sticky;
}
API cuStreamSynchronize(void* stream) {
  WITHIN
  return stream_of(stream)->capturing ? STREAM_CAPTURE_UNSUPPORTED : drain(stream_of(stream));
}
API cuEventCreate(void** event, unsigned) {
  WITHIN
  for (Event& item : state.events)
    if (!item.alive) return item = {true, stream_of(nullptr), 0}, *event = &item, 0;
  return OUT_OF_MEMORY;
}
API cuEventDestroy_v2(void* event) {
  GIVE_BACK
  static_cast<Event*>(event)->alive = false;
  return state.sticky;
}
API cuEventRecord(void* event, void* stream) {
  WITHIN
  if (stream_of(stream)->capturing) return STREAM_CAPTURE_UNSUPPORTED;
  *static_cast<Event*>(event) = {true, stream_of(stream), state.queued};
  return 0;
}
API cuEventSynchronize(void* event) {
  WITHIN
  return run_until(static_cast<Event*>(event)->stream, static_cast<Event*>(event)->number);
}
