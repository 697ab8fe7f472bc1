#include "streams.h"
#include "captures.h"

#include <chrono>
#include <cstdio>
#include <thread>

namespace fake {
namespace {

constexpr unsigned NON_BLOCKING = 1;
constexpr int MOST_DEVICES = 64;

std::shared_ptr<Stream> make_stream(Device& device, unsigned flags, int priority) {
    auto stream = std::make_shared<Stream>(device, flags, priority);
    stream->start();
    std::lock_guard<std::mutex> guard(device.lock);
    device.streams.push_back(stream);
    return stream;
}

std::shared_ptr<Stream> null_stream(Device& device) {
    {
        std::lock_guard<std::mutex> guard(device.lock);
        if (device.null_stream) return device.null_stream;
    }
    std::shared_ptr<Stream> made = make_stream(device, 0, 0);
    std::lock_guard<std::mutex> guard(device.lock);
    if (!device.null_stream) device.null_stream = made;
    return device.null_stream;
}

// The stream of the calling thread. It lives as long as the process.
std::shared_ptr<Stream> stream_of_thread(Device& device) {
    static thread_local Stream* mine[MOST_DEVICES];
    Stream*& stream = mine[device.ordinal % MOST_DEVICES];
    if (!stream) {
        // Not with the streams of the program, which has nothing to destroy here.
        static auto* kept = new Handles<Stream>;
        stream = kept->add(make_stream(device, 0, 0));
    }
    return stream->shared_from_this();
}

std::vector<std::shared_ptr<Stream>> streams_of(Device& device) {
    std::lock_guard<std::mutex> guard(device.lock);
    std::vector<std::shared_ptr<Stream>> found;
    std::vector<std::weak_ptr<Stream>> left;
    for (auto& weak : device.streams) {
        std::shared_ptr<Stream> stream = weak.lock();
        if (!stream) continue;
        found.push_back(stream);
        left.push_back(weak);
    }
    device.streams = left;
    return found;
}

// How much work of a stream something else waits for.
struct Earlier {
    std::shared_ptr<Stream> stream;
    uint64_t count;
};

// The work of other streams that the next work of `stream` comes after.
std::vector<Earlier> earlier_work(Stream& stream) {
    std::vector<Earlier> earlier;
    Stream* null;
    {
        std::lock_guard<std::mutex> guard(stream.device.lock);
        null = stream.device.null_stream.get();
    }
    if (!null || !stream.is_blocking()) return earlier;
    for (auto& other : streams_of(stream.device)) {
        bool matters = other.get() != &stream && other->is_blocking();
        if (!matters || (&stream != null && other.get() != null)) continue;
        uint64_t count = other->pushed();
        if (!other->is_done(count)) earlier.push_back(Earlier{other, count});
    }
    return earlier;
}

}

Stream::Stream(Device& device, unsigned flags, int priority)
    : device(device), flags(flags), priority(priority) {}

bool Stream::is_blocking() const { return !(flags & NON_BLOCKING); }

void Stream::push(Work work, bool always) {
    std::lock_guard<std::mutex> guard(lock);
    queue.push_back(Item{std::move(work), always});
    added += 1;
    changed.notify_all();
}

uint64_t Stream::pushed() {
    std::lock_guard<std::mutex> guard(lock);
    return added;
}

bool Stream::is_done(uint64_t count) {
    std::lock_guard<std::mutex> guard(lock);
    return done >= count;
}

bool Stream::wait(uint64_t count) {
    std::unique_lock<std::mutex> guard(lock);
    std::chrono::seconds patience(settings().patience);
    if (changed.wait_for(guard, patience, [&] { return done >= count; })) return true;
    fprintf(stderr, "fake driver: work of a stream was not done in %llu seconds\n",
            (unsigned long long)settings().patience);
    return false;
}

void Stream::start() {
    std::thread([self = shared_from_this()] { self->serve(); }).detach();
}

void Stream::stop() {
    std::lock_guard<std::mutex> guard(lock);
    stopped = true;
    changed.notify_all();
}

void Stream::execute(const Item& item) {
    if (settings().delay > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(settings().delay));
    }
    if (item.always || device.error == SUCCESS) item.work();
}

