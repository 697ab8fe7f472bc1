// Streams: an OS thread each, with a queue of work.
#pragma once
#include "devices.h"

#include <condition_variable>
#include <deque>
#include <functional>

namespace fake {

typedef std::function<void()> Work;

struct Capture;

struct Stream : std::enable_shared_from_this<Stream> {
    Stream(Device& device, unsigned flags, int priority);

    Device& device;
    const unsigned flags;
    const int priority;

    // The current capture of the stream, or null; which branch of the graph it is; and the nodes
    // that its next work comes after. `capture_lock` guards these and the two below.
    std::shared_ptr<Capture> capture;
    size_t branch = 0;
    std::vector<size_t> tail;
    // The last result of `cuStreamGetCaptureInfo_v3`: handles of nodes, and kinds of edges.
    std::vector<const void*> asked_nodes;
    std::vector<uint64_t> asked_edges;

    // Adds work to the queue. After an error of the device only work that is `always` done is
    // done.
    void push(Work work, bool always);
    // How much work was ever added.
    uint64_t pushed();
    bool is_done(uint64_t count);
    // Waits until so much work is done. False after the timeout of the settings.
    bool wait(uint64_t count);
    // Starts the thread, which ends after `stop` and all work.
    void start();
    void stop();
    // True if the stream and the null stream wait for each other.
    bool is_blocking() const;

  private:
    struct Item {
        Work work;
        bool always;
    };
    void serve();
    void execute(const Item& item);

    std::mutex lock;
    std::condition_variable changed;
    std::deque<Item> queue;
    uint64_t added = 0;
    uint64_t done = 0;
    bool stopped = false;
};

Handles<Stream>& streams();

// The stream of this handle in the current context; 0 and 1 are the null stream, 2 the stream of
// the calling thread. Null if there is no such stream.
std::shared_ptr<Stream> find_stream(void* handle);

// Adds work after all earlier work of the stream, and of the null stream where this matters.
void submit(Stream& stream, Work work, bool always = false);

// Adds work to the graph that the stream captures, or submits it.
int enqueue(Stream& stream, Work work);

// Wait until all work so far is done. Return the error of the device, if it has one.
int synchronize(Stream& stream);
int synchronize(Device& device);
// As `synchronize`, for a function that frees or loads.
int synchronize_alone(Device& device);

bool is_capturing(Stream& stream);

// Some functions must not be called while a stream captures. They end the capture and return this.
int refuse_while_capturing();

}
