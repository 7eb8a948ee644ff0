/*
 * Plays a script from standard input with tailrace.h; one line a command, texts in hexadecimal.
 *
 *     connect ADDRESS [memory=N] [threads=N] [flush=MS] [linger=MS] [process=TEXT] [logical=TICKS] [no_thread]
 *             [token=TEXT] [token_file=PATH]
 *     event NAME [ATTRIBUTE…] | span NAME [ATTRIBUTE…] | counter NAME BITS [ATTRIBUTE…]
 *     write NAME START END [ATTRIBUTE…]
 *     many COUNT                     events "many" with their index
 *     threads THREADS COUNT          each emits so many events "thread" with its own number and the index
 *     short THREADS                  one after the other, each emits one event
 *     shared THREADS COUNT STREAM    the same on one stream
 *     interrupted COUNT              events "many" while a timer's signal handler emits others
 *     cancelled THREADS              each emits until it is cancelled, at a random time
 *     exiting                        emits until a timer's signal handler calls exit
 *     stream N | own | substream N | flush MS | close | sleep MS | exit | kill
 *     fork COMMAND;COMMAND…          a child plays these and exits; waits for it
 *     wrong                          prints what tailrace_last_error gives
 *     take files|sockets|copies DIRECTORY
 *                                    closes all descriptors but the standard ones, and opens its own under their numbers
 *     harm                           prints how many of those were closed, read from or written to by somebody else
 *     standard                       prints which standard descriptors are open
 *     say TEXT                       prints TEXT, how many events were discarded, and errno
 *
 *     ATTRIBUTE = NAME:TYPE:VALUE    TYPE u i f s, or U I F S for arrays, whose VALUE has commas and ends in one
 */
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { ATTRIBUTES = 64, VALUES = 70000 };

static char *script;
static void *allocated[8 * ATTRIBUTES];
static size_t allocations;

static void *room(size_t size) {
    void *memory = malloc(size ? size : 1);
    allocated[allocations++] = memory;
    return memory;
}

static void forget(void) {
    while (allocations) free(allocated[--allocations]);
}

static char *next(char **rest, char end) {
    char *word = *rest, *stop;
    if (!word || !*word) return NULL;
    stop = strchr(word, end);
    if (stop) *stop = 0;
    *rest = stop ? stop + 1 : NULL;
    return word;
}

static uint64_t number(const char *text) { return text ? strtoull(text, NULL, 10) : 0; }

static double real(const char *bits) {
    uint64_t value = strtoull(bits, NULL, 16);
    double found;
    memcpy(&found, &value, sizeof found);
    return found;
}

static char *text(const char *hexadecimal, size_t *size) {
    size_t length = strlen(hexadecimal) / 2, index;
    char *bytes = (char *)room(length + 1);
    for (index = 0; index < length; index++) {
        char digits[3] = {hexadecimal[2 * index], hexadecimal[2 * index + 1], 0};
        bytes[index] = (char)strtoul(digits, NULL, 16);
    }
    bytes[length] = 0;
    if (size) *size = length;
    return bytes;
}

static tailrace_attribute array(const char *name, char type, char *values) {
    size_t count = 0;
    char *value;
    if (type == 'S') {
        const char **texts = (const char **)room(VALUES * sizeof *texts);
        char *all = (char *)room(strlen(values) + 1);
        while ((value = next(&values, ','))) {
            char *made = all;
            for (; *value; value += 2) {
                char digits[3] = {value[0], value[1], 0};
                *all++ = (char)strtoul(digits, NULL, 16);
            }
            *all++ = 0;
            texts[count++] = made;
        }
        return tailrace_strs(name, texts, count);
    }
    if (type == 'F') {
        double *reals = (double *)room(VALUES * sizeof *reals);
        while ((value = next(&values, ','))) reals[count++] = real(value);
        return tailrace_f64s(name, reals, count);
    }
    if (type == 'I') {
        int64_t *integers = (int64_t *)room(VALUES * sizeof *integers);
        while ((value = next(&values, ','))) integers[count++] = strtoll(value, NULL, 10);
        return tailrace_i64s(name, integers, count);
    } else {
        uint64_t *integers = (uint64_t *)room(VALUES * sizeof *integers);
        while ((value = next(&values, ','))) integers[count++] = number(value);
        return tailrace_u64s(name, integers, count);
    }
}

static tailrace_attribute attribute(char *described) {
    const char *name = text(next(&described, ':'), NULL);
    char type = *next(&described, ':'), none[] = "";
    size_t size;
    char *value = described ? described : none;
    switch (type) {
    case 'u':
        return tailrace_u64(name, number(value));
    case 'i':
        return tailrace_i64(name, strtoll(value, NULL, 10));
    case 'f':
        return tailrace_f64(name, real(value));
    case 's': {
        const char *bytes = text(value, &size);
        return strlen(bytes) == size ? tailrace_str(name, bytes) : tailrace_strn(name, bytes, size);
    }
    default:
        return array(name, type, value);
    }
}

