/* Does what the lines of a trace say, as every rank of a world, and checks all results:
 * `replay trace WORLD processes FILE`. `lines.h` has the format. If there are files FILE.RANK, they
 * were recorded, one by each rank.
 */
#include "flights.h"
#include "lines.h"

enum { SLOT_BYTES = 1 << 19, FLIGHTS = 40, MOST_LINES = 1000, HANDLES = 64 };

struct replay {
    struct rank *me;
    struct line lines[MOST_LINES];
    int count;
    cudaStream_t streams[STREAMS];
    bool is_capturing[STREAMS];
    cudaStream_t uploads;
    void *graph;
    /* A communicator whose calls were captured keeps what it has: the graph may be launched later.
     */
    bool has_captured;
    int depth;
    struct flight flights[FLIGHTS];
    ncclComm_t comms[COMMS];
    int made, inits;
    struct rank views[COMMS];
    uint64_t calls[COMMS];
    uint64_t sent[COMMS][MOST_RANKS], received[COMMS][MOST_RANKS];
    void *handles[HANDLES];
    int handle_count;
    ncclRedOp_t ops[16];
    void *memory;
};

static void check_stream(struct replay *replay, int stream) {
    finish(replay->streams[stream]);
    for (int nth = 0; nth < FLIGHTS; nth++) {
        struct flight *flight = &replay->flights[nth];
        bool is_ready = flight->is_captured ? flight->was_launched : flight->stream == stream;
        if (!flight->is_busy || !is_ready || flight->is_in_group) continue;
        /* After an abort nothing is right. */
        if (flight->view->comm) check_flight(flight);
        flight->is_busy = flight->is_captured;
        flight->was_launched = false;
    }
}

/* Memory for a call. If there is none, everything that was called is looked at first. */
static struct flight *find_flight(struct replay *replay) {
    for (int round = 0; round < 2; round++) {
        for (int nth = 0; nth < FLIGHTS; nth++) {
            if (!replay->flights[nth].is_busy) return &replay->flights[nth];
        }
        for (int stream = 0; stream < STREAMS; stream++) {
            if (!replay->is_capturing[stream]) check_stream(replay, stream);
        }
    }
    FAIL("too many calls in flight");
}

static struct flight *begin_flight(struct replay *replay, const struct line *line, struct call call,
                                   int from, int to) {
    struct flight *flight = find_flight(replay);
    flight->view = &replay->views[line->comm];
    flight->stream = line->stream;
    flight->is_busy = true;
    flight->is_captured = replay->is_capturing[line->stream];
    flight->is_in_group = replay->depth > 0;
    flight->from = from;
    flight->to = to;
    flight->slot.call = call;
    /* What a graph reads is put there when it is launched. */
    cudaStream_t stream = flight->is_captured ? replay->uploads : replay->streams[line->stream];
    put_flight(flight, stream);
    if (flight->is_captured) finish(replay->uploads);
    return flight;
}

static int peer_of(const struct line *line, const struct rank *view, int star) {
    if (line->peer[0] == '*') return star;
    int number = atoi(line->peer);
    bool is_relative = line->peer[0] == '+' || line->peer[0] == '-';
    return is_relative ? (view->rank + number + view->world) % view->world : number;
}

static ncclResult_t do_message(struct replay *replay, const struct line *line, int star,
                               bool sends) {
    struct rank *view = &replay->views[line->comm];
    int peer = peer_of(line, view, star);
    int from = sends ? view->rank : peer, to = sends ? peer : view->rank;
    uint64_t *count = sends ? replay->sent[line->comm] : replay->received[line->comm];
    uint64_t seed = mixed(count[peer]) / 1000 + (uint64_t)to;
    count[peer] += 1;
    size_t most = (size_t)atol(line->count + (line->count[0] == '~'));
    size_t length = line->count[0] == '~' ? mixed(seed * 64 + (uint64_t)from) % most : most;
    struct call call = {.type = type_of(line), .count = length, .seed = seed, .in_place = sends};
    struct flight *flight = begin_flight(replay, line, call, from, to);
    cudaStream_t stream = replay->streams[line->stream];
    void *memory = at(flight, GUARD);
    return sends ? ncclSend(memory, length, call.type, peer, view->comm, stream)
                 : ncclRecv(memory, length, call.type, peer, view->comm, stream);
}

