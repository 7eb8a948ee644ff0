/*
 * tailrace.h: send spans, events and counters of a C or C++ program to a Tailrace collector, as Heph
 * packets (trace format 0.1.0) with the options of clients/PROTOCOL.md.
 *
 * C99 or C++17, POSIX threads and sockets, gcc or clang. In exactly one file of the program:
 *
 *     #define TAILRACE_IMPLEMENTATION
 *     #include "tailrace.h"        // before other headers, or with _POSIX_C_SOURCE defined, where -std=c99 hides POSIX
 *
 * and `#include "tailrace.h"` in the other files.
 *
 *     tailrace_connect(NULL, NULL);                        // to $TAILRACE_ADDRESS; if it is not set, the client is off
 *     tailrace_span step = tailrace_begin("step");
 *     ...
 *     tailrace_end(&step, tailrace_u64("cell", 3), tailrace_f64("residual", 1e-9));
 *
 * Effects on the host program:
 * - Only `tailrace_connect`, `tailrace_flush` and `tailrace_close` wait. An event call encodes into the
 *   calling thread's own ring buffer and makes at most one system call to send, which does not block.
 *   (For files, and without the sending thread: see `no_thread`.)
 * - The client touches no descriptor of the program. If the program closes all descriptors, to become a daemon,
 *   the client detects this before its next system call, and connects again or continues with the same file.
 * - Events that the kernel does not accept wait in the ring buffer. If the buffer is full, the client discards
 *   the newest event, counts it, and reports it to the collector before the next event of its stream.
 * - After `tailrace_connect` the client allocates no memory, raises no signal, and leaves errno alone.
 * - The client does not keep sent events (its announcement has "acknowledge":false). The collector reports
 *   events as a gap in their stream if a broken connection or the network lost them, or if a killed process
 *   had not sent them. `tailrace_close`, which exit() calls, sends the end of every stream.
 *
 * Names and strings are UTF-8. They are cut at 65535 bytes, between characters; arrays at 65535 values.
 * An event call is async-signal-safe once the thread has made one. An event of a signal handler that
 * interrupts another event call is discarded and counted ("nested"). So is an event whose call a handler leaves
 * by siglongjmp ("left").
 */
#ifndef TAILRACE_H
#define TAILRACE_H

#if defined(TAILRACE_IMPLEMENTATION) && defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) && \
    !defined(_XOPEN_SOURCE) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE)
#define _XOPEN_SOURCE 700 /* POSIX.1-2008 with sigaltstack */
#endif

#if defined(__cplusplus) && __cplusplus < 201703L
#error "tailrace.h: needs C++17 or newer, or C99 or newer. Compile with -std=c++17"
#endif

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TAILRACE_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Beginning and end ------------------------------------------------------------------------ */

/* A member that is 0 has its default value, which its comment states. */
typedef struct tailrace_options {
    size_t memory_bytes;       /* Size of all ring buffers together. They are allocated once, and only used pages
                                  cost memory. Default: 64 MiB */
    unsigned threads;          /* Maximum number of threads that emit at the same time. Each has a ring buffer of
                                  memory_bytes / threads. Default: 128 */
    unsigned flush_ms;         /* How long an event waits for others, so that one system call sends several.
                                  Default: 5 ms */
    unsigned linger_ms;        /* Maximum time for which tailrace_close waits until the collector has read
                                  everything. Default: 500 ms */
    const char *process;       /* A name of the process for users. Default: the program's name */
    uint64_t (*clock)(void);   /* A simulator's own time in ticks, without relation to wall time. Default:
                                  CLOCK_MONOTONIC */
    uint64_t ticks_per_second; /* The rate of `clock`. Default: 10^9 */
    int no_thread;             /* 1: start no sending thread. Event calls then connect, and send events that are older
                                  than flush_ms, in a few system calls. If no further event follows, the last events
                                  wait for tailrace_flush. Default: a thread sends */
    const char *token;         /* Sent first on each TCP connection. Events wait for 100 ms after it, in case the
                                  collector refuses it. Default: $TAILRACE_TOKEN, without this wait if the address is
                                  $TAILRACE_TOKEN_ADDRESS */
    const char *token_file;    /* File that is read for each connection if there is no `token`. The token is its first
                                  line that is neither empty nor a comment (#). Default: $TAILRACE_TOKEN_FILE */
} tailrace_options;

/* Begin to emit to udp://host:port, tcp://host:port, unix:///path or file:///path. With NULL, the address is
 * $TAILRACE_ADDRESS; if this variable is not set or empty, everything stays off. This call resolves the host. The client
 * connects, and reconnects, while the program runs on. The first call in a process determines the size and the number of
 * the ring buffers. Return 0, or -1 with errno: EINVAL for an invalid address or token, EHOSTUNREACH for a
 * host without an address, EPROTONOSUPPORT for tls:// (send to a unix socket, or through a TLS proxy on
 * this host), ENOMEM, EALREADY while connected, EBUSY while a thread that left an event call by siglongjmp has not come
 * back to the client. */
int tailrace_connect(const char *address, const tailrace_options *options);

/* Return why the collector could not be reached or was lost: an errno, and a message for users in `text`, which has room for
 * `size` bytes. Return 0, without a message, if no problem is known. Return EBUSY if this cannot be determined: another thread
 * has been sending for a second, or has left a call that was sending by siglongjmp. Do not call it in signal handlers. */
int tailrace_last_error(char *text, size_t size);

/* Send all events that were emitted before this call, and wait for this at most the given time. Return 0 if the kernel has
 * accepted all of them, otherwise -1. Also return -1 if the kernel has reported since the last flush that no process receives
 * the datagrams, if the program never connected, or if events were emitted after the last session was closed. */
int tailrace_flush(unsigned milliseconds);

/* Send the remaining events and the end of every stream, wait for this at most `linger_ms`, and switch the client off. exit()
 * calls this function after the program's atexit functions and destructors, and so does dlclose() of a library that contains
 * the client. Afterwards tailrace_last_error returns 0 only if the collector has closed the connection after the goodbye (for
 * a file: if the kernel has accepted everything; over UDP this cannot be known). Events that are emitted later count as
 * discarded: the client reports them in its next session, or at exit() in a session without events. */
void tailrace_close(void);

/* Return the number of events discarded since the session began, plus those emitted while no session was open. */
uint64_t tailrace_discarded(void);

/* ---- Attributes ------------------------------------------------------------------------------- */

typedef struct tailrace_attribute {
    const char *name;
    union {
        uint64_t u64;
        int64_t i64;
        double f64;
        const void *values;
    } value;
    size_t name_size;
    size_t count; /* number of bytes of a string, or of values of an array */
    unsigned char type;
} tailrace_attribute;

enum { TAILRACE_U64_ = 1, TAILRACE_I64_ = 2, TAILRACE_F64_ = 3, TAILRACE_STRING_ = 4, TAILRACE_ARRAY_ = 0x80 };

static inline size_t tailrace_length_(const char *text) { return text ? strlen(text) : 0; }

static inline tailrace_attribute tailrace_attribute_(const char *name, int type, const void *values, size_t count) {
    tailrace_attribute attribute;
    attribute.name = name;
    attribute.name_size = tailrace_length_(name);
    attribute.type = (unsigned char)type;
    attribute.value.values = values;
    attribute.count = values ? count : 0;
    return attribute;
}

static inline tailrace_attribute tailrace_u64(const char *name, uint64_t value) {
    tailrace_attribute attribute = tailrace_attribute_(name, TAILRACE_U64_, NULL, 0);
    attribute.value.u64 = value;
    return attribute;
}

static inline tailrace_attribute tailrace_i64(const char *name, int64_t value) {
    tailrace_attribute attribute = tailrace_attribute_(name, TAILRACE_I64_, NULL, 0);
    attribute.value.i64 = value;
    return attribute;
}

static inline tailrace_attribute tailrace_f64(const char *name, double value) {
    tailrace_attribute attribute = tailrace_attribute_(name, TAILRACE_F64_, NULL, 0);
    attribute.value.f64 = value;
    return attribute;
}

static inline tailrace_attribute tailrace_str(const char *name, const char *text) {
    return tailrace_attribute_(name, TAILRACE_STRING_, text, tailrace_length_(text));
}

static inline tailrace_attribute tailrace_strn(const char *name, const char *text, size_t size) {
    return tailrace_attribute_(name, TAILRACE_STRING_, text, size);
}

/* Attributes that are arrays. The client reads the values before the event call returns. */
static inline tailrace_attribute tailrace_u64s(const char *name, const uint64_t *values, size_t count) {
    return tailrace_attribute_(name, TAILRACE_ARRAY_ | TAILRACE_U64_, values, count);
}

static inline tailrace_attribute tailrace_i64s(const char *name, const int64_t *values, size_t count) {
    return tailrace_attribute_(name, TAILRACE_ARRAY_ | TAILRACE_I64_, values, count);
}

static inline tailrace_attribute tailrace_f64s(const char *name, const double *values, size_t count) {
    return tailrace_attribute_(name, TAILRACE_ARRAY_ | TAILRACE_F64_, values, count);
}

static inline tailrace_attribute tailrace_strs(const char *name, const char *const *texts, size_t count) {
    return tailrace_attribute_(name, TAILRACE_ARRAY_ | TAILRACE_STRING_, texts, count);
}

/* ---- Spans, events, counters ------------------------------------------------------------------ */

typedef struct tailrace_span {
    const char *name; /* NULL: the span has ended, or began while the client was off (then `start` is 1) */
    uint64_t start;
    uint64_t substream;
} tailrace_span;

/* Number of connected clients of the process; 0 if the program shall emit nothing; -1 if it is not connected yet, or no
 * longer, so that events count as discarded. */
extern int tailrace_on_;

static inline int tailrace_is_on(void) { return __atomic_load_n(&tailrace_on_, __ATOMIC_ACQUIRE) > 0; }

void tailrace_miss_(void);

static inline void tailrace_off_(void) {
    if (__atomic_load_n(&tailrace_on_, __ATOMIC_RELAXED) < 0) tailrace_miss_();
}

/* Return a reading of the clock of spans and events: CLOCK_MONOTONIC in ns, or `options.clock`. */
uint64_t tailrace_now(void);

/* Begin a span, which `tailrace_end` ends. The name must stay valid until then. */
tailrace_span tailrace_begin(const char *name);

/* The functions that the macros below call. They take the attributes as a list. */
void tailrace_event_list(const char *name, const tailrace_attribute *list, size_t count);
void tailrace_end_list(tailrace_span *span, const tailrace_attribute *list, size_t count);
void tailrace_write_list(const char *name, uint64_t start, uint64_t end, const tailrace_attribute *list, size_t count);
void tailrace_counter_list(const char *name, tailrace_attribute value, const tailrace_attribute *list, size_t count);

/*
 *     tailrace_event(name, attributes…)              emit an event that happens now
 *     tailrace_end(&span, attributes…)               end a span
 *     tailrace_counter(name, value, attributes…)     emit the current value of a quantity (a double)
 *     tailrace_write(name, start, end, attributes…)  emit a span of known times, as readings of the clock. A span
 *                                                    from before the client was loaded is discarded ("encoding")
 *
 * Each takes up to 32 attributes. While the client is off, arguments are not evaluated, and a call costs a load and a
 * branch. Before tailrace_connect and after tailrace_close, a call also counts the event.
 */
#define tailrace_event(...) TAILRACE_IF_ON_(TAILRACE_CALL_(1, tailrace_event, __VA_ARGS__))
#define tailrace_end(...) TAILRACE_IF_ON_(TAILRACE_CALL_(1, tailrace_end, __VA_ARGS__))
#define tailrace_counter(...) TAILRACE_IF_ON_(TAILRACE_CALL_(2, tailrace_counter, __VA_ARGS__))
#define tailrace_write(...) TAILRACE_IF_ON_(TAILRACE_CALL_(3, tailrace_write, __VA_ARGS__))

/* Emit the calling thread's events on stream `number` from now on. Threads with the same number share one
 * counter, and wait for one another while they encode. Threads without this call get streams numbered
 * from 1. A new thread continues the stream of a thread that has ended. */
void tailrace_use_stream(uint32_t number);
void tailrace_use_own_stream(void);

/* Emit the calling thread's events on substream `number` from now on. Each coroutine or task needs its own. */
void tailrace_use_substream(uint64_t number);

#define TAILRACE_IF_ON_(call) (tailrace_is_on() ? (call) : tailrace_off_())

#ifndef __cplusplus

/* C99 requires an argument for every `...`, so calls with and without attributes become different macros. */
#define TAILRACE_CALL_(fixed, function, ...) TAILRACE_PASTE_(function, TAILRACE_PICK##fixed##_(__VA_ARGS__))(__VA_ARGS__)
#define TAILRACE_PASTE_(function, form) TAILRACE_PASTE2_(function, form)
#define TAILRACE_PASTE2_(function, form) function##form
#define TAILRACE_PICK1_(...) TAILRACE_36TH_(__VA_ARGS__, TAILRACE_30_, _some_, _some_, _some_, _some_, _none_, 0)
#define TAILRACE_PICK2_(...) TAILRACE_36TH_(__VA_ARGS__, TAILRACE_30_, _some_, _some_, _some_, _none_, _none_, 0)
#define TAILRACE_PICK3_(...) TAILRACE_36TH_(__VA_ARGS__, TAILRACE_30_, _some_, _some_, _none_, _none_, _none_, 0)
#define TAILRACE_10_ _some_, _some_, _some_, _some_, _some_, _some_, _some_, _some_, _some_, _some_
#define TAILRACE_30_ TAILRACE_10_, TAILRACE_10_, TAILRACE_10_
#define TAILRACE_36TH_(...) TAILRACE_36TH2_(__VA_ARGS__)
#define TAILRACE_36TH2_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, \
                        G, H, I, form, ...)                                                                             \
    form
#define TAILRACE_LIST_(...) \
    (const tailrace_attribute[]){__VA_ARGS__}, sizeof((const tailrace_attribute[]){__VA_ARGS__}) / sizeof(tailrace_attribute)

#define tailrace_event_none_(name) tailrace_event_list(name, NULL, 0)
#define tailrace_event_some_(name, ...) tailrace_event_list(name, TAILRACE_LIST_(__VA_ARGS__))
#define tailrace_end_none_(span) tailrace_end_list(span, NULL, 0)
#define tailrace_end_some_(span, ...) tailrace_end_list(span, TAILRACE_LIST_(__VA_ARGS__))
#define tailrace_counter_none_(name, value) tailrace_counter_list(name, tailrace_f64("", value), NULL, 0)
#define tailrace_counter_some_(name, value, ...) \
    tailrace_counter_list(name, tailrace_f64("", value), TAILRACE_LIST_(__VA_ARGS__))
#define tailrace_write_none_(name, start, end) tailrace_write_list(name, start, end, NULL, 0)
#define tailrace_write_some_(name, start, end, ...) tailrace_write_list(name, start, end, TAILRACE_LIST_(__VA_ARGS__))

#else

} /* extern "C" */

#define TAILRACE_CALL_(fixed, function, ...) tailrace::function##_(__VA_ARGS__)