static int connect_to(char *words) {
    tailrace_options options;
    char *address = next(&words, ' '), *word, *process = NULL;
    memset(&options, 0, sizeof options);
    while ((word = next(&words, ' '))) {
        char *value = word;
        const char *key = next(&value, '=');
        if (!strcmp(key, "memory")) options.memory_bytes = (size_t)number(value);
        if (!strcmp(key, "threads")) options.threads = (unsigned)number(value);
        if (!strcmp(key, "flush")) options.flush_ms = (unsigned)number(value);
        if (!strcmp(key, "linger")) options.linger_ms = (unsigned)number(value);
        if (!strcmp(key, "process")) options.process = process = value;
        if (!strcmp(key, "logical")) {
            options.clock = tlr_monotonic;
            options.ticks_per_second = number(value);
        }
        if (!strcmp(key, "no_thread")) options.no_thread = 1;
        if (!strcmp(key, "token")) options.token = value;
        if (!strcmp(key, "token_file")) options.token_file = value;
    }
    return tailrace_connect(address && strcmp(address, "-") ? address : NULL, &options);
}

typedef struct worker {
    pthread_t thread;
    uint64_t number, count;
    int64_t stream;
} worker;

static void *work(void *given) {
    const worker *self = (const worker *)given;
    uint64_t index;
    if (self->stream >= 0) tailrace_use_stream((uint32_t)self->stream);
    for (index = 0; index < self->count; index++)
        tailrace_event("thread", tailrace_u64("thread", self->number), tailrace_u64("index", index));
    return NULL;
}

static void threads(uint64_t count, uint64_t events, int64_t stream, int together) {
    worker *workers = (worker *)calloc((size_t)count, sizeof *workers);
    uint64_t index;
    for (index = 0; index < count; index++) {
        workers[index].number = index;
        workers[index].count = events;
        workers[index].stream = stream;
        pthread_create(&workers[index].thread, NULL, work, &workers[index]);
        if (!together) pthread_join(workers[index].thread, NULL);
    }
    for (index = 0; together && index < count; index++) pthread_join(workers[index].thread, NULL);
    free(workers);
}

static volatile sig_atomic_t handled;

static void handle(int signal_number) {
    (void)signal_number;
    handled = handled + 1;
    tailrace_event("handler");
}

static void many(uint64_t count) {
    uint64_t index;
    for (index = 0; index < count; index++) tailrace_event("many", tailrace_u64("index", index));
}

static void interrupted(uint64_t count) {
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    many(count);
    setitimer(ITIMER_REAL, &never, NULL);
    printf("handled %d\n", (int)handled);
}

static void *emit_forever(void *given) {
    const worker *self = (const worker *)given;
    for (;;) {
        tailrace_event("forever", tailrace_u64("thread", self->number));
        pthread_testcancel();
    }
    return NULL;
}

static void cancelled(uint64_t count) {
    worker self;
    memset(&self, 0, sizeof self);
    for (self.number = 0; self.number < count; self.number++) {
        struct timespec time = {0, 0};
        time.tv_nsec = rand() % 500000;
        pthread_create(&self.thread, NULL, emit_forever, &self);
        nanosleep(&time, NULL);
        pthread_cancel(self.thread);
        pthread_join(self.thread, NULL);
    }
}

static void leave(int signal_number) {
    (void)signal_number;
    exit(7);
}

static void exiting(void) {
    struct itimerval once = {{0, 0}, {0, 0}};
    once.it_value.tv_usec = 1 + (int)((unsigned)getpid() * 7919u % 3000u);
    signal(SIGALRM, leave);
    setitimer(ITIMER_REAL, &once, NULL);
    for (;;) tailrace_event("until", tailrace_u64("index", 1));
}

static void rest_for(uint64_t ms) {
    struct timespec time;
    time.tv_sec = (time_t)(ms / 1000);
    time.tv_nsec = (long)(ms % 1000) * 1000000;
    nanosleep(&time, NULL);
}

static void emit(const char *verb, char *words) {
    tailrace_attribute list[ATTRIBUTES];
    const char *name = text(next(&words, ' '), NULL);
    uint64_t start = 0, end = 0;
    double value = 0;
    size_t count = 0;
    char *word;
    if (!strcmp(verb, "write")) {
        start = number(next(&words, ' '));
        end = number(next(&words, ' '));
    }
    if (!strcmp(verb, "counter")) value = real(next(&words, ' '));
    while ((word = next(&words, ' '))) list[count++] = attribute(word);
    errno = 4711;
    if (!strcmp(verb, "event")) tailrace_event_list(name, list, count);
    if (!strcmp(verb, "counter")) tailrace_counter_list(name, tailrace_f64("", value), list, count);
    if (!strcmp(verb, "write")) tailrace_write_list(name, start, end, list, count);
    if (!strcmp(verb, "span")) {
        tailrace_span span = tailrace_begin(name);
        tailrace_end_list(&span, list, count);
    }
    if (errno != 4711) printf("errno %d\n", errno);
    forget();
}

