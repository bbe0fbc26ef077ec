/* The least cost of a durable publish: a single thread reads SEND frames, verifies their CRC-32C, writes all frames of
 * a round of epoll with a single pwrite and fdatasync into a preallocated ring, then sends the receipts.
 * The server keeps no index, serves no consumer and recovers nothing: a limit to measure against, not a broker.
 * Build: cc -O2 -msse4.2 limit_server.c -o limit_server     Run: limit_server RING_FILE     (prints its port)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INPUT = 4 << 20, OUTPUT = 4 << 20, BATCH = 32 << 20, RING = 256 << 20, PEERS = 64, BLOCK = 4096 };
enum { CONNECT = 2, CONNECTED = 3, PRODUCER = 5, SEND = 6, SEND_RECEIPT = 7, PRODUCER_SUCCESS = 17 };

struct peer {
    int fd;
    size_t used, replied;
    uint8_t input[INPUT], output[OUTPUT];
};

static uint8_t *batch;
static size_t batched;
static uint64_t entries;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t load32(const uint8_t *at) {
    uint32_t raw;
    memcpy(&raw, at, sizeof raw);
    return be32toh(raw);
}

static void store32(uint8_t *at, uint32_t value) {
    value = htobe32(value);
    memcpy(at, &value, sizeof value);
}

static uint32_t crc32c(const uint8_t *at, const uint8_t *end) {
    uint64_t crc = UINT32_MAX, word;
    for (; end - at >= 8; at += 8) {
        memcpy(&word, at, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    while (at < end) crc = _mm_crc32_u8((uint32_t)crc, *at++);
    return ~(uint32_t)crc;
}

static uint64_t read_varint(const uint8_t **at, const uint8_t *end) {
    uint64_t value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    return value;
}

static uint8_t *write_number(uint8_t *at, int field, uint64_t value) {
    *at++ = (uint8_t)(field << 3);
    for (; value >= 0x80; value >>= 7) *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *write_bytes(uint8_t *at, int field, const uint8_t *data, size_t size) {
    int tag = field << 3 | 2;
    if (tag >= 0x80) *at++ = (uint8_t)(tag | 0x80), *at++ = (uint8_t)(tag >> 7);
    else *at++ = (uint8_t)tag;
    *at++ = (uint8_t)size; /* every body here is shorter than 128 bytes */
    memcpy(at, data, size);
    return at + size;
}

/* The varint field `wanted` of a message, 0 when absent; a length-delimited one leaves its bounds in *body, *stop. */
static uint64_t find(const uint8_t *at, const uint8_t *end, unsigned wanted, const uint8_t **body, const uint8_t **stop) {
    while (at < end) {
        uint64_t tag = read_varint(&at, end), value = 0;
        switch (tag & 7) {
        case 0: value = read_varint(&at, end); break;
        case 1: at += 8; break;
        case 5: at += 4; break;
        default:
            value = read_varint(&at, end);
            if (tag >> 3 == wanted && body) *body = at, *stop = at + value;
            at += value;
        }
        if (tag >> 3 == wanted) return value;
    }
    return 0;
}

static void answer(struct peer *p, int type, const uint8_t *body, size_t size) {
    uint8_t *frame = p->output + p->replied, *at = write_number(frame + 8, 1, (uint64_t)type);
    at = write_bytes(at, type, body, size); /* for these commands the field's number is the type's */
    store32(frame, (uint32_t)(at - frame - 4));
    store32(frame + 4, (uint32_t)(at - frame - 8));
    p->replied = (size_t)(at - p->output);
    if (p->replied > OUTPUT - 4096) die("output full");
}

