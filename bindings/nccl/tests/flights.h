/* Collectives and messages that are in flight, or in a graph. */
#ifndef FLIGHTS_H_
#define FLIGHTS_H_

#include "calls.h"

/* A call whose result is not checked yet, or which is in the graph. */
struct flight {
    struct slot slot;
    struct rank *view;
    int stream;
    bool is_busy, is_captured, was_launched;
    /* Its group has not ended, so it has not been started. */
    bool is_in_group;
    /* The ranks of a message. `from` is -1 for a collective. */
    int from, to;
};

/* Memory of the device at an offset of the slot. */
HELPER void *at(const struct flight *flight, size_t offset) {
    return (void *)(flight->slot.memory + offset);
}

/* Fills the buffers of a message: its payload, and the expected output of the receiver. */
static void put_message(struct flight *flight, cudaStream_t stream) {
    struct slot *slot = &flight->slot;
    const struct call *call = &slot->call;
    memset(slot->before, POISON, slot->bytes);
    CHECK(call->count * SIZES[call->type] + 2 * GUARD < slot->bytes);
    bool is_sent = flight->view->rank == flight->from && call->in_place;
    for (size_t index = 0; is_sent && index < call->count; index++)
        put_input(call->type, slot->before + GUARD + index * SIZES[call->type], call->seed,
                  flight->from, index);
    CU(cuMemcpyHtoDAsync_v2(slot->memory, slot->before, slot->bytes, stream));
}

static void check_message(struct flight *flight) {
    struct slot *slot = &flight->slot;
    const struct call *call = &slot->call;
    CU(cuMemcpyDtoH_v2(slot->after, slot->memory, slot->bytes));
    for (size_t index = 0; index < call->count; index++)
        put_input(call->type, slot->before + GUARD + index * SIZES[call->type], call->seed,
                  flight->from, index);
    if (memcmp(slot->before, slot->after, slot->bytes))
        FAIL("the message of %zu x %s from %d to %d is wrong", call->count, TYPES[call->type],
             flight->from, flight->to);
}

HELPER void put_flight(struct flight *flight, cudaStream_t stream) {
    struct call call = flight->slot.call;
    if (flight->from >= 0)
        put_message(flight, stream);
    else
        prepare(flight->view, &flight->slot, &call, stream);
}

HELPER void check_flight(struct flight *flight) {
    if (flight->from >= 0)
        check_message(flight);
    else
        check(flight->view, &flight->slot);
}

#endif