namespace tailrace {

template <class... A> inline void tailrace_event_(const char *name, const A &...attributes) {
    const tailrace_attribute list[] = {attributes..., tailrace_attribute()};
    tailrace_event_list(name, list, sizeof...(A));
}

template <class... A> inline void tailrace_end_(tailrace_span *span, const A &...attributes) {
    const tailrace_attribute list[] = {attributes..., tailrace_attribute()};
    tailrace_end_list(span, list, sizeof...(A));
}

template <class... A> inline void tailrace_counter_(const char *name, double value, const A &...attributes) {
    const tailrace_attribute list[] = {attributes..., tailrace_attribute()};
    tailrace_counter_list(name, tailrace_f64("", value), list, sizeof...(A));
}

template <class... A>
inline void tailrace_write_(const char *name, uint64_t start, uint64_t end, const A &...attributes) {
    const tailrace_attribute list[] = {attributes..., tailrace_attribute()};
    tailrace_write_list(name, start, end, list, sizeof...(A));
}

/* A span that ends at the end of its block: `tailrace::span step("step", tailrace_u64("cell", 3));`. Strings and
 * arrays of its attributes must stay valid until then. */
template <size_t N> class span {
  public:
    template <class... A>
    explicit span(const char *name, const A &...attributes) noexcept
        : span_(tailrace_begin(name)), list_{attributes..., tailrace_attribute()} {}
    span(const span &) = delete;
    span &operator=(const span &) = delete;
    ~span() { tailrace_end_list(&span_, list_, N); }

  private:
    tailrace_span span_;
    tailrace_attribute list_[N + 1];
};

template <class... A> span(const char *, const A &...) -> span<sizeof...(A)>;

} /* namespace tailrace */

extern "C" {

#endif

#ifdef __cplusplus
}
#endif

/* ---- Implementation --------------------------------------------------------------------------- */

#ifdef TAILRACE_IMPLEMENTATION

#include <errno.h>
#include <fcntl.h>

#ifndef O_CLOEXEC /* POSIX is hidden, and no line from here on can bring it back */
#error "tailrace.h: POSIX is hidden. Define _POSIX_C_SOURCE=200809L (or _GNU_SOURCE) before any header, include tailrace.h first, or compile with -std=gnu99"
#else

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TLR_METADATA = 0x75D11D4D,
    TLR_EVENT_SIZE = 42, /* size (bytes) of an event without name and attributes */
    TLR_LENGTH_MAX = 65535,
    TLR_REPORT_MAX = 352, /* maximum size (bytes) of a report with one range */
    TLR_CONTROL_MAX = 1400,
    TLR_HELLO_MAX = 1200,
    TLR_DATAGRAM = 1432, /* maximum size (bytes) of a datagram: the payload of an Ethernet frame over IPv6, less 20 bytes for a tunnel */
    TLR_DATAGRAM_LOCAL = 16384,
    TLR_DATAGRAM_MAX = 65507,
    TLR_BATCH = 32768, /* maximum size (bytes) of a write to a connection or file; it limits the duration of an event call */
    TLR_ROUND = 256,   /* maximum number of writes in one round of the sending thread */
    TLR_SHOWING_MS = 100,
    TLR_LOCK_MS = 100, /* how long tailrace_close waits for a thread that is in an event call */
    TLR_THREADS = 128, /* default number of ring buffers */
    TLR_ADDRESSES = 8,
    TLR_TOKEN_MIN = 16,
    TLR_TOKEN_MAX = 256,
    TLR_PROCESS_MAX = 200,
    TLR_PLACE_MAX = 64 /* maximum size (bytes) of the name of a node or job */
};

static const uint32_t tlr_event_magic = 0xC1FC1FB7u;
static const uint64_t tlr_ms = 1000000u, tlr_second = 1000000000u;

enum tlr_reason { TLR_FULL, TLR_OVERSIZE, TLR_ENCODING, TLR_NESTED, TLR_REFUSED, TLR_LEFT, TLR_UNCONNECTED, TLR_CLOSED, TLR_REASONS };
static const char *const tlr_reason_names[] = {"full", "oversize", "encoding", "nested", "refused", "left", "unconnected", "closed"};

enum tlr_transport { TLR_UDP, TLR_TCP, TLR_UNIX, TLR_FILE };

/* A lock: the tlr_local of the thread that holds it, or NULL. If a thread leaves a call of the client by siglongjmp, this
 * shows which locks the thread still holds. */
typedef struct tlr_local *tlr_lock_word;

/* One stream: a ring of whole packets, each in one piece. The emitting thread, which holds `lock`, puts
 * packets in and moves `head`. The thread that holds the sender's lock takes them out and moves `tail`. Both
 * count bytes modulo 2^32. If a packet does not fit before the ring's end, it is put at the ring's beginning. Four zero
 * bytes before the end, or less room than four bytes, show this. */
typedef struct tlr_stream {
    unsigned char *ring;
    tlr_lock_word lock;
    tlr_lock_word left; /* a holder of the lock that did not release it while others waited */
    uint32_t head;
    uint32_t tail_seen; /* the emitting thread's copy of `tail` */
    uint32_t next;      /* number of the next event */
    uint32_t reported;  /* the events from this number to `next` (exclusive) were discarded and are not reported yet */
    uint32_t discarded[TLR_REASONS];
    /* The next step of the thread that holds the lock. If the thread leaves its call, tlr_recover determines from this how far it came: */
    uint32_t begun;        /* `next` before the step */
    uint32_t coming_head;  /* `head` after the event was put into the ring */
    uint32_t coming_count; /* number of discarded events, including this one, with the reason... */
    uint32_t coming_reason; /* ...tlr_reason; TLR_REASONS if the event is not discarded */
    uint64_t asked;     /* with no_thread: when the oldest waiting packet was recorded */
    char apart[64];     /* padding: the members of the sender are on another cache line */
    uint32_t tail;
    uint32_t number;
    int known;  /* whether the stream has a number */
    int shared; /* whether the program chose the number */
    int taken;  /* whether a running thread uses the stream */
    char apart2[44];
} tlr_stream;

/* States of the sending thread. The first event wakes it from sleep; only many events wake it from a nap. No event ends a
 * pause, because nothing can be sent before its end. */
enum tlr_rest { TLR_WORKS, TLR_SLEEPS, TLR_NAPS, TLR_PAUSES };

/* States of the connection. After the token was sent (SHOWING), events wait for a moment, unless the collector is `vouched`
 * for: a collector that refuses the token closes the connection, and events that were sent already would be lost. */
typedef enum { TLR_DOWN, TLR_OPENING, TLR_SHOWING, TLR_UP } tlr_state;

typedef struct tlr_address {
    struct sockaddr_storage name;
    socklen_t size;
} tlr_address;

/* The identity of the file or socket to which a descriptor referred when the client opened it. The program may close all
 * descriptors (to become a daemon), and its next file or connection then gets the number. So the client uses and closes a
 * descriptor only while it still refers to the same file or socket. The kernel may give the inode of a removed file to another
 * file, but the program probably opens that file with other flags. */
typedef struct tlr_mark {
    uint64_t device, inode;
    uint32_t kind, flags;
} tlr_mark;

/* The connection or file. Only the thread that holds `lock` may use it. */
typedef struct tlr_sender {
    tlr_lock_word lock;
    tlr_state state;
    int fd;
    tlr_mark mark;
    int blocked;           /* the kernel's send buffer is full */
    int broken;            /* the connection is broken, and the next step closes it */
    int carried;           /* events were sent since it was opened */
    int refused;           /* datagrams with events were refused since the last flush */
    unsigned opened;       /* number of times that it was opened */
    uint64_t opened_at;
    const char *wrong;     /* description of the last failure, or NULL */
    const char *question;
    int error;             /* the errno of the last failure, or 0 */
    uint64_t retry_at;     /* in state DOWN: when to open again; for a datagram socket in state OPENING: when it counts as UP */
    uint64_t back_off;     /* pause before the next attempt to open */
    uint64_t blocked_at;
    uint64_t announce_at;
    uint64_t report_at;
    int announced;
    size_t which;          /* index of the address to use next */
    size_t datagram;       /* maximum size of a datagram */
    tlr_stream *half;      /* the stream whose first packet was sent only partly */
    size_t half_done;
    unsigned char control[TLR_CONTROL_MAX]; /* metadata packets that must be sent before further events */
    size_t control_size, control_done;
    unsigned char hello[TLR_HELLO_MAX]; /* the epoch packet and the announcement of the session */
    size_t hello_size;
    size_t hello_session, hello_facts; /* offsets of the announcement, and of its last part, which contains the time of sending */
} tlr_sender;

typedef struct tlr_core {
    enum tlr_transport transport;
    tlr_address addresses[TLR_ADDRESSES];
    size_t address_count;
    char path[4096];
    char inherited[4096]; /* the parent's path, in a forked child */
    char process[TLR_PROCESS_MAX + 1];
    char token[TLR_TOKEN_MAX + 2];
    char token_file[4096];
    int vouched; /* the environment states that the collector at this address accepts the token */
    uint64_t (*clock)(void);
    uint64_t ticks_per_second;
    uint64_t flush_ns, linger_ns;
    int no_thread;
    int prompt; /* whether emitting threads may send, and not only the sending thread */
    size_t packet_max;
    size_t batch;
    tlr_stream *streams;
    size_t stream_count;
    size_t used; /* number of streams from the first one up to the last one that was used in the session */
    unsigned char *rings; /* NULL while closed */
    uint32_t ring_size;
    int on; /* whether a session is open: between tailrace_connect and tailrace_close */
    tlr_lock_word table_left; /* like `left` of a stream */
    tlr_lock_word table; /* lock for `known`, `shared`, `taken` and `number` of all streams, and for tlr_key */
    uint32_t generation;
    int forked; /* this process is a forked child that has not emitted yet */
    int started;
    int sender_runs;
    int stopping;
    int idle; /* state of the sending thread (a tlr_rest) */
    int wake[2]; /* a pipe that wakes the sending thread; 0 if there is none */
    tlr_mark wake_marks[2];
    pthread_t thread;
    size_t discarded[TLR_REASONS];
    tlr_sender sender;
} tlr_core;

enum tlr_call { TLR_OUTSIDE, TLR_EMITS, TLR_WAITS };
enum tlr_stage { TLR_BEGUN, TLR_DONE };

typedef struct tlr_local {
    tlr_stream *stream;
    uint32_t generation;
    uint32_t number;
    int numbered; /* whether the number is from tailrace_use_stream */
    volatile enum tlr_call busy; /* the kind of the client's call in which the thread is */
    const char *volatile frame;  /* place of this call on the stack */
    volatile enum tlr_stage event; /* whether the event is recorded or discarded */
    int uncancelled;             /* while the client has changed it: 1 + the thread's own state of cancellation */
    size_t nested; /* events that were discarded in signal handlers or left by siglongjmp, and have no numbers yet */
    uint64_t substream;
} tlr_local;

int tailrace_on_ = -1;
static uint64_t tlr_loaded; /* the reading of CLOCK_MONOTONIC at tick 0; it is early, so that spans may begin before tailrace_connect */
static size_t tlr_missed; /* events emitted while no session was open, and not reported yet */
static tlr_lock_word tlr_leaver; /* the tlr_local of the thread that ends the program, or NULL */
static int tlr_dies; /* the process is ending. Free no memory then: if a signal handler calls exit() during malloc(), free() would wait forever */
static int tlr_beside; /* another thread emits while tlr_leaver ends the program; the number of its events stays unknown */
static tlr_core tlr;
static tlr_stream tlr_table[TLR_THREADS]; /* never freed: a late event call may still read its stream after tailrace_close */
static __thread tlr_local tlr_thread;
static tlr_lock_word tlr_life; /* lock that is held by tailrace_connect, tailrace_close and the start in a forked child */
static pthread_key_t tlr_key;

#define TLR_LOAD(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define TLR_STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)

static int tlr_is_on(void) { return __atomic_load_n(&tlr.on, __ATOMIC_ACQUIRE); }

