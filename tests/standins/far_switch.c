/* A switch between distant machines. It carries each frame to its destination after DELAY
 * milliseconds, and loses LOSS of 10,000 frames at random. It also loses all gossip frames from and
 * to the interface with the number MUTE, counted from 1; 0 means none. The switch exists because
 * kernels of virtual machines often lack netem.
 * Usage: far_switch DELAY LOSS MUTE INTERFACE... The file `far_switch.ready` appears in the current
 * directory when all interfaces are open. Offloaded frames keep their header (virtio_net). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define PORTS 16
#define FRAME (10 + 14 + 65536)
#define WAITING 16384

struct frame { uint64_t due_us; int from; int length; unsigned char *bytes; };
static struct frame waiting[WAITING];
static unsigned first, count;
static int mute;
static int port[PORTS], ports;
static unsigned char known[PORTS][6];

static void fail(const char *what) { perror(what); exit(1); }

static uint64_t now_us(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

static int open_port(const char *name)
{
    int on = 1, fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
    struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
    at.sll_ifindex = if_nametoindex(name);
    if (fd < 0 || !at.sll_ifindex || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on)
        || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on)
        || bind(fd, (struct sockaddr *)&at, sizeof at))
        fail(name);
    return fd;
}

/* Whether a frame is from or to the gossip port. */
static int is_gossip(const unsigned char *frame, int length)
{
    const unsigned char *ip = frame + 24;
    int head = length > 34 ? 24 + 4 * (ip[0] & 15) : 0;
    if (!head || head + 4 > length || frame[22] != 8 || frame[23] || (ip[9] != IPPROTO_TCP && ip[9] != IPPROTO_UDP))
        return 0;
    const unsigned char *pair = frame + head;
    return (pair[0] << 8 | pair[1]) == 7946 || (pair[2] << 8 | pair[3]) == 7946;
}

static void deliver(struct frame *f)
{
    const unsigned char *to = f->bytes + 10;
    for (int i = 0; i < ports; i++) {
        if (i == f->from || (i + 1 == mute && is_gossip(f->bytes, f->length)) || (!(to[0] & 1) && memcmp(known[i], to, 6)))
            continue;
        /* A full queue loses the frame, as a real switch does. */
        if (write(port[i], f->bytes, f->length) < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ENETDOWN)
            perror("write");
    }
    free(f->bytes);
}

static void receive(int from, uint64_t delay_us, unsigned loss)
{
    static unsigned char buffer[FRAME];
    for (;;) {
        ssize_t length = read(port[from], buffer, sizeof buffer);
        if (length < 24)
            return;
        memcpy(known[from], buffer + 16, 6);
        if (from + 1 == mute && is_gossip(buffer, (int)length))
            continue;
        if ((unsigned)(random() % 10000) < loss || count == WAITING)
            continue;
        struct frame *f = &waiting[(first + count++) % WAITING];
        *f = (struct frame){ now_us() + delay_us, from, (int)length, malloc(length) };
        if (!f->bytes)
            fail("malloc");
        memcpy(f->bytes, buffer, length);
    }
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 4 + PORTS)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    uint64_t delay_us = strtoull(argv[1], NULL, 10) * 1000;
    unsigned loss = atoi(argv[2]);
    mute = atoi(argv[3]);
    struct pollfd poll_for[PORTS];
    for (int i = 4; i < argc; i++, ports++)
        poll_for[ports] = (struct pollfd){ port[ports] = open_port(argv[i]), POLLIN, 0 };
    close(open("far_switch.ready", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    for (;;) {
        struct timespec wait = { 1, 0 };
        if (count) {
            uint64_t now = now_us(), due = waiting[first].due_us;
            uint64_t left = due > now ? due - now : 0;
            wait = (struct timespec){ left / 1000000, left % 1000000 * 1000 };
        }
        ppoll(poll_for, ports, &wait, NULL);
        for (int i = 0; i < ports; i++)
            if (poll_for[i].revents)
                receive(i, delay_us, loss);
        for (; count && waiting[first].due_us <= now_us(); count--, first = (first + 1) % WAITING)
            deliver(&waiting[first]);
    }
}
