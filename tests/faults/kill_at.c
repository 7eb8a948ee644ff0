/* Death between any two changes of a file system: LD_PRELOAD this library.
 *
 * kill_at(n, part) makes the process die by SIGKILL in place of its n-th change (counted from 1) of
 * anything whose path contains `part`. Changes are what can be seen after a death: making, writing,
 * naming and removing files. A write is done by half first, so that what is torn is seen, too.
 *
 * Only libc's functions are caught, which is what Python and Rust's standard library call.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_int left;
static char part[PATH_MAX];

void kill_at(int n, const char *name)
{
    snprintf(part, sizeof part, "%s", name);
    left = n;
}

/* How many changes are left until the one that is not survived. */
int changes_left(void)
{
    return left;
}

static int dies(const char *path)
{
    return left > 0 && path && strstr(path, part) && atomic_fetch_sub(&left, 1) == 1;
}

static int dies_at(int fd)
{
    char link[64], path[PATH_MAX + 1];
    if (left <= 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0)
        return 0;
    path[length] = '\0';
    return dies(path);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    pause();
}

#define REAL(type, name, parameters)        \
    static type(*real) parameters;          \
    if (!real)                              \
        *(void **)&real = dlsym(RTLD_NEXT, #name)

#define NAMES(name, parameters, arguments, path) \
    int name parameters                          \
    {                                            \
        REAL(int, name, parameters);             \
        if (dies(path))                          \
            die();                               \
        return real arguments;                   \
    }

NAMES(rename, (const char *from, const char *to), (from, to), to)
NAMES(link, (const char *from, const char *to), (from, to), to)
NAMES(unlink, (const char *path), (path), path)
NAMES(mkdir, (const char *path, mode_t mode), (path, mode), path)
NAMES(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), to)
NAMES(linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags), to)
NAMES(unlinkat, (int fd, const char *path, int flags), (fd, path, flags), path)

#define OPENS(name, parameters, path, arguments)                    \
    int name parameters                                             \
    {                                                               \
        mode_t mode = 0;                                            \
        REAL(int, name, parameters);                                \
        if (flags & O_CREAT) {                                      \
            va_list more;                                           \
            va_start(more, flags);                                  \
            mode = va_arg(more, mode_t);                            \
            va_end(more);                                           \
            if (dies(path))                                         \
                die();                                              \
        }                                                           \
        return real arguments;                                      \
    }

OPENS(open, (const char *path, int flags, ...), path, (path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), path, (path, flags, mode))
OPENS(openat, (int fd, const char *path, int flags, ...), path, (fd, path, flags, mode))
OPENS(openat64, (int fd, const char *path, int flags, ...), path, (fd, path, flags, mode))

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(ssize_t, write, (int, const void *, size_t));
    if (dies_at(fd)) {
        real(fd, data, size / 2);
        die();
    }
    return real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    REAL(ssize_t, pwrite, (int, const void *, size_t, off_t));
    if (dies_at(fd)) {
        real(fd, data, size / 2, at);
        die();
    }
    return real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    REAL(ssize_t, pwrite64, (int, const void *, size_t, off64_t));
    if (dies_at(fd)) {
        real(fd, data, size / 2, at);
        die();
    }
    return real(fd, data, size, at);
}

#define WRITES_PIECES(name, offset)                                                          \
    ssize_t name(int fd, const struct iovec *pieces, int count, offset at, int flags)        \
    {                                                                                        \
        REAL(ssize_t, name, (int, const struct iovec *, int, offset, int));                  \
        if (dies_at(fd)) {                                                                   \
            struct iovec half = {pieces[0].iov_base, pieces[0].iov_len / 2};                 \
            count > 1 ? real(fd, pieces, count / 2, at, flags) : real(fd, &half, 1, at, flags); \
            die();                                                                           \
        }                                                                                    \
        return real(fd, pieces, count, at, flags);                                           \
    }

WRITES_PIECES(pwritev2, off_t)
WRITES_PIECES(pwritev64v2, off64_t)

int ftruncate(int fd, off_t size)
{
    REAL(int, ftruncate, (int, off_t));
    if (dies_at(fd))
        die();
    return real(fd, size);
}
