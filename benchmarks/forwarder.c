/* A wide-area network in user space: reads IPv4 packets from one TUN device per node, writes them to another's.
 *
 *   node i -> TUN -> uplink of i -> line of the pair i, j -> one-way delay i to j -> downlink of j -> TUN -> node j
 *
 * Each line has a rate and a queue; that of a pair is there only where it was given a rate.
 *
 * A queue is a point in time, until which its line is busy; a packet that would wait longer than the queue is deep is
 * dropped, as by a router. What is on its way lies in a heap ordered by time. Packets may be the kernel's large ones
 * (segmentation offload), which makes a Gbit/s cheap; they count on the line as the segments that they stand for.
 *
 * Usage: forwarder DEVICE OFFLOAD QUEUE_MS NAMESPACE...   The last byte of a node's address is its number plus 1.
 * Commands on stdin, one a line; the end of stdin ends it:
 *   rate NODE UP DOWN (Mbit/s) | delay FROM TO MS | loss PROBABILITY | cut A B | heal A B | stats
 *   pair FROM TO (Mbit/s) | nat NODE (nobody opens a connection to it: it gets no first packet of one)
 *   swallow A B BYTES (what is larger is lost, and nobody told; 0: nothing is)
 *   queue MS | police NODE UP (Mbit/s) BYTES (an uplink that drops what is beyond its bucket; 0 0: it queues)
 *   jitter MS (mean, exponential, in order) | reorder PROBABILITY MS (so much later than its successors)
 *   twice PROBABILITY | forget (who was let through is a stranger: only what opens a connection passes)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <math.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MOST_NODES 64
#define VIRTIO_HEADER 10
#define HEADERS 52           /* IPv4, and TCP with timestamps */
#define ETHERNET 38          /* header, checksum, preamble and gap */
#define SEGMENT 1448         /* of an MTU of 1500 */
#define SMALL 2048
#define LARGE 70000
#define TIMER 1000
#define COMMANDS 1001
#define FLOWS 65536          /* that are known at once; a port number each, at most */

enum stage { TO_DOWNLINK, TO_NODE };

typedef struct {
    uint64_t time, number;
    int target, length;
    enum stage stage;
    unsigned char *data;
} packet;

static int nodes, devices[MOST_NODES];
static double up[MOST_NODES], down[MOST_NODES]; /* bytes per ns */
static uint64_t up_free[MOST_NODES], down_free[MOST_NODES], delays[MOST_NODES][MOST_NODES];
static char is_cut[MOST_NODES][MOST_NODES], behind_nat[MOST_NODES];
static double pairs[MOST_NODES][MOST_NODES]; /* bytes per ns; 0: no line of its own */
static uint64_t pair_free[MOST_NODES][MOST_NODES];
static int largest[MOST_NODES][MOST_NODES]; /* bytes of a packet; 0: any */
static double loss, queue_ns, jitter_ns, reorder, reorder_ns, twice;
static double policed[MOST_NODES], bucket[MOST_NODES], tokens[MOST_NODES]; /* bytes per ns, bytes, bytes */
static uint64_t filled[MOST_NODES], latest[MOST_NODES][MOST_NODES];
static char flows[FLOWS], knows_flows; /* who was let through; whether that is asked */
static uint64_t lost, dropped, carried;
static packet *heap;
static size_t heap_size, heap_room;
static uint64_t pushed;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int before(const packet *a, const packet *b) {
    return a->time < b->time || (a->time == b->time && a->number < b->number);
}

static void push(packet p) {
    if (heap_size == heap_room) {
        heap_room = heap_room ? heap_room * 2 : 1024;
        heap = realloc(heap, heap_room * sizeof *heap);
    }
    p.number = pushed++;
    size_t at = heap_size++;
    for (; at; at = (at - 1) / 2) {
        size_t parent = (at - 1) / 2;
        if (!before(&p, &heap[parent])) break;
        heap[at] = heap[parent];
    }
    heap[at] = p;
}

static packet pop(void) {
    packet first = heap[0], last = heap[--heap_size];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < heap_size; at = child) {
        if (child + 1 < heap_size && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &last)) break;
        heap[at] = heap[child];
    }
    if (heap_size) heap[at] = last;
    return first;
}

/* Buffers of two sizes, each size a list of free ones. */
static unsigned char *unused[2];

static unsigned char *take(int length) {
    int large = length > SMALL;
    unsigned char *data = unused[large];
    if (!data) return malloc(large ? LARGE : SMALL);
    unused[large] = *(unsigned char **)data;
    return data;
}

static void give(unsigned char *data, int length) {
    int large = length > SMALL;
    *(unsigned char **)data = unused[large];
    unused[large] = data;
}

static double chance(void) { /* xorshift64 (Marsaglia 2003) */
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) * (1.0 / 9007199254740992.0);
}

/* Bytes on the line: a large packet has headers for each of its segments. */
static int on_line(const unsigned char *data, int length) {
    int bytes = length - VIRTIO_HEADER;
    if (bytes < 1600) return bytes + ETHERNET;
    int segment = data[4] | (data[5] << 8);
    if (!segment) segment = SEGMENT;
    int segments = (bytes - HEADERS + segment - 1) / segment;
    return bytes + (segments - 1) * HEADERS + segments * ETHERNET;
}

