/* Emit events at a rate through LTTng-UST, as `programs.py` does: PROGRAM COUNT RATE SECONDS. */
#include <fcntl.h>
#include <lttng/tracef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int file = open(argv[1], O_RDWR);
    volatile uint64_t *count = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || count == MAP_FAILED) return 1;
    double rate = atof(argv[2]), seconds = atof(argv[3]), begun = now(), passed;
    uint64_t number = 0;
    while ((passed = now() - begun) < seconds) {
        uint64_t due = (uint64_t)(passed * rate);
        if (due > number + 2000) due = number + 2000;
        while (number < due) {
            *count = ++number;
            lttng_ust_tracef("step %lu", number);
        }
        usleep(500);
    }
    return 0;
}