static int tlr_try(tlr_lock_word *lock) {
    tlr_lock_word nobody = NULL;
    return __atomic_compare_exchange_n(lock, &nobody, &tlr_thread, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Let other threads run. `turn` is the number of failed attempts to take a lock. Soon sleep instead of yielding: a thread of real-time
 * priority that only yields would keep the holder off its processor. */
static void tlr_yield(unsigned turn) {
    static const struct timespec nap = {0, 50000};
    if (turn < 16)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

static void tlr_lock(tlr_lock_word *lock) {
    unsigned turn = 0;
    while (!tlr_try(lock)) tlr_yield(turn++);
}

static void tlr_unlock(tlr_lock_word *lock) { __atomic_store_n(lock, (tlr_lock_word)NULL, __ATOMIC_RELEASE); }

static uint64_t tlr_read(clockid_t id) {
    struct timespec time;
    clock_gettime(id, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t tlr_monotonic(void) { return tlr_read(CLOCK_MONOTONIC); }

/* Take the lock. Return 0 if this is not possible before the deadline. A thread that holds it longer has left a call by siglongjmp. */
static int tlr_lock_until(tlr_lock_word *lock, uint64_t deadline) {
    unsigned turn = 0;
    while (!tlr_try(lock)) {
        if (tlr_monotonic() >= deadline) return 0;
        tlr_yield(turn++);
    }
    return 1;
}

static int tlr_lock_soon(tlr_lock_word *lock) { return tlr_lock_until(lock, tlr_monotonic() + TLR_LOCK_MS * tlr_ms); }

/* Return whether the lock was taken. The first call waits a second for a thread that does not come back; the others do not
 * wait for that thread, which `left` is then, any more. */
static int tlr_lock_unless(tlr_lock_word *lock, tlr_lock_word *left) {
    uint64_t deadline = 0;
    unsigned turn = 0;
    while (!tlr_try(lock)) {
        tlr_lock_word holder = TLR_LOAD(*lock);
        if (holder && holder == TLR_LOAD(*left)) return 0;
        if (!deadline) deadline = tlr_monotonic() + tlr_second;
        if (tlr_monotonic() >= deadline) TLR_STORE(*left, holder);
        tlr_yield(turn++);
    }
    TLR_STORE(*left, NULL);
    return 1;
}

static int tlr_lock_stream(tlr_stream *stream) { return tlr_lock_unless(&stream->lock, &stream->left); }

uint64_t tailrace_now(void) { return tlr.clock ? tlr.clock() : tlr_monotonic(); }

/* Return whether the program has more rights than whoever started it: set-uid, set-gid, or with capabilities. */
static int tlr_is_privileged(void) {
#ifdef __linux__
    return getauxval(AT_SECURE) != 0;
#else
    return getuid() != geteuid() || getgid() != getegid();
#endif
}

/* Return a variable of the environment; NULL if it is unset or empty, or if the program is privileged: the variable
 * could name a file that only the program may read or write, or an address to send such a file to. */
static const char *tlr_variable(const char *name) {
    const char *value = tlr_is_privileged() ? NULL : getenv(name);
    return value && *value ? value : NULL;
}

/* Keep the thread from being cancelled while it holds a lock. */
static void tlr_hold(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    tlr_thread.uncancelled = before + 1;
}

static void tlr_let(void) {
    int before = tlr_thread.uncancelled;
    tlr_thread.uncancelled = 0;
    if (before) pthread_setcancelstate(before - 1, NULL);
}

/* -- Bytes -- */

static unsigned char *tlr_put16(unsigned char *at, size_t value) {
    at[0] = (unsigned char)(value >> 8);
    at[1] = (unsigned char)value;
    return at + 2;
}

static unsigned char *tlr_put32(unsigned char *at, uint32_t value) {
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
    return at + 4;
}

static unsigned char *tlr_put64(unsigned char *at, uint64_t value) {
    return tlr_put32(tlr_put32(at, (uint32_t)(value >> 32)), (uint32_t)value);
}

static unsigned char *tlr_put(unsigned char *at, const void *bytes, size_t size) {
    if (size) memcpy(at, bytes, size);
    return at + size;
}

static unsigned char *tlr_put_text(unsigned char *at, const void *text, size_t size) {
    return tlr_put(tlr_put16(at, size), text, size);
}

static uint32_t tlr_get32(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Return how many bytes of a text fit into a field with a 16-bit length, without cutting a character. */
static size_t tlr_fit(const char *text, size_t size) {
    size_t cut = TLR_LENGTH_MAX;
    if (size <= cut) return size;
    while (cut > TLR_LENGTH_MAX - 4 && ((unsigned char)text[cut] & 0xC0) == 0x80) cut--;
    return ((unsigned char)text[cut] & 0xC0) == 0x80 ? (size_t)TLR_LENGTH_MAX : cut;
}

static size_t tlr_fit_count(size_t count) { return count < TLR_LENGTH_MAX ? count : (size_t)TLR_LENGTH_MAX; }

static const char *tlr_text_of(const tailrace_attribute *attribute, size_t index) {
    return ((const char *const *)attribute->value.values)[index];
}

/* Return the size (bytes) of an encoded attribute. If it is above `limit`, return any number above `limit`. */
static size_t tlr_attribute_size(const tailrace_attribute *attribute, size_t limit) {
    size_t size = 3 + tlr_fit(attribute->name, attribute->name_size);
    size_t index, count;
    switch (attribute->type) {
    case TAILRACE_STRING_:
        return size + 2 + tlr_fit((const char *)attribute->value.values, attribute->count);
    case TAILRACE_ARRAY_ | TAILRACE_STRING_:
        count = tlr_fit_count(attribute->count);
        size += 2;
        for (index = 0; index < count && size <= limit; index++) {
            const char *text = tlr_text_of(attribute, index);
            size += 2 + tlr_fit(text, tailrace_length_(text));
        }
        return size;
    case TAILRACE_U64_:
    case TAILRACE_I64_:
    case TAILRACE_F64_:
        return size + 8;
    default:
        return size + 2 + 8 * tlr_fit_count(attribute->count);
    }
}

static unsigned char *tlr_put_attribute(unsigned char *at, const tailrace_attribute *attribute) {
    size_t index, count;
    at = tlr_put_text(at, attribute->name, tlr_fit(attribute->name, attribute->name_size));
    *at++ = attribute->type;
    if (attribute->type <= TAILRACE_F64_) return tlr_put64(at, attribute->value.u64);
    if (attribute->type == TAILRACE_STRING_) {
        const char *text = (const char *)attribute->value.values;
        return tlr_put_text(at, text, tlr_fit(text, attribute->count));
    }
    count = tlr_fit_count(attribute->count);
    at = tlr_put16(at, count);
    for (index = 0; index < count; index++) {
        if (attribute->type == (TAILRACE_ARRAY_ | TAILRACE_STRING_)) {
            const char *text = tlr_text_of(attribute, index);
            at = tlr_put_text(at, text, tlr_fit(text, tailrace_length_(text)));
        } else {
            uint64_t bits;
            memcpy(&bits, (const char *)attribute->value.values + 8 * index, 8);
            at = tlr_put64(at, bits);
        }
    }
    return at;
}

/* -- Metadata packets -- */

static unsigned char *tlr_put_string(unsigned char *at, const char *text) {
    return tlr_put(at, text, strlen(text));
}

static unsigned char *tlr_put_decimal(unsigned char *at, uint64_t number) {
    char digits[20];
    size_t size = 0;
    do digits[size++] = (char)('0' + number % 10);
    while (number /= 10);
    while (size) *at++ = (unsigned char)digits[--size];
    return at;
}

/* Append a JSON string. Bytes that are not ASCII may be no UTF-8, and become question marks. */
static unsigned char *tlr_put_quoted(unsigned char *at, const char *text) {
    *at++ = '"';
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') *at++ = '\\';
        *at++ = byte < 0x20 || byte > 0x7e ? (unsigned char)'?' : byte;
    }
    *at++ = '"';
    return at;
}

/* Begin a metadata packet: write its name. The caller appends the value, and `tlr_option_end` sets the size. */
static unsigned char *tlr_option(unsigned char *packet, const char *name) {
    unsigned char *at = tlr_put32(tlr_put32(packet, TLR_METADATA), 0);
    return tlr_put_text(at, name, strlen(name));
}

static unsigned char *tlr_option_end(unsigned char *packet, unsigned char *end) {
    tlr_put32(packet + 4, (uint32_t)(end - packet));
    return end;
}

static uint64_t tlr_discarded(int reason) {
    uint64_t sum = TLR_LOAD(tlr.discarded[reason]);
    size_t index;
    for (index = 0; index < TLR_LOAD(tlr.used); index++) sum += TLR_LOAD(tlr.streams[index].discarded[reason]);
    return sum;
}

static unsigned char *tlr_put_discarded(unsigned char *at) {
    const char *comma = "";
    int reason;
    at = tlr_put_string(at, "\"discarded\":{");
    for (reason = 0; reason < TLR_REASONS; reason++) {
        uint64_t count = tlr_discarded(reason);
        if (!count) continue;
        at = tlr_put_string(at, comma);
        at = tlr_put_quoted(at, tlr_reason_names[reason]);
        *at++ = ':';
        at = tlr_put_decimal(at, count);
        comma = ",";
    }
    *at++ = '}';
    return at;
}

static unsigned char *tlr_put_range(unsigned char *at, uint32_t stream, uint32_t first, uint32_t count) {
    at = tlr_put_decimal(tlr_put_string(at, "["), stream);
    at = tlr_put_decimal(tlr_put_string(at, ","), first);
    at = tlr_put_decimal(tlr_put_string(at, ","), count);
    return tlr_put_string(at, "]");
}

/* Write a report of discarded events with one range of numbers; without a range if `count` is 0. */
static size_t tlr_report(unsigned char *packet, uint32_t stream, uint32_t first, uint32_t count) {
    unsigned char *at = tlr_put_string(tlr_option(packet, "tailrace.report"), "{");
    at = tlr_put_string(tlr_put_discarded(at), ",\"ranges\":[");
    if (count) at = tlr_put_range(at, stream, first, count);
    return (size_t)(tlr_option_end(packet, tlr_put_string(at, "]}")) - packet);
}

static void tlr_random(unsigned char *bytes, size_t size) {
    size_t done = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got;
        while (done < size && (got = read(fd, bytes + done, size - done)) > 0) done += (size_t)got;
        close(fd);
    }
    if (done < size) { /* without the device: values that differ between processes */
        uint64_t seed = tlr_read(CLOCK_REALTIME) ^ ((uint64_t)getpid() << 40) ^ tlr_monotonic();
        for (; done < size; done++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            bytes[done] = (unsigned char)(seed >> 56);
        }
    }
}


static int tlr_is_rank(const char *value) {
    return value && *value && strlen(value) < 10 && strspn(value, "0123456789") == strlen(value);
}

/* Append to a text in an array of TLR_PLACE_MAX + 1 characters, as far as there is room. */
static void tlr_lengthen(char *text, const char *more) {
    size_t length = strlen(text), room = TLR_PLACE_MAX - length, count = strlen(more);
    if (count > room) count = room;
    memcpy(text + length, more, count);
    text[length + count] = 0;
}

/* Write the scheduler's id of the job, a dot, and the step or the launcher's own id. Flux begins its ids with a letter
 * that is not ASCII, and also takes an f. */
static void tlr_job_id(char *job, const char *launch) {
    static const char *const schedulers[] = {"SLURM_JOB_ID", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
    const char *scheduler = NULL;
    size_t index, length;
    for (index = 0; index < sizeof schedulers / sizeof *schedulers && !scheduler; index++) {
        scheduler = tlr_variable(schedulers[index]);
    }
    if (scheduler && !strncmp(scheduler, "\xc6\x92", 2)) {
        tlr_lengthen(job, "f");
        scheduler += 2;
    }
    if (scheduler) {
        length = strlen(scheduler);
        tlr_lengthen(job, scheduler);
        if (!launch) return;
        tlr_lengthen(job, ".");
        if (!strncmp(launch, "slurm.pmix.", 11)) launch += 11;
        if (!strncmp(launch, scheduler, length) && launch[length] == '.') launch += length + 1;
    }
    if (launch) tlr_lengthen(job, launch);
}

/* Append where in a job the process runs, by the variables of its launcher. One launcher may run inside another, as
 * mpirun in a batch script that has a rank of Slurm's: the inner one counts. The Python client does the same
 * (_session.py). */
static unsigned char *tlr_put_place(unsigned char *at, const char *host) {
    static const char *const launchers[][3] = {
        {"OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
        {"PMIX_RANK", "PMIX_NAMESPACE", ""},
        {"PMI_RANK", "PMI_JOBID", ""},
        {"FLUX_TASK_RANK", "", ""},
        {"SLURM_PROCID", "SLURM_STEP_ID", ""},
    };
    const char *node = tlr_variable("TAILRACE_JOB_NODE"), *job = tlr_variable("TAILRACE_JOB_ID");
    char named[TLR_PLACE_MAX + 1] = "", id[TLR_PLACE_MAX + 1] = "";
    size_t index = 0, count = sizeof launchers / sizeof *launchers;
    while (index < count && !tlr_is_rank(tlr_variable(launchers[index][0]))) index++;
    if (index < count) {
        const char *space = tlr_variable("PMIX_NAMESPACE"), *launch = tlr_variable(launchers[index][1]);
        int slurm = index == count - 1 || (space && !strncmp(space, "slurm.", 6));
        at = tlr_put_decimal(tlr_put_string(at, ",\"rank\":"), strtoul(tlr_variable(launchers[index][0]), NULL, 10));
        if (!node) node = tlr_variable(slurm ? "SLURMD_NODENAME" : "PMIX_HOSTNAME");
        if (!node) {
            memcpy(named, host, strcspn(host, "."));
            node = named;
        }
        if (!launch) launch = tlr_variable(launchers[index][2]);
        if (!job) {
            tlr_job_id(id, launch);
            job = id;
        }
    }
    if (node && *node) {
        if (node != named) tlr_lengthen(named, node);
        at = tlr_put_quoted(tlr_put_string(at, ",\"node\":"), named);
    }
    if (job && *job) {
        if (job != id) tlr_lengthen(id, job);
        at = tlr_put_quoted(tlr_put_string(at, ",\"job\":"), id);
    }
    return at;
}

/* Make the announcement of a new session: epoch and tailrace.session. */
static void tlr_make_hello(void) {
    static const char hexadecimal[] = "0123456789abcdef";
    unsigned char id[16], *session, *at = tlr.sender.hello;
    char host[65] = ""; /* Linux has none longer */
    size_t index, length = strlen(tlr.path);
    int is_parents = tlr.transport == TLR_FILE && !strcmp(tlr.path, tlr.inherited);
    if (is_parents && length + 22 < sizeof tlr.path) /* two processes in one file would be one */
        *tlr_put_decimal(tlr_put_string((unsigned char *)tlr.path + length, "."), (uint64_t)getpid()) = 0;
    if (!tlr.clock) {
        uint64_t since = tlr_monotonic() - tlr_loaded, wall = tlr_read(CLOCK_REALTIME);
        session = tlr_option(at, "epoch");
        at = tlr_option_end(at, tlr_put64(session, wall > since ? wall - since : 0));
    }
    session = at;
    at = tlr_put_string(tlr_option(session, "tailrace.session"), "{\"session\":\"");
    tlr_random(id, sizeof id);
    for (index = 0; index < sizeof id; index++) {
        *at++ = (unsigned char)hexadecimal[id[index] >> 4];
        *at++ = (unsigned char)hexadecimal[id[index] & 15];
    }
    at = tlr_put_string(at, "\",\"acknowledge\":false,\"pid\":");
    at = tlr_put_decimal(at, (uint64_t)getpid());
    at = tlr_put_quoted(tlr_put_string(at, ",\"process\":"), tlr.process);
    if (gethostname(host, sizeof host - 1)) host[0] = 0;
    at = tlr_put_quoted(tlr_put_string(at, ",\"host\":"), host);
    at = tlr_put_place(at, host);
    if (tlr.clock) {
        at = tlr_put_string(at, ",\"clock\":\"logical\",\"ticks_per_second\":");
        at = tlr_put_decimal(at, tlr.ticks_per_second);
    }
    at = tlr_put_string(at, ",\"client\":\"tailrace-c " TAILRACE_VERSION "\"");
    tlr.sender.hello_session = (size_t)(session - tlr.sender.hello);
    tlr.sender.hello_facts = (size_t)(at - tlr.sender.hello);
}

/* Complete the announcement with the time `now` directly before it is sent. The collector learns by
 * `now` how late a datagram is. A clock of the program's own says nothing of that. */
static void tlr_date_hello(void) {
    tlr_sender *out = &tlr.sender;
    unsigned char *at = out->hello + out->hello_facts;
    if (!tlr.clock) at = tlr_put_decimal(tlr_put_string(at, ",\"now\":"), tlr_monotonic() - tlr_loaded);
    at = tlr_option_end(out->hello + out->hello_session, tlr_put_string(at, "}"));
    out->hello_size = (size_t)(at - out->hello);
}

/* -- Sending: the caller holds the sender's lock -- */

static void tlr_note(const char *wrong, int error) {
    tlr.sender.wrong = wrong;
    tlr.sender.error = error;
    tlr.sender.question = "";
}

/* -- Descriptors -- */

static int tlr_find_mark(int fd, tlr_mark *mark) {
    struct stat facts;
    int flags = 0;
    if (fstat(fd, &facts)) return -1;
    if (!S_ISSOCK(facts.st_mode)) flags = fcntl(fd, F_GETFL);
    TLR_STORE(mark->device, (uint64_t)facts.st_dev);
    TLR_STORE(mark->inode, (uint64_t)facts.st_ino);
    TLR_STORE(mark->kind, (uint32_t)(facts.st_mode & S_IFMT));
    TLR_STORE(mark->flags, (uint32_t)flags);
    return flags < 0 ? -1 : 0;
}

/* Return whether a descriptor still refers to the file or socket that the client opened. */
static int tlr_is_ours(int fd, const tlr_mark *mark) {
    tlr_mark found;
    return !tlr_find_mark(fd, &found) && found.device == TLR_LOAD(mark->device) && found.inode == TLR_LOAD(mark->inode) &&
           found.kind == TLR_LOAD(mark->kind) && found.flags == TLR_LOAD(mark->flags);
}

/* Close a descriptor of the client. Leave it open if its number now belongs to a file of the program. */
static void tlr_shut(int fd, const tlr_mark *mark) {
    if (tlr_is_ours(fd, mark)) close(fd);
}

/* Occupy those of standard input, output and error that the program has closed, while the client opens descriptors. The
 * program's writes to them must still fail, and reach neither a socket (SIGPIPE) nor the trace. */
static void tlr_hold_standard(int *held, tlr_mark *mark) {
    int fd;
    *held = 0;
    while ((fd = open("/", O_RDONLY | O_CLOEXEC)) >= 0 && fd <= 2 && !tlr_find_mark(fd, mark)) *held |= 1 << fd;
    if (fd >= 0) close(fd);
}

static void tlr_leave_standard(int held, const tlr_mark *mark) {
    int fd;
    for (fd = 0; fd <= 2; fd++)
        if (held & 1 << fd) tlr_shut(fd, mark);
}

/* Prepare and mark a new descriptor. Return it, or -1 with errno. */
static int tlr_adopt(int fd, tlr_mark *mark) {
    int flags;
    if (fd < 0) return -1;
    flags = fcntl(fd, F_GETFL);
    if (fd <= 2 || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ||
        tlr_find_mark(fd, mark)) {
        close(fd);
        return -1; /* up to 2: the program has just closed a standard descriptor; the next attempt succeeds */
    }
    return fd;
}

/* Open the trace file, but follow no link: in a directory that other users can write to, a link could lead to any file. */
static int tlr_open_path(tlr_mark *mark) {
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    tlr_mark standard;
    int held, fd;
    tlr_hold_standard(&held, &standard);
    fd = tlr_adopt(open(tlr.path, flags, 0600), mark);
    tlr_leave_standard(held, &standard);
    return fd;
}

static int tlr_open_socket(const tlr_address *to, tlr_mark *mark) {
    tlr_mark standard;
    int held, fd, kind = tlr.transport == TLR_UDP ? SOCK_DGRAM : SOCK_STREAM;
#ifdef SOCK_CLOEXEC
    kind |= SOCK_CLOEXEC; /* at once: another thread may call exec */
#endif
    tlr_hold_standard(&held, &standard);
    fd = tlr_adopt(socket(to->name.ss_family, kind, 0), mark);
    tlr_leave_standard(held, &standard);
    return fd;
}

/* Return whether the sender's descriptor may be used now. Forget it if the program has closed it, and go on at the
 * end of a file that is still there. */
static int tlr_may_use(void) {
    tlr_sender *out = &tlr.sender;
    tlr_mark before = out->mark;
    if (out->fd >= 0 && tlr_is_ours(out->fd, &out->mark)) return 1;
    if (out->fd >= 0 && tlr.transport == TLR_FILE) {
        out->fd = tlr_open_path(&out->mark);
        if (out->fd >= 0 && out->mark.device == before.device && out->mark.inode == before.inode) return 1;
        if (out->fd >= 0) close(out->fd);
    }
    out->fd = -1;
    out->broken = 1;
    tlr_note("the program closed the descriptor of its tracing", 0);
    return 0;
}

static void tlr_fail(uint64_t now) {
    tlr_sender *out = &tlr.sender;
    int keep = tlr.transport == TLR_UDP && tlr.address_count == 1; /* the collector knows us by the socket's port */
    int taken = out->fd < 0; /* by the program, or it was never opened */
    if (!taken && !keep) {
        tlr_shut(out->fd, &out->mark);
        out->fd = -1;
    }
    out->which = tlr.address_count ? (out->which + 1) % tlr.address_count : 0;
    if (out->state == TLR_UP && now - out->opened_at > tlr_second) {
        out->back_off = 20 * tlr_ms;
    } else if (out->state >= TLR_SHOWING && tlr.transport == TLR_TCP && !taken) {
        out->question = tlr.token[0] || tlr.token_file[0] ? "; does it know the token?" : "; does it want a token?";
        tlr.vouched = 0; /* it may have refused the token after all */
    }
    if (tlr.transport == TLR_UDP && out->carried && !taken) out->refused = 1;
    out->carried = 0;
    out->state = TLR_DOWN;
    out->broken = out->blocked = 0;
    out->half = NULL; /* its packet goes whole into the next connection */
    out->half_done = out->control_size = out->control_done = 0;
    out->retry_at = now + out->back_off;
    out->back_off = out->back_off ? out->back_off * 2 : 20 * tlr_ms;
    if (out->back_off > tlr_second) out->back_off = tlr_second;
}

static int tlr_pending_error(int fd) {
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) ? errno : error;
}

/* Return whether a socket is connected to itself: the kernel may give our end an ephemeral port on which
 * nobody listens. */
static int tlr_is_self(int fd) {
    struct sockaddr_storage own, peer;
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    memset(&own, 0, sizeof own);
    memset(&peer, 0, sizeof peer);
    return !getsockname(fd, (struct sockaddr *)&own, &own_size) && !getpeername(fd, (struct sockaddr *)&peer, &peer_size) &&
           own_size == peer_size && !memcmp(&own, &peer, own_size);
}

static int tlr_is_local(const struct sockaddr_storage *name) {
    if (name->ss_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)name)->sin_addr.s_addr) >> 24) == 127;
    return name->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)name)->sin6_addr);
}