void Stream::serve() {
    std::unique_lock<std::mutex> guard(lock);
    for (;;) {
        changed.wait(guard, [&] { return stopped || !queue.empty(); });
        if (queue.empty()) return;
        {
            Item item = std::move(queue.front());
            queue.pop_front();
            guard.unlock();
            execute(item);
        }
        guard.lock();
        done += 1;
        changed.notify_all();
    }
}

Handles<Stream>& streams() { return immortal<Handles<Stream>>(); }

std::shared_ptr<Stream> find_stream(void* handle) {
    const uintptr_t legacy = 1;
    const uintptr_t per_thread = 2;
    if ((uintptr_t)handle <= legacy) return null_stream(current_device());
    if ((uintptr_t)handle == per_thread) return stream_of_thread(current_device());
    return streams().find(handle);
}

void submit(Stream& stream, Work work, bool always) {
    std::vector<Earlier> earlier = earlier_work(stream);
    if (earlier.empty()) return stream.push(std::move(work), always);
    auto after = [earlier, work = std::move(work), &device = stream.device] {
        for (const Earlier& one : earlier) {
            if (!one.stream->wait(one.count)) device.error = LAUNCH_TIMEOUT;
        }
        work();
    };
    stream.push(after, always);
}

int enqueue(Stream& stream, Work work) {
    Added added = add_to_capture(stream, [work] { return work; });
    if (added.is_captured) return added.result;
    submit(stream, std::move(work));
    return SUCCESS;
}

int synchronize(Stream& stream) {
    // The work of the null stream comes after that of other streams, so it needs work to wait for.
    submit(stream, [] {}, true);
    if (!stream.wait(stream.pushed())) return LAUNCH_TIMEOUT;
    return stream.device.error;
}

int synchronize_alone(Device& device) {
    if (!settings().free_holds) return synchronize(device);
    std::unique_lock<std::shared_mutex> alone(device.starting);
    return synchronize(device);
}

int synchronize(Device& device) {
    for (auto& stream : streams_of(device)) {
        if (!stream->wait(stream->pushed())) return LAUNCH_TIMEOUT;
    }
    return device.error;
}

}

using namespace fake;

API cuStreamCreateWithPriority(void** made, unsigned flags, int priority) {
    ENTER(Needs::Context);
    if (flags > NON_BLOCKING) return INVALID_VALUE;
    *made = streams().add(make_stream(current_device(), flags, priority));
    return SUCCESS;
}

API cuStreamCreate(void** made, unsigned flags) {
    ENTER(Needs::Context);
    if (flags > NON_BLOCKING) return INVALID_VALUE;
    *made = streams().add(make_stream(current_device(), flags, 0));
    return SUCCESS;
}

API cuStreamDestroy_v2(void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = streams().remove(handle);
    if (!stream) return INVALID_HANDLE;
    invalidate_capture(*stream);
    stream->stop();
    return SUCCESS;
}

API cuStreamSynchronize(void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (int failed = refuse_captured(*stream)) return failed;
    return synchronize(*stream);
}

API cuStreamQuery(void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (int failed = refuse_captured(*stream)) return failed;
    return stream->is_done(stream->pushed()) ? SUCCESS : NOT_READY;
}

API cuStreamGetFlags(void* handle, unsigned* flags) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    *flags = stream->flags;
    return SUCCESS;
}

API cuStreamGetPriority(void* handle, int* priority) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    *priority = stream->priority;
    return SUCCESS;
}

API cuStreamGetCtx(void* handle, void** context) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    *context = &stream->device;
    return SUCCESS;
}

// There are no green contexts.
API cuStreamGetCtx_v2(void* handle, void** context, void** green) {
    if (green) *green = nullptr;
    return cuStreamGetCtx(handle, context);
}

API cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!function) return INVALID_VALUE;
    return enqueue(*stream, [function, data] { function(data); });
}
