#include "captures.h"

#include <algorithm>

namespace fake {
namespace {

enum Mode : int { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };
enum Status : int { NONE = 0, ACTIVE = 1, INVALIDATED = 2 };

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

Added add_to_capture(Stream& stream, const Work& work) {
    std::lock_guard<std::mutex> guard(capture_lock());
    if (would_wait_for_capture(stream)) return {true, STREAM_CAPTURE_IMPLICIT};
    if (!stream.capture) return {false, SUCCESS};
    if (stream.capture->is_invalid) return {true, STREAM_CAPTURE_INVALIDATED};
    auto& nodes = stream.capture->graph->nodes;
    nodes.push_back(Node{work, stream.tail, stream.branch});
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
    std::lock_guard<std::mutex> guard(capture_lock());
    int result = SUCCESS;
    for (auto& capture : active()) {
        bool mine = capture->thread == std::this_thread::get_id() && capture->mode != RELAXED;
        if (!mine && capture->mode != GLOBAL) continue;
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
    auto capture = std::make_shared<Capture>();
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

API cuStreamIsCapturing(void* handle, int* status) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    std::lock_guard<std::mutex> guard(capture_lock());
    if (would_wait_for_capture(*stream)) return STREAM_CAPTURE_IMPLICIT;
    *status = !stream->capture ? NONE : stream->capture->is_invalid ? INVALIDATED : ACTIVE;
    return SUCCESS;
}
