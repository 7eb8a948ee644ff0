/*
 * Does to the client what programs do. Prints how many events it has begun to emit.
 *
 *     hostile jump ADDRESS JUMPS     a thread that leaves event calls by siglongjmp, and ends
 *     hostile stay ADDRESS JUMPS     the same, but it waits until the end of the program, and never emits again
 *     hostile main ADDRESS JUMPS     the same in the only thread of the program, which closes and exits
 *     hostile stack ADDRESS JUMPS    the same with signal handlers on a stack of their own, which emit, too
 *     hostile exit ADDRESS MS        closes, and calls exit(3) in a signal handler after MS milliseconds
 *     hostile flush ADDRESS MS       the same in tailrace_flush
 *     hostile leave ADDRESS MS       leaves a close by siglongjmp, connects again, emits 10 events and closes
 *     hostile fork ADDRESS 0         forks while another thread has the locks of a session that has ended; the child
 *                                    connects, emits 10 events and closes
 *     hostile held ADDRESS 1000      emits so many events while another thread has the locks and does not come back; asks for the
 *                                    error, closes, and connects again. Prints what these calls return
 *     hostile between ADDRESS 0      another thread forks at odd moments: as the session's resources are made and released, and
 *                                    as a child begins its session. Each child, as the program itself, emits 10 events
 *     hostile handler ADDRESS COUNT  a signal handler forks amid event calls, so often; each child goes on as the program
 *                                    would, ends a span from before the session, emits 11 events and closes
 *     hostile escape ADDRESS COUNT   the same, but each child leaves the handler by siglongjmp
 *     hostile real ADDRESS EVENTS    a thread of real-time priority emits so many beside another one on its stream and its
 *                                    processor; prints how often it yielded in vain for one event at most, and at all.
 *                                    Exits with 77 if it may not have that priority
 *     fault ADDRESS 0                leaves an event call by siglongjmp, closes, connects again, emits 2 events and closes
 *     lost ADDRESS COUNT             a thread leaves an event call and makes no other call; closes, and connects in vain so
 *                                    often. Prints how many events were left
 *     table ADDRESS COUNT            emits so many events while another thread has the table's lock for 0.3 s; prints how
 *                                    many events were discarded
 *     gone ADDRESS COUNT             the same, but the thread does not come back
 *     limit ADDRESS COUNT            emits COUNT events to a file that may have 20,000 bytes; with a
 *                                    negative COUNT, without the sending thread. Prints what flush returns, the error, and how many signals came
 */
#define _GNU_SOURCE
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

#include <setjmp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

int __real_sched_yield(void);
int __wrap_sched_yield(void);

static __thread unsigned yields;

int __wrap_sched_yield(void) {
    yields++;
    return __real_sched_yield();
}

static sigjmp_buf out;
static pthread_t worker;
static volatile uint64_t begun;
static volatile sig_atomic_t emits_in_handler;
static double values[2000];
static uint64_t many[65535];

static volatile sig_atomic_t was_busy, is_next;

/* Jump out of a call that has begun: otherwise nobody knows whether the client got the event that `begun` counts. */
static void jump(int number) {
    (void)number;
    if (!pthread_equal(pthread_self(), worker)) return;
    is_next = 1;
    if (was_busy || !tlr_thread.busy) return;
    if (emits_in_handler) {
        begun++;
        tailrace_event("handler");
    }
    siglongjmp(out, 1);
}

static void after(long us, void (*handler)(int), int flags) {
    struct itimerval once = {{0, 0}, {0, 0}};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGALRM, &action, NULL);
    once.it_value.tv_sec = us / 1000000;
    once.it_value.tv_usec = us % 1000000;
    setitimer(ITIMER_REAL, &once, NULL);
}

static void emit(int deeper) {
    volatile char room[300];
    room[0] = (char)deeper;
    if (deeper > 0) {
        emit(deeper - 1);
    } else {
        begun++;
        was_busy = tlr_thread.busy != TLR_OUTSIDE;
        tailrace_event("step", tailrace_f64s("values", values, 2000));
    }
    room[1] = room[0];
}

