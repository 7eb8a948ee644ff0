/*
 * Stands in for libovni, which is not to be had here: the functions that programs call, by their public
 * names, and the files of trace version 3. Like the real one it buffers 2 MiB per thread and writes when
 * that is full or ovni_flush is called; ovni_thread_free drops what is buffered; a wrong use ends the
 * program. Emits through ovni_ev_emit itself, as a library without hidden names does.
 */
#include "ovni_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 2 << 20 };

static struct {
    char loom[256];
    int app, pid;
} process;

static __thread struct {
    int ready, fd;
    pid_t tid;
    size_t used;
    unsigned char *buffer;
    char directory[4000];
} self;

static void die(const char *why) {
    fprintf(stderr, "ovni_writer: %s: %s\n", why, strerror(errno));
    abort();
}

uint64_t ovni_clock_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void ovni_proc_init(int app, const char *loom, int pid) {
    snprintf(process.loom, sizeof process.loom, "%s", loom);
    process.app = app;
    process.pid = pid;
}

void ovni_proc_fini(void) { process.app = 0; }

static void make_directory(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(self.directory, sizeof self.directory, format, arguments);
    va_end(arguments);
    if (mkdir(self.directory, 0755) && errno != EEXIST) die("mkdir");
}

static void write_all(int fd, const unsigned char *bytes, size_t size) {
    while (size) {
        ssize_t done = write(fd, bytes, size);
        if (done < 0) die("write");
        bytes += done;
        size -= (size_t)done;
    }
}

static void write_document(int finished) {
    char path[4096], text[1024];
    int fd, size = snprintf(text, sizeof text,
                            "{\n    \"version\": 3,\n    \"ovni\": {\n        \"lib\": {\"version\": \"1.14.0\", \"commit\": \"none\"},\n"
                            "        \"part\": \"thread\",\n        \"tid\": %d,\n        \"pid\": %d,\n        \"loom\": \"%s\",\n"
                            "        \"app_id\": %d,\n        \"require\": {\"ovni\": \"1.1.0\", \"nosv\": \"2.7.0\"}%s\n    }\n}\n",
                            self.tid, process.pid, process.loom, process.app, finished ? ",\n        \"finished\": 1" : "");
    snprintf(path, sizeof path, "%s/stream.json", self.directory);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) die("stream.json");
    write_all(fd, (const unsigned char *)text, (size_t)size);
    close(fd);
}

void ovni_thread_init(pid_t tid) {
    const char *top = getenv("OVNI_TRACEDIR");
    char path[4096];
    if (self.ready) die("the thread is ready already");
    top = top ? top : "ovni";
    self.tid = tid;
    make_directory("%s", top);
    make_directory("%s/loom.%s", top, process.loom);
    make_directory("%s/loom.%s/proc.%d", top, process.loom, process.pid);
    make_directory("%s/loom.%s/proc.%d/thread.%d", top, process.loom, process.pid, (int)tid);
    snprintf(path, sizeof path, "%s/stream.obs", self.directory);
    self.fd = open(path, O_WRONLY | O_CREAT, 0644);
    if (self.fd < 0) die("stream.obs");
    write_all(self.fd, (const unsigned char *)"ovni\1\0\0\0", 8);
    self.buffer = (unsigned char *)malloc(BUFFER);
    self.used = 0;
    self.ready = 1;
    write_document(0);
}

int ovni_thread_isready(void) { return self.ready; }

static void add(const void *bytes, size_t size) {
    memcpy(self.buffer + self.used, bytes, size);
    self.used += size;
}

static size_t payload_size(const struct ovni_ev *event) {
    return event->flags & 15 ? (size_t)(event->flags & 15) + 1 : 0;
}

static void put(const struct ovni_ev *event) {
    add(event, 4);
    add(&event->clock, 8);
    add(event->payload, payload_size(event));
}

static void say(const char *mcv) {
    struct ovni_ev event;
    memset(&event, 0, sizeof event);
    ovni_ev_set_clock(&event, ovni_clock_now());
    ovni_ev_set_mcv(&event, mcv);
    ovni_ev_emit(&event);
}

static void write_buffer(void) {
    write_all(self.fd, self.buffer, self.used);
    self.used = 0;
}

void ovni_flush(void) {
    if (!self.ready) die("flush of a thread that is not ready");
    if (!self.used) return;
    write_buffer();
    say("OF[");
    say("OF]");
}

void ovni_attr_flush(void) {
    if (!self.ready) die("attributes of a thread that is not ready");
    write_document(0);
}

void ovni_ev_set_clock(struct ovni_ev *event, uint64_t clock) { event->clock = clock; }

void ovni_ev_set_mcv(struct ovni_ev *event, const char *mcv) { memcpy(event->mcv, mcv, 3); }

void ovni_payload_add(struct ovni_ev *event, const uint8_t *bytes, int size) {
    size_t have = payload_size(event), all = have + (size_t)size;
    if (all < 2 || all > 16) die("payload");
    memcpy(event->payload + have, bytes, (size_t)size);
    event->flags = (uint8_t)((event->flags & 0xf0) | (all - 1));
}

void ovni_ev_emit(struct ovni_ev *event) {
    if (!self.ready) die("event of a thread that is not ready");
    if (self.used + 12 + payload_size(event) >= BUFFER) write_buffer();
    put(event);
}

void ovni_ev_jumbo_emit(struct ovni_ev *event, const uint8_t *data, uint32_t size) {
    if (!self.ready || size + 16u >= BUFFER) die("jumbo");
    if (self.used + 16 + size >= BUFFER) write_buffer();
    event->flags = 0x13;
    memcpy(event->payload, &size, 4);
    put(event);
    add(data, size);
}

static void mark(const char *mcv, int32_t type, int64_t value) {
    struct ovni_ev event;
    memset(&event, 0, sizeof event);
    ovni_ev_set_clock(&event, ovni_clock_now());
    ovni_ev_set_mcv(&event, mcv);
    ovni_payload_add(&event, (const uint8_t *)&value, 8);
    ovni_payload_add(&event, (const uint8_t *)&type, 4);
    ovni_ev_emit(&event);
}

void ovni_mark_push(int32_t type, int64_t value) { mark("OM[", type, value); }
void ovni_mark_pop(int32_t type, int64_t value) { mark("OM]", type, value); }
void ovni_mark_set(int32_t type, int64_t value) { mark("OM=", type, value); }

void ovni_thread_free(void) {
    if (!self.ready) die("free of a thread that is not ready");
    write_document(1);
    close(self.fd);
    free(self.buffer);
    self.ready = 0;
}