static ncclResult_t do_collective(struct replay *replay, const struct line *line, int star,
                                  int which) {
    struct rank *view = &replay->views[line->comm];
    uint64_t seed = replay->calls[line->comm];
    replay->calls[line->comm] += 1;
    struct call call = {.collective = which,
                        .type = type_of(line),
                        .seed = seed,
                        .count = (size_t)atol(line->count)};
    call.in_place = !strcmp(line->placement, "in-place");
    call.root = line->peer[0] == '-' && !line->peer[1] ? 0 : peer_of(line, view, star);
    ncclRedOp_t op = ncclSum;
    int built_in = find_name(line->op, OPS, ncclNumOps);
    if (built_in >= 0) op = call.op = (ncclRedOp_t)built_in;
    if (!strncmp(line->op, "premul:", 7)) {
        call.factor = HOST_FACTOR;
        op = replay->ops[atoi(line->op + 7) % 16];
    }
    struct flight *flight = begin_flight(replay, line, call, -1, -1);
    return issue(view, &flight->slot, op, view->comm, replay->streams[line->stream]);
}

static int color_of(const struct line *line, const struct rank *view) {
    if (has(line, "color=half")) return 2 * view->rank / view->world;
    if (has(line, "color=even")) return view->rank % 2;
    if (has(line, "color=own")) return view->rank;
    if (has(line, "color=first")) return view->rank ? NCCL_SPLIT_NOCOLOR : 0;
    if (has(line, "color=none")) return NCCL_SPLIT_NOCOLOR;
    return number_in(line, "color=", 0);
}

static void set_view(struct replay *replay, int number, ncclComm_t comm) {
    replay->comms[number] = comm;
    replay->views[number] = *replay->me;
    replay->views[number].comm = comm;
    if (!comm) return;
    replay->made += 1;
    NCCL(ncclCommUserRank(comm, &replay->views[number].rank));
    NCCL(ncclCommCount(comm, &replay->views[number].world));
}

static ncclResult_t do_init(struct replay *replay, const struct line *line) {
    ncclUniqueId id = share_id(replay->me, replay->inits);
    replay->inits += 1;
    CHECK(replay->inits < MOST_IDS);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.commName = "group";
    ncclComm_t comm = NULL;
    int world = replay->me->world, rank = replay->me->rank;
    ncclResult_t result = ncclCommInitRankConfig(&comm, world, id, rank, &config);
    set_view(replay, line->comm, comm);
    return result;
}

static ncclResult_t do_split(struct replay *replay, const struct line *line) {
    struct rank *view = &replay->views[line->comm];
    ncclComm_t made = NULL;
    int color = color_of(line, view);
    ncclResult_t result = ncclCommSplit(view->comm, color, view->rank, &made, NULL);
    if (result) return result;
    CHECK((made == NULL) == (color == NCCL_SPLIT_NOCOLOR));
    int number = number_in(line, "made=", replay->made);
    CHECK(number > 0 && number < COMMS);
    set_view(replay, number, made);
    return result;
}

static ncclResult_t do_op(struct replay *replay, const struct line *line, bool makes) {
    struct rank *view = &replay->views[line->comm];
    ncclRedOp_t *op = &replay->ops[atoi(line->op + 7) % 16];
    if (!makes) return ncclRedOpDestroy(*op, view->comm);
    char factor[8];
    ncclDataType_t type = type_of(line);
    put_factor(type, factor, view->rank);
    return ncclRedOpCreatePreMulSum(op, factor, type, ncclScalarHostImmediate, view->comm);
}

static ncclResult_t end_comm(struct replay *replay, const struct line *line) {
    ncclComm_t comm = replay->comms[line->comm];
    if (!strcmp(line->function, "CommFinalize")) return ncclCommFinalize(comm);
    replay->comms[line->comm] = NULL;
    if (!strcmp(line->function, "CommDestroy")) return ncclCommDestroy(comm);
    replay->views[line->comm].comm = NULL;
    return ncclCommAbort(comm);
}

static ncclResult_t do_registration(struct replay *replay, const struct line *line, bool adds) {
    ncclComm_t comm = replay->comms[line->comm];
    struct slot *slot = &replay->flights[0].slot;
    if (!adds && replay->handle_count == 0) return ncclCommDeregister(comm, NULL);
    if (!adds) return ncclCommDeregister(comm, replay->handles[--replay->handle_count]);
    CHECK(replay->handle_count < HANDLES);
    void **handle = &replay->handles[replay->handle_count++];
    return ncclCommRegister(comm, (void *)slot->memory, slot->bytes, handle);
}

static ncclResult_t do_question(struct replay *replay, const struct line *line) {
    ncclComm_t comm = replay->comms[line->comm];
    int number;
    if (!strcmp(line->function, "CommUserRank")) return ncclCommUserRank(comm, &number);
    if (!strcmp(line->function, "CommCount")) return ncclCommCount(comm, &number);
    if (!strcmp(line->function, "CommCuDevice")) return ncclCommCuDevice(comm, &number);
    ncclResult_t error = ncclInternalError;
    ncclResult_t result = ncclCommGetAsyncError(comm, &error);
    if (error) FAIL("asynchronous error %d: %s", error, ncclGetLastError(comm));
    return result;
}

