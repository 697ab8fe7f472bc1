// Carries the packets of hosts, each as much later as the two hosts are apart. `delay HOSTS` makes an interface
// `t0`, `t1` ... for each host in this namespace, says "ready", and obeys lines of its input until that ends:
//
//   delay HOST MICROSECONDS   what each packet from or to this host takes longer, one way
//   rate HOST MBIT            the most that this host sends; 0 is no limit
//   loss PERMILLE             of all packets
//   cable HOST 0|1            whether packets from and to this host arrive
//
// The address of host h is 10.231.7.(h+1). Packets of anything but IPv4 are dropped.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MOST_HOSTS = 64, LONGEST = 65536 };

typedef struct Packet {
    struct Packet* next;
    int64_t due;
    int to;
    ssize_t len;
    unsigned char bytes[];
} Packet;

static struct {
    int device, is_cut;
    int64_t delay, free, per_byte;
} hosts[MOST_HOSTS];
static int count, loss;
/* By time; packets that are due at the same time keep their order. */
static Packet* first;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void fail(const char* what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static int make_device(int host) {
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0) fail("/dev/net/tun");
    struct ifreq request = {0};
    snprintf(request.ifr_name, IFNAMSIZ, "t%d", host);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (ioctl(device, TUNSETIFF, &request) < 0) fail("TUNSETIFF");
    return device;
}

static void keep(int from, int to, const unsigned char* bytes, ssize_t len) {
    if (hosts[from].is_cut || hosts[to].is_cut || rand() % 1000 < loss) return;
    Packet* packet = malloc(sizeof *packet + (size_t)len);
    if (!packet) fail("malloc");
    int64_t start = now() > hosts[from].free ? now() : hosts[from].free;
    hosts[from].free = start + len * hosts[from].per_byte;
    *packet = (Packet){0, hosts[from].free + hosts[from].delay + hosts[to].delay, to, len};
    memcpy(packet->bytes, bytes, (size_t)len);
    Packet** at = &first;
    while (*at && (*at)->due <= packet->due) at = &(*at)->next;
    packet->next = *at;
    *at = packet;
}

static void take(int from) {
    static unsigned char bytes[LONGEST];
    ssize_t len;
    while ((len = read(hosts[from].device, bytes, sizeof bytes)) >= 20) {
        int to = bytes[19] - 1;
        if (bytes[0] >> 4 == 4 && to >= 0 && to < count) keep(from, to, bytes, len);
    }
}

static void deliver(void) {
    while (first && first->due <= now()) {
        Packet* packet = first;
        first = packet->next;
        /* A full device drops packets, as a network does. */
        if (write(hosts[packet->to].device, packet->bytes, (size_t)packet->len) < 0) (void)errno;
        free(packet);
    }
}

static void obey(char* line) {
    char word[16];
    long a = 0, b = 0;
    if (sscanf(line, "%15s %ld %ld", word, &a, &b) < 2) return;
    if (!strcmp(word, "loss")) loss = (int)a;
    if (a < 0 || a >= count) return;
    if (!strcmp(word, "delay")) hosts[a].delay = b * 1000;
    if (!strcmp(word, "rate")) hosts[a].per_byte = b ? 8000 / b : 0;
    if (!strcmp(word, "cable")) hosts[a].is_cut = !b;
}

int main(int argc, char** argv) {
    count = argc > 1 ? atoi(argv[1]) : 0;
    if (count < 1 || count > MOST_HOSTS) return 2;
    struct pollfd polls[MOST_HOSTS + 1];
    for (int host = 0; host < count; host++) {
        hosts[host].device = make_device(host);
        polls[host] = (struct pollfd){hosts[host].device, POLLIN, 0};
    }
    polls[count] = (struct pollfd){0, POLLIN, 0};
    puts("ready");
    fflush(stdout);
    char line[256];
    size_t filled = 0;
    for (;;) {
        int64_t wait = first ? first->due - now() : 1000000000;
        struct timespec time = {wait > 0 ? wait / 1000000000 : 0, wait > 0 ? wait % 1000000000 : 0};
        if (ppoll(polls, (nfds_t)count + 1, &time, NULL) > 0) {
            for (int host = 0; host < count; host++)
                if (polls[host].revents & POLLIN) take(host);
            if (polls[count].revents) {
                ssize_t len = read(0, line + filled, sizeof line - 1 - filled);
                if (len <= 0) return 0;
                line[filled += (size_t)len] = 0;
                for (char* end; (end = strchr(line, '\n'));) {
                    *end = 0;
                    obey(line);
                    filled -= (size_t)(end + 1 - line);
                    memmove(line, end + 1, filled + 1);
                }
            }
        }
        deliver();
    }
}
