/* Sends and receives: alone, in groups, to oneself, of nothing, and beside collectives. */
#include "calls.h"

enum { BYTES = 4 << 20 };

/* Two halves of a device's memory, for what is sent and what is received. */
struct mail {
    struct rank *me;
    address_t out, in;
    char *sent, *received, *right;
};

static void begin(struct mail *mail, struct rank *me) {
    *mail = (struct mail){
        .me = me, .sent = malloc(BYTES), .received = malloc(BYTES), .right = malloc(BYTES)};
    CHECK(mail->sent && mail->received && mail->right);
    CU(cuMemAlloc_v2(&mail->out, BYTES));
    CU(cuMemAlloc_v2(&mail->in, BYTES));
    join(me);
}

static void end(struct mail *mail) {
    leave(mail->me);
    CU(cuMemFree_v2(mail->out));
    CU(cuMemFree_v2(mail->in));
    free(mail->sent);
    free(mail->received);
    free(mail->right);
}

/* New bytes to send, and none received. */
static void fill(struct mail *mail, uint64_t seed) {
    for (size_t at = 0; at < BYTES; at += 8) {
        uint64_t drawn = mixed(seed * 1000 + (uint64_t)mail->me->rank * 64 + at * 1000000);
        memcpy(mail->sent + at, &drawn, 8);
    }
    memset(mail->right, POISON, BYTES);
    CU(cuMemcpyHtoDAsync_v2(mail->out, mail->sent, BYTES, mail->me->stream));
    CU(cuMemcpyHtoDAsync_v2(mail->in, mail->right, BYTES, mail->me->stream));
    finish(mail->me->stream);
}

/* These bytes of another rank have to come. */
static void expect(struct mail *mail, uint64_t seed, int from, size_t from_at, size_t into,
                   size_t bytes) {
    for (size_t at = 0; at < bytes; at++) {
        size_t place = from_at + at;
        uint64_t drawn = mixed(seed * 1000 + (uint64_t)from * 64 + place / 8 * 8 * 1000000);
        mail->right[into + at] = (char)(drawn >> (place % 8 * 8));
    }
}

static void check_mail(struct mail *mail, const char *what, int round) {
    finish(mail->me->stream);
    check_healthy(mail->me->comm);
    CU(cuMemcpyDtoH_v2(mail->received, mail->in, BYTES));
    for (size_t at = 0; at < BYTES; at++) {
        if (mail->received[at] == mail->right[at]) continue;
        FAIL("%s, round %d: byte %zu is %d instead of %d", what, round, at, mail->received[at],
             mail->right[at]);
    }
}

static void send(struct mail *mail, size_t at, size_t count, ncclDataType_t type, int peer) {
    NCCL(ncclSend((void *)(mail->out + at), count, type, peer, mail->me->comm, mail->me->stream));
}

static void receive(struct mail *mail, size_t at, size_t count, ncclDataType_t type, int peer) {
    NCCL(ncclRecv((void *)(mail->in + at), count, type, peer, mail->me->comm, mail->me->stream));
}

/* Each rank tells the next one, one after another, without a group. */
static void alone(struct rank *me) {
    struct mail mail;
    begin(&mail, me);
    const size_t counts[] = {1, 3, 1000, 70001, 0, 5};
    for (int round = 0; round < 2 * ncclNumTypes; round++) {
        ncclDataType_t type = round % ncclNumTypes;
        size_t count = counts[round % 6], bytes = count * SIZES[type];
        int from = round % me->world, to = (round + 1) % me->world;
        uint64_t seed = (uint64_t)round;
        fill(&mail, seed);
        if (me->rank == from) send(&mail, 16, count, type, to);
        if (me->rank == to) receive(&mail, 48, count, type, from);
        if (me->rank == to) expect(&mail, seed, from, 16, 48, bytes);
        check_mail(&mail, "alone", round);
    }
    end(&mail);
}

/* How many elements `from` sends to `to` in this round: often none. */
static size_t count_of(int round, int from, int to) {
    uint64_t drawn = mixed((uint64_t)(round * 100 + from * 10 + to));
    return drawn % 3 ? drawn / 3 % 9000 : 0;
}

