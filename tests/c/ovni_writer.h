/* The functions that a program calls to trace with ovni. */
#ifndef OVNI_WRITER_H
#define OVNI_WRITER_H

#include <stdint.h>
#include <sys/types.h>

struct ovni_ev {
    uint8_t flags;
    uint8_t mcv[3];
    uint64_t clock;
    uint8_t payload[16];
};

uint64_t ovni_clock_now(void);
void ovni_proc_init(int app, const char *loom, int pid);
void ovni_proc_fini(void);
void ovni_thread_init(pid_t tid);
int ovni_thread_isready(void);
void ovni_thread_free(void);
void ovni_flush(void);
void ovni_attr_flush(void);
void ovni_ev_set_clock(struct ovni_ev *event, uint64_t clock);
void ovni_ev_set_mcv(struct ovni_ev *event, const char *mcv);
void ovni_payload_add(struct ovni_ev *event, const uint8_t *bytes, int size);
void ovni_ev_emit(struct ovni_ev *event);
void ovni_ev_jumbo_emit(struct ovni_ev *event, const uint8_t *data, uint32_t size);
void ovni_mark_push(int32_t type, int64_t value);
void ovni_mark_pop(int32_t type, int64_t value);
void ovni_mark_set(int32_t type, int64_t value);

#endif
