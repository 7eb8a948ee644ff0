/* More threads at a time than the client has rings for: those that come too late have no stream.
 * `threads COUNT EVENTS` prints how many events it emitted, and how many of them the client discarded. */
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

#include <stdio.h>

static pthread_barrier_t all;
static int events;

static void *emit(void *argument) {
    int number;
    pthread_barrier_wait(&all);
    for (number = 0; number < events; number++) tailrace_event("event", tailrace_i64("number", number));
    pthread_barrier_wait(&all);
    return argument;
}

int main(int argc, char **argv) {
    static pthread_t threads[1000];
    int index, count = argc == 3 ? atoi(argv[1]) : 0;
    if (count < 1 || count > 1000) return 2;
    events = atoi(argv[2]);
    pthread_barrier_init(&all, NULL, (unsigned)count);
    tailrace_connect(NULL, NULL);
    for (index = 0; index < count; index++)
        if (pthread_create(&threads[index], NULL, emit, NULL)) return 3;
    for (index = 0; index < count; index++) pthread_join(threads[index], NULL);
    printf("%d %lu\n", count * events, (unsigned long)tailrace_discarded());
    return 0;
}