static void jump_often(int jumps, int flags) {
    volatile int turn;
    worker = pthread_self();
    for (turn = 0; turn < jumps; turn++) {
        if (sigsetjmp(out, 1)) continue;
        is_next = 0;
        after(300 + 37 * turn % 700, jump, flags);
        while (!is_next) emit(turn % 3);
    }
    after(0, SIG_IGN, 0);
}

static int jumps;
static pthread_barrier_t over;

static sigset_t alarm_only;

static void *jump_and_end(void *nothing) {
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    jump_often(jumps, 0);
    return nothing;
}

static void *jump_and_stay(void *nothing) {
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    jump_often(jumps, 0);
    pthread_barrier_wait(&over);
    for (;;) pause();
    return nothing;
}

static void in_a_thread(void *(*function)(void *), int ends) {
    pthread_t thread;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_barrier_init(&over, NULL, 2);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    pthread_create(&thread, NULL, function, NULL);
    if (ends)
        pthread_join(thread, NULL);
    else
        pthread_barrier_wait(&over);
}

static void on_another_stack(void) {
    static char room[1 << 16];
    stack_t stack;
    memset(&stack, 0, sizeof stack);
    stack.ss_sp = room;
    stack.ss_size = sizeof room;
    sigaltstack(&stack, NULL);
    emits_in_handler = 1;
    jump_often(jumps, SA_ONSTACK);
}

static void leave(int number) {
    (void)number;
    exit(3);
}

static void jump_out(int number) {
    (void)number;
    siglongjmp(out, 1);
}

static void leave_close(long ms) {
    begun = 10;
    if (!sigsetjmp(out, 1)) {
        after(1000 * ms, jump_out, 0);
        tailrace_close();
    }
}

static int is_over;

static void *emit_long(void *nothing) {
    tailrace_use_stream(7);
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) tailrace_event("long", tailrace_u64s("values", many, 65535));
    return nothing;
}