static ncclResult_t do_group(struct replay *replay, const char *function) {
    bool starts = !strcmp(function, "GroupStart");
    replay->depth += starts ? 1 : -1;
    for (int nth = 0; replay->depth == 0 && nth < FLIGHTS; nth++)
        replay->flights[nth].is_in_group = false;
    return starts ? ncclGroupStart() : ncclGroupEnd();
}

static ncclResult_t do_call(struct replay *replay, const struct line *line, int star) {
    const char *function = line->function;
    bool is_init = !strncmp(function, "CommInitRank", 12);
    /* The ranks outside of a communicator do nothing in it. */
    if (line->comm >= 0 && !is_init && !replay->comms[line->comm])
        return (ncclResult_t)line->result;
    int which = find_name(function, NAMES, COLLECTIVES);
    if (which >= 0) return do_collective(replay, line, star, which);
    if (is_init) return do_init(replay, line);
    if (!strcmp(function, "Send")) return do_message(replay, line, star, true);
    if (!strcmp(function, "Recv")) return do_message(replay, line, star, false);
    if (!strcmp(function, "GroupStart") || !strcmp(function, "GroupEnd"))
        return do_group(replay, function);
    if (!strcmp(function, "CommSplit")) return do_split(replay, line);
    if (!strcmp(function, "CommRegister")) return do_registration(replay, line, true);
    if (!strcmp(function, "CommDeregister")) return do_registration(replay, line, false);
    if (!strcmp(function, "RedOpCreatePreMulSum")) return do_op(replay, line, true);
    if (!strcmp(function, "RedOpDestroy")) return do_op(replay, line, false);
    if (!strcmp(function, "MemAlloc")) return ncclMemAlloc(&replay->memory, 4096);
    if (!strcmp(function, "MemFree")) return ncclMemFree(replay->memory);
    const char *ends[] = {"CommFinalize", "CommDestroy", "CommAbort"};
    if (find_name(function, ends, 3) >= 0) return end_comm(replay, line);
    const char *asks[] = {"CommUserRank", "CommCount", "CommCuDevice", "CommGetAsyncError"};
    if (find_name(function, asks, 4) >= 0) return do_question(replay, line);
    int version;
    if (!strcmp(function, "GetVersion")) return ncclGetVersion(&version);
    if (!strcmp(function, "GetUniqueId")) return ncclSuccess;
    FAIL("no function: %s", line->text);
}

/* Reads the file, or that of this rank if there is one: NAME.RANK. */
static void read_lines(struct replay *replay, const char *name) {
    char of_rank[500];
    snprintf(of_rank, sizeof of_rank, "%s.%d", name, replay->me->rank);
    FILE *file = fopen(of_rank, "r");
    if (!file) file = fopen(name, "r");
    CHECK(file);
    char text[200];
    while (fgets(text, sizeof text, file)) {
        text[strcspn(text, "#\n")] = 0;
        if (strspn(text, " ") == strlen(text)) continue;
        CHECK(replay->count < MOST_LINES);
        struct line *line = &replay->lines[replay->count++];
        strcpy(line->text, text);
        if (text[0] != '@') parse(line);
    }
    fclose(file);
}

struct errand {
    struct replay *replay;
    const struct line *line;
    ncclResult_t result;
};

static void *do_errand(void *argument) {
    struct errand *errand = argument;
    this_rank = errand->replay->me->rank;
    errand->result = do_call(errand->replay, errand->line, 0);
    return NULL;
}

/* Does a line in the thread that the trace names. */
static void do_line(struct replay *replay, const struct line *line, int star) {
    struct errand errand = {replay, line, ncclSuccess};
    if (line->thread == 0) {
        errand.result = do_call(replay, line, star);
    } else {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, do_errand, &errand) == 0);
        pthread_join(thread, NULL);
    }
    if ((int)errand.result != line->result)
        FAIL("%s: %d: %s", line->text, errand.result, ncclGetLastError(NULL));
}

static void order(struct replay *replay, int from, int into) {
    void *event = NULL;
    CU(cuEventCreate(&event, 2));
    CU(cuEventRecord(event, replay->streams[from]));
    CU(cuStreamWaitEvent(replay->streams[into], event, 0));
    CU(cuEventDestroy_v2(event));
    if (replay->is_capturing[from]) replay->is_capturing[into] = true;
}

static void launch(struct replay *replay, int stream, int times) {
    for (int time = 0; time < times; time++) {
        for (int nth = 0; nth < FLIGHTS; nth++) {
            struct flight *flight = &replay->flights[nth];
            if (!flight->is_captured) continue;
            put_flight(flight, replay->streams[stream]);
            flight->was_launched = true;
        }
        CU(cuGraphLaunch(replay->graph, replay->streams[stream]));
    }
}