/* As torch exchanges lists of tensors: with itself too, and with counts that change every time. */
static void all_to_all(struct rank *me) {
    struct mail mail;
    begin(&mail, me);
    const size_t room = BYTES / (size_t)me->world / 8 * 8;
    for (int round = 0; round < 40; round++) {
        ncclDataType_t type = round % ncclNumTypes;
        fill(&mail, (uint64_t)round);
        NCCL(ncclGroupStart());
        for (int peer = 0; peer < me->world; peer++) {
            size_t out = count_of(round, me->rank, peer), in = count_of(round, peer, me->rank);
            if (out || round % 2)
                send(&mail, (size_t)peer * room, out, type, peer);
            else
                NCCL(ncclSend(NULL, out, type, peer, me->comm, me->stream));
            if (in || round % 2)
                receive(&mail, (size_t)peer * room, in, type, peer);
            else
                NCCL(ncclRecv(NULL, in, type, peer, me->comm, me->stream));
            expect(&mail, (uint64_t)round, peer, (size_t)me->rank * room, (size_t)peer * room,
                   in * SIZES[type]);
        }
        NCCL(ncclGroupEnd());
        check_mail(&mail, "all to all", round);
    }
    end(&mail);
}

/* Several messages to each peer in one group, which match in their order, and next to nothing of
 * them in the order of the peer. */
static void in_order(struct rank *me) {
    struct mail mail;
    begin(&mail, me);
    enum { EACH = 7, ROOM = 40000 };
    for (int round = 0; round < 6; round++) {
        fill(&mail, (uint64_t)round);
        NCCL(ncclGroupStart());
        for (int nth = 0; nth < EACH; nth++) {
            for (int step = 0; step < me->world; step++) {
                int peer = (me->rank + step) % me->world;
                size_t count = (size_t)(nth * 37 + round) % 5 ? (size_t)(nth * 1111 + 1) : 0;
                size_t from = (size_t)(peer * EACH + nth) * ROOM;
                size_t into = (size_t)(peer * EACH + nth) * ROOM + 16;
                receive(&mail, into, count, ncclFloat32, peer);
                expect(&mail, (uint64_t)round, peer, (size_t)(me->rank * EACH + nth) * ROOM, into,
                       count * 4);
                send(&mail, from, count, ncclFloat32, peer);
            }
        }
        NCCL(ncclGroupEnd());
        check_mail(&mail, "in order", round);
    }
    end(&mail);
}

/* As torch's batches of messages: a ring in both directions, many in flight before anything is
 * looked at. */
static void ring(struct rank *me) {
    struct mail mail;
    begin(&mail, me);
    enum { TIMES = 60, ROOM = 8192 };
    int next = (me->rank + 1) % me->world, previous = (me->rank + me->world - 1) % me->world;
    fill(&mail, 1);
    for (int time = 0; time < TIMES; time++) {
        size_t there = (size_t)time * 2 * ROOM, back = there + ROOM;
        size_t count = (size_t)(time * 131) % 2000;
        NCCL(ncclGroupStart());
        send(&mail, there, count, ncclInt32, next);
        receive(&mail, there, count, ncclInt32, previous);
        send(&mail, back, count + 1, ncclInt32, previous);
        receive(&mail, back, count + 1, ncclInt32, next);
        NCCL(ncclGroupEnd());
        /* Of two ranks each is both neighbours: the messages match in their order. */
        expect(&mail, 1, previous, there, there, count * 4);
        expect(&mail, 1, next, back, back, (count + 1) * 4);
    }
    check_mail(&mail, "ring", 0);
    end(&mail);
}