/* Descriptors of the program's own: files, or pairs of connected sockets. */
static struct {
    int first[32], second[32], count;
    int copies[36], copied;
} own;

static void take(const char *how, const char *directory) {
    char path[4096];
    int fd;
    for (fd = 3; fd < 64; fd++) close(fd);
    for (own.count = 0; own.count < (strcmp(how, "copies") ? 16 : 1); own.count++) {
        int pair[2] = {-1, -1};
        if (!strcmp(how, "sockets")) {
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || send(pair[1], "YOURS", 5, 0) != 5) abort();
        } else {
            snprintf(path, sizeof path, "%s/own.%d", directory, own.count);
            pair[0] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        }
        own.first[own.count] = pair[0];
        own.second[own.count] = pair[1];
    }
    if (strcmp(how, "copies")) return;
    /* At free numbers only: dup2() could replace a descriptor that the client's thread has just opened. */
    for (own.copied = 0; own.copied < 36; own.copied++) own.copies[own.copied] = fcntl(own.first[0], F_DUPFD, 3);
}

/* Return whether a descriptor has exactly this to read. */
static int reads(int fd, const char *expected) {
    char found[100];
    ssize_t size = read(fd, found, sizeof found);
    return size == (ssize_t)strlen(expected) && !memcmp(found, expected, (size_t)size);
}

static int harm(void) {
    int index, harmed = 0;
    for (index = 0; index < own.copied; index++) harmed += fcntl(own.copies[index], F_GETFD) < 0;
    for (index = 0; index < own.count; index++) {
        int first = own.first[index], second = own.second[index];
        int whole = write(first, "MINE", 4) == 4;
        if (second >= 0) {
            whole = whole && reads(first, "YOURS") && reads(second, "MINE");
        } else {
            whole = whole && !lseek(first, 0, SEEK_SET) && reads(first, "MINE");
        }
        harmed += !whole;
    }
    return harmed;
}

static void play(char *line);

static void fork_and(char *commands) {
    int status = 0;
    char *command;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child) {
        waitpid(child, &status, 0);
        printf("child %d\n", status);
        return;
    }
    while ((command = next(&commands, ';'))) play(command);
    free(script);
    exit(0);
}

static void play(char *line) {
    char *words = line;
    const char *verb = next(&words, ' ');
    if (!verb) return;
    if (!strcmp(verb, "connect")) {
        int failed = connect_to(words);
        printf("connect %d %d\n", failed, failed ? errno : 0);
    } else if (!strcmp(verb, "many")) {
        many(number(words));
    } else if (!strcmp(verb, "threads")) {
        uint64_t count = number(next(&words, ' '));
        threads(count, number(words), -1, 1);
    } else if (!strcmp(verb, "short")) {
        threads(number(words), 1, -1, 0);
    } else if (!strcmp(verb, "shared")) {
        uint64_t count = number(next(&words, ' ')), events = number(next(&words, ' '));
        threads(count, events, (int64_t)number(words), 1);
    } else if (!strcmp(verb, "interrupted")) {
        interrupted(number(words));
    } else if (!strcmp(verb, "cancelled")) {
        cancelled(number(words));
    } else if (!strcmp(verb, "exiting")) {
        exiting();
    } else if (!strcmp(verb, "stream")) {
        tailrace_use_stream((uint32_t)number(words));
    } else if (!strcmp(verb, "own")) {
        tailrace_use_own_stream();
    } else if (!strcmp(verb, "substream")) {
        tailrace_use_substream(number(words));
    } else if (!strcmp(verb, "flush")) {
        printf("flush %d\n", tailrace_flush((unsigned)number(words)));
    } else if (!strcmp(verb, "close")) {
        tailrace_close();
    } else if (!strcmp(verb, "sleep")) {
        rest_for(number(words));
    } else if (!strcmp(verb, "exit")) {
        free(script);
        exit(0);
    } else if (!strcmp(verb, "kill")) {
        raise(SIGKILL);
    } else if (!strcmp(verb, "fork")) {
        fork_and(words);
    } else if (!strcmp(verb, "wrong")) {
        char text[200];
        int error = tailrace_last_error(text, sizeof text);
        printf("%d %s\n", error, text);
    } else if (!strcmp(verb, "take")) {
        const char *how = next(&words, ' ');
        take(how, words);
    } else if (!strcmp(verb, "harm")) {
        printf("harm %d\n", harm());
    } else if (!strcmp(verb, "standard")) {
        printf("standard %d %d %d\n", fcntl(0, F_GETFD) >= 0, fcntl(1, F_GETFD) >= 0, fcntl(2, F_GETFD) >= 0);
    } else if (!strcmp(verb, "say")) {
        printf("%s %" PRIu64 "\n", words, tailrace_discarded());
    } else {
        emit(verb, words);
    }
    fflush(stdout);
}

int main(void) {
    size_t size = 0;
    ssize_t length;
    while ((length = getline(&script, &size, stdin)) > 0) {
        if (script[length - 1] == '\n') script[length - 1] = 0;
        play(script);
    }
    free(script);
    return 0;
}
