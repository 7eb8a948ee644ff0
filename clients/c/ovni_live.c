/*
 * ovni_live: let programs that trace with libovni write their events every OVNI_LIVE_MS milliseconds
 * (default 200; 0: never), so that a collector that follows the files sees events while the programs run.
 *
 *     cc -shared -fPIC -O2 -pthread -o ovni_live.so ovni_live.c -ldl
 *     LD_PRELOAD=$PWD/ovni_live.so OVNI_LIVE_MS=200 ./program
 *
 * libovni keeps up to 2 MiB of events per thread, and writes them only when the buffer is full or the
 * program calls ovni_flush. So most streams show nothing before their end. This library wraps the
 * functions that emit. A wrapper calls the real function and then, if the thread has not flushed for that
 * long, ovni_flush and ovni_attr_flush. It also flushes in ovni_thread_free, which itself drops the buffer.
 *
 * - A thread that stops emitting keeps its events since the last flush: no other thread may flush them.
 * - A flush costs two events in the stream (OF[ and OF]) and two short writes.
 * - The library flushes only threads whose ovni_thread_init it saw in this process. It does not flush a
 *   forked child that emits into its parent's buffer: libovni would write the parent's events twice.
 * - Without libovni in the program nothing happens.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

struct ovni_ev;

void ovni_ev_emit(struct ovni_ev *event);
void ovni_ev_jumbo_emit(struct ovni_ev *event, const uint8_t *data, uint32_t size);
void ovni_mark_push(int32_t type, int64_t value);
void ovni_mark_pop(int32_t type, int64_t value);
void ovni_mark_set(int32_t type, int64_t value);
void ovni_thread_init(pid_t tid);
void ovni_thread_free(void);
void ovni_flush(void);

typedef void emit_function(struct ovni_ev *);
typedef void jumbo_function(struct ovni_ev *, const uint8_t *, uint32_t);
typedef void mark_function(int32_t, int64_t);
typedef void init_function(pid_t);
typedef void plain_function(void);

static int64_t interval_ns = 200 * 1000000;
static unsigned forks; /* forks that led to this process; threads from before the last fork are not flushed */

static __thread struct {
    int ready;      /* ovni_thread_init was called, and ovni_thread_free was not */
    unsigned forks; /* `forks` at that time */
    int inside;     /* in a wrapper: libovni's own calls are passed on unchanged */
    int waits;      /* something was emitted since the last flush */
    int64_t flushed;
} thread;

static void count_fork(void) { forks++; }

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("OVNI_LIVE_MS");
    char *end;
    long ms;
    pthread_atfork(NULL, NULL, count_fork);
    if (!given) return;
    ms = strtol(given, &end, 10);
    interval_ns = *given && !*end && ms > 0 && ms <= 3600000 ? (int64_t)ms * 1000000 : 0;
}

/* Return the real function, or NULL. RTLD_NEXT does not find a libovni that was loaded later with dlopen. */
static void *find(const char *name, const void *own) {
    void *found = dlsym(RTLD_NEXT, name), *library = NULL;
    if (!found) library = dlopen("libovni.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!found && !library) library = dlopen("libovni.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library) found = dlsym(library, name);
    return found == own ? NULL : found;
}

/* Look the real function up at the first call, and again until it is found. */
#define REAL(type, name)                                                    \
    static type *real;                                                      \
    type *call = __atomic_load_n(&real, __ATOMIC_RELAXED);                  \
    if (!call) {                                                            \
        void *found = find(#name, __extension__(void *)(name));             \
        call = __extension__(type *)(found);                                \
        __atomic_store_n(&real, call, __ATOMIC_RELAXED);                    \
    }                                                                       \
    if (!call) return

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now); /* exact to 4 ms, at a third of the cost */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void flush_attributes(void) {
    static plain_function *real;
    static int looked;
    if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) { /* releases before 1.10 do not have it */
        __atomic_store_n(&real, __extension__(plain_function *)(find("ovni_attr_flush", NULL)), __ATOMIC_RELAXED);
        __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
    }
    if (__atomic_load_n(&real, __ATOMIC_RELAXED)) __atomic_load_n(&real, __ATOMIC_RELAXED)();
}

static int may_flush(void) { return interval_ns && thread.ready && thread.forks == forks; }

static void after_emitting(void) {
    int64_t now;
    int saved = errno;
    if (!may_flush()) return;
    thread.waits = 1;
    now = now_ns();
    if (now - thread.flushed < interval_ns) return;
    ovni_flush();
    thread.inside++;
    flush_attributes();
    thread.inside--;
    errno = saved;
}

#define PASS(...)                       \
    do {                                \
        if (thread.inside) {            \
            call(__VA_ARGS__);          \
            return;                     \
        }                               \
        thread.inside++;                \
        call(__VA_ARGS__);              \
        thread.inside--;                \
        after_emitting();               \
    } while (0)

void ovni_ev_emit(struct ovni_ev *event) {
    REAL(emit_function, ovni_ev_emit);
    PASS(event);
}

void ovni_ev_jumbo_emit(struct ovni_ev *event, const uint8_t *data, uint32_t size) {
    REAL(jumbo_function, ovni_ev_jumbo_emit);
    PASS(event, data, size);
}

void ovni_mark_push(int32_t type, int64_t value) {
    REAL(mark_function, ovni_mark_push);
    PASS(type, value);
}

void ovni_mark_pop(int32_t type, int64_t value) {
    REAL(mark_function, ovni_mark_pop);
    PASS(type, value);
}

void ovni_mark_set(int32_t type, int64_t value) {
    REAL(mark_function, ovni_mark_set);
    PASS(type, value);
}

/* The program's own flushes count, too. */
void ovni_flush(void) {
    REAL(plain_function, ovni_flush);
    thread.inside++;
    call();
    thread.inside--;
    thread.waits = 0;
    thread.flushed = now_ns();
}

void ovni_thread_init(pid_t tid) {
    REAL(init_function, ovni_thread_init);
    thread.inside++;
    call(tid);
    thread.inside--;
    thread.ready = 1;
    thread.forks = forks;
    thread.waits = 0;
    thread.flushed = now_ns();
}

void ovni_thread_free(void) {
    REAL(plain_function, ovni_thread_free);
    if (may_flush() && thread.waits && !thread.inside) ovni_flush();
    thread.ready = 0;
    thread.inside++;
    call();
    thread.inside--;
}