/* Write to the trace file. If the file has reached the limit of the process for the size of files, fail only by EFBIG: the
 * kernel also sends SIGXFSZ to this thread, which by default would end the program. */
static ssize_t tlr_write_file(int fd, const unsigned char *bytes, size_t size) {
#ifdef SIGXFSZ
    sigset_t limit, before, waiting;
    ssize_t done;
    int error, number, waited;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
    waited = !sigpending(&waiting) && sigismember(&waiting, SIGXFSZ);
    done = write(fd, bytes, size);
    error = errno;
    if (done < 0 && error == EFBIG && !waited && !sigpending(&waiting) && sigismember(&waiting, SIGXFSZ))
        (void)sigwait(&limit, &number);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return done;
#else
    return write(fd, bytes, size);
#endif
}

static int tlr_write_bytes(const unsigned char *bytes, size_t size, size_t *done) {
    tlr_sender *out = &tlr.sender;
    ssize_t sent;
#ifdef MSG_NOSIGNAL
    const int flags = MSG_NOSIGNAL;
#else
    const int flags = 0; /* SO_NOSIGPIPE does it */
#endif
    *done = 0;
    if (!tlr_may_use()) return EPIPE;
    sent = tlr.transport == TLR_FILE ? tlr_write_file(out->fd, bytes, size) : send(out->fd, bytes, size, flags);
    if (sent >= 0) {
        *done = (size_t)sent;
        return 0;
    }
    switch (errno) {
    case EINTR:
        return 0;
    case EAGAIN:
#if EWOULDBLOCK != EAGAIN
    case EWOULDBLOCK:
#endif
    case ENOBUFS:
    case ENOSPC:
    case EDQUOT:
        out->blocked = 1;
        out->blocked_at = tlr_monotonic();
        return EAGAIN;
    case EMSGSIZE:
        if (tlr.transport == TLR_UDP) return EMSGSIZE;
        break;
    default:
        break;
    }
    out->broken = 1;
    tlr_note("sending failed", errno);
    return EPIPE;
}

/* Send the packets in `control`. Return 1 if all of them are sent. */
static int tlr_send_control(void) {
    tlr_sender *out = &tlr.sender;
    size_t done;
    int error;
    if (!out->control_size) return 1;
    error = tlr_write_bytes(out->control + out->control_done, out->control_size - out->control_done, &done);
    out->control_done += done;
    if (error != EMSGSIZE && (error || out->control_done < out->control_size)) return 0;
    out->control_size = out->control_done = 0;
    return 1;
}

/* Find a stream's first waiting packet. Return how many bytes of whole packets stand there in one piece: at
 * most `limit`, but at least one packet; 0 if nothing waits. */
static size_t tlr_waiting(tlr_stream *stream, size_t limit, const unsigned char **first) {
    uint32_t head = __atomic_load_n(&stream->head, __ATOMIC_ACQUIRE), tail = stream->tail;
    size_t at = tail & (tlr.ring_size - 1), room = tlr.ring_size - at, left = head - tail, size = 0;
    if (left && (room < 4 || !tlr_get32(stream->ring + at))) {
        tail += (uint32_t)room;
        __atomic_store_n(&stream->tail, tail, __ATOMIC_RELEASE);
        left = head - tail;
        at = 0;
        room = tlr.ring_size;
    }
    *first = stream->ring + at;
    if (left > room) left = room;
    while (left - size >= 8 && tlr_get32(*first + size)) {
        size_t packet = tlr_get32(*first + size + 4);
        if (size && size + packet > limit) break;
        size += packet;
    }
    return size;
}

/* Remove `size` bytes of whole packets, which are sent, from a stream. */
static void tlr_release(tlr_stream *stream, size_t size) {
    __atomic_store_n(&stream->tail, stream->tail + (uint32_t)size, __ATOMIC_RELEASE);
}

/* Handle a datagram that the kernel finds too long: make smaller datagrams from now on or, if it is a single
 * packet, discard and report that. */
static void tlr_refuse(tlr_stream *stream, const unsigned char *packet, size_t size) {
    tlr_sender *out = &tlr.sender;
    if (tlr_get32(packet + 4) < size) {
        out->datagram = out->datagram > TLR_DATAGRAM ? (size_t)TLR_DATAGRAM : 512;
        return;
    }
    if (tlr_get32(packet) == tlr_event_magic) {
        __atomic_fetch_add(&tlr.discarded[TLR_REFUSED], 1, __ATOMIC_RELAXED);
        out->control_size = tlr_report(out->control, tlr_get32(packet + 8), tlr_get32(packet + 12), 1);
        out->control_done = 0;
    }
    tlr_release(stream, size);
}

/* Send packets of a stream in one system call. Return 1 if any were sent. */
static int tlr_send_stream(tlr_stream *stream) {
    tlr_sender *out = &tlr.sender;
    const unsigned char *first;
    size_t size = tlr_waiting(stream, tlr.transport == TLR_UDP ? out->datagram : tlr.batch, &first);
    size_t skip = out->half == stream ? out->half_done : 0, done, whole = 0;
    int error;
    if (!size) return 0;
    error = tlr_write_bytes(first + skip, size - skip, &done);
    if (error == EMSGSIZE) {
        tlr_refuse(stream, first, size);
        return 1;
    }
    if (error || !done) return 0;
    out->carried = 1;
    done += skip;
    while (whole < done && whole + tlr_get32(first + whole + 4) <= done) whole += tlr_get32(first + whole + 4);
    out->half = whole < done ? stream : NULL;
    out->half_done = done - whole;
    tlr_release(stream, whole);
    return 1;
}

