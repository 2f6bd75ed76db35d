/*
 * popload - pops messages and acknowledges them, as fast as a broker of RocketMQ's protocol allows.
 *
 * One thread, epoll, libc only. Each connection pops up to 32 messages of any queue (POP_MESSAGE, 200050),
 * acknowledges all of them, either in one request (BATCH_ACK_MESSAGE, 200151) or one by one without
 * waiting in between (ACK_MESSAGE, 200051), waits for every answer and pops again. What is counted are
 * messages whose acknowledgement was answered, for -t seconds or until there are -n of them. The topic must
 * hold messages; rmqload fills it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { POP = 200050, ACK = 200051, BATCH_ACK = 200151, OUT_BYTES = 1 << 16, IN_BYTES = 1 << 22, CONNECTIONS_MAX = 256 };

typedef struct {
    int fd, waiting;            /* answers still to come */
    int messages;               /* of the pop being acknowledged */
    bool is_popping;
    int64_t started_ns;
    size_t in_size;
    uint8_t *in;
} conn_t;

static const char *host = "127.0.0.1", *topic = "popload", *group = "popload_group", *broker = "broker-a";
static int port = 10911, conn_count = 4, pop_max = 32, opaque = 1;
static double seconds = 5;
static bool is_batch, is_stopping;
static int64_t invisible_ms = 60000, count_max = INT64_MAX, acked, pops, empty, failed;
static int64_t latency_total_ns, latency_max_ns;

static void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("popload: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(2);
}

static int64_t now_ns(int clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return ntohl(v); }
static void set32(uint8_t *p, uint32_t v) { v = htonl(v); memcpy(p, &v, 4); }

/* ------------------------------------------------------------------ requests */

static size_t put_frame(uint8_t *to, int code, const char *ext, const char *body)
{
    size_t body_size = strlen(body);
    int header = sprintf((char *)to + 8,
        "{\"code\":%d,\"extFields\":%s,\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":495}", code, ext, opaque++);
    set32(to, 4 + (uint32_t)header + (uint32_t)body_size);
    set32(to + 4, (uint32_t)header);
    memcpy(to + 8 + header, body, body_size);
    return 8 + (size_t)header + body_size;
}

static void send_all(conn_t *conn, const uint8_t *data, size_t size)
{
    while (size) {
        ssize_t sent = send(conn->fd, data, size, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            die("send: %s", strerror(errno));
        }
        data += sent;
        size -= (size_t)sent;
    }
}

static void pop(conn_t *conn)
{
    uint8_t frame[2048];
    char ext[1024];
    sprintf(ext, "{\"consumerGroup\":\"%s\",\"topic\":\"%s\",\"queueId\":\"-1\",\"maxMsgNums\":\"%d\","
            "\"invisibleTime\":\"%" PRId64 "\",\"pollTime\":\"200\",\"bornTime\":\"%" PRId64 "\",\"initMode\":\"0\","
            "\"expType\":\"TAG\",\"exp\":\"*\",\"order\":\"false\"}",
            group, topic, pop_max, invisible_ms, now_ns(CLOCK_REALTIME) / 1000000);
    conn->is_popping = true;
    conn->waiting = 1;
    conn->started_ns = now_ns(CLOCK_MONOTONIC);
    send_all(conn, frame, put_frame(frame, POP, ext, ""));
}

/* ------------------------------------------------------------------ answers */

/* The text of one field of a JSON header, or NULL. */
static const char *field(const char *header, const char *name, char *to, size_t room)
{
    char key[64];
    sprintf(key, "\"%s\":\"", name);
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    size_t size = strcspn(at, "\"");
    if (size >= room) die("%s is too long", name);
    memcpy(to, at, size);
    to[size] = 0;
    return to;
}

static void base64(const uint8_t *from, size_t size, char *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        uint32_t v = (uint32_t)from[i] << 16 | (i + 1 < size ? (uint32_t)from[i + 1] << 8 : 0) | (i + 2 < size ? from[i + 2] : 0);
        *to++ = digits[v >> 18];
        *to++ = digits[v >> 12 & 63];
        *to++ = i + 1 < size ? digits[v >> 6 & 63] : '=';
        *to++ = i + 2 < size ? digits[v & 63] : '=';
    }
    *to = 0;
}