/* Bytes of an IP packet; of a large one, of the first of its segments. */
static int size_of(const unsigned char *data, int length) {
    int bytes = length - VIRTIO_HEADER, segment = data[4] | (data[5] << 8);
    return segment && segment + HEADERS < bytes ? segment + HEADERS : bytes;
}

/* Put a packet into a line's queue; 0 if that is full, else when its last byte has left. */
static uint64_t queue(uint64_t *line_free, double rate, uint64_t time, int bytes) {
    uint64_t start = *line_free > time ? *line_free : time;
    if ((double)(start - time) > queue_ns) return 0;
    return *line_free = start + (uint64_t)(bytes / rate);
}

/* Whether a packet asks for a connection: TCP with SYN and no ACK (RFC 9293, section 3.1). */
static int opens(const unsigned char *header, int length) {
    int at = (header[0] & 15) * 4 + 13;
    return header[9] == 6 && at < length && (header[at] & 0x12) == 0x02;
}

/* Whether a firewall that has forgotten its connections lets it pass: it asks for one, or belongs to one since. */
static int passes(const unsigned char *header, int length) {
    int at = (header[0] & 15) * 4;
    if (!knows_flows || header[9] != 6 || at + 4 > length) return 1;
    uint32_t mix = 0; /* of both ways alike */
    for (int i = 0; i < 4; i++) mix += (header[12 + i] + header[16 + i]) << (4 * i);
    mix += ((header[at] << 8) + header[at + 1]) ^ ((header[at + 2] << 8) + header[at + 3]);
    mix = (mix * 2654435761u) >> 16;
    if (opens(header, length)) flows[mix] = 1;
    return flows[mix];
}

/* Whether a policer lets it pass: a bucket of tokens, and no queue (RFC 2697 has one of more colours). */
static int conforms(int node, uint64_t time, int bytes) {
    if (policed[node] <= 0) return 1;
    tokens[node] += (time - filled[node]) * policed[node];
    filled[node] = time;
    if (tokens[node] > bucket[node]) tokens[node] = bucket[node];
    if (tokens[node] < bytes) return 0;
    tokens[node] -= bytes;
    return 1;
}

/* When a packet that left at a time arrives, with what the way adds by chance. */
static uint64_t arrival(int source, int target, uint64_t left) {
    uint64_t time = left + delays[source][target];
    if (reorder > 0 && chance() < reorder) return time + (uint64_t)reorder_ns;
    if (jitter_ns > 0) time += (uint64_t)(-jitter_ns * log(1 - chance()));
    if (time < latest[source][target]) time = latest[source][target];
    return latest[source][target] = time;
}

static void send_on(int source, int target, uint64_t left, const unsigned char *data, int length) {
    packet p = {.time = arrival(source, target, left), .target = target, .length = length, .stage = TO_DOWNLINK};
    p.data = take(length);
    memcpy(p.data, data, length);
    push(p);
}

static void deliver(uint64_t time) {
    while (heap_size && heap[0].time <= time) {
        packet p = pop();
        if (p.stage == TO_DOWNLINK) {
            uint64_t left = queue(&down_free[p.target], down[p.target], p.time, on_line(p.data, p.length));
            if (left) {
                p.time = left;
                p.stage = TO_NODE;
                push(p);
                continue;
            }
            dropped++;
        } else if (write(devices[p.target], p.data, p.length) == p.length) {
            carried += p.length - VIRTIO_HEADER;
        } else {
            dropped++;
        }
        give(p.data, p.length);
    }
}

static void accept_packets(int source) {
    static unsigned char data[LARGE];
    for (int count = 0; count < 64; count++) {
        int length = read(devices[source], data, sizeof data);
        if (length <= VIRTIO_HEADER + 20) return;
        const unsigned char *header = data + VIRTIO_HEADER;
        int target = header[19] - 1;
        if (header[0] >> 4 != 4 || target < 0 || target >= nodes || target == source) continue;
        if (is_cut[source][target]) continue;
        if (behind_nat[target] && opens(header, length - VIRTIO_HEADER)) continue;
        if (!passes(header, length - VIRTIO_HEADER)) continue;
        int most = largest[source][target];
        if ((most && size_of(data, length) > most) || (loss > 0 && chance() < loss)) {
            lost++;
            continue;
        }
        int bytes = on_line(data, length);
        if (!conforms(source, now(), bytes)) {
            dropped++;
            continue;
        }
        uint64_t left = queue(&up_free[source], up[source], now(), bytes);
        if (left && pairs[source][target] > 0)
            left = queue(&pair_free[source][target], pairs[source][target], left, bytes);
        if (!left) {
            dropped++;
            continue;
        }
        send_on(source, target, left, data, length);
        if (twice > 0 && chance() < twice) send_on(source, target, left, data, length);
    }
}

static int known(int a, int b) { return a >= 0 && a < nodes && b >= 0 && b < nodes; }

