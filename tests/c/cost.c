/*
 * Measure what an event call costs, in time and in system calls of the emitting thread. Link with --wrap for each
 * function below.
 *
 *     cost ADDRESS COUNT GAP_NS FAULT [no_thread]
 *
 * FAULT: none; or what the kernel may do to each call: short (sends take a part), full (every third has no
 * room), interrupted (every third), long (datagrams over 1000 bytes are too long; one event is that long).
 * absent: close does not wait for a collector.
 */
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

#include <inttypes.h>
#include <stdio.h>

static __thread unsigned calls;
static const char *fault = "none";
static unsigned turn;

ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __real_read(int fd, void *bytes, size_t size);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __real_close(int fd);
int __real_socket(int family, int type, int protocol);
int __real_connect(int fd, const struct sockaddr *name, socklen_t size);
int __real_sched_yield(void);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_close(int fd);
int __wrap_socket(int family, int type, int protocol);
int __wrap_connect(int fd, const struct sockaddr *name, socklen_t size);
int __wrap_sched_yield(void);

/* Sends are made under the sender's lock, so `turn` has one user at a time. */
static int fails(int error) {
    if (++turn % 3) return 0;
    errno = error;
    return 1;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags) {
    calls++;
    if (!strcmp(fault, "short") && size > 1) size = 1 + (++turn * 7919u) % (size - 1);
    if (!strcmp(fault, "full") && fails(turn % 2 ? EAGAIN : ENOBUFS)) return -1;
    if (!strcmp(fault, "interrupted") && fails(EINTR)) return -1;
    if (!strcmp(fault, "long") && size > 1000) {
        errno = EMSGSIZE;
        return -1;
    }
    return __real_send(fd, bytes, size, flags);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t size) {
    calls++;
    if (!strcmp(fault, "short") && size > 1) size = 1 + (++turn * 7919u) % (size - 1);
    if (!strcmp(fault, "full") && size > 1 && fails(ENOSPC)) return -1;
    return __real_write(fd, bytes, size);
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags) { return calls++, __real_recv(fd, bytes, size, flags); }
ssize_t __wrap_read(int fd, void *bytes, size_t size) { return calls++, __real_read(fd, bytes, size); }
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout) { return calls++, __real_poll(fds, count, timeout); }
int __wrap_close(int fd) { return calls++, __real_close(fd); }
int __wrap_socket(int family, int type, int protocol) { return calls++, __real_socket(family, type, protocol); }
int __wrap_sched_yield(void) { return calls++, __real_sched_yield(); }

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size) {
    return calls++, __real_getsockopt(fd, level, name, value, size);
}

int __wrap_connect(int fd, const struct sockaddr *name, socklen_t size) { return calls++, __real_connect(fd, name, size); }

static int compare(const void *left, const void *right) {
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

int main(int count, char **words) {
    size_t events = (size_t)strtoull(words[2], NULL, 10), index;
    uint64_t gap = strtoull(words[3], NULL, 10), *taken = (uint64_t *)calloc(events, sizeof *taken), begun;
    unsigned most = 0;
    tailrace_options options;
    memset(&options, 0, sizeof options);
    options.threads = 4;
    options.linger_ms = strcmp(words[4], "absent") ? 20000 : 1;
    options.no_thread = count > 5;
    if (tailrace_connect(words[1], &options)) return 1;
    fault = words[4];
    tailrace_event("first"); /* the thread's first event finds its ring */
    if (!strcmp(fault, "long")) {
        char text[2000];
        memset(text, 'x', sizeof text);
        tailrace_event("long", tailrace_strn("text", text, sizeof text));
    }
    begun = tailrace_now();
    for (index = 0; index < events; index++)
        tailrace_event("step", tailrace_u64("cell", index), tailrace_f64("residual", 1e-9));
    printf("usual %.0f ", (double)(tailrace_now() - begun) / (double)events);
    for (index = 0; index < events; index++) {
        const unsigned before = calls;
        const uint64_t start = tailrace_now();
        tailrace_event("step", tailrace_u64("cell", index), tailrace_f64("residual", 1e-9));
        taken[index] = tailrace_now() - start;
        if (calls - before > most) most = calls - before;
        while (gap && tailrace_now() - start < gap) {}
    }
    qsort(taken, events, sizeof *taken, compare);
    printf("calls %u discarded %" PRIu64 " p50 %" PRIu64 " p99 %" PRIu64 " p99.9 %" PRIu64 " p99.99 %" PRIu64 " max %" PRIu64 "\n", most,
           tailrace_discarded(), taken[events / 2], taken[events / 100 * 99], taken[events / 1000 * 999],
           taken[events / 10000 * 9999], taken[events - 1]);
    free(taken);
    return 0;
}