static int tlr_connect_socket(uint64_t now) {
    tlr_sender *out = &tlr.sender;
    const tlr_address *to = &tlr.addresses[out->which];
    int one = 1;
    if (out->fd >= 0 && !tlr_is_ours(out->fd, &out->mark)) out->fd = -1;
    if (out->fd < 0) {
        out->fd = tlr_open_socket(to, &out->mark);
        if (out->fd < 0) return -1;
#ifdef SO_NOSIGPIPE
        setsockopt(out->fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
        if (tlr.transport == TLR_TCP) setsockopt(out->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (connect(out->fd, (const struct sockaddr *)&to->name, to->size) && errno != EINPROGRESS) return -1;
    }
    out->state = TLR_OPENING;
    if (tlr.transport == TLR_UDP) {
        size_t done;
        int first = !out->announced;
        out->datagram = tlr_is_local(&to->name) ? (size_t)TLR_DATAGRAM_LOCAL : (size_t)TLR_DATAGRAM;
        (void)tlr_pending_error(out->fd);
        tlr_date_hello();
        if (tlr_write_bytes(out->hello, out->hello_size, &done) && out->broken) return -1;
        out->announced = 1;
        out->announce_at = now + tlr_second; /* the first announcement may be lost; further ones come every 10 s */
        out->retry_at = first ? now : now + 20 * tlr_ms; /* time for the kernel to learn that nobody listens */
    }
    return 0;
}

static int tlr_open_file(void) {
    tlr_mark *mark = &tlr.sender.mark;
    tlr.sender.fd = tlr_open_path(mark);
    if (tlr.sender.fd < 0) return -1;
    if (!S_ISREG(mark->kind) && !S_ISCHR(mark->kind)) return -1; /* a pipe could raise SIGPIPE */
    tlr.sender.state = TLR_OPENING;
    return 0;
}

/* Return whether the connection that is being opened is open now; -1 if it has failed. */
static int tlr_is_open(uint64_t now) {
    tlr_sender *out = &tlr.sender;
    struct pollfd look;
    int error;
    if (!tlr_may_use()) return -1;
    if (tlr.transport == TLR_FILE) return 1;
    if (tlr.transport == TLR_UDP) {
        error = tlr_pending_error(out->fd);
        if (error) tlr_note("sending failed", error);
        return error ? -1 : now >= out->retry_at;
    }
    look.fd = out->fd;
    look.events = POLLOUT;
    look.revents = 0;
    if (poll(&look, 1, 0) <= 0) return 0;
    error = tlr_pending_error(out->fd);
    if (!error && tlr.transport == TLR_TCP && tlr_is_self(out->fd)) error = ECONNREFUSED;
    if (error) tlr_note("connecting failed", error);
    return error ? -1 : 1;
}

/* Return whether the peer has gone. The kernel would take one more write to it, and lose that. */
static int tlr_is_gone(void) {
    char heard[256];
    ssize_t got = 1;
    int turns, error;
    if (!tlr_may_use()) return 1;
    if (tlr.transport == TLR_FILE) return 0;
    if (tlr.transport == TLR_UDP) {
        error = tlr_pending_error(tlr.sender.fd);
        if (error) tlr_note("sending failed", error);
        return error != 0;
    }
    for (turns = 0; got > 0 && turns < 16; turns++) got = recv(tlr.sender.fd, heard, sizeof heard, 0);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return 0;
    tlr_note("the collector closed the connection", got ? errno : 0);
    return 1;
}

static void tlr_set_control(const unsigned char *packet, size_t size) {
    memcpy(tlr.sender.control, packet, size);
    tlr.sender.control_size = size;
    tlr.sender.control_done = 0;
}

static void tlr_announce(void) {
    tlr_date_hello();
    tlr_set_control(tlr.sender.hello, tlr.sender.hello_size);
}

static int tlr_is_token(const char *text, size_t size) {
    size_t index;
    for (index = 0; index < size; index++)
        if (text[index] <= ' ' || text[index] > '~') return 0;
    return size >= TLR_TOKEN_MIN && size <= TLR_TOKEN_MAX;
}

/* Read the token: the first line of its file that is neither empty nor a comment, without blanks around it.
 * Return -1 with errno if there is none. */
static int tlr_read_token(char *file, size_t room, const char **token, size_t *size) {
    char *line, *end, *all_end;
    int error, fd = open(tlr.token_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t got;
    if (fd < 0) return -1;
    got = read(fd, file, room);
    error = errno;
    close(fd);
    errno = got < 0 ? error : EINVAL;
    all_end = file + (got > 0 ? got : 0);
    /* Editors of other systems put a byte order mark before text. */
    for (line = file + (got > 2 && !memcmp(file, "\xef\xbb\xbf", 3) ? 3 : 0); line < all_end; line = end + 1) {
        end = (char *)memchr(line, '\n', (size_t)(all_end - line));
        if (!end) end = all_end;
        while (line < end && (*line == ' ' || *line == '\t' || *line == '\r')) line++;
        *token = line;
        *size = (size_t)(end - line);
        while (*size && (line[*size - 1] == ' ' || line[*size - 1] == '\t' || line[*size - 1] == '\r')) --*size;
        if (*size && *line != '#') return 0;
    }
    return -1;
}

/* Queue the line with the token, to be sent first. Return -1 if there is no valid token. */
static int tlr_show_token(void) {
    char file[4096];
    const char *token = tlr.token;
    size_t size = strlen(tlr.token);
    unsigned char *at = tlr.sender.control;
    if (!size && tlr_read_token(file, sizeof file, &token, &size)) {
        tlr_note("the token's file has no token or cannot be read", errno);
        return -1;
    }
    if (!tlr_is_token(token, size)) {
        tlr_note("the token is not valid: it must have 16 to 256 printable ASCII characters without spaces", EINVAL);
        return -1;
    }
    at = tlr_put(tlr_put_string(at, "tailrace-token "), token, size);
    *at++ = '\n';
    tlr.sender.control_size = (size_t)(at - tlr.sender.control);
    tlr.sender.control_done = 0;
    return 0;
}

static void tlr_is_up(void) {
    tlr.sender.state = TLR_UP;
    tlr.sender.opened++;
    if (tlr.transport != TLR_TCP) tlr.sender.back_off = 20 * tlr_ms;
    if (tlr.transport != TLR_UDP) tlr_announce();
}

/* Return the time until which events wait after the token was sent. */
static uint64_t tlr_shown_at(void) { return tlr.sender.opened_at + (tlr.vouched ? 0 : TLR_SHOWING_MS * tlr_ms); }

/* Advance from DOWN towards UP as far as possible without waiting. */
static void tlr_advance(uint64_t now) {
    tlr_sender *out = &tlr.sender;
    if (out->state == TLR_DOWN && now >= out->retry_at) {
        errno = 0;
        if (tlr.transport == TLR_FILE ? tlr_open_file() : tlr_connect_socket(now)) {
            if (tlr.transport != TLR_FILE) {
                tlr_note("connecting failed", errno);
            } else if (errno == ELOOP) {
                tlr_note("the file is a symbolic link, which is not followed: name the file that it leads to", 0);
            } else {
                tlr_note("the file cannot be written", errno);
            }
            tlr_fail(now);
        }
    }
    if (out->state == TLR_OPENING) {
        int open = tlr_is_open(now);
        if (open < 0) tlr_fail(now);
        if (open <= 0) return;
        out->opened_at = now;
        if (tlr.transport != TLR_TCP || !(tlr.token[0] || tlr.token_file[0])) {
            tlr_is_up();
        } else if (tlr_show_token()) {
            tlr_fail(now);
        } else {
            out->state = TLR_SHOWING;
        }
    }
    if (out->state == TLR_SHOWING) {
        if (tlr_is_gone() || (!tlr_send_control() && out->broken)) {
            tlr_fail(now);
        } else if (!out->control_size && now >= tlr_shown_at()) {
            tlr_is_up();
        }
    }
}

/* Open the connection, check that it is still open, and send announcements and reports that are due. Return 1
 * if events may be sent. */
static int tlr_ready(uint64_t now) {
    tlr_sender *out = &tlr.sender;
    if (out->state == TLR_UP && (out->broken || tlr_is_gone())) tlr_fail(now);
    if (out->state != TLR_UP) tlr_advance(now);
    if (out->state != TLR_UP) return 0;
    out->blocked = 0;
    while (out->half) {
        if (!tlr_send_stream(out->half)) return 0;
    }
    if (!tlr_send_control()) return 0;
    if (tlr.transport == TLR_UDP && now >= out->announce_at) {
        out->announce_at = now + 10 * tlr_second;
        tlr_announce();
        if (!tlr_send_control()) return 0;
    }
    if (now >= out->report_at) {
        out->report_at = now + 30 * tlr_second;
        if (tailrace_discarded()) out->control_size = tlr_report(out->control, 0, 0, 0);
        if (!tlr_send_control()) return 0;
    }
    return 1;
}

/* Send waiting events in at most TLR_ROUND system calls. Return 1 if anything was sent. */
static int tlr_round(uint64_t now) {
    int moved = 0, budget = TLR_ROUND, more = 1;
    size_t index;
    if (!tlr.started || !tlr_ready(now)) return 0;
    while (more && budget > 0) {
        more = 0;
        for (index = 0; index < tlr.stream_count; index++) {
            while (budget-- > 0 && tlr_send_control() && tlr_send_stream(&tlr.streams[index])) moved = more = 1;
            if (tlr.sender.blocked || tlr.sender.broken) return moved;
            while (tlr.sender.half) {
                if (!tlr_send_stream(tlr.sender.half)) return moved;
            }
        }
    }
    return moved;
}

static int tlr_anything_waits(void) {
    size_t index;
    for (index = 0; index < tlr.stream_count; index++) {
        tlr_stream *stream = &tlr.streams[index];
        if (__atomic_load_n(&stream->head, __ATOMIC_ACQUIRE) != TLR_LOAD(stream->tail)) return 1;
    }
    return 0;
}

/* Return for how long nothing can be sent, whatever is emitted, unless the kernel has news of the connection; 0 if it
 * can. The caller holds the lock. */
static uint64_t tlr_pause(uint64_t now) {
    const tlr_sender *out = &tlr.sender;
    uint64_t until = 0;
    if (out->state == TLR_DOWN || (out->state == TLR_OPENING && tlr.transport == TLR_UDP)) {
        until = out->retry_at;
    } else if (out->state == TLR_SHOWING) {
        until = tlr_shown_at();
    } else if (out->state == TLR_OPENING || (out->blocked && tlr.transport != TLR_UDP)) {
        until = now + (tlr.transport == TLR_FILE ? 100 * tlr_ms : tlr_second);
    }
    return until > now ? until - now : 0;
}

/* Wait until the kernel may take more, at most for `ns`. Hold the lock only to look. */
static void tlr_wait(uint64_t ns, int wake) {
    struct pollfd look[2];
    nfds_t count = 0;
    tlr_sender *out = &tlr.sender;
    if (wake) {
        look[count].fd = wake;
        look[count++].events = POLLIN;
    }
    if (tlr_lock_until(&out->lock, tlr_monotonic() + ns)) {
        if (out->fd >= 0 && tlr.transport != TLR_FILE && out->state != TLR_DOWN) {
            look[count].fd = out->fd;
            look[count].events = POLLIN;
            if (out->blocked || (out->state == TLR_OPENING && tlr.transport != TLR_UDP)) look[count].events |= POLLOUT;
            count++;
        }
        tlr_unlock(&out->lock);
    }
    (void)poll(look, count, (int)((ns + tlr_ms - 1) / tlr_ms));
}

/* Return whether an end of the pipe is there and ours. */
static int tlr_can_wake(int end) {
    int fd = __atomic_load_n(&tlr.wake[end], __ATOMIC_ACQUIRE);
    return fd > 0 && tlr_is_ours(fd, &tlr.wake_marks[end]);
}

/* Make the pipe that wakes the sending thread, unless it is there. */
static int tlr_make_pipe(void) {
    tlr_mark standard;
    int ends[2], end, held, failed;
    if (tlr_can_wake(0) && tlr_can_wake(1)) return 0;
    for (end = 0; end < 2; end++) {
        if (tlr_can_wake(end)) close(tlr.wake[end]);
        TLR_STORE(tlr.wake[end], 0);
    }
    tlr_hold_standard(&held, &standard);
    failed = pipe(ends);
    for (end = 0; end < 2 && !failed; end++) {
        int fd = tlr_adopt(ends[end], &tlr.wake_marks[end]);
        __atomic_store_n(&tlr.wake[end], fd < 0 ? 0 : fd, __ATOMIC_RELEASE);
    }
    tlr_leave_standard(held, &standard);
    return tlr.wake[0] && tlr.wake[1] ? 0 : -1;
}

/* Wait until an emitting thread wakes us or the kernel has news, at most for `ns`. */
static void tlr_sleep(int how, uint64_t ns) {
    char drained[64];
    if (tlr_make_pipe()) ns = tlr.flush_ns; /* no thread can wake this one */
    __atomic_store_n(&tlr.idle, how, __ATOMIC_SEQ_CST);
    /* This look sees a thread that emitted since our last look at the rings. If the thread's store is not
     * visible yet, the end of the sleep does. */
    if (how != TLR_SLEEPS || !tlr_anything_waits()) tlr_wait(ns, tlr.wake[0]);
    __atomic_store_n(&tlr.idle, TLR_WORKS, __ATOMIC_SEQ_CST);
    while (tlr_can_wake(0) && read(tlr.wake[0], drained, sizeof drained) > 0) {}
}

static int tlr_is_stopping(void) { return __atomic_load_n(&tlr.stopping, __ATOMIC_ACQUIRE); }

static void *tlr_run(void *nothing) {
    unsigned turn = 0;
    while (!tlr_is_stopping()) {
        uint64_t now, pause;
        int moved;
        if (!tlr_try(&tlr.sender.lock)) {
            tlr_yield(turn++);
            continue;
        }
        turn = 0;
        now = tlr_monotonic();
        moved = tlr_round(now);
        pause = tlr_pause(now);
        tlr_unlock(&tlr.sender.lock);
        if (pause) {
            tlr_sleep(TLR_PAUSES, pause);
            continue;
        }
        if (!moved && !tlr_anything_waits()) tlr_sleep(TLR_SLEEPS, 100 * tlr_ms);
        if (!tlr_is_stopping() && tlr_anything_waits()) tlr_sleep(TLR_NAPS, tlr.flush_ns);
    }
    return nothing;
}

/* Wake the sending thread if it rests. */
static void tlr_wake(void) {
    if (__atomic_exchange_n(&tlr.idle, TLR_WORKS, __ATOMIC_SEQ_CST) && tlr_can_wake(1)) {
        ssize_t ignored = write(TLR_LOAD(tlr.wake[1]), "", 1);
        (void)ignored;
    }
}

/* -- Emitting -- */

/* Make one system call for a stream with enough to send, if no other thread is sending. */
static void tlr_send_promptly(tlr_stream *stream, uint64_t now) {
    tlr_sender *out = &tlr.sender;
    if (!tlr_try(&out->lock)) return;
    if (!tlr_is_on() || !tlr.started) {
        tlr_unlock(&out->lock);
        return;
    }
    if (tlr.no_thread) {
        if (!(out->blocked && now - out->blocked_at < tlr_ms) && tlr_ready(now)) tlr_send_stream(stream);
    } else if (out->state == TLR_UP && !out->blocked && !out->broken) {
        if (out->half) {
            tlr_send_stream(out->half);
        } else if (out->control_size) {
            tlr_send_control();
        } else {
            tlr_send_stream(stream);
        }
    }
    tlr_unlock(&out->lock);
}

/* Send after an event, if `waiting`, the number of waiting bytes, or the time since the last sending is large enough. */
static void tlr_after(tlr_stream *stream, size_t waiting) {
    if (tlr.no_thread) {
        uint64_t now = tlr_monotonic();
        int old = TLR_LOAD(stream->asked) && now - TLR_LOAD(stream->asked) >= tlr.flush_ns;
        if (!TLR_LOAD(stream->asked)) TLR_STORE(stream->asked, now);
        if (old || waiting >= tlr.batch) {
            tlr_send_promptly(stream, now);
            TLR_STORE(stream->asked, now);
        }
    } else {
        tlr_send_promptly(stream, 0);
    }
}

/* Take numbers for `count` events that are not recorded. */
static void tlr_skip(tlr_stream *stream, uint32_t count) { TLR_STORE(stream->next, stream->next + count); }

/* Count the event of a stream that is to be discarded. tlr_recover may repeat this, with the same result. */
static void tlr_count_discarded(tlr_stream *stream) {
    TLR_STORE(stream->discarded[stream->coming_reason], stream->coming_count);
    TLR_STORE(stream->next, stream->begun + 1);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    TLR_STORE(stream->coming_reason, TLR_REASONS);
}

static void tlr_discard(tlr_stream *stream, enum tlr_reason reason) {
    TLR_STORE(stream->coming_count, stream->discarded[reason] + 1);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    TLR_STORE(stream->coming_reason, reason);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    tlr_count_discarded(stream);
}

/* Count a discarded event without a stream. */
static void tlr_count(enum tlr_reason reason) { __atomic_fetch_add(&tlr.discarded[reason], 1, __ATOMIC_RELAXED); }

/* Return room for `size` bytes in one piece, or NULL. `*skip` bytes before it stay unused. */
static unsigned char *tlr_reserve(tlr_stream *stream, size_t size, uint32_t *skip) {
    uint32_t head = stream->head;
    size_t at = head & (tlr.ring_size - 1), room = tlr.ring_size - at;
    size_t need = size > room ? size + room : size;
    if (tlr.ring_size - (head - stream->tail_seen) < need) {
        stream->tail_seen = __atomic_load_n(&stream->tail, __ATOMIC_ACQUIRE);
        if (tlr.ring_size - (head - stream->tail_seen) < need) return NULL;
    }
    *skip = (uint32_t)(need - size);
    if (!*skip) return stream->ring + at;
    if (room >= 4) memset(stream->ring + at, 0, 4);
    return stream->ring;
}

typedef struct tlr_event {
    const char *name;
    size_t name_size;
    uint64_t substream, start, end;
    const tailrace_attribute *value; /* a counter's value, else NULL */
    const tailrace_attribute *list;
    size_t count;
} tlr_event;

static const char tlr_counter_name[] = "tailrace.counter";

static uint64_t tlr_zero(void) { return tlr.clock ? 0 : tlr_loaded; }

static size_t tlr_event_size(const tlr_event *event) {
    size_t index, size = TLR_EVENT_SIZE + event->name_size;
    if (event->value) size += 3 + sizeof tlr_counter_name - 1 + 8;
    for (index = 0; index < event->count && size <= tlr.packet_max; index++)
        size += tlr_attribute_size(&event->list[index], tlr.packet_max);
    return size;
}

static void tlr_put_event(unsigned char *at, const tlr_event *event, size_t size, uint32_t stream, uint32_t number) {
    uint64_t zero = tlr_zero();
    size_t index;
    at = tlr_put32(tlr_put32(at, tlr_event_magic), (uint32_t)size);
    at = tlr_put32(tlr_put32(at, stream), number);
    at = tlr_put64(at, event->substream);
    at = tlr_put64(at, event->start - zero);
    at = tlr_put64(at, event->end - zero);
    at = tlr_put_text(at, event->name, event->name_size);
    if (event->value) {
        at = tlr_put_text(at, tlr_counter_name, sizeof tlr_counter_name - 1);
        *at++ = event->value->type;
        at = tlr_put64(at, event->value->value.u64);
    }
    for (index = 0; index < event->count; index++) at = tlr_put_attribute(at, &event->list[index]);
}

/* Take the number of an event that was put into the ring. All discarded events before it are reported. */
static void tlr_count_recorded(tlr_stream *stream) {
    TLR_STORE(stream->reported, stream->begun + 1);
    TLR_STORE(stream->next, stream->begun + 1);
    TLR_STORE(stream->coming_head, stream->head - 1); /* no event is coming */
}

/* Put an event into its stream's ring, behind a report of the events discarded before it. The caller holds the
 * stream's lock. */
static void tlr_record(tlr_stream *stream, const tlr_event *event) {
    unsigned char report[TLR_REPORT_MAX], *at;
    size_t size = tlr_event_size(event), before = 0;
    uint32_t skip;
    if (size > tlr.packet_max || event->start < tlr_zero() || event->end < tlr_zero()) {
        tlr_discard(stream, size > tlr.packet_max ? TLR_OVERSIZE : TLR_ENCODING); /* no tick is before 0 */
        return;
    }
    if (stream->next != stream->reported)
        before = tlr_report(report, stream->number, stream->reported, stream->next - stream->reported);
    at = tlr_reserve(stream, before + size, &skip);
    if (!at) {
        tlr_discard(stream, TLR_FULL);
        return;
    }
    tlr_put_event(tlr_put(at, report, before), event, size, stream->number, stream->next);
    TLR_STORE(stream->coming_head, stream->head + skip + (uint32_t)(before + size));
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&stream->head, stream->coming_head, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    tlr_count_recorded(stream);
}

/* -- Streams of threads -- */

static int tlr_has_number(uint32_t number) {
    size_t index;
    for (index = 0; index < tlr.stream_count; index++)
        if (tlr.streams[index].known && tlr.streams[index].number == number) return 1;
    return 0;
}

static int tlr_has_room(const tlr_stream *stream) {
    return __atomic_load_n(&stream->head, __ATOMIC_ACQUIRE) - TLR_LOAD(stream->tail) < tlr.ring_size / 4;
}

/* Return a stream for a thread, or NULL. The caller holds the table's lock. A stream of a thread that has ended
 * is taken over, preferably if it has room. */
static tlr_stream *tlr_find(const tlr_local *thread) {
    tlr_stream *stream, *left = NULL, *full = NULL, *unused = NULL;
    uint32_t number = 1;
    size_t index;
    for (index = tlr.stream_count; index-- > 0;) {
        stream = &tlr.streams[index];
        if (!stream->known) {
            unused = stream;
        } else if (thread->numbered) {
            if (stream->number != thread->number) continue;
            stream->shared = 1;
            return stream;
        } else if (!stream->taken && !stream->shared) {
            if (tlr_has_room(stream)) left = stream;
            full = stream;
        }
    }
    if (left || !unused) return left ? left : full;
    if (thread->numbered) {
        number = thread->number;
        unused->shared = 1;
    } else {
        while (tlr_has_number(number)) number++;
    }
    unused->number = number;
    unused->known = 1;
    TLR_STORE(tlr.used, (size_t)(unused - tlr.streams) + 1);
    return unused;
}

static void tlr_let_go(tlr_local *thread) {
    if (thread->stream && thread->generation == TLR_LOAD(tlr.generation) && tlr_lock_soon(&tlr.table)) {
        thread->stream->taken = 0;
        tlr_unlock(&tlr.table);
    }
    thread->stream = NULL;
}

static int tlr_start(void);
static void tlr_reset(void);

/* Begin the session of a forked child, with its first event. No signal handler of the program may interrupt this and leave by
 * siglongjmp. */
static void tlr_start_forked(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    tlr_lock(&tlr_life);
    if (tlr.forked) {
        size_t nested = TLR_LOAD(tlr.discarded[TLR_NESTED]), unconnected = TLR_LOAD(tlr.discarded[TLR_UNCONNECTED]);
        tlr_reset(); /* again: if a signal handler forked amid an event call, the call went on in the child */
        TLR_STORE(tlr.discarded[TLR_NESTED], nested);
        TLR_STORE(tlr.discarded[TLR_UNCONNECTED], unconnected);
        TLR_STORE(tlr_missed, 0);
        tlr_start();
    }
    tlr_unlock(&tlr_life);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static tlr_stream *tlr_take_stream(tlr_local *thread) {
    int saved = errno;
    do {
        if (__atomic_load_n(&tlr.forked, __ATOMIC_ACQUIRE)) tlr_start_forked();
        thread->generation = TLR_LOAD(tlr.generation);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    } while (TLR_LOAD(tlr.forked)); /* a signal handler has forked meanwhile */
    thread->stream = NULL;
    if (tlr_lock_unless(&tlr.table, &tlr.table_left)) {
        if (tlr_is_on()) thread->stream = tlr_find(thread);
        if (thread->stream) {
            thread->stream->taken = 1;
            pthread_setspecific(tlr_key, thread); /* close deletes the key, with this lock held */
        }
        tlr_unlock(&tlr.table);
    }
    errno = saved;
    return thread->stream;
}

/* Use up the numbers of events that were discarded in signal handlers, or left. The caller holds the stream's lock. */
static void tlr_settle(tlr_local *thread, tlr_stream *stream) {
    if (!TLR_LOAD(thread->nested)) return;
    tlr_skip(stream, (uint32_t)__atomic_exchange_n(&thread->nested, 0, __ATOMIC_RELAXED));
}

/* Unlock a stream: its event has its place or is discarded. */
static void tlr_end_event(tlr_stream *stream) {
    tlr_thread.event = TLR_DONE;
    TLR_STORE(stream->begun, stream->next);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    tlr_unlock(&stream->lock);
}

/* Return whether the session has not been closed meanwhile. The caller holds the lock of the thread's stream. */
static int tlr_goes_on(const tlr_local *thread) {
    return tlr_is_on() && thread->generation == TLR_LOAD(tlr.generation);
}

static void tlr_emit_alone(tlr_local *thread, const tlr_event *event) {
    tlr_stream *stream = thread->stream;
    uint32_t waiting;
    int promptly, idle, saved;
    if (!stream || thread->generation != TLR_LOAD(tlr.generation)) stream = tlr_take_stream(thread);
    if (!stream || !tlr_lock_stream(stream)) {
        if (tlr_is_on())
            tlr_count(stream ? TLR_LEFT : TLR_FULL);
        else
            tailrace_miss_();
        thread->event = TLR_DONE;
        return;
    }
    if (!tlr_goes_on(thread)) {
        tlr_end_event(stream);
        tailrace_miss_();
        return;
    }
    tlr_record(stream, event);
    tlr_settle(thread, stream);
    waiting = stream->head - stream->tail_seen;
    if (waiting >= tlr.batch) {
        stream->tail_seen = __atomic_load_n(&stream->tail, __ATOMIC_ACQUIRE);
        waiting = stream->head - stream->tail_seen;
    }
    promptly = tlr.no_thread || (tlr.prompt && waiting >= tlr.batch);
    idle = TLR_LOAD(tlr.idle);
    if (!promptly && idle != TLR_SLEEPS && (idle != TLR_NAPS || waiting < tlr.batch)) {
        tlr_end_event(stream);
        return;
    }
    saved = errno;
    tlr_hold();
    if (!promptly) tlr_wake(); /* with the lock held, for which close waits before it closes the pipe */
    tlr_end_event(stream);
    if (promptly) tlr_after(stream, waiting);
    tlr_let();
    errno = saved;
}

/* Settle events of a handler that came at the end of an event call, since that may be the thread's last. */
static void tlr_settle_late(tlr_local *thread) {
    tlr_stream *stream = thread->stream;
    if (stream && !tlr_lock_stream(stream)) stream = NULL;
    if (stream && tlr_goes_on(thread))
        tlr_settle(thread, stream);
    else
        TLR_STORE(thread->nested, 0); /* the session is over, or nobody can use the stream: the events are only counted */
    if (stream) tlr_end_event(stream);
}

/* Return whether the call in which the thread is busy was left by siglongjmp, because this one is no deeper in the stack.
 * Otherwise this one may be a signal handler's. */
static int tlr_was_left(const tlr_local *thread, const char *frame) {
    const char *before = thread->frame;
#ifdef SS_DISABLE
    stack_t handlers;
    const char *other;
    int here, there;
    if (sigaltstack(NULL, &handlers)) return 0;
    other = (const char *)handlers.ss_sp;
    here = (handlers.ss_flags & SS_ONSTACK) != 0;
    there = !(handlers.ss_flags & SS_DISABLE) && before >= other && before < other + handlers.ss_size;
    return here == there ? frame >= before : there;
#else
    return frame == before; /* two calls are never at the same place; a handler's own stack may be anywhere */
#endif
}

/* Finish the call that the thread left: release its locks, and count an event that is not in the ring. */
static void tlr_recover(tlr_local *thread) {
    int lost = thread->busy == TLR_EMITS && thread->event == TLR_BEGUN;
    size_t index;
    for (index = 0; index < tlr.stream_count; index++) {
        tlr_stream *stream = &tlr.streams[index];
        if (TLR_LOAD(stream->lock) != thread) continue;
        if (stream->head == stream->coming_head) tlr_count_recorded(stream);
        if (stream->coming_reason != TLR_REASONS) tlr_count_discarded(stream);
        if (stream->next != stream->begun) lost = 0;
        tlr_end_event(stream);
    }
    if (TLR_LOAD(tlr.sender.lock) == thread) {
        tlr_fail(tlr_monotonic()); /* it is unknown how many bytes the kernel has taken */
        tlr_unlock(&tlr.sender.lock);
    }
    if (TLR_LOAD(tlr.table) == thread) tlr_unlock(&tlr.table);
    if (TLR_LOAD(tlr_life) == thread) tlr_unlock(&tlr_life);
    if (lost) {
        tlr_count(TLR_LEFT);
        __atomic_fetch_add(&thread->nested, 1, __ATOMIC_RELAXED);
    }
    tlr_let();
    thread->busy = TLR_OUTSIDE;
}

/* Begin a call that takes locks. Return 0 if a signal handler makes it during another call of the same thread, because the
 * thread would wait for itself. */
static int tlr_enter(enum tlr_call call, const char *frame) {
    tlr_local *thread = &tlr_thread;
    if (thread->busy) {
        if (!tlr_was_left(thread, frame)) return 0;
        thread->frame = frame;
        tlr_recover(thread);
    }
    thread->frame = frame;
    thread->event = TLR_BEGUN;
    thread->busy = call;
    return 1;
}

static const char *tlr_frame(void *frame) { return (const char *)frame; }
#define TLR_FRAME tlr_frame(__builtin_frame_address(0))

static void tlr_thread_ends(void *given) {
    tlr_local *thread = (tlr_local *)given;
    if (thread->busy) tlr_recover(thread);
    thread->busy = TLR_WAITS;
    if (TLR_LOAD(thread->nested)) tlr_settle_late(thread);
    tlr_let_go(thread);
    thread->busy = TLR_OUTSIDE;
}

static void tlr_emit(const tlr_event *event) {
    tlr_local *thread = &tlr_thread;
    if (!thread->busy && thread->generation != TLR_LOAD(tlr.generation)) {
        TLR_STORE(thread->nested, 0); /* an earlier session has counted them; those of a handler amid this call are of this one */
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
    if (!tlr_enter(TLR_EMITS, TLR_FRAME)) {
        tlr_count(TLR_NESTED);
        __atomic_fetch_add(&thread->nested, 1, __ATOMIC_RELAXED);
        return;
    }
    tlr_emit_alone(thread, event);
    thread->busy = TLR_OUTSIDE;
    while (TLR_LOAD(thread->nested)) {
        thread->busy = TLR_WAITS;
        tlr_settle_late(thread);
        thread->busy = TLR_OUTSIDE;
    }
}

/* Count an event that is emitted while no session is open. */
void tailrace_miss_(void) {
    tlr_lock_word leaver = TLR_LOAD(tlr_leaver);
    __atomic_fetch_add(&tlr_missed, 1, __ATOMIC_RELAXED);
    if (leaver && leaver != &tlr_thread) TLR_STORE(tlr_beside, 1);
}

/* Do so unless tracing is off. Another client of the process may be connected: then `tailrace_on_` is more than 0. */
static void tlr_miss(void) {
    if (TLR_LOAD(tailrace_on_)) tailrace_miss_();
}

tailrace_span tailrace_begin(const char *name) {
    tailrace_span span = {NULL, 1, 0};
    if (tlr_is_on()) {
        span.name = name ? name : "";
        span.substream = tlr_thread.substream;
        span.start = tailrace_now();
    }
    return span;
}

static void tlr_emit_at(const char *name, uint64_t substream, uint64_t start, uint64_t end, const tailrace_attribute *value,
                        const tailrace_attribute *list, size_t count) {
    tlr_event event;
    event.name = name;
    event.name_size = tlr_fit(name, tailrace_length_(name));
    event.substream = substream;
    event.start = start;
    event.end = end;
    event.value = value;
    event.list = list;
    event.count = count;
    tlr_emit(&event);
}

void tailrace_end_list(tailrace_span *span, const tailrace_attribute *list, size_t count) {
    if (span->name && tlr_is_on()) {
        tlr_emit_at(span->name, span->substream, span->start, tailrace_now(), NULL, list, count);
    } else if (span->name || span->start) {
        if (tlr_is_on())
            tlr_count(TLR_UNCONNECTED);
        else
            tlr_miss();
    }
    span->name = NULL;
    span->start = 0;
}

void tailrace_event_list(const char *name, const tailrace_attribute *list, size_t count) {
    if (tlr_is_on()) {
        uint64_t now = tailrace_now();
        tlr_emit_at(name, tlr_thread.substream, now, now, NULL, list, count);
    } else {
        tlr_miss();
    }
}

void tailrace_counter_list(const char *name, tailrace_attribute value, const tailrace_attribute *list, size_t count) {
    if (tlr_is_on()) {
        uint64_t now = tailrace_now();
        tlr_emit_at(name, tlr_thread.substream, now, now, &value, list, count);
    } else {
        tlr_miss();
    }
}

void tailrace_write_list(const char *name, uint64_t start, uint64_t end, const tailrace_attribute *list, size_t count) {
    if (tlr_is_on())
        tlr_emit_at(name, tlr_thread.substream, start, end, NULL, list, count);
    else
        tlr_miss();
}

void tailrace_use_stream(uint32_t number) {
    tlr_let_go(&tlr_thread);
    tlr_thread.numbered = 1;
    tlr_thread.number = number;
}

void tailrace_use_own_stream(void) {
    tlr_let_go(&tlr_thread);
    tlr_thread.numbered = 0;
}

void tailrace_use_substream(uint64_t number) { tlr_thread.substream = number; }

uint64_t tailrace_discarded(void) {
    uint64_t sum = TLR_LOAD(tlr_missed);
    int reason;
    for (reason = 0; reason < TLR_REASONS; reason++) sum += tlr_discarded(reason);
    return sum;
}

/* -- Begin and end of sessions -- */

static int tlr_from_hex(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit = (char)(digit | 0x20);
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Store the path of an address, with %20 and the like decoded. */
static int tlr_parse_path(const char *text) {
    size_t size = 0;
    if (*text != '/' || !text[1]) return EINVAL;
    for (; *text; text++) {
        char byte = *text;
        if (byte == '%' && text[1] && tlr_from_hex(text[1]) >= 0 && tlr_from_hex(text[2]) >= 0) {
            byte = (char)(tlr_from_hex(text[1]) * 16 + tlr_from_hex(text[2]));
            text += 2;
        }
        if (size + 1 >= sizeof tlr.path || !byte) return EINVAL;
        tlr.path[size++] = byte;
    }
    tlr.path[size] = 0;
    return 0;
}

static int tlr_resolve(const char *text) {
    struct addrinfo hints, *found = NULL, *each;
    char host[256];
    const char *colon = strrchr(text, ':'), *end = text + strcspn(text, "/"), *digit;
    size_t size;
    if (!colon || colon == text || colon > end || (*end && end[1])) return EINVAL;
    for (digit = colon + 1; digit < end; digit++)
        if (*digit < '0' || *digit > '9') return EINVAL;
    if (end == colon + 1 || end > colon + 6 || atoi(colon + 1) > 65535 || !atoi(colon + 1)) return EINVAL;
    size = (size_t)(colon - text);
    if (*text == '[' && colon[-1] == ']') {
        text++;
        size -= 2;
    }
    if (!size || size >= sizeof host || memchr(text, '@', size)) return EINVAL;
    memcpy(host, text, size);
    host[size] = 0;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = tlr.transport == TLR_UDP ? SOCK_DGRAM : SOCK_STREAM;
    if (getaddrinfo(host, NULL, &hints, &found)) return EHOSTUNREACH;
    tlr.address_count = 0;
    for (each = found; each && tlr.address_count < TLR_ADDRESSES; each = each->ai_next) {
        tlr_address *address = &tlr.addresses[tlr.address_count];
        in_port_t port = htons((uint16_t)atoi(colon + 1));
        if (each->ai_addrlen > sizeof address->name) continue;
        memcpy(&address->name, each->ai_addr, each->ai_addrlen);
        address->size = each->ai_addrlen;
        if (each->ai_family == AF_INET) {
            ((struct sockaddr_in *)(void *)&address->name)->sin_port = port;
        } else if (each->ai_family == AF_INET6) {
            ((struct sockaddr_in6 *)(void *)&address->name)->sin6_port = port;
        } else {
            continue;
        }
        tlr.address_count++;
    }
    freeaddrinfo(found);
    return tlr.address_count ? 0 : EHOSTUNREACH;
}

static int tlr_parse_unix(const char *text) {
    struct sockaddr_un name;
    int error = tlr_parse_path(text);
    memset(&name, 0, sizeof name);
    name.sun_family = AF_UNIX;
    if (error || strlen(tlr.path) >= sizeof name.sun_path) return EINVAL;
    memcpy(name.sun_path, tlr.path, strlen(tlr.path) + 1);
    memcpy(&tlr.addresses[0].name, &name, sizeof name);
    tlr.addresses[0].size = sizeof name;
    tlr.address_count = 1;
    return 0;
}

static int tlr_parse(const char *address) {
    tlr.address_count = 0;
    if (!strncmp(address, "file://", 7)) {
        tlr.transport = TLR_FILE;
        return tlr_parse_path(address + (strncmp(address, "file://localhost/", 17) ? 7 : 16));
    }
    if (!strncmp(address, "unix://", 7)) {
        tlr.transport = TLR_UNIX;
        return tlr_parse_unix(address + 7);
    }
    if (!strncmp(address, "tls://", 6)) return EPROTONOSUPPORT;
    tlr.transport = strncmp(address, "udp://", 6) ? TLR_TCP : TLR_UDP;
    if (tlr.transport == TLR_TCP && strncmp(address, "tcp://", 6)) return EINVAL;
    return tlr_resolve(address + 6);
}

/* Store the given name of the process or, if /proc has it, the name by which the program was called. */
static void tlr_name_process(const char *given) {
    char line[4096], *slash;
    size_t length;
    ssize_t size = 0;
    int fd = given ? -1 : open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        size = read(fd, line, sizeof line - 1);
        close(fd);
    }
    line[size > 0 ? size : 0] = 0;
    slash = strrchr(line, '/');
    if (!given) given = slash ? slash + 1 : line;
    length = strlen(given) < TLR_PROCESS_MAX ? strlen(given) : (size_t)TLR_PROCESS_MAX;
    memcpy(tlr.process, given, length);
    tlr.process[length] = 0;
}

/* Reset streams, numbers and the sender to their state before the first event. */
static void tlr_reset(void) {
    tlr_sender *out = &tlr.sender;
    size_t index;
    __atomic_fetch_add(&tlr.generation, 1, __ATOMIC_RELEASE);
    TLR_STORE(tlr.used, 0);
    TLR_STORE(tlr.table_left, NULL);
    for (index = 0; index < tlr.stream_count; index++) {
        tlr_stream *stream = &tlr.streams[index];
        tlr_lock(&stream->lock);
        TLR_STORE(stream->left, NULL);
        stream->head = stream->tail_seen = stream->next = stream->reported = stream->begun = 0;
        stream->coming_head = (uint32_t)-1;
        stream->coming_reason = TLR_REASONS;
        memset(stream->discarded, 0, sizeof stream->discarded);
        TLR_STORE(stream->asked, 0);
        TLR_STORE(stream->tail, 0);
        stream->known = stream->shared = stream->taken = 0;
        tlr_unlock(&stream->lock);
    }
    for (index = 0; index < TLR_REASONS; index++) TLR_STORE(tlr.discarded[index], 0);
    tlr_lock(&out->lock);
    out->state = TLR_DOWN;
    out->fd = -1;
    out->blocked = out->broken = out->announced = out->carried = out->refused = 0;
    out->retry_at = out->back_off = out->announce_at = 0;
    out->which = out->half_done = out->control_size = out->control_done = 0;
    out->half = NULL;
    out->wrong = NULL;
    out->error = 0;
    tlr_unlock(&out->lock);
    TLR_STORE(tlr.idle, TLR_WORKS);
    tlr.stopping = 0;
}

/* Reset a forked child, since its parent sends what the parent has emitted. The session begins with the first
 * event, so that a child that only calls exec costs nothing. */
static void tlr_in_child(void) {
    size_t index;
    tlr_unlock(&tlr_life); /* a thread that the child does not have may hold any lock, even between two sessions */
    for (index = 0; index < tlr.stream_count; index++) tlr_unlock(&tlr.streams[index].lock);
    tlr_unlock(&tlr.table);
    tlr_unlock(&tlr.sender.lock);
    TLR_STORE(tlr_missed, 0); /* the parent reports them */
    memcpy(tlr.inherited, tlr.path, sizeof tlr.path);
    for (index = 0; index < 2; index++) {
        if (tlr_can_wake((int)index)) close(tlr.wake[index]);
        tlr.wake[index] = 0;
    }
    if (!tlr.started && !tlr_is_on()) return;
    if (tlr.sender.fd >= 0) tlr_shut(tlr.sender.fd, &tlr.sender.mark);
    tlr.sender_runs = 0;
    tlr_reset();
    tlr_thread.stream = NULL;
    if (tlr_thread.busy != TLR_EMITS) tlr_thread.busy = TLR_OUTSIDE; /* else a signal handler forks amid an event call */
    tlr_thread.event = TLR_DONE; /* it is the parent's alone */
    tlr_thread.nested = 0;
    tlr.started = 0;
    TLR_STORE(tlr.forked, tlr_is_on());
}

static int tlr_start_thread(void) {
    sigset_t all, before;
    int failed;
    if (tlr_make_pipe()) return -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of the program runs in our thread */
    failed = pthread_create(&tlr.thread, NULL, tlr_run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    tlr.sender_runs = !failed;
    return failed ? -1 : 0;
}

/* Begin a session; the caller holds tlr_life. */
static int tlr_start(void) {
    tlr_make_hello();
    tlr.started = 1;
    tlr.sender.report_at = tailrace_discarded() ? 0 : tlr_monotonic() + 30 * tlr_second;
    tlr_lock(&tlr.sender.lock);
    (void)tlr_ready(tlr_monotonic());
    tlr_unlock(&tlr.sender.lock);
    if (!tlr.no_thread && tlr_start_thread()) tlr.no_thread = 1; /* without a thread the callers send */
    tlr.prompt = tlr.no_thread || tlr.transport != TLR_FILE;
    __atomic_store_n(&tlr.forked, 0, __ATOMIC_RELEASE); /* last: other threads of a child may emit from here on */
    return 0;
}

/* Make the table of streams, once, and their rings. Another thread may fork in the middle, so each pointer is set last. */
static int tlr_allocate(size_t bytes, size_t threads) {
    static int prepared;
    size_t ring = 4096, index;
    if (!tlr.streams) {
        while (ring * 2 * threads <= bytes && ring < ((size_t)1 << 30)) ring *= 2;
        tlr_stream *streams = threads <= TLR_THREADS ? tlr_table : (tlr_stream *)calloc(threads, sizeof(tlr_stream));
        if (!streams) return ENOMEM;
        tlr.stream_count = threads;
        tlr.ring_size = (uint32_t)ring;
        __atomic_store_n(&tlr.streams, streams, __ATOMIC_RELEASE);
    }
    if (!tlr.rings) {
        unsigned char *rings = (unsigned char *)malloc(tlr.ring_size * tlr.stream_count);
        if (!rings) return ENOMEM;
        if ((!prepared && pthread_atfork(NULL, NULL, tlr_in_child)) || pthread_key_create(&tlr_key, tlr_thread_ends)) {
            free(rings);
            return ENOMEM;
        }
        prepared = 1;
        __atomic_store_n(&tlr.rings, rings, __ATOMIC_RELEASE);
    }
    for (index = 0; index < tlr.stream_count; index++) tlr.streams[index].ring = tlr.rings + tlr.ring_size * index;
    return 0;
}

/* Take and check the program's token. A token of the environment or of a file is checked when it is sent. */
static int tlr_take_token(const char *address, const tailrace_options *options) {
    const char *token = options->token, *file = options->token_file, *vouched = NULL;
    if (token && !tlr_is_token(token, strlen(token))) return EINVAL;
    if (!token && !file) token = tlr_variable("TAILRACE_TOKEN");
    if (token && !*token) token = NULL;
    if (token && !options->token) vouched = tlr_variable("TAILRACE_TOKEN_ADDRESS");
    tlr.vouched = vouched && !strcmp(vouched, address);
    if (!token && !file) file = tlr_variable("TAILRACE_TOKEN_FILE");
    tlr.token[0] = tlr.token_file[0] = 0;
    if (token) strncat(tlr.token, token, sizeof tlr.token - 1);
    if (file && strlen(file) >= sizeof tlr.token_file) return ENAMETOOLONG;
    if (file) strncat(tlr.token_file, file, sizeof tlr.token_file - 1);
    return 0;
}

static int tlr_await_events(int ends);
static void tlr_end(uint64_t deadline, int counts);

/* Count one more, or one less, connected client of the process. Libraries that bind their functions locally may share the
 * variable. */
static void tlr_switch(int on) {
    int before = TLR_LOAD(tailrace_on_), after;
    do {
        after = before + (on ? 1 : -1);
        if (before < 1 && on) after = 1;
        if (after < 1) after = -1;
    } while (!__atomic_compare_exchange_n(&tailrace_on_, &before, after, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* Take tick 0 before the program's initialisers. Those of another library may even connect before this. */
__attribute__((constructor(101))) static void tlr_load(void) {
    if (!tlr_loaded) tlr_loaded = tlr_monotonic();
}

static int tlr_connect(const char *address, const tailrace_options *options) {
    sigset_t all, before;
    size_t ring_max;
    int error;
    if (tlr_is_on()) return EALREADY;
    tlr_load();
    if (tlr.started) tlr_end(tlr_monotonic(), 0); /* the program left tailrace_close by siglongjmp */
    if (tlr_await_events(0) || !tlr_lock_soon(&tlr.sender.lock)) return EBUSY;
    tlr_unlock(&tlr.sender.lock);
    error = tlr_parse(address);
    if (!error) error = tlr_take_token(address, options);
    if (!error) error = tlr_allocate(options->memory_bytes ? options->memory_bytes : (size_t)64 << 20, options->threads ? options->threads : (size_t)TLR_THREADS);
    if (error) return error;
    tlr.clock = options->clock;
    tlr.ticks_per_second = options->ticks_per_second ? options->ticks_per_second : tlr_second;
    tlr.flush_ns = (options->flush_ms ? options->flush_ms : 5) * tlr_ms;
    tlr.linger_ns = (options->linger_ms ? options->linger_ms : 500) * tlr_ms;
    tlr.no_thread = options->no_thread;
    tlr_name_process(options->process);
    ring_max = tlr.ring_size / 2 - TLR_REPORT_MAX;
    tlr.packet_max = tlr.transport == TLR_UDP && ring_max > TLR_DATAGRAM_MAX ? (size_t)TLR_DATAGRAM_MAX : ring_max;
    tlr.batch = tlr.transport == TLR_UDP ? (size_t)TLR_DATAGRAM : (size_t)TLR_BATCH;
    if (tlr.transport == TLR_UDP && tlr_is_local(&tlr.addresses[0].name)) tlr.batch = TLR_DATAGRAM_LOCAL;
    if (tlr.batch > tlr.ring_size / 4) tlr.batch = tlr.ring_size / 4;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no signal handler may leave this by siglongjmp */
    tlr.forked = 0;
    tlr_reset();
    TLR_STORE(tlr.discarded[TLR_UNCONNECTED], __atomic_exchange_n(&tlr_missed, 0, __ATOMIC_RELAXED));
    tlr_start();
    tlr_switch(1); /* first: a child forked between the two counts its events as missed */
    __atomic_store_n(&tlr.on, 1, __ATOMIC_RELEASE);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return 0;
}

int tailrace_connect(const char *address, const tailrace_options *options) {
    static const tailrace_options defaults = {0, 0, 0, 0, NULL, NULL, 0, 0, NULL, NULL};
    int error, saved = errno, never = -1;
    if (!address) address = tlr_variable("TAILRACE_ADDRESS");
    if (!address || !*address) { /* tracing is off: events need not be counted */
        __atomic_compare_exchange_n(&tailrace_on_, &never, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        return 0;
    }
    if (!tlr_enter(TLR_WAITS, TLR_FRAME)) {
        errno = EALREADY;
        return -1;
    }
    error = EBUSY;
    if (tlr_lock_until(&tlr_life, tlr_monotonic() + tlr.linger_ns + tlr_second)) {
        error = tlr_connect(address, options ? options : &defaults);
        tlr_unlock(&tlr_life);
    }
    if (error == EPROTONOSUPPORT && tlr_lock_soon(&tlr.sender.lock)) {
        tlr_note("this client has no TLS: send to a unix socket, or to a TLS proxy on this host, such as stunnel", error);
        tlr_unlock(&tlr.sender.lock);
    }
    tlr_thread.busy = TLR_OUTSIDE;
    errno = error ? error : saved;
    return error ? -1 : 0;
}

/* Append as much of a text as fits, and the terminating zero. */
static char *tlr_append(char *at, char *end, const char *text) {
    while (at < end && *text) *at++ = *text++;
    *at = 0;
    return at;
}

int tailrace_last_error(char *text, size_t size) {
    tlr_sender *out = &tlr.sender;
    const char *wrong = "another thread is sending, or left a call that was sending by siglongjmp", *question = "";
    int error = EBUSY, saved = errno;
    if (size) *text = 0;
    if (!tlr_enter(TLR_WAITS, TLR_FRAME)) return 0;
    tlr_hold();
    if (tlr_lock_until(&out->lock, tlr_monotonic() + tlr_second)) {
        if (out->state == TLR_UP && tlr_monotonic() - out->opened_at > tlr_second) out->wrong = NULL;
        wrong = out->wrong;
        question = out->question;
        error = out->error;
        tlr_unlock(&out->lock);
    }
    if (wrong && size) {
        char *end = text + size - 1;
        text = tlr_append(text, end, wrong);
        if (error) text = tlr_append(tlr_append(text, end, ": "), end, strerror(error));
        tlr_append(text, end, question);
    }
    tlr_thread.busy = TLR_OUTSIDE;
    tlr_let();
    errno = saved;
    return wrong ? (error ? error : ECONNRESET) : 0;
}

/* Try to connect at once, without the rest of the pause, since the program waits. */
static void tlr_hurry(void) {
    if (!tlr_lock_soon(&tlr.sender.lock)) return;
    if (tlr.sender.state == TLR_DOWN) tlr.sender.retry_at = 0;
    tlr_unlock(&tlr.sender.lock);
}

/* Send until nothing waits and, with `open`, a connection is open, at most until `deadline`. */
static int tlr_drain(uint64_t deadline, int open) {
    for (;;) {
        uint64_t now;
        int waits;
        if (!tlr_lock_until(&tlr.sender.lock, deadline)) return -1;
        now = tlr_monotonic();
        (void)tlr_round(now);
        waits = tlr_anything_waits() || tlr.sender.control_size || (open && tlr.sender.state != TLR_UP);
        tlr_unlock(&tlr.sender.lock);
        if (!waits) return 0;
        if (now >= deadline) return -1;
        tlr_wait(tlr_ms, 0);
    }
}

/* Return whether the kernel reported, since the last call, that no process received datagrams with events. */
static int tlr_were_refused(void) {
    tlr_sender *out = &tlr.sender;
    int refused;
    if (!tlr_lock_soon(&out->lock)) return 1;
    if (tlr.transport == TLR_UDP && out->state == TLR_UP && tlr_is_gone()) tlr_fail(tlr_monotonic());
    refused = out->refused;
    out->refused = 0;
    tlr_unlock(&out->lock);
    return refused;
}

int tailrace_flush(unsigned milliseconds) {
    int saved = errno, left = tlr.streams && !TLR_LOAD(tlr_missed) ? 0 : -1;
    if (tlr_is_on() && !TLR_LOAD(tlr.forked) && tlr_enter(TLR_WAITS, TLR_FRAME)) {
        tlr_hold();
        tlr_hurry();
        left = tlr_drain(tlr_monotonic() + milliseconds * tlr_ms, 0);
        if (tlr_were_refused()) left = -1;
        if (TLR_LOAD(tlr.idle) == TLR_PAUSES) tlr_wake(); /* the pause may have ended here */
        tlr_thread.busy = TLR_OUTSIDE;
        tlr_let();
    }
    errno = saved;
    return left;
}

/* Send a finished packet after all waiting events. */
static int tlr_say(unsigned char *packet, unsigned char *end, uint64_t deadline) {
    tlr_option_end(packet, end);
    tlr.sender.control_size = (size_t)(end - packet);
    tlr.sender.control_done = 0;
    return tlr_drain(deadline, 1);
}

/* Report the events that were discarded at the end of each stream. */
static void tlr_say_last_ranges(uint64_t deadline) {
    unsigned char *packet = tlr.sender.control, *at = NULL;
    size_t index;
    for (index = 0; index < tlr.stream_count; index++) {
        tlr_stream *stream = &tlr.streams[index];
        if (stream->next == stream->reported) continue;
        if (at && at - packet > TLR_CONTROL_MAX - 100) {
            if (tlr_say(packet, tlr_put_string(at, "]}"), deadline)) return;
            at = NULL;
        }
        if (at) {
            at = tlr_put_string(at, ",");
        } else {
            at = tlr_put_string(tlr_option(packet, "tailrace.report"), "{");
            at = tlr_put_string(tlr_put_discarded(at), ",\"ranges\":[");
        }
        at = tlr_put_range(at, stream->number, stream->reported, stream->next - stream->reported);
    }
    if (at) tlr_say(packet, tlr_put_string(at, "]}"), deadline);
}

static void tlr_say_goodbye(uint64_t deadline) {
    unsigned char *packet = tlr.sender.control, *at = NULL;
    size_t index, part = 0;
    for (index = 0; index < tlr.stream_count; index++) {
        tlr_stream *stream = &tlr.streams[index];
        if (!stream->known || !stream->next) continue;
        if (at && at - packet > TLR_CONTROL_MAX - TLR_REPORT_MAX) {
            at = tlr_put_decimal(tlr_put_string(at, "},\"more\":true,\"part\":"), part++);
            if (tlr_say(packet, tlr_put_string(at, "}"), deadline)) return;
            at = NULL;
        }
        at = at ? tlr_put_string(at, ",") : tlr_put_string(tlr_option(packet, "tailrace.goodbye"), "{\"streams\":{");
        at = tlr_put_decimal(tlr_put_string(at, "\""), stream->number);
        at = tlr_put_decimal(tlr_put_string(at, "\":"), stream->next);
    }
    if (!at) at = tlr_put_string(tlr_option(packet, "tailrace.goodbye"), "{\"streams\":{");
    at = tlr_put_string(at, "},\"more\":false,");
    if (part) at = tlr_put_string(tlr_put_decimal(tlr_put_string(at, "\"part\":"), part), ",");
    at = tlr_put_discarded(at);
    tlr_say(packet, tlr_put_string(at, "}"), deadline);
}

static void tlr_stop_thread(void) {
    sigset_t all, before;
    if (!tlr.sender_runs) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no signal handler may leave the join by siglongjmp */
    __atomic_store_n(&tlr.stopping, 1, __ATOMIC_RELEASE);
    if (tlr_can_wake(1)) {
        ssize_t ignored = write(tlr.wake[1], "", 1);
        (void)ignored;
    }
    pthread_join(tlr.thread, NULL);
    tlr.sender_runs = 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* End our side of the connection, and wait for the peer, which closes once it has read everything. Return 0 if the
 * connection broke, so that what was sent last may be lost, or if the peer has not closed until the deadline. */
static int tlr_is_read(uint64_t deadline) {
    tlr_sender *out = &tlr.sender;
    char heard[256];
    if (out->control_size) return 0; /* the kernel has not taken the goodbye */
    if (tlr.transport == TLR_FILE || tlr.transport == TLR_UDP) return 1;
    if (out->state != TLR_UP || !tlr_may_use()) return 0;
    shutdown(out->fd, SHUT_WR);
    while (tlr_may_use()) {
        ssize_t got = recv(out->fd, heard, sizeof heard, 0);
        if (!got) return 1;
        if (got > 0 || errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) break;
        if (tlr_monotonic() >= deadline) return 0;
        tlr_wait(10 * tlr_ms, 0);
    }
    if (out->fd >= 0) tlr_note("the collector closed the connection", errno);
    tlr_fail(tlr_monotonic());
    return 0;
}

/* Send the rest of the events, then the end of every stream. If the connection breaks before the peer has read
 * the end, send the end again. Return whether the peer has read it. */
static int tlr_say_the_end(uint64_t deadline) {
    do {
        unsigned opened;
        if (tlr_drain(deadline, 1)) return 0; /* the goodbye follows the announcement, and never replaces it */
        opened = tlr.sender.opened;
        tlr_say_last_ranges(deadline);
        if (!TLR_LOAD(tlr_beside)) tlr_say_goodbye(deadline);
        if (opened == tlr.sender.opened && tlr_is_read(deadline)) return 1;
    } while (tlr_monotonic() < deadline);
    return 0;
}

/* Record how the session ended: `read` states whether the peer has read the end. The caller holds the sender's lock. */
static void tlr_note_end(int read) {
    const tlr_sender *out = &tlr.sender;
    if (!read && (!out->wrong || (out->state == TLR_UP && !out->broken)))
        tlr_note("tailrace_close ended before the collector had read everything", ETIMEDOUT);
    else if (read && tlr.transport != TLR_UDP)
        tlr_note(NULL, 0);
}

/* Return whether the event of the thread that holds a stream's lock is neither in the ring nor counted as discarded. */
static int tlr_is_lost(const tlr_stream *stream) {
    uint32_t reason = stream->coming_reason;
    if (stream->next != stream->begun || stream->head == stream->coming_head) return 0;
    return reason == TLR_REASONS || stream->discarded[reason] != stream->coming_count;
}

/* Let threads that are emitting finish their events. Return how many streams stay locked because a thread left its call by
 * siglongjmp and has made no other call since. If the session `ends`, count their events. */
static int tlr_await_events(int ends) {
    uint64_t deadline = tlr_monotonic() + TLR_LOCK_MS * tlr_ms;
    size_t index;
    int left = 0;
    for (index = 0; index < tlr.stream_count; index++) {
        if (tlr_lock_until(&tlr.streams[index].lock, deadline)) {
            tlr_unlock(&tlr.streams[index].lock);
        } else {
            left++;
            if (ends && tlr_is_lost(&tlr.streams[index])) tlr_count(TLR_LEFT);
        }
    }
    return left;
}

/* Release all resources of connect, so that the client's library can be unloaded: no thread needs them any more. */
static void tlr_give_back(void) {
    unsigned char *rings = tlr.rings;
    size_t index;
    if (!rings) return;
    __atomic_store_n(&tlr.rings, (unsigned char *)NULL, __ATOMIC_SEQ_CST); /* first: another thread may fork */
    pthread_key_delete(tlr_key);
    for (index = 0; index < tlr.stream_count; index++) {
        TLR_STORE(tlr.streams[index].tail, 0);
        TLR_STORE(tlr.streams[index].head, 0);
    }
    free(rings);
    for (index = 0; index < 2; index++) {
        if (tlr_can_wake((int)index)) close(tlr.wake[index]);
        TLR_STORE(tlr.wake[index], 0);
    }
}

/* End a session after its events have been switched off. The goodbye `counts` the events that came since, or leaves them to
 * the next session. */
static void tlr_end(uint64_t deadline, int counts) {
    int left, read = 0;
    tlr_stop_thread();
    left = tlr_await_events(1);
    if (counts)
        __atomic_fetch_add(&tlr.discarded[TLR_CLOSED], __atomic_exchange_n(&tlr_missed, 0, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    tlr_hurry();
    if (tlr.started) read = tlr_say_the_end(deadline);
    deadline = tlr_monotonic() + TLR_LOCK_MS * tlr_ms;
    if (!tlr_lock_until(&tlr.table, deadline)) return;
    if (tlr_lock_until(&tlr.sender.lock, deadline)) {
        if (tlr.started) tlr_note_end(read);
        if (tlr.sender.fd >= 0) tlr_shut(tlr.sender.fd, &tlr.sender.mark);
        tlr.sender.fd = -1;
        tlr.sender.state = TLR_DOWN;
        tlr.started = 0;
        if (!left && !tlr_dies) tlr_give_back();
        tlr_unlock(&tlr.sender.lock);
    }
    tlr_unlock(&tlr.table);
}

static void tlr_switch_off(void) {
    __atomic_store_n(&tlr.on, 0, __ATOMIC_RELEASE);
    tlr_switch(0);
}

/* Close in a signal handler amid another call of the same thread, which holds locks. The sending thread sends what it can.
 * The next session or the end of the program says the end of the streams. */
static void tlr_close_amid_event(void) {
    uint64_t deadline = tlr_monotonic() + tlr.linger_ns;
    tlr_switch_off();
    while (tlr.sender_runs && tlr_anything_waits() && tlr_monotonic() < deadline) poll(NULL, 0, 1);
}

void tailrace_close(void) {
    int saved = errno;
    if (!tlr_enter(TLR_WAITS, TLR_FRAME)) {
        if (tlr_is_on()) tlr_close_amid_event();
        errno = saved;
        return;
    }
    tlr_hold();
    if (tlr_lock_until(&tlr_life, tlr_monotonic() + tlr.linger_ns + tlr_second)) {
        if (tlr_is_on()) {
            tlr_switch_off();
            TLR_STORE(tlr.forked, 0); /* a late event of another thread begins no session */
            tlr_end(tlr_monotonic() + tlr.linger_ns, 1);
        }
        tlr_unlock(&tlr_life);
    }
    tlr_thread.busy = TLR_OUTSIDE;
    tlr_let();
    errno = saved;
}

/* Report the number of events emitted after the end of the last session, in a session without events. */
static void tlr_state_missed(void) {
    if (!TLR_LOAD(tlr_missed) || !tlr.streams || tlr_await_events(0)) return;
    tlr_reset();
    tlr_make_hello();
    tlr.started = 1;
    tlr.sender.report_at = 0;
    tlr_end(tlr_monotonic() + tlr.linger_ns, 1);
}

/* Close at the end of the program, after its own exit functions, or when the client's library is unloaded. If a signal handler
 * ends the program amid a call of this thread, that call never goes on. A close that was cut short may have said goodbye
 * already: say it again, with all events that came since. */
__attribute__((destructor(101))) static void tlr_unload(void) {
#if !defined(__PIC__) || defined(__PIE__) /* in a library, dlclose() would leave the exit a function that is gone */
    if (!tlr_dies) (void)atexit(tlr_unload); /* behind all destructors, and after an exit() in a signal handler amid this call */
    tlr_dies = 1;
#endif
    if (tlr_thread.busy) {
        tlr_dies = 1;
        tlr_recover(&tlr_thread);
    }
    TLR_STORE(tlr_leaver, &tlr_thread);
    tailrace_close();
    (void)tlr_enter(TLR_WAITS, TLR_FRAME);
    if (!tlr_is_on() && tlr_lock_until(&tlr_life, tlr_monotonic() + tlr_second)) {
        if (tlr.started) tlr_end(tlr_monotonic() + (tlr.linger_ns < tlr_second ? tlr.linger_ns : tlr_second), 1);
        if (!tlr.started) tlr_state_missed();
        tlr_unlock(&tlr_life);
    }
    tlr_thread.busy = TLR_OUTSIDE;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* O_CLOEXEC */

#endif /* TAILRACE_IMPLEMENTATION */

#endif /* TAILRACE_H */
