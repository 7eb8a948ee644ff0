/*
 * Loads plugins (plugin.c) as hosts do.
 *
 *     host late ADDRESS LIBRARY [stop]   unloads the library (after its stop function) while a thread that has emitted
 *                                        lives, and lets that thread end
 *     host turns ADDRESS LIBRARY COUNT   loads, uses and unloads it so often; prints how many descriptors, keys of threads
 *                                        and MiB of address space the host has more than after the first time
 *     host two ADDRESS LIBRARY LIBRARY   uses both (a, b) at once; the first one stops before the second one has done all
 */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct plugin {
    void *library;
    int (*start)(const char *address);
    void (*work)(uint64_t count);
    void (*stop)(void);
} plugin;

static void *find(void *library, const char *name, const char *what) {
    char symbol[100];
    void *found;
    snprintf(symbol, sizeof symbol, "%s_%s", name, what);
    found = dlsym(library, symbol);
    if (!found) abort();
    return found;
}

static plugin load(const char *path, const char *name, int flags) {
    plugin made;
    made.library = dlopen(path, RTLD_NOW | flags);
    if (!made.library) {
        puts(dlerror());
        exit(2);
    }
    *(void **)&made.start = find(made.library, name, "start");
    *(void **)&made.work = find(made.library, name, "work");
    *(void **)&made.stop = find(made.library, name, "stop");
    return made;
}

static plugin first;
static pthread_barrier_t worked, unloaded;

static void *work(void *nothing) {
    first.work(10);
    pthread_barrier_wait(&worked);
    pthread_barrier_wait(&unloaded);
    return nothing;
}

static void end_late(const char *address, const char *path, int stop) {
    pthread_t thread;
    pthread_barrier_init(&worked, NULL, 2);
    pthread_barrier_init(&unloaded, NULL, 2);
    first = load(path, "a", RTLD_LOCAL);
    if (first.start(address)) exit(3);
    pthread_create(&thread, NULL, work, NULL);
    pthread_barrier_wait(&worked);
    if (stop) first.stop();
    dlclose(first.library);
    pthread_barrier_wait(&unloaded);
    pthread_join(thread, NULL);
}

static int descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

static int mebibytes(void) {
    char line[200];
    FILE *file = fopen("/proc/self/status", "r");
    int found = 0;
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "VmSize:", 7)) found = atoi(line + 7) / 1024;
    fclose(file);
    return found;
}

/* The number of the next key. */
static int keys(void) {
    pthread_key_t key;
    if (pthread_key_create(&key, NULL)) return -1;
    pthread_key_delete(key);
    return (int)key;
}

static void use(const char *address, const char *path, int turn) {
    plugin used = load(path, "a", RTLD_LOCAL);
    if (used.start(address)) exit(3);
    used.work(10);
    if (turn % 2) used.stop();
    dlclose(used.library);
}

static void turns(const char *address, const char *path, int count) {
    int turn, before[3] = {0, 0, 0};
    for (turn = 0; turn < count; turn++) {
        use(address, path, turn);
        if (turn == count / 2) { /* by now the C library has all that it keeps */
            before[0] = descriptors();
            before[1] = keys();
            before[2] = mebibytes();
        }
    }
    printf("%d %d %d\n", descriptors() - before[0], keys() - before[1], mebibytes() - before[2]);
}

static void two(const char *address, const char *one, const char *other) {
    plugin a = load(one, "a", RTLD_GLOBAL), b = load(other, "b", RTLD_GLOBAL);
    printf("%d ", a.start(address));
    printf("%d\n", b.start(address));
    a.work(10);
    b.work(10);
    a.stop();
    b.work(10);
    b.stop();
}

int main(int count, char **words) {
    if (!strcmp(words[1], "late")) end_late(words[2], words[3], count > 4);
    if (!strcmp(words[1], "turns")) turns(words[2], words[3], atoi(words[4]));
    if (!strcmp(words[1], "two")) two(words[2], words[3], words[4]);
    return 0;
}