static void obey(const char *line) {
    int a = 0, b = 0;
    double x, y;
    if (sscanf(line, "rate %d %lf %lf", &a, &x, &y) == 3 && known(a, a)) {
        up[a] = x / 8e3;
        down[a] = y / 8e3;
    } else if (sscanf(line, "delay %d %d %lf", &a, &b, &x) == 3 && known(a, b)) {
        delays[a][b] = x * 1e6;
    } else if (sscanf(line, "cut %d %d", &a, &b) == 2 && known(a, b)) {
        is_cut[a][b] = is_cut[b][a] = 1;
    } else if (sscanf(line, "heal %d %d", &a, &b) == 2 && known(a, b)) {
        is_cut[a][b] = is_cut[b][a] = 0;
    } else if (sscanf(line, "pair %d %d %lf", &a, &b, &x) == 3 && known(a, b)) {
        pairs[a][b] = x / 8e3;
    } else if (sscanf(line, "nat %d", &a) == 1 && known(a, a)) {
        behind_nat[a] = 1;
    } else if (sscanf(line, "swallow %d %d %lf", &a, &b, &x) == 3 && known(a, b)) {
        largest[a][b] = largest[b][a] = (int)x;
    } else if (sscanf(line, "loss %lf", &x) == 1) {
        loss = x;
    } else if (sscanf(line, "queue %lf", &x) == 1) {
        queue_ns = x * 1e6;
    } else if (sscanf(line, "police %d %lf %lf", &a, &x, &y) == 3 && known(a, a)) {
        policed[a] = x / 8e3;
        bucket[a] = tokens[a] = y;
    } else if (sscanf(line, "jitter %lf", &x) == 1) {
        jitter_ns = x * 1e6;
    } else if (sscanf(line, "reorder %lf %lf", &x, &y) == 2) {
        reorder = x;
        reorder_ns = y * 1e6;
    } else if (sscanf(line, "twice %lf", &x) == 1) {
        twice = x;
    } else if (!strcmp(line, "forget")) {
        memset(flows, 0, sizeof flows);
        knows_flows = 1;
    } else if (!strcmp(line, "stats")) {
        struct rusage r;
        getrusage(RUSAGE_SELF, &r);
        double cpu = r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
        printf("{\"cpu\": %.3f, \"carried\": %lu, \"lost\": %lu, \"dropped\": %lu}\n", cpu, (unsigned long)carried,
               (unsigned long)lost, (unsigned long)dropped);
        fflush(stdout);
    }
}

static void read_commands(void) {
    static char text[4096];
    static int size;
    int count = read(0, text + size, sizeof text - 1 - size);
    if (count == 0) exit(0);
    if (count < 0) return;
    text[size += count] = 0;
    char *line = text;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        obey(line);
    }
    size = strlen(line);
    memmove(text, line, size + 1);
}

static int open_device(const char *name, const char *namespace, int offload) {
    int own = open("/proc/self/ns/net", O_RDONLY), there = open(namespace, O_RDONLY);
    if (there < 0 || setns(there, CLONE_NEWNET)) return -1;
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK), header = VIRTIO_HEADER;
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (device < 0 || ioctl(device, TUNSETIFF, &request) || ioctl(device, TUNSETVNETHDRSZ, &header)) return -1;
    if (ioctl(device, TUNSETOFFLOAD, offload ? TUN_F_CSUM | TUN_F_TSO4 : TUN_F_CSUM)) return -1;
    if (setns(own, CLONE_NEWNET)) return -1;
    close(own);
    close(there);
    return device;
}

static void watch(int poll, int file, int number) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    epoll_ctl(poll, EPOLL_CTL_ADD, file, &event);
}

int main(int count, char **arguments) {
    nodes = count - 4;
    if (nodes < 1 || nodes > MOST_NODES) return 2;
    queue_ns = atof(arguments[3]) * 1e6;
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    struct sched_param first = {.sched_priority = 1}; /* a line does not wait for a core */
    if (sched_setscheduler(0, SCHED_FIFO, &first)) setpriority(PRIO_PROCESS, 0, -20);
    int poll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    for (int node = 0; node < nodes; node++) {
        devices[node] = open_device(arguments[1], arguments[4 + node], atoi(arguments[2]));
        if (devices[node] < 0) {
            perror(arguments[4 + node]);
            return 1;
        }
        up[node] = down[node] = 0.125;
        watch(poll, devices[node], node);
    }
    watch(poll, timer, TIMER);
    watch(poll, 0, COMMANDS);
    puts("ready");
    fflush(stdout);
    for (;;) {
        deliver(now());
        struct itimerspec next = {0};
        if (heap_size) {
            next.it_value.tv_sec = heap[0].time / 1000000000ull;
            next.it_value.tv_nsec = heap[0].time % 1000000000ull;
        }
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &next, 0);
        struct epoll_event events[MOST_NODES + 2];
        int ready = epoll_wait(poll, events, MOST_NODES + 2, -1);
        for (int i = 0; i < ready; i++) {
            int number = events[i].data.u32;
            uint64_t expirations;
            if (number == COMMANDS) read_commands();
            else if (number == TIMER) (void)!read(timer, &expirations, sizeof expirations);
            else accept_packets(number);
        }
    }
}
