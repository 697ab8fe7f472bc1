#include "captures.h"

#include <algorithm>
#include <cstdio>
#include <pthread.h>

namespace fake {
namespace {

enum Mode : int { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };
enum Status : int { NONE = 0, ACTIVE = 1, INVALIDATED = 2 };

// Captures that forbid unsafe calls to the calling thread: GLOBAL: its own and all global ones;
// THREAD_LOCAL: its own; RELAXED: none. Its own relaxed captures forbid nothing.
thread_local int mode_of_thread = GLOBAL;

// Captures that have not ended. With the lock held.
std::vector<std::shared_ptr<Capture>>& active() {
    return immortal<std::vector<std::shared_ptr<Capture>>>();
}

bool is_null_stream(Stream& stream) {
    std::lock_guard<std::mutex> guard(stream.device.lock);
    return stream.device.null_stream.get() == &stream;
}

// True if a capturing stream of the device waits for the null stream. With the lock held.
bool would_wait_for_capture(Stream& stream) {
    if (active().empty() || !is_null_stream(stream)) return false;
    for (auto& capture : active()) {
        for (auto& joined : capture->joined) {
            if (&joined->device == &stream.device && joined->is_blocking()) return true;
        }
    }
    return false;
}

// True if all work of the capture comes before the end of the origin's branch.
bool is_joined(const Capture& capture) {
    const Graph& graph = *capture.graph;
    std::vector<bool> reached(graph.nodes.size());
    std::vector<size_t> next = capture.origin->tail;
    while (!next.empty()) {
        size_t node = next.back();
        next.pop_back();
        if (reached[node]) continue;
        reached[node] = true;
        next.insert(next.end(), graph.nodes[node].needs.begin(), graph.nodes[node].needs.end());
    }
    return std::find(reached.begin(), reached.end(), false) == reached.end();
}

// With the lock held.
Status status_of(const Stream& stream) {
    if (!stream.capture) return NONE;
    return stream.capture->is_invalid ? INVALIDATED : ACTIVE;
}

void forget(const std::shared_ptr<Capture>& capture) {
    for (auto& stream : capture->joined) {
        stream->capture = nullptr;
        stream->tail.clear();
    }
    capture->has_ended = true;
    auto& all = active();
    all.erase(std::find(all.begin(), all.end(), capture));
}

}

std::mutex& capture_lock() { return immortal<std::mutex>(); }

Added add_to_capture(Stream& stream, const Prepare& prepare, bool always) {
    std::lock_guard<std::mutex> guard(capture_lock());
    if (would_wait_for_capture(stream)) return {true, STREAM_CAPTURE_IMPLICIT};
    if (!stream.capture) return {false, SUCCESS};
    if (stream.capture->is_invalid) return {true, STREAM_CAPTURE_INVALIDATED};
    auto& nodes = stream.capture->graph->nodes;
    nodes.push_back(Node{prepare, stream.tail, stream.branch, always});
    stream.tail = {nodes.size() - 1};
    return {true, SUCCESS};
}

int join_capture(Stream& stream, const std::shared_ptr<Capture>& capture,
                 const std::vector<size_t>& nodes) {
    if (capture->is_invalid) return STREAM_CAPTURE_INVALIDATED;
    if (stream.capture && stream.capture != capture) return STREAM_CAPTURE_MERGE;
    if (!stream.capture) {
        stream.capture = capture;
        stream.branch = capture->graph->branches;
        capture->graph->branches += 1;
        capture->joined.push_back(stream.shared_from_this());
    }
    stream.tail.insert(stream.tail.end(), nodes.begin(), nodes.end());
    return SUCCESS;
}

int refuse_captured(Stream& stream) {
    std::lock_guard<std::mutex> guard(capture_lock());
    if (would_wait_for_capture(stream)) return STREAM_CAPTURE_IMPLICIT;
    if (!stream.capture) return SUCCESS;
    stream.capture->is_invalid = true;
    return STREAM_CAPTURE_UNSUPPORTED;
}

bool is_capturing(Stream& stream) {
    std::lock_guard<std::mutex> guard(capture_lock());
    return stream.capture != nullptr;
}

void invalidate_capture(Stream& stream) {
    std::lock_guard<std::mutex> guard(capture_lock());
    if (stream.capture) stream.capture->is_invalid = true;
}

int refuse_while_capturing() {
    if (mode_of_thread == RELAXED) return SUCCESS;
    std::lock_guard<std::mutex> guard(capture_lock());
    int result = SUCCESS;
    for (auto& capture : active()) {
        bool mine = capture->thread == std::this_thread::get_id() && capture->mode != RELAXED;
        bool of_all = capture->mode == GLOBAL && mode_of_thread == GLOBAL;
        if (!mine && !of_all) continue;
        if (settings().traces_captures) {
            char name[32] = "";
            pthread_getname_np(pthread_self(), name, sizeof name);
            fprintf(stderr, "fake driver: %s on thread '%s' ends a capture\n", current_function(),
                    name);
        }
        capture->is_invalid = true;
        result = STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

}

using namespace fake;

API cuStreamBeginCapture_v2(void* handle, int mode) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (mode < GLOBAL || mode > RELAXED) return INVALID_VALUE;
    if (is_null_stream(*stream)) return STREAM_CAPTURE_UNSUPPORTED;
    std::lock_guard<std::mutex> guard(capture_lock());
    if (stream->capture) return ILLEGAL_STATE;
    static uint64_t captures = 0;
    captures += 1;
    auto capture = std::make_shared<Capture>();
    capture->id = captures;
    capture->origin = stream.get();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    active().push_back(capture);
    return join_capture(*stream, capture, {});
}

API cuStreamEndCapture(void* handle, void** graph) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    *graph = nullptr;
    std::lock_guard<std::mutex> guard(capture_lock());
    std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return ILLEGAL_STATE;
    if (capture->origin != stream.get()) return STREAM_CAPTURE_UNMATCHED;
    bool joined = is_joined(*capture);
    forget(capture);
    if (capture->is_invalid) return STREAM_CAPTURE_INVALIDATED;
    if (!joined) return STREAM_CAPTURE_UNJOINED;
    *graph = immortal<Handles<Graph>>().add(capture->graph);
    return SUCCESS;
}