static void *emit_at_once(void *given) {
    unsigned most = 0, all = 0;
    struct timespec nap = {0, 300000};
    int index;
    tailrace_use_stream(7);
    for (index = 0; index < *(int *)given; index++) {
        yields = 0;
        tailrace_event("short");
        if (yields > most) most = yields;
        all += yields;
        nanosleep(&nap, NULL);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    printf("%u %u\n", most, all);
    return NULL;
}

static void real_time(int events) {
    pthread_t slow, fast;
    pthread_attr_t attributes;
    struct sched_param priority;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    priority.sched_priority = 10;
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    pthread_attr_setschedparam(&attributes, &priority);
    pthread_create(&slow, NULL, emit_long, NULL);
    if (pthread_create(&fast, &attributes, emit_at_once, &events)) exit(77);
    pthread_join(fast, NULL);
    pthread_join(slow, NULL);
}

static void *hold_locks(void *nothing) {
    tlr_lock(&tlr.table);
    tlr_lock(&tlr.sender.lock);
    tlr_lock(&tlr.streams[0].lock);
    pthread_barrier_wait(&over);
    for (;;) pause();
    return nothing;
}

/* Fork as if another thread were about to begin or end a session. */
static int fork_between_sessions(const char *address, const tailrace_options *options) {
    pthread_t holder;
    pid_t child;
    int turn, status = 0;
    tailrace_close();
    pthread_barrier_init(&over, NULL, 2);
    pthread_create(&holder, NULL, hold_locks, NULL);
    pthread_barrier_wait(&over);
    child = fork();
    if (child) return waitpid(child, &status, 0) == child ? status : -1;
    alarm(20);
    if (tailrace_connect(address, options)) _exit(2);
    for (turn = 0; turn < 10; turn++) tailrace_event("child");
    tailrace_close();
    _exit(0);
}

/* Go on as if another thread had left its calls by siglongjmp. */
static int go_on_without(const char *address, const tailrace_options *options) {
    pthread_t holder;
    int turn, error;
    uint64_t discarded;
    tailrace_event("first");
    pthread_barrier_init(&over, NULL, 2);
    pthread_create(&holder, NULL, hold_locks, NULL);
    pthread_barrier_wait(&over);
    for (turn = 0; turn < jumps; turn++) tailrace_event("held");
    discarded = tailrace_discarded();
    error = tailrace_last_error(NULL, 0);
    tailrace_close();
    if (!tailrace_connect(address, options)) return 6;
    printf("%d %d %d\n", (int)discarded, error == EBUSY, errno == EBUSY);
    return 0;
}

/* Leave an event call, with its stream's lock held, at a value that cannot be read. */
static void fault(void) {
    const double *nothing = (const double *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, jump_out);
    if (!sigsetjmp(out, 1)) tailrace_event("left", tailrace_f64s("values", nothing, 100));
}

static int fault_and_go_on(const char *address, const tailrace_options *options) {
    fault();
    tailrace_close();
    if (tailrace_connect(address, options)) return 4;
    tailrace_event("again");
    tailrace_event("again");
    tailrace_close();
    return 0;
}

static void *fault_and_stay(void *nothing) {
    fault();
    pthread_barrier_wait(&over);
    for (;;) pause();
    return nothing;
}

static int connect_in_vain(const char *address, const tailrace_options *options) {
    in_a_thread(fault_and_stay, 0);
    tailrace_close();
    while (jumps-- > 0)
        if (!tailrace_connect(address, options)) return 6;
    printf("%d\n", (int)tlr_discarded(TLR_LEFT));
    return 0;
}

static int comes_back;

static void *hold_table(void *nothing) {
    tlr_lock(&tlr.table);
    pthread_barrier_wait(&over);
    while (!comes_back) pause();
    usleep(300000);
    tlr_unlock(&tlr.table);
    return nothing;
}

static void emit_without_table(void) {
    in_a_thread(hold_table, 0);
    while (jumps-- > 0) tailrace_event("first");
    printf("%d\n", (int)tailrace_discarded());
}

static const char *address_of_all;
static tailrace_options options_of_all;
static enum { NOWHERE, IN_CREATE, IN_BEGIN, IN_FREE } fork_at;
static int bad;

static void emit_ten(void) {
    int turn;
    if (!tlr_is_on() && tailrace_connect(address_of_all, &options_of_all)) _exit(2);
    for (turn = 0; turn < 10; turn++) tailrace_event("child");
    tailrace_close();
}

static void await_child(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || status) bad = 5;
}

static void *fork_beside(void *nothing) {
    pid_t child = fork();
    if (!child) {
        alarm(20);
        emit_ten();
        _exit(0);
    }
    await_child(child);
    return nothing;
}

static void fork_if(int here) {
    if (fork_at != (unsigned)here) return;
    fork_at = NOWHERE;
    in_a_thread(fork_beside, 1);
}

int __real_pthread_key_create(pthread_key_t *key, void (*destroy)(void *));
int __wrap_pthread_key_create(pthread_key_t *key, void (*destroy)(void *));
int __real_gethostname(char *name, size_t size);
int __wrap_gethostname(char *name, size_t size);
void __real_free(void *memory);
void __wrap_free(void *memory);

int __wrap_pthread_key_create(pthread_key_t *key, void (*destroy)(void *)) {
    fork_if(IN_CREATE);
    return __real_pthread_key_create(key, destroy);
}

int __wrap_gethostname(char *name, size_t size) {
    fork_if(IN_BEGIN);
    return __real_gethostname(name, size);
}

void __wrap_free(void *memory) {
    __real_free(memory);
    fork_if(IN_FREE);
}

static void fork_between(void) {
    pid_t child;
    fork_at = IN_CREATE;
    if (tailrace_connect(address_of_all, &options_of_all)) bad = 2;
    child = fork();
    fork_at = child ? IN_FREE : IN_BEGIN;
    emit_ten();
    if (!child) _exit(fork_at || bad);
    await_child(child);
    if (fork_at) bad = 6;
}

static volatile pid_t forked;
static tailrace_span early;
static int escapes;

static void fork_here(int number) {
    (void)number;
    if (tlr_thread.busy) {
        forked = fork() + 1;
        if (escapes && forked == 1) siglongjmp(out, 1);
    } else {
        after(50, fork_here, 0);
    }
}