/* Where a queue's checkpoint starts: `mark queue start`, joined with `;`. */
static int64_t start_of(const char *starts, const char *mark, const char *queue)
{
    char key[64];
    size_t size = (size_t)sprintf(key, "%s %s ", mark, queue);
    for (const char *at = starts; at; at = strchr(at, ';')) {
        if (*at == ';') at++;
        if (!strncmp(at, key, size)) return atoll(at + size);
    }
    die("no start for %s in %s", key, starts);
    return 0;
}

static void acknowledge(conn_t *conn, const char *header)
{
    static uint8_t out[OUT_BYTES];
    static char body[OUT_BYTES];
    char pop_time[32], invisible[32], revive[16], starts[8192], offsets[16384];
    if (!field(header, "popTime", pop_time, sizeof pop_time) || !field(header, "invisibleTime", invisible, sizeof invisible)
        || !field(header, "reviveQid", revive, sizeof revive) || !field(header, "startOffsetInfo", starts, sizeof starts)
        || !field(header, "msgOffsetInfo", offsets, sizeof offsets))
        die("an answer without its fields: %s", header);
    size_t size = 0;
    char *to = body + sprintf(body, "{\"acks\":["), *rest = offsets, *element;
    conn->messages = conn->waiting = 0;
    while ((element = strsep(&rest, ";"))) {
        char *mark = strsep(&element, " "), *queue = strsep(&element, " "), *each, ext[1024];
        if (mark[0] != '0') die("a retried message; pop slower or wait longer: %s", offsets);
        int64_t start = start_of(starts, mark, queue);
        uint8_t bits[512] = {0};
        size_t bit_bytes = 0;
        while ((each = strsep(&element, ","))) {
            int64_t offset = atoll(each);
            conn->messages++;
            if (is_batch) {
                int64_t bit = offset - start;
                if (bit < 0 || bit >= (int64_t)sizeof bits * 8) die("an offset far from its start");
                bits[bit / 8] |= (uint8_t)(1 << bit % 8);
                if ((size_t)bit / 8 + 1 > bit_bytes) bit_bytes = (size_t)bit / 8 + 1;
                continue;
            }
            sprintf(ext, "{\"consumerGroup\":\"%s\",\"topic\":\"%s\",\"queueId\":\"%s\",\"offset\":\"%" PRId64 "\","
                    "\"extraInfo\":\"%" PRId64 " %s %s %s %s %s %s %" PRId64 "\"}",
                    group, topic, queue, offset, start, pop_time, invisible, revive, mark, broker, queue, offset);
            size += put_frame(out + size, ACK, ext, "");
            conn->waiting++;
            if (size > OUT_BYTES - 2048) {
                send_all(conn, out, size);
                size = 0;
            }
        }
        if (is_batch) {
            char text[1024];
            base64(bits, bit_bytes, text);
            to += sprintf(to, "%s{\"b\":\"%s\",\"c\":\"%s\",\"it\":%s,\"pt\":%s,\"q\":%s,\"r\":\"%s\",\"rq\":%s,\"so\":%" PRId64
                          ",\"t\":\"%s\"}", to[-1] == '[' ? "" : ",", text, group, invisible, pop_time, queue, mark, revive,
                          start, topic);
        }
    }
    if (is_batch) {
        sprintf(to, "],\"brokerName\":\"%s\"}", broker);
        size = put_frame(out, BATCH_ACK, "{}", body);
        conn->waiting = 1;
    }
    conn->is_popping = false;
    send_all(conn, out, size);
}

static void answered(conn_t *conn, const uint8_t *frame)
{
    size_t header_size = get32(frame + 4) & 0xFFFFFF;
    static char header[1 << 16];
    if (header_size >= sizeof header) die("a header of %zu bytes", header_size);
    memcpy(header, frame + 8, header_size);
    header[header_size] = 0;
    const char *at = strstr(header, "\"code\":");
    int code = at ? atoi(at + 7) : -1;
    if (conn->is_popping) {
        int64_t took = now_ns(CLOCK_MONOTONIC) - conn->started_ns;
        latency_total_ns += took;
        if (took > latency_max_ns) latency_max_ns = took;
        pops++;
        if (code == 0) {
            acknowledge(conn, header);
            return;
        }
        if (code != 210 && code != 209) die("pop answered %d: %s", code, header);
        empty++;
        conn->waiting = 0;
        if (!is_stopping) pop(conn);
        return;
    }
    if (code != 0) failed++;
    if (--conn->waiting == 0) {
        acked += conn->messages;
        if (!is_stopping) pop(conn);
    }
}

