// Copies and fills.
#include "memory.h"
#include "streams.h"

#include <cstring>
#include <vector>

namespace fake {
namespace {

// True if these bytes are memory that a device reaches.
bool is_known(uintptr_t start, size_t bytes) { return memories().contains(start, bytes); }

// A copy in stream order.
int copy_later(Stream& stream, uintptr_t into, uintptr_t from, size_t bytes) {
    return enqueue(stream, [=] { memmove((void*)into, (void*)from, bytes); });
}

// Memory that is not pinned may change as soon as the call returns, so it is read before.
int copy_from_host(Stream& stream, uintptr_t into, const void* from, size_t bytes) {
    if (is_known((uintptr_t)from, bytes) || is_capturing(stream)) {
        return copy_later(stream, into, (uintptr_t)from, bytes);
    }
    const char* first = (const char*)from;
    auto staged = std::make_shared<std::vector<char>>(first, first + bytes);
    return enqueue(stream, [=] { memcpy((void*)into, staged->data(), bytes); });
}

// The call returns when memory that is not pinned has been written.
int copy_to_host(Stream& stream, void* into, uintptr_t from, size_t bytes) {
    bool waits = !is_known((uintptr_t)into, bytes) && !is_capturing(stream);
    int result = copy_later(stream, (uintptr_t)into, from, bytes);
    return waits && result == SUCCESS ? synchronize(stream) : result;
}

// The null stream does `work`, and the call waits for it.
int now(const std::function<int(Stream&)>& work) {
    std::shared_ptr<Stream> stream = find_stream(nullptr);
    if (int failed = refuse_while_capturing()) return failed;
    int result = work(*stream);
    return result == SUCCESS ? synchronize(*stream) : result;
}

template <class T> int fill(Stream& stream, uintptr_t into, T value, size_t count) {
    return enqueue(stream, [=] {
        for (size_t at = 0; at < count; at++) memcpy((T*)into + at, &value, sizeof value);
    });
}

}
}

using namespace fake;

API cuMemcpyHtoDAsync_v2(uintptr_t into, const void* from, size_t bytes, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!is_known(into, bytes)) return INVALID_VALUE;
    return copy_from_host(*stream, into, from, bytes);
}

API cuMemcpyDtoHAsync_v2(void* into, uintptr_t from, size_t bytes, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!is_known(from, bytes)) return INVALID_VALUE;
    return copy_to_host(*stream, into, from, bytes);
}

API cuMemcpyDtoDAsync_v2(uintptr_t into, uintptr_t from, size_t bytes, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!is_known(into, bytes) || !is_known(from, bytes)) return INVALID_VALUE;
    return copy_later(*stream, into, from, bytes);
}

API cuMemcpyAsync(uintptr_t into, uintptr_t from, size_t bytes, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!is_known(into, bytes)) return copy_to_host(*stream, (void*)into, from, bytes);
    return copy_from_host(*stream, into, (const void*)from, bytes);
}

API cuMemcpyPeerAsync(uintptr_t into, void* into_context, uintptr_t from, void* from_context,
                      size_t bytes, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!device_of_context(into_context) || !device_of_context(from_context)) {
        return INVALID_CONTEXT;
    }
    if (!is_known(into, bytes) || !is_known(from, bytes)) return INVALID_VALUE;
    return copy_later(*stream, into, from, bytes);
}

API cuMemcpyHtoD_v2(uintptr_t into, const void* from, size_t bytes) {
    ENTER(Needs::Context);
    if (!is_known(into, bytes)) return INVALID_VALUE;
    return now([=](Stream& stream) { return copy_from_host(stream, into, from, bytes); });
}

API cuMemcpyDtoH_v2(void* into, uintptr_t from, size_t bytes) {
    ENTER(Needs::Context);
    if (!is_known(from, bytes)) return INVALID_VALUE;
    return now([=](Stream& stream) { return copy_to_host(stream, into, from, bytes); });
}

API cuMemcpyDtoD_v2(uintptr_t into, uintptr_t from, size_t bytes) {
    ENTER(Needs::Context);
    if (!is_known(into, bytes) || !is_known(from, bytes)) return INVALID_VALUE;
    return now([=](Stream& stream) { return copy_later(stream, into, from, bytes); });
}

API cuMemsetD8Async(uintptr_t into, unsigned char value, size_t count, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!is_known(into, count)) return INVALID_VALUE;
    return fill(*stream, into, value, count);
}

API cuMemsetD32Async(uintptr_t into, unsigned value, size_t count, void* handle) {
    ENTER(Needs::Context);
    std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return INVALID_HANDLE;
    if (!is_known(into, count * 4)) return INVALID_VALUE;
    return fill(*stream, into, value, count);
}

API cuMemsetD8_v2(uintptr_t into, unsigned char value, size_t count) {
    ENTER(Needs::Context);
    if (!is_known(into, count)) return INVALID_VALUE;
    return now([=](Stream& stream) { return fill(stream, into, value, count); });
}