static void end_capture(struct replay *replay, int stream) {
    void *graph = NULL;
    CU(cuStreamEndCapture(replay->streams[stream], &graph));
    CU(cuGraphInstantiateWithFlags(&replay->graph, graph, 0));
    CU(cuGraphDestroy(graph));
    memset(replay->is_capturing, 0, sizeof replay->is_capturing);
}

static void free_graph(struct replay *replay) {
    CU(cuGraphExecDestroy(replay->graph));
    for (int nth = 0; nth < FLIGHTS; nth++) {
        struct flight *flight = &replay->flights[nth];
        if (flight->is_captured) flight->is_captured = flight->is_busy = false;
    }
}

/* A line that begins with @, but not one of a loop. */
static void do_other(struct replay *replay, const char *text) {
    char what[16];
    int first = 0, second = 0, rest = 0;
    sscanf(text, "@%15s %d %n%d", what, &first, &rest, &second);
    CHECK(first < STREAMS || !strcmp(what, "rank"));
    if (!strcmp(what, "wait")) return check_stream(replay, first);
    if (!strcmp(what, "order")) return order(replay, first, second);
    if (!strcmp(what, "capture")) {
        CU(cuStreamBeginCapture_v2(replay->streams[first], CAPTURE_GLOBAL));
        replay->is_capturing[first] = replay->has_captured = true;
        return;
    }
    if (!strcmp(what, "end")) return end_capture(replay, first);
    if (!strcmp(what, "launch")) return launch(replay, first, second);
    if (!strcmp(what, "free")) return free_graph(replay);
    if (!strcmp(what, "meet")) return meet(replay->me);
    if (strcmp(what, "rank")) FAIL("no line: %s", text);
    if (first != replay->me->rank) return;
    if (text[rest] == '@') return do_other(replay, text + rest);
    struct line line;
    strcpy(line.text, text + rest);
    parse(&line);
    do_line(replay, &line, 0);
}

static int end_of_stars(const struct replay *replay, int first) {
    while (first < replay->count && replay->lines[first].peer[0] == '*') first += 1;
    return first;
}

/* Does the lines from `first` until the end, or until the end of the loop. Returns the one after.
 */
static int do_lines(struct replay *replay, int first) {
    int nth = first;
    while (nth < replay->count) {
        const struct line *line = &replay->lines[nth];
        int times;
        if (!strncmp(line->text, "@again", 6)) return nth + 1;
        if (sscanf(line->text, "@repeat %d", &times) == 1) {
            int after = nth;
            for (int time = 0; time < times; time++) after = do_lines(replay, nth + 1);
            nth = after;
        } else if (line->text[0] == '@') {
            do_other(replay, line->text);
            nth += 1;
        } else if (line->peer[0] == '*') {
            int end = end_of_stars(replay, nth);
            struct rank *view = &replay->views[line->comm];
            for (int star = 0; view->comm && star < view->world; star++) {
                for (int one = nth; one < end; one++) do_line(replay, &replay->lines[one], star);
            }
            nth = end;
        } else {
            do_line(replay, line, 0);
            nth += 1;
        }
    }
    return nth;
}

static const char *file_name;

static void trace(struct rank *me) {
    struct replay *replay = calloc(1, sizeof *replay);
    CHECK(replay);
    replay->me = me;
    read_lines(replay, file_name);
    for (int stream = 0; stream < 3; stream++)
        replay->streams[stream] = (cudaStream_t)(uintptr_t)stream;
    for (int stream = 3; stream < STREAMS; stream++)
        CU(cuStreamCreate(&replay->streams[stream], NON_BLOCKING));
    CU(cuStreamCreate(&replay->uploads, NON_BLOCKING));
    for (int nth = 0; nth < FLIGHTS; nth++) make_slot(&replay->flights[nth].slot, SLOT_BYTES);
    for (int stream = 0; stream < STREAMS; stream++) finish(replay->streams[stream]);
    make_and_end(me, MOST_IDS - 1);
    int threads = count_threads();
    size_t memory = free_memory();
    do_lines(replay, 0);
    for (int stream = 0; stream < STREAMS; stream++) check_stream(replay, stream);
    meet(me);
    if (!me->is_thread && !replay->has_captured) {
        await_memory(me, memory);
        await_threads(threads);
    }
    for (int nth = 0; nth < FLIGHTS; nth++) free_slot(&replay->flights[nth].slot);
    for (int stream = 3; stream < STREAMS; stream++)
        CU(cuStreamDestroy_v2(replay->streams[stream]));
    CU(cuStreamDestroy_v2(replay->uploads));
    free(replay);
}

static const struct test TESTS[] = {{"trace", trace}, {NULL, NULL}};

int main(int count, char **words) {
    if (count < 5) return 2;
    file_name = words[4];
    return run_tests(count, words, TESTS);
}
