/* A library with a client of its own, under names that begin with PLUGIN: what a host loads with dlopen. */
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)

int JOIN(PLUGIN, _start)(const char *address);
void JOIN(PLUGIN, _work)(uint64_t count);
void JOIN(PLUGIN, _stop)(void);

int JOIN(PLUGIN, _start)(const char *address) {
    tailrace_options options;
    memset(&options, 0, sizeof options);
    options.linger_ms = 20000;
    return tailrace_connect(address, &options);
}

void JOIN(PLUGIN, _work)(uint64_t count) {
    uint64_t index;
    for (index = 0; index < count; index++) tailrace_event(TEXT(PLUGIN), tailrace_u64("index", index));
}

void JOIN(PLUGIN, _stop)(void) { tailrace_close(); }
