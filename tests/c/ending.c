/*
 * Emits events behind the goodbye of a session. An exit function and a destructor emit one event each.
 *
 *     ending close ADDRESS     emits 10 events and closes. Behind the goodbye, a signal handler emits an event and calls exit(3)
 *     ending exit ADDRESS      the same without the close: the goodbye is that of the exit
 *     ending amid ADDRESS      the signal comes amid an event call
 *     ending jump ADDRESS      emits 10 events and closes. Behind the goodbye, a signal handler leaves the close by siglongjmp.
 *                              Emits another event
 *     ending next ADDRESS      the same, and then connects and closes again
 *     ending beside ADDRESS    another thread emits all the time while the program exits
 */
#define _GNU_SOURCE
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

#include <setjmp.h>
#include <stdio.h>
#include <sys/mman.h>

static const char *what;
static sigjmp_buf out;
static int said; /* a goodbye */
static unsigned beside;

static int is(const char *word) { return !strcmp(what, word); }

static void emit_once(void) { tailrace_event("late"); }

__attribute__((destructor)) static void emit_at_the_end(void) { emit_once(); }

static void handle(int number) {
    (void)number;
    if (is("jump") || is("next")) siglongjmp(out, 1);
    emit_once();
    exit(3);
}

static void *emit_all_the_time(void *nothing) {
    for (;;) {
        emit_once();
        __atomic_fetch_add(&beside, 1, __ATOMIC_RELAXED);
    }
    return nothing;
}

int __real_shutdown(int socket, int how);
int __wrap_shutdown(int socket, int how);

/* The client calls this once the kernel has the goodbye. */
int __wrap_shutdown(int socket, int how) {
    int result = __real_shutdown(socket, how);
    unsigned before = TLR_LOAD(beside);
    while (is("beside") && TLR_LOAD(beside) == before) sched_yield();
    if (!is("beside") && !said++) raise(SIGUSR1);
    return result;
}

static void fault(void) {
    const double *none = (const double *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tailrace_event("left", tailrace_f64s("values", none, 100));
}

int main(int count, char **words) {
    pthread_t thread;
    tailrace_options options;
    memset(&options, 0, sizeof options);
    options.linger_ms = 20000;
    what = words[1];
    atexit(emit_once);
    signal(SIGUSR1, handle);
    signal(SIGSEGV, handle);
    if (tailrace_connect(words[2], &options)) return 2;
    for (count = 0; count < 10; count++) tailrace_event("early");
    if (is("amid")) fault();
    if (is("beside")) pthread_create(&thread, NULL, emit_all_the_time, NULL);
    if (is("exit") || is("beside")) return 0;
    if (!sigsetjmp(out, 1)) tailrace_close();
    emit_once();
    return is("next") ? tailrace_connect(words[2], &options) : 0;
}
