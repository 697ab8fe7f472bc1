// Captured work of streams, and the resulting graphs.
#pragma once
#include "streams.h"

#include <deque>
#include <thread>

namespace fake {

// Makes the work of a node for one launch of its graph. Called in `cuGraphLaunch` with
// `capture_lock` held, for the nodes of a graph in their order.
typedef std::function<Work()> Prepare;

// One piece of captured work, and the nodes that it comes after.
struct Node {
    Prepare prepare;
    std::vector<size_t> needs;
    // Nodes of a branch run on one thread, in their order.
    size_t branch;
    // True if the work is done even after an error of the device, because others wait for it.
    bool always;
};

// A node's handle is its address, which stays the same while nodes are added.
struct Graph {
    std::deque<Node> nodes;
    size_t branches = 0;
};

// A capture that began on `origin` and that other streams may have joined.
struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    // Unique in the life of the process.
    uint64_t id;
    Stream* origin;
    int mode;
    std::thread::id thread;
    bool is_invalid = false;
    bool has_ended = false;
    std::vector<std::shared_ptr<Stream>> joined;
};

// Guards all captures, and their state in streams and events.
std::mutex& capture_lock();

// The result of an attempt to capture. `is_captured` is false if the stream does not capture.
struct Added {
    bool is_captured;
    int result;
};

Added add_to_capture(Stream& stream, const Prepare& prepare, bool always = false);

// Makes `stream` part of `capture`, its next work coming after `nodes`. With the lock held.
int join_capture(Stream& stream, const std::shared_ptr<Capture>& capture,
                 const std::vector<size_t>& nodes);

// The result for a function that must not be called for a stream that captures. Ends the capture.
int refuse_captured(Stream& stream);

void invalidate_capture(Stream& stream);

}