API cuThreadExchangeStreamCaptureMode(int* mode) {
    ENTER(Needs::Nothing);
    if (!mode || *mode < GLOBAL || *mode > RELAXED) return INVALID_VALUE;
    std::swap(*mode, mode_of_thread);
    return SUCCESS;
}

API cuStreamIsCapturing(void* handle, int* status) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    std::lock_guard<std::mutex> guard(capture_lock());
    if (would_wait_for_capture(*stream)) return STREAM_CAPTURE_IMPLICIT;
    *status = status_of(*stream);
    return SUCCESS;
}

// Only an active capture has more than a status. The dependencies stay valid until the next call
// about the stream.
API cuStreamGetCaptureInfo_v3(void* handle, int* status, uint64_t* id, void** graph,
                              const void*** dependencies, const uint64_t** edges, size_t* count) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!status) return INVALID_VALUE;
    std::lock_guard<std::mutex> guard(capture_lock());
    if (would_wait_for_capture(*stream)) return STREAM_CAPTURE_IMPLICIT;
    *status = status_of(*stream);
    if (*status != ACTIVE) return SUCCESS;
    Capture& capture = *stream->capture;
    stream->asked_nodes.clear();
    for (size_t node : stream->tail) stream->asked_nodes.push_back(&capture.graph->nodes[node]);
    // All edges are of the usual kind, which is zero.
    stream->asked_edges.assign(stream->tail.size(), 0);
    if (id) *id = capture.id;
    if (graph) *graph = capture.graph.get();
    if (dependencies) *dependencies = stream->asked_nodes.data();
    if (edges) *edges = stream->asked_edges.data();
    if (count) *count = stream->tail.size();
    return SUCCESS;
}

API cuStreamGetCaptureInfo_v2(void* handle, int* status, uint64_t* id, void** graph,
                              const void*** dependencies, size_t* count) {
    return cuStreamGetCaptureInfo_v3(handle, status, id, graph, dependencies, nullptr, count);
}

API cuStreamGetCaptureInfo(void* handle, int* status, uint64_t* id) {
    return cuStreamGetCaptureInfo_v3(handle, status, id, nullptr, nullptr, nullptr, nullptr);
}
