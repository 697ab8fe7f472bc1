// Events: points in the work of streams.
#include "captures.h"

#include <chrono>

namespace fake {
namespace {

constexpr unsigned DISABLE_TIMING = 2;
constexpr unsigned ALL_FLAGS = 7;
// The flag of a record and of a wait that a capture takes up as a node of the graph.
constexpr unsigned EXTERNAL = 1;

// A point in the work of a stream, which comes once.
struct Mark {
    std::mutex lock;
    std::condition_variable changed;
    bool came = false;
    std::chrono::steady_clock::time_point time;

    void come() {
        std::lock_guard<std::mutex> guard(lock);
        came = true;
        time = std::chrono::steady_clock::now();
        changed.notify_all();
    }

    bool has_come() {
        std::lock_guard<std::mutex> guard(lock);
        return came;
    }

    bool wait() {
        std::unique_lock<std::mutex> guard(lock);
        std::chrono::seconds patience(settings().patience);
        return changed.wait_for(guard, patience, [&] { return came; });
    }
};

}

// The last point that was recorded: in the work of a stream, or in its capture.
struct Event {
    explicit Event(unsigned flags) : flags(flags) {}

    const unsigned flags;
    std::shared_ptr<Mark> mark;
    std::shared_ptr<Capture> capture;
    std::vector<size_t> nodes;
};

namespace {

Handles<Event>& events() { return immortal<Handles<Event>>(); }

// The mark of an event, null if it was never recorded. `capture_lock` guards events.
struct Recorded {
    int result;
    std::shared_ptr<Mark> mark;
};

Recorded recorded(void* handle) {
    std::shared_ptr<Event> event = events().find(handle);
    if (!event) return {INVALID_HANDLE, nullptr};
    std::lock_guard<std::mutex> guard(capture_lock());
    if (event->capture) {
        event->capture->is_invalid = true;
        return {CAPTURED_EVENT, nullptr};
    }
    return {SUCCESS, event->mark};
}

// Records the event in the stream's capture. Without a capture, returns the mark that the stream is
// to reach.
std::shared_ptr<Mark> record(Stream& stream, Event& event) {
    std::lock_guard<std::mutex> guard(capture_lock());
    event.capture = stream.capture;
    event.nodes = stream.tail;
    if (stream.capture) return nullptr;
    event.mark = std::make_shared<Mark>();
    return event.mark;
}

void await(const std::shared_ptr<Mark>& mark, Device& device) {
    if (mark && !mark->wait()) device.error = LAUNCH_TIMEOUT;
}

// Captures a node that records the event in each launch: a wait for the event after `cuGraphLaunch`
// waits for this record.
int record_in_graph(Stream& stream, const std::shared_ptr<Event>& event) {
    auto prepare = [event] {
        auto mark = std::make_shared<Mark>();
        event->capture = nullptr;
        event->mark = mark;
        return [mark] { mark->come(); };
    };
    Added added = add_to_capture(stream, prepare, true);
    return added.is_captured ? added.result : (int)INVALID_VALUE;
}

// Captures a node that waits, in each launch, for the record that is the last one when the graph
// is launched.
int wait_in_graph(Stream& stream, const std::shared_ptr<Event>& event) {
    auto prepare = [event, &device = stream.device] {
        return [mark = event->mark, &device] { await(mark, device); };
    };
    Added added = add_to_capture(stream, prepare, true);
    return added.is_captured ? added.result : (int)INVALID_VALUE;
}

int wait_for(Stream& stream, Event& event) {
    std::unique_lock<std::mutex> guard(capture_lock());
    if (event.capture && event.capture->has_ended) return CAPTURED_EVENT;
    if (event.capture) return join_capture(stream, event.capture, event.nodes);
    if (stream.capture) {
        stream.capture->is_invalid = true;
        return STREAM_CAPTURE_ISOLATION;
    }
    std::shared_ptr<Mark> mark = event.mark;
    guard.unlock();
    if (!mark) return SUCCESS;
    submit(stream, [mark, &device = stream.device] { await(mark, device); }, true);
    return SUCCESS;
}

}

size_t live_events() { return events().count(); }

}

using namespace fake;

API cuEventCreate(void** made, unsigned flags) {
    ENTER(Needs::Context);
    if (flags > ALL_FLAGS) return INVALID_VALUE;
    *made = events().add(std::make_shared<Event>(flags));
    return SUCCESS;
}

API cuEventDestroy_v2(void* handle) {
    ENTER(Needs::Context);
    return events().remove(handle) ? SUCCESS : INVALID_HANDLE;
}

API cuEventRecord(void* handle, void* of) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(of);
    std::shared_ptr<Event> event = events().find(handle);
    if (!stream || !event) return INVALID_HANDLE;
    std::shared_ptr<Mark> mark = record(*stream, *event);
    if (mark) submit(*stream, [mark] { mark->come(); }, true);
    return SUCCESS;
}

API cuEventRecordWithFlags(void* handle, void* of, unsigned flags) {
    if (flags == 0) return cuEventRecord(handle, of);
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(of);
    std::shared_ptr<Event> event = events().find(handle);
    if (!stream || !event) return INVALID_HANDLE;
    return flags == EXTERNAL ? record_in_graph(*stream, event) : (int)INVALID_VALUE;
}

API cuStreamWaitEvent(void* handle, void* of, unsigned flags) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    std::shared_ptr<Event> event = events().find(of);
    if (!stream || !event) return INVALID_HANDLE;
    if (flags == EXTERNAL) return wait_in_graph(*stream, event);
    return flags == 0 ? wait_for(*stream, *event) : (int)INVALID_VALUE;
}

API cuEventQuery(void* handle) {
    ENTER(Needs::Context);
    Recorded event = recorded(handle);
    if (event.result != SUCCESS) return event.result;
    if (int failed = refuse_while_capturing()) return failed;
    if (!event.mark) return SUCCESS;
    return event.mark->has_come() ? SUCCESS : NOT_READY;
}

API cuEventSynchronize(void* handle) {
    ENTER(Needs::Context);
    Recorded event = recorded(handle);
    if (event.result != SUCCESS || !event.mark) return event.result;
    return event.mark->wait() ? current_device().error.load() : (int)LAUNCH_TIMEOUT;
}

API cuEventElapsedTime_v2(float* milliseconds, void* start, void* end) {
    ENTER(Needs::Context);
    std::shared_ptr<Event> first = events().find(start);
    std::shared_ptr<Event> last = events().find(end);
    if (!first || !last) return INVALID_HANDLE;
    if ((first->flags | last->flags) & DISABLE_TIMING) return INVALID_HANDLE;
    Recorded from = recorded(start);
    Recorded to = recorded(end);
    if (from.result || to.result) return from.result ? from.result : to.result;
    if (!from.mark || !to.mark) return INVALID_HANDLE;
    if (!from.mark->has_come() || !to.mark->has_come()) return NOT_READY;
    std::chrono::duration<float, std::milli> time = to.mark->time - from.mark->time;
    *milliseconds = time.count();
    return SUCCESS;
}

API cuEventElapsedTime(float* milliseconds, void* start, void* end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}
