/*
 * Closes standard input, output and error, and lets one thread write to them all the time while another connects to
 * ADDRESS, emits, flushes and closes TURNS times. Exits with 1 if one of those writes succeeded.
 *
 *     closed ADDRESS TURNS
 */
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

static int over, wrote;

static void *shout(void *nothing) {
    int fd;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        for (fd = 0; fd < 3; fd++)
            if (write(fd, "SHOUTED", 7) > 0) __atomic_store_n(&wrote, 1, __ATOMIC_RELAXED);
    return nothing;
}

int main(int count, char **words) {
    tailrace_options options;
    pthread_t thread;
    int turn, fd, turns = count > 2 ? atoi(words[2]) : 0;
    memset(&options, 0, sizeof options);
    options.linger_ms = 20000;
    for (fd = 0; fd < 3; fd++) close(fd);
    pthread_create(&thread, NULL, shout, NULL);
    for (turn = 0; turn < turns; turn++) {
        if (tailrace_connect(words[1], &options)) return 2;
        tailrace_event("step", tailrace_u64("turn", (uint64_t)turn));
        if (tailrace_flush(20000)) return 3;
        for (fd = 0; fd < 3; fd++)
            if (fcntl(fd, F_GETFD) >= 0) return 4;
        tailrace_close();
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    return wrote;
}
