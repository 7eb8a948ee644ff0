/*
 * A program that traces with ovni and knows nothing of being followed. Commands on standard input, each
 * answered with a line:
 *
 *     begin             this thread begins its stream
 *     spans COUNT MS    so many spans, MS apart
 *     rest MS
 *     kinds             an event of every kind: plain, with payload, jumbo, marks
 *     threads N COUNT   N threads, each of COUNT spans, with streams of their own; they free without a flush
 *     fork              a child emits COUNT spans into what it has inherited, and exits
 *     time COUNT        prints the nanoseconds that a span takes
 *     flush | free
 */
#define _GNU_SOURCE
#include "ovni_writer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void emit(const char *mcv) {
    struct ovni_ev event;
    memset(&event, 0, sizeof event);
    ovni_ev_set_clock(&event, ovni_clock_now());
    ovni_ev_set_mcv(&event, mcv);
    ovni_ev_emit(&event);
}

static void rest(long ms) {
    struct timespec pause;
    pause.tv_sec = 0;
    pause.tv_nsec = ms * 1000000;
    nanosleep(&pause, NULL);
}

static void spans(long count, long ms) {
    long index;
    for (index = 0; index < count; index++) {
        emit("VU[");
        emit("VU]");
        if (ms) rest(ms);
    }
}

static void execute(const char *mcv) {
    struct ovni_ev event;
    int32_t cpu = 0, creator = -1;
    uint64_t tag = 0;
    memset(&event, 0, sizeof event);
    ovni_ev_set_clock(&event, ovni_clock_now());
    ovni_ev_set_mcv(&event, mcv);
    ovni_payload_add(&event, (const uint8_t *)&cpu, 4);
    ovni_payload_add(&event, (const uint8_t *)&creator, 4);
    ovni_payload_add(&event, (const uint8_t *)&tag, 8);
    ovni_ev_emit(&event);
}

static void begin(void) {
    ovni_thread_init((pid_t)syscall(SYS_gettid));
    execute("OHx");
}

static void *work(void *count) {
    begin();
    spans(*(long *)count, 0);
    emit("OHe");
    ovni_thread_free();
    return NULL;
}

static void threads(long many, long count) {
    pthread_t made[64];
    long index;
    for (index = 0; index < many; index++) pthread_create(&made[index], NULL, work, &count);
    for (index = 0; index < many; index++) pthread_join(made[index], NULL);
}

static void kinds(void) {
    static const uint8_t label[] = "\1\0\0\0a label of a type";
    struct ovni_ev event;
    memset(&event, 0, sizeof event);
    ovni_ev_set_clock(&event, ovni_clock_now());
    ovni_ev_set_mcv(&event, "VYc");
    ovni_ev_jumbo_emit(&event, label, sizeof label);
    ovni_mark_push(1, 5);
    ovni_mark_pop(1, 5);
    ovni_mark_set(2, 6);
}

int main(void) {
    char line[100];
    ovni_proc_init(1, "host.1", getpid());
    while (fgets(line, sizeof line, stdin)) {
        long one = 0, two = 0;
        char verb[20];
        sscanf(line, "%19s %ld %ld", verb, &one, &two);
        if (!strcmp(verb, "begin")) begin();
        if (!strcmp(verb, "spans")) spans(one, two);
        if (!strcmp(verb, "kinds")) kinds();
        if (!strcmp(verb, "rest")) rest(one);
        if (!strcmp(verb, "threads")) threads(one, two);
        if (!strcmp(verb, "flush")) ovni_flush();
        if (!strcmp(verb, "free")) {
            emit("OHe");
            ovni_thread_free();
        }
        if (!strcmp(verb, "fork")) {
            fflush(stdout);
            if (!fork()) {
                spans(one, 20);
                _exit(0);
            }
            wait(NULL);
        }
        if (!strcmp(verb, "time")) {
            uint64_t before = ovni_clock_now();
            spans(one, 0);
            printf("%.1f\n", (double)(ovni_clock_now() - before) / (double)one);
        } else {
            printf("%s\n", verb);
        }
        fflush(stdout);
    }
    return 0;
}
