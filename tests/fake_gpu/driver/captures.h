// What streams capture instead of doing it, and the graphs that come out of it.
#pragma once
#include "streams.h"

#include <thread>

namespace fake {

// One piece of captured work, and the nodes that it comes after.
struct Node {
    Work work;
    std::vector<size_t> needs;
    // Nodes of a branch run on one thread, in their order.
    size_t branch;
};

struct Graph {
    std::vector<Node> nodes;
    size_t branches = 0;
};

// A capture that began on `origin` and that other streams may have joined.
struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    Stream* origin;
    int mode;
    std::thread::id thread;
    bool is_invalid = false;
    bool has_ended = false;
    std::vector<std::shared_ptr<Stream>> joined;
};

// Guards all captures, and what streams and events know of them.
std::mutex& capture_lock();

// The result of an attempt to capture. `is_captured` is false if the stream does not capture.
struct Added {
    bool is_captured;
    int result;
};

Added add_to_capture(Stream& stream, const Work& work);

// Makes `stream` part of `capture`, its next work coming after `nodes`. With the lock held.
int join_capture(Stream& stream, const std::shared_ptr<Capture>& capture,
                 const std::vector<size_t>& nodes);

// The result for a function that must not be called for a stream that captures. Ends the capture.
int refuse_captured(Stream& stream);

void invalidate_capture(Stream& stream);

}