static void on_send(struct peer *p, const uint8_t *command, const uint8_t *entry, const uint8_t *end) {
    const uint8_t *send = command, *stop = command;
    find(command, entry, SEND, &send, &stop);
    if (crc32c(entry + 6, end) != load32(entry + 2)) die("checksum");
    size_t size = (size_t)(end - entry);
    if (batched + size + 16 > BATCH) die("batch full");
    store32(batch + batched, (uint32_t)size);
    memcpy(batch + batched + 16, entry, size);
    batched += size + 16;
    uint8_t id[32], body[64], *at = write_number(write_number(id, 1, 1), 2, entries++);
    size_t id_size = (size_t)(at - id);
    at = write_number(body, 1, find(send, stop, 1, NULL, NULL));
    at = write_number(at, 2, find(send, stop, 2, NULL, NULL));
    at = write_bytes(at, 3, id, id_size);
    answer(p, SEND_RECEIPT, body, (size_t)(at - body));
}

static void on_frame(struct peer *p, const uint8_t *frame, const uint8_t *end) {
    const uint8_t *command = frame + 8, *after = command + load32(frame + 4), *inner = command, *stop = command;
    uint64_t type = find(command, after, 1, NULL, NULL);
    uint8_t body[64], *at;
    if (type == SEND) {
        on_send(p, command, after, end);
    } else if (type == CONNECT) {
        at = write_number(write_bytes(body, 1, (const uint8_t *)"limit", 5), 2, 19);
        answer(p, CONNECTED, body, (size_t)(at - body));
    } else if (type == PRODUCER) {
        find(command, after, PRODUCER, &inner, &stop);
        at = write_bytes(write_number(body, 1, find(inner, stop, 3, NULL, NULL)), 2, (const uint8_t *)"p", 1);
        answer(p, PRODUCER_SUCCESS, body, (size_t)(at - body));
    }
}

static int receive(struct peer *p) {
    ssize_t got = recv(p->fd, p->input + p->used, INPUT - p->used, 0);
    if (got <= 0) return 0;
    p->used += (size_t)got;
    uint8_t *at = p->input, *end = p->input + p->used;
    while (end - at >= 4 && (size_t)(end - at) >= 4 + (size_t)load32(at)) {
        uint8_t *next = at + 4 + load32(at);
        on_frame(p, at, next);
        at = next;
    }
    p->used = (size_t)(end - at);
    memmove(p->input, at, p->used);
    return 1;
}

static void commit(int ring) {
    static off_t offset;
    if (!batched) return;
    if (offset + (off_t)batched > RING) offset = 0;
    if (pwrite(ring, batch, batched, offset) != (ssize_t)batched) die("pwrite");
    if (fdatasync(ring)) die("fdatasync");
    offset += (off_t)((batched + BLOCK - 1) / BLOCK * BLOCK);
    batched = 0;
}

static void reply(struct peer *p) {
    for (size_t sent = 0; sent < p->replied;) {
        ssize_t n = send(p->fd, p->output + sent, p->replied - sent, MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += (size_t)n;
    }
    p->replied = 0;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int one = 1, ring = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600), door = socket(AF_INET, SOCK_STREAM, 0);
    batch = calloc(1, BATCH);
    if (ring < 0 || door < 0 || !batch) die("start");
    for (off_t at = 0; at < RING; at += BATCH)
        if (pwrite(ring, batch, BATCH, at) != BATCH) die("preallocate");
    fsync(ring);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    if (bind(door, (struct sockaddr *)&here, size) || listen(door, PEERS)) die("listen");
    getsockname(door, (struct sockaddr *)&here, &size);
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    int poll = epoll_create1(0);
    struct epoll_event interest = {.events = EPOLLIN}, events[PEERS];
    epoll_ctl(poll, EPOLL_CTL_ADD, door, &interest);
    for (;;) {
        int n = epoll_wait(poll, events, PEERS, -1), ready = 0;
        struct peer *answered[PEERS];
        for (int i = 0; i < n; i++) {
            struct peer *p = events[i].data.ptr;
            if (!p) {
                p = calloc(1, sizeof *p);
                if (!p || (p->fd = accept(door, NULL, NULL)) < 0) die("accept");
                setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                interest.data.ptr = p;
                epoll_ctl(poll, EPOLL_CTL_ADD, p->fd, &interest);
            } else if (receive(p)) {
                answered[ready++] = p;
            } else {
                close(p->fd);
                free(p);
            }
        }
        commit(ring);
        for (int i = 0; i < ready; i++) reply(answered[i]);
    }
}
