/* A disk that fails on command, for any program: LD_PRELOAD this library.
 *
 *     TAILRACE_FAULT_PATH    a file's path must contain this, or nothing happens to it
 *     TAILRACE_FAULT_SYNC    while this file exists, fsync, fdatasync and syncfs fail with EIO
 *     TAILRACE_FAULT_WAIT    while this file exists, they wait
 *     TAILRACE_FAULT_SPACE   while this file exists, writing and preallocating fail with ENOSPC
 *
 * A sync that fails does nothing, so what it was for is in the page cache only; a write that
 * fails writes nothing. Both are as on a real disk at its worst, except that a real one may lose
 * the pages as well. preload.py is its other half and says how to use the two.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* Whether the trigger named by `variable` exists and `fd` is one of the files meant. Keeps errno. */
static int failing(const char *variable, int fd)
{
    const char *trigger = getenv(variable);
    const char *part = getenv("TAILRACE_FAULT_PATH");
    char link[64], path[PATH_MAX + 1];
    int saved = errno, result = 0;

    if (trigger && part && access(trigger, F_OK) == 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, PATH_MAX);
        if (length >= 0) {
            path[length] = '\0';
            result = strstr(path, part) != NULL;
        }
    }
    errno = saved;
    return result;
}

/* Define `name` to fail with `error` while `variable`'s trigger exists, and else to do its work. */
#define FAILS(variable, error, type, name, parameters, arguments) \
    type name parameters                                          \
    {                                                             \
        static type (*real) parameters;                           \
        if (!real)                                                \
            *(void **)&real = dlsym(RTLD_NEXT, #name);            \
        if (failing(variable, fd)) {                              \
            errno = error;                                        \
            return -1;                                            \
        }                                                         \
        return real arguments;                                    \
    }

#define FAILS_TO_SYNC(name)                                       \
    int name(int fd)                                              \
    {                                                             \
        static int (*real)(int);                                  \
        if (!real)                                                \
            *(void **)&real = dlsym(RTLD_NEXT, #name);            \
        while (failing("TAILRACE_FAULT_WAIT", fd))                \
            usleep(5000);                                         \
        if (failing("TAILRACE_FAULT_SYNC", fd)) {                 \
            errno = EIO;                                          \
            return -1;                                            \
        }                                                         \
        return real(fd);                                          \
    }

#define FAILS_TO_WRITE(name, parameters, arguments) \
    FAILS("TAILRACE_FAULT_SPACE", ENOSPC, ssize_t, name, parameters, arguments)

FAILS_TO_SYNC(fsync)
FAILS_TO_SYNC(fdatasync)
FAILS_TO_SYNC(syncfs)

FAILS_TO_WRITE(write, (int fd, const void *data, size_t size), (fd, data, size))
FAILS_TO_WRITE(writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
FAILS_TO_WRITE(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
FAILS_TO_WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
FAILS_TO_WRITE(pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at))
FAILS_TO_WRITE(pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at))
FAILS_TO_WRITE(pwritev2, (int fd, const struct iovec *parts, int count, off_t at, int flags),
               (fd, parts, count, at, flags))
FAILS_TO_WRITE(pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t at, int flags),
               (fd, parts, count, at, flags))
FAILS("TAILRACE_FAULT_SPACE", ENOSPC, int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
FAILS("TAILRACE_FAULT_SPACE", ENOSPC, int, fallocate64, (int fd, int mode, off64_t at, off64_t size),
      (fd, mode, at, size))

/* These two return the error and leave errno alone. */
#define FAILS_TO_PREALLOCATE(name, offset)                          \
    int name(int fd, offset at, offset size)                        \
    {                                                               \
        static int (*real)(int, offset, offset);                    \
        if (!real)                                                  \
            *(void **)&real = dlsym(RTLD_NEXT, #name);              \
        return failing("TAILRACE_FAULT_SPACE", fd) ? ENOSPC : real(fd, at, size); \
    }

FAILS_TO_PREALLOCATE(posix_fallocate, off_t)
FAILS_TO_PREALLOCATE(posix_fallocate64, off64_t)
