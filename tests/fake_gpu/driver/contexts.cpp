// Primary contexts, the context of each thread, and access to peers.
#include "devices.h"
#include "streams.h"

namespace fake {
namespace {

constexpr int DEEPEST = 16;
// Contexts that the thread pushed. Plain memory: it is used until the last moment of a thread.
thread_local Device* pushed[DEEPEST];
thread_local int depth = 0;

Device* top() { return depth > 0 ? pushed[depth - 1] : nullptr; }

}

int check_context() {
    Device* device = top();
    if (!device) return INVALID_CONTEXT;
    if (device->error != SUCCESS) return device->error;
    std::lock_guard<std::mutex> guard(device->lock);
    return device->retained > 0 ? SUCCESS : CONTEXT_IS_DESTROYED;
}

Device& current_device() { return *top(); }

size_t retained_contexts() {
    size_t retained = 0;
    for (Device* device : devices()) {
        std::lock_guard<std::mutex> guard(device->lock);
        retained += device->retained > 0;
    }
    return retained;
}

}

using namespace fake;

API cuDevicePrimaryCtxRetain(void** context, int ordinal) {
    ENTER(Needs::Start);
    Device* found = device(ordinal);
    if (!found) return INVALID_DEVICE;
    std::lock_guard<std::mutex> guard(found->lock);
    found->retained += 1;
    *context = found;
    return SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(int ordinal) {
    ENTER(Needs::Start);
    Device* found = device(ordinal);
    if (!found) return INVALID_DEVICE;
    std::lock_guard<std::mutex> guard(found->lock);
    if (found->retained == 0) return INVALID_CONTEXT;
    found->retained -= 1;
    if (found->retained == 0) found->peers.clear();
    return SUCCESS;
}

API cuDevicePrimaryCtxGetState(int ordinal, unsigned* flags, int* active) {
    ENTER(Needs::Start);
    Device* found = device(ordinal);
    if (!found) return INVALID_DEVICE;
    std::lock_guard<std::mutex> guard(found->lock);
    *flags = 0;
    *active = found->retained > 0;
    return SUCCESS;
}

API cuCtxGetCurrent(void** context) {
    ENTER(Needs::Start);
    *context = top();
    return SUCCESS;
}

API cuCtxSetCurrent(void* context) {
    ENTER(Needs::Start);
    if (context && !device_of_context(context)) return INVALID_CONTEXT;
    if (depth > 0) depth -= 1;
    if (context) {
        pushed[depth] = device_of_context(context);
        depth += 1;
    }
    return SUCCESS;
}

API cuCtxPushCurrent_v2(void* context) {
    ENTER(Needs::Start);
    if (!device_of_context(context) || depth == DEEPEST) return INVALID_CONTEXT;
    pushed[depth] = device_of_context(context);
    depth += 1;
    return SUCCESS;
}

API cuCtxPopCurrent_v2(void** context) {
    ENTER(Needs::Start);
    if (depth == 0) return INVALID_CONTEXT;
    if (context) *context = top();
    depth -= 1;
    return SUCCESS;
}

API cuCtxGetDevice(int* ordinal) {
    ENTER(Needs::Context);
    *ordinal = current_device().ordinal;
    return SUCCESS;
}

API cuCtxSynchronize() {
    ENTER(Needs::Context);
    if (int failed = refuse_while_capturing()) return failed;
    return synchronize(current_device());
}

API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    ENTER(Needs::Context);
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}

API cuCtxSetFlags(unsigned) {
    ENTER(Needs::Context);
    return SUCCESS;
}

API cuCtxEnablePeerAccess(void* context, unsigned flags) {
    ENTER(Needs::Context);
    Device& mine = current_device();
    Device* theirs = device_of_context(context);
    if (!theirs || theirs == &mine) return INVALID_CONTEXT;
    if (flags != 0) return INVALID_VALUE;
    if (!is_reachable(mine.number, theirs->number)) return PEER_ACCESS_UNSUPPORTED;
    std::lock_guard<std::mutex> guard(mine.lock);
    return mine.peers.insert(theirs->ordinal).second ? SUCCESS : PEER_ACCESS_ALREADY_ENABLED;
}

API cuCtxDisablePeerAccess(void* context) {
    ENTER(Needs::Context);
    Device& mine = current_device();
    Device* theirs = device_of_context(context);
    if (!theirs) return INVALID_CONTEXT;
    std::lock_guard<std::mutex> guard(mine.lock);
    return mine.peers.erase(theirs->ordinal) ? SUCCESS : PEER_ACCESS_NOT_ENABLED;
}