/* Messages to oneself need their counterpart. */
static void to_oneself(struct rank *me) {
    struct mail mail;
    begin(&mail, me);
    fill(&mail, 1);
    NCCL(ncclGroupStart());
    receive(&mail, 64, 100, ncclInt64, me->rank);
    receive(&mail, 8000, 5, ncclInt8, me->rank);
    send(&mail, 8, 100, ncclInt64, me->rank);
    send(&mail, 808, 5, ncclInt8, me->rank);
    NCCL(ncclGroupEnd());
    expect(&mail, 1, me->rank, 8, 64, 800);
    expect(&mail, 1, me->rank, 808, 8000, 5);
    /* From a buffer into itself. */
    NCCL(ncclGroupStart());
    NCCL(ncclSend((void *)(mail.in + 20000), 10, ncclInt8, me->rank, me->comm, me->stream));
    NCCL(ncclRecv((void *)(mail.in + 20000), 10, ncclInt8, me->rank, me->comm, me->stream));
    NCCL(ncclGroupEnd());
    check_mail(&mail, "to oneself", 0);
    /* Without it nothing happens, and the communicator goes on. */
    void *memory = (void *)mail.in;
    RETURNS(ncclInvalidUsage, ncclSend(memory, 1, ncclInt8, me->rank, me->comm, me->stream));
    RETURNS(ncclInvalidUsage, ncclRecv(memory, 1, ncclInt8, me->rank, me->comm, me->stream));
    NCCL(ncclGroupStart());
    NCCL(ncclSend(memory, 1, ncclInt8, me->rank, me->comm, me->stream));
    RETURNS(ncclInvalidUsage, ncclGroupEnd());
    check_mail(&mail, "to oneself", 1);
    end(&mail);
}

/* Collectives and messages in one group, on two streams. */
static void mixed_group(struct rank *me) {
    struct mail mail;
    struct slot slots[2];
    begin(&mail, me);
    for (int slot = 0; slot < 2; slot++) make_slot(&slots[slot], 1 << 18);
    int next = (me->rank + 1) % me->world, previous = (me->rank + me->world - 1) % me->world;
    for (int round = 0; round < 20; round++) {
        uint64_t seed = (uint64_t)round;
        fill(&mail, seed);
        struct call sum = {
            .collective = ALL_REDUCE, .type = ncclFloat32, .count = 3000 + seed, .seed = seed};
        struct call gather = {.collective = ALL_GATHER,
                              .type = ncclInt64,
                              .count = 300 + seed,
                              .seed = seed + 7,
                              .in_place = true};
        prepare(me, &slots[0], &sum, me->stream);
        prepare(me, &slots[1], &gather, me->other);
        NCCL(ncclGroupStart());
        if (round % 2) send(&mail, 0, 1000 + seed, ncclInt32, next);
        start(me, &slots[0], me->comm, me->stream);
        receive(&mail, 0, 1000 + seed, ncclInt32, previous);
        start(me, &slots[1], me->comm, me->other);
        if (round % 2 == 0) send(&mail, 0, 1000 + seed, ncclInt32, next);
        NCCL(ncclGroupEnd());
        expect(&mail, seed, previous, 0, 0, (1000 + (size_t)seed) * 4);
        check_mail(&mail, "mixed group", round);
        finish(me->other);
        for (int slot = 0; slot < 2; slot++) check(me, &slots[slot]);
    }
    end(&mail);
    for (int slot = 0; slot < 2; slot++) free_slot(&slots[slot]);
}

/* Megabytes, in both directions at once. */
static void large(struct rank *me) {
    struct mail mail;
    begin(&mail, me);
    size_t part = BYTES / (size_t)me->world / 16 * 16;
    for (int round = 0; round < 3; round++) {
        fill(&mail, (uint64_t)round);
        NCCL(ncclGroupStart());
        for (int peer = 0; peer < me->world; peer++) {
            if (peer == me->rank) continue;
            send(&mail, (size_t)peer * part, part, ncclUint8, peer);
            receive(&mail, (size_t)peer * part, part, ncclUint8, peer);
            expect(&mail, (uint64_t)round, peer, (size_t)me->rank * part, (size_t)peer * part,
                   part);
        }
        NCCL(ncclGroupEnd());
        check_mail(&mail, "large", round);
    }
    end(&mail);
}

static const struct test TESTS[] = {
    {"alone", alone},           {"all_to_all", all_to_all},
    {"in_order", in_order},     {"ring", ring},
    {"to_oneself", to_oneself}, {"mixed_group", mixed_group},
    {"large", large},           {NULL, NULL},
};

int main(int count, char **words) { return run_tests(count, words, TESTS); }
