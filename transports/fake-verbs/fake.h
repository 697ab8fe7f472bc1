// Shared by the files of the fake library. `devices.cpp` explains its purpose.
#pragma once
#include "abi.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace fake {

using Clock = std::chrono::steady_clock;

// The `errno` with which this call fails by the variable FAKE_VERBS_FAIL, or 0.
int planned_failure(const char* call);

// A device of FAKE_VERBS_DEVICES. Its attributes may change while it is used.
struct Device {
    ibv_device shown{};
    std::string name;
    int number;
    std::mutex lock;
    std::map<std::string, std::string> attributes;
    // Counters for tests: the number of requests, or the last value.
    std::map<std::string, uint64_t> counts;

    void count(const char* what, uint64_t more = 1);
    void note(const char* what, uint64_t value);
    // The attribute `key@port`, else `key`, else `otherwise`.
    uint64_t number_of(const char* key, int port, uint64_t otherwise);
    int ports() { return (int)number_of("ports", 0, 1); }
    bool is_ethernet(int port) { return number_of("link", port, 1) == LINK_ETHERNET; }
    bool is_up(int port) { return number_of("state", port, PORT_ACTIVE) == PORT_ACTIVE; }
    uint16_t lid(int port);
    std::vector<ibv_gid_entry> gids(int port);
};

// An open device.
struct Context {
    ibv_context shown{};
    Device* device;
    int events;
};

// A completion channel. The pointers of queues with an event are written to its pipe.
struct Channel {
    ibv_comp_channel shown{};
    int events;
};

// A completion queue.
struct Queue {
    Context* context;
    Channel* channel;
    void* own;
    size_t most;
    std::mutex lock;
    std::deque<ibv_wc> completions;
    bool armed = false;
    bool overrun = false;
    uint32_t events = 0;

    void add(const ibv_wc& completion);
};

// Registered memory, by key.
class Regions {
public:
    static Regions& all();
    uint32_t add(uint64_t start, size_t length, int access);
    // Memory of a device, of this file. If it is late, a peer's bytes land when the region is read.
    uint32_t add_device(uint64_t start, size_t length, int access, int file, bool is_late);
    void remove(uint32_t key);
    // Copies to the region, if it allows a peer to write there.
    bool write(uint32_t key, uint64_t to, const char* from, size_t length);
    bool read(const ibv_sge& from, char* to);
    bool has(uint32_t key, uint64_t at, size_t length, int access);
    // True if the bytes are in memory of a device, by whatever key.
    bool is_of_device(uint64_t at, size_t length);
    // Where this process has the byte.
    char* place(uint32_t key, uint64_t at);
    // Lets the bytes of late writes land. False if the peer may not read there.
    bool land(uint32_t key, uint64_t at, size_t length);

private:
    struct Region {
        uint64_t start;
        size_t length;
        int access;
        char* mapped;
        bool is_of_device;
        bool is_late;
        std::vector<std::pair<uint64_t, std::vector<char>>> late;
    };
    std::recursive_mutex lock_;
    std::map<uint32_t, Region> regions_;
    uint32_t next_ = 0x100;
};

// A write that is not complete.
struct Write {
    ibv_send_wr request;
    ibv_sge range;
    // Some of the bytes of a longer write, not the last ones.
    bool is_part;
    // The bytes of an inline write. Of another one, a sum of its memory when it was posted.
    bool is_inline;
    std::vector<char> bytes;
    uint64_t sum;
    Clock::time_point due;
};

// The first bytes of every packet. Those of the first packet on a connection have its receiver,
// those of later ones the bytes and the place of a write.
struct Frame {
    uint32_t from, to, net, is_global, lid;
    uint8_t gid[16];
    uint64_t address;
    uint32_t key, length, immediate, has_immediate, is_read;
};

// A queue pair: one end of a connection, with a thread that copies.
struct Pair {
    ibv_qp shown{};
    Context* context;
    Queue* sends;
    Queue* receives;
    ibv_qp_cap cap;
    ibv_qp_attr attributes{};

    Pair(Context* context, const ibv_qp_init_attr& wanted);
    ~Pair();
    int modify(const ibv_qp_attr& to, int mask);
    int post(const ibv_send_wr& request);
    int post(const ibv_recv_wr& request);
    void wake();

private:
    void run();
    void connect_to_peer();
    void transmit();
    void take_answers();
    void accept_peer();
    void take_frames();
    bool deliver(const Frame& frame);
    unsigned place(const Frame& frame);
    void post_part(const ibv_send_wr& request, ibv_sge range, bool is_part);
    void give_up_unanswered();
    void finish_due();
    void finish(const Write& write, unsigned status);
    void flush();
    void lose_outgoing();
    int sleep_for();
    bool is_addressed_by(const Frame& hello);
    Clock::duration patience() const;

    std::mutex lock_;
    std::thread thread_;
    unsigned state_ = QPS_RESET;
    bool ending_ = false;
    // Writes in order: the first `transmitted_` of them are on their way.
    std::deque<Write> queue_;
    size_t transmitted_ = 0;
    // Writes that the peer has, and whose completions are late.
    std::deque<Write> late_;
    std::deque<uint64_t> receives_;
    Clock::time_point last_answer_;
    int wake_ = -1;
    int listening_ = -1;
    int outgoing_ = -1;
    int incoming_ = -1;
    bool blocked_ = false;
    // Packets without immediate data that have come.
    uint64_t placed_ = 0;
    // Bytes of writes without immediate data. They land when one with it arrives, as late as is allowed.
    std::vector<std::pair<Frame, std::vector<char>>> unplaced_;
    // A frame that no receive was posted for.
    std::unique_ptr<Frame> held_;
    // The packet that goes out, and the one that came in.
    std::vector<char> out_;
    std::vector<char> in_;
};

// Reports an asynchronous event to the process.
void raise(Context* context, int type, uint64_t element);
// All that is open in this process.
void add(Context* context);
void remove(Context* context);
void add(Queue* queue);
void remove(Queue* queue);
void add(Pair* pair);
void remove(Pair* pair);

// Closes a descriptor, unless it is -1, which it is afterwards.
void close_if_open(int& descriptor);

// A pipe, whose ends are closed on exec.
bool make_pipe(int ends[2]);

}
