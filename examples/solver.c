/*
 * Trace a solver in C: heat in a plate, by Jacobi's method, on two threads. Each thread is a stream. A
 * sweep over its rows is a span, its wait for the others is another, and the first thread's counter says
 * how far the solution is from its end. Without a collector, each call costs a load and a branch.
 *
 *     cc -O2 -I clients/c examples/solver.c -o /tmp/solver -pthread -lm
 *     tailrace run --store /tmp/solved -- /tmp/solver
 *
 * Afterwards, ask how much of its time each thread waited:
 *
 *     tailrace query --store /tmp/solved "
 *         SELECT stream, name, sum(duration) / 1e6 AS ms FROM spans GROUP BY ALL ORDER BY ALL"
 */
#define _POSIX_C_SOURCE 200809L
#define TAILRACE_IMPLEMENTATION
#include "tailrace.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum { SIDE = 194, THREADS = 2, SWEEPS = 400, REPORT_EVERY = 50 };

static double plates[2][SIDE][SIDE];
static double residuals[THREADS];
static pthread_barrier_t everybody;

/* Sweep once over the rows [first, last), from plate to next. Return the largest change of a cell. */
static double sweep(double (*plate)[SIDE], double (*next)[SIDE], int first, int last) {
    double largest = 0;
    for (int y = first; y < last; y++) {
        for (int x = 1; x < SIDE - 1; x++) {
            next[y][x] = (plate[y - 1][x] + plate[y + 1][x] + plate[y][x - 1] + plate[y][x + 1]) / 4;
            largest = fmax(largest, fabs(next[y][x] - plate[y][x]));
        }
    }
    return largest;
}

static void meet(void) {
    tailrace_span waiting = tailrace_begin("wait");
    pthread_barrier_wait(&everybody);
    tailrace_end(&waiting);
}

static void *work(void *argument) {
    const int thread = *(const int *)argument;
    const int rows = (SIDE - 2) / THREADS;
    const int first = 1 + thread * rows;
    for (int number = 0; number < SWEEPS; number++) {
        tailrace_span span = tailrace_begin("sweep");
        residuals[thread] = sweep(plates[number % 2], plates[(number + 1) % 2], first, first + rows);
        tailrace_end(&span, tailrace_i64("number", number), tailrace_f64("residual", residuals[thread]));
        meet();
        if (thread == 0 && number % REPORT_EVERY == 0) {
            tailrace_counter("residual", fmax(residuals[0], residuals[1]), tailrace_i64("sweep", number));
        }
        meet();
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    if (tailrace_connect(NULL, &(tailrace_options){.process = "solver"}) != 0) {
        perror("not traced");
    }
    for (int x = 0; x < SIDE; x++) {
        plates[0][0][x] = plates[1][0][x] = 100; /* one edge is hot */
    }
    pthread_barrier_init(&everybody, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, work, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    tailrace_event("solved", tailrace_i64("sweeps", SWEEPS), tailrace_str("method", "Jacobi"));
    printf("residual %g after %d sweeps\n", fmax(residuals[0], residuals[1]), SWEEPS);
    tailrace_close();
    return 0;
}