static void take(conn_t *conn)
{
    ssize_t got = recv(conn->fd, conn->in + conn->in_size, IN_BYTES - conn->in_size, MSG_DONTWAIT);
    if (got == 0) die("the broker closed the connection");
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        die("recv: %s", strerror(errno));
    }
    conn->in_size += (size_t)got;
    size_t at = 0;
    while (conn->in_size - at >= 8) {
        size_t whole = 4 + get32(conn->in + at);
        if (whole > IN_BYTES) die("a frame of %zu bytes", whole);
        if (conn->in_size - at < whole) break;
        answered(conn, conn->in + at);
        at += whole;
    }
    memmove(conn->in, conn->in + at, conn->in_size - at);
    conn->in_size -= at;
}

static void open_connection(conn_t *conn)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1;
    inet_pton(AF_INET, host, &address.sin_addr);
    conn->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (conn->fd < 0 || connect(conn->fd, (struct sockaddr *)&address, sizeof address)) die("connect: %s", strerror(errno));
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    conn->in = malloc(IN_BYTES);
    if (!conn->in) die("out of memory");
}

int main(int argc, char **argv)
{
    static conn_t conns[CONNECTIONS_MAX];
    static const struct option options[] = {
        {"port", 1, 0, 'p'}, {"topic", 1, 0, 'T'}, {"group", 1, 0, 'g'}, {"broker", 1, 0, 'b'}, {"batch", 0, 0, 'B'},
        {"invisible", 1, 0, 'i'}, {0, 0, 0, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "p:T:g:b:c:m:n:t:i:B", options, NULL)) != -1) {
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'T': topic = optarg; break;
        case 'g': group = optarg; break;
        case 'b': broker = optarg; break;
        case 'c': conn_count = atoi(optarg); break;
        case 'm': pop_max = atoi(optarg); break;
        case 'n': count_max = atoll(optarg); break;
        case 't': seconds = atof(optarg); break;
        case 'i': invisible_ms = atoll(optarg); break;
        case 'B': is_batch = true; break;
        default: return 2;
        }
    }
    if (conn_count < 1 || conn_count > CONNECTIONS_MAX) die("-c is 1 to %d", CONNECTIONS_MAX);
    int poller = epoll_create1(0);
    for (int i = 0; i < conn_count; i++) {
        open_connection(&conns[i]);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &conns[i]};
        epoll_ctl(poller, EPOLL_CTL_ADD, conns[i].fd, &event);
        pop(&conns[i]);
    }
    int64_t started = now_ns(CLOCK_MONOTONIC), end = started + (int64_t)(seconds * 1e9), counted = 0;
    double elapsed = 0;
    while (true) {
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, 100);
        for (int i = 0; i < ready; i++) take(events[i].data.ptr);
        if (!is_stopping && (acked >= count_max || now_ns(CLOCK_MONOTONIC) >= end)) {
            is_stopping = true;
            counted = acked;
            elapsed = (double)(now_ns(CLOCK_MONOTONIC) - started) / 1e9;
        }
        bool is_waiting = false;
        for (int i = 0; i < conn_count; i++) is_waiting |= conns[i].waiting > 0;
        if (is_stopping && (!is_waiting || now_ns(CLOCK_MONOTONIC) > end + 3000000000)) break;
    }
    printf("{\"messages\":%" PRId64 ",\"seconds\":%.3f,\"msgs_per_s\":%.0f,\"pops\":%" PRId64 ",\"empty\":%" PRId64
           ",\"failed\":%" PRId64 ",\"pop_mean_us\":%.0f,\"pop_max_us\":%.0f}\n",
           counted, elapsed, (double)counted / elapsed, pops, empty, failed,
           pops ? (double)latency_total_ns / 1e3 / (double)pops : 0, (double)latency_max_ns / 1e3);
    return failed ? 1 : 0;
}