static void fork_in_handlers(void) {
    while (jumps-- > 0) {
        forked = 0;
        after(200 + 7 * jumps, fork_here, 0);
        if (!sigsetjmp(out, 1)) {
            while (!forked) emit(0);
        }
        if (forked == 1) {
            tailrace_end(&early);
            tailrace_event("child"); /* no deeper in the stack than the call that was left */
            emit_ten();
            _exit(0);
        }
        await_child(forked - 1);
    }
}

static volatile sig_atomic_t signals;

static void count_signal(int number) {
    (void)number;
    signals++;
}

static int fill_file(int events) {
    const struct rlimit most = {20000, RLIM_INFINITY};
    sigset_t waiting;
    int number, flushed, error;
    setrlimit(RLIMIT_FSIZE, &most);
    for (number = 0; number < abs(events); number++) tailrace_event("step", tailrace_u64("number", 1));
    flushed = tailrace_flush(100);
    error = tailrace_last_error(NULL, 0);
    signal(SIGXFSZ, count_signal); /* from here on, a signal would not end the program, and be seen */
    for (number = 0; number < abs(events); number++) tailrace_event("step", tailrace_u64("number", 1));
    if (tailrace_flush(100) != flushed || tailrace_last_error(NULL, 0) != error) return 6;
    sigpending(&waiting);
    printf("%d %s %d\n", flushed, error == EFBIG ? "EFBIG" : "another error", signals + sigismember(&waiting, SIGXFSZ));
    return 0;
}

int main(int count, char **words) {
    const char *what = words[1];
    tailrace_options options;
    memset(&options, 0, sizeof options);
    options.linger_ms = !strcmp(what, "leave") ? 60000 : 20000;
    if (!strcmp(what, "real")) options.threads = 1;
    if (!strcmp(what, "limit")) {
        options.linger_ms = 100;
        options.no_thread = count > 3 && *words[3] == '-';
    }
    jumps = count > 3 ? atoi(words[3]) : 0;
    address_of_all = words[2];
    options_of_all = options;
    if (!strcmp(what, "between")) {
        fork_between();
        return bad;
    }
    early = tailrace_begin("early");
    escapes = !strcmp(what, "escape");
    if (tailrace_connect(words[2], &options)) return 2;
    if (!strcmp(what, "jump")) in_a_thread(jump_and_end, 1);
    if (!strcmp(what, "stay")) in_a_thread(jump_and_stay, 0);
    if (!strcmp(what, "main")) jump_often(jumps, 0);
    if (!strcmp(what, "stack")) on_another_stack();
    if (!strcmp(what, "real")) real_time(jumps);
    if (!strcmp(what, "handler") || escapes) fork_in_handlers();
    if (bad) return bad;
    if (!strcmp(what, "fault")) return fault_and_go_on(words[2], &options);
    if (!strcmp(what, "lost")) return connect_in_vain(words[2], &options);
    if (!strcmp(what, "table") || !strcmp(what, "gone")) {
        comes_back = *what == 't';
        emit_without_table();
        return 0;
    }
    if (!strcmp(what, "limit")) return fill_file(jumps);
    if (!strcmp(what, "held")) return go_on_without(words[2], &options);
    if (!strcmp(what, "fork")) _exit(fork_between_sessions(words[2], &options) ? 5 : 0);
    if (!strcmp(what, "exit") || !strcmp(what, "flush") || !strcmp(what, "leave")) tailrace_event("first");
    if (!strcmp(what, "exit") || !strcmp(what, "flush")) after(1000 * jumps, leave, 0);
    if (!strcmp(what, "exit")) tailrace_close();
    if (!strcmp(what, "flush")) tailrace_flush(20000);
    if (!strcmp(what, "leave")) {
        leave_close(jumps);
        options.linger_ms = 20000;
        if (tailrace_connect(count > 4 ? words[4] : words[2], &options)) return 4;
        for (count = 0; count < 10; count++) tailrace_event("again");
    }
    if (strcmp(what, "real")) printf("%lu\n", (unsigned long)begun);
    return 0;
}
