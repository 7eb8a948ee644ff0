# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Read datagrams from a socket in a thread that does not wait for Python.

The thread does not hold the GIL. It reads into one of two buffers (slabs). `take` makes the thread switch to the other
slab, and then packs the datagrams of the first slab. While its slab is full, datagrams wait in the kernel."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, ECONNREFUSED, EINTR, errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset, strlen
from posix.unistd cimport close, read, write

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout)
    short POLLIN

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t *thread, void *attributes, void *(*run)(void *) noexcept nogil, void *with_)
    int pthread_join(pthread_t thread, void **result)
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int pthread_cond_init(pthread_cond_t *cond, void *attributes)
    int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
    int pthread_cond_signal(pthread_cond_t *cond)
    int pthread_cond_destroy(pthread_cond_t *cond)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *set)
    int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
    int SIG_SETMASK

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int value, int flags)
    int EFD_CLOEXEC
    int EFD_NONBLOCK

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/socket.h>
    #include <netdb.h>
    #include <netinet/in.h>
    """

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    struct iovec:
        void *iov_base
        size_t iov_len
    struct msghdr:
        void *msg_name
        socklen_t msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
        int msg_flags
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    struct sockaddr:
        pass
    struct cmsghdr:
        int cmsg_level
        int cmsg_type
    cmsghdr *CMSG_FIRSTHDR(msghdr *message)
    unsigned char *CMSG_DATA(cmsghdr *control)
    int recvmmsg(int fd, mmsghdr *messages, unsigned int count, int flags, void *timeout)
    int MSG_DONTWAIT
    int SOL_SOCKET
    int SO_RXQ_OVFL

cdef extern from "<netdb.h>" nogil:
    int getnameinfo(
        const sockaddr *address, socklen_t size, char *host, socklen_t host_size, char *port,
        socklen_t port_size, int flags,
    )
    int NI_NUMERICHOST
    int NI_NUMERICSERV

cdef enum:
    AT_ONCE = 32  # maximum number of datagrams that one system call reads
    LONGEST = 65536  # maximum size (bytes) of a datagram
    ADDRESS = 28  # bytes of a sockaddr_in6
    CONTROL = 8  # number of 8-byte words for the data that the kernel attaches to a datagram; it needs fewer

cdef struct Head:
    # The header in front of each datagram in a slab. `drops` is the number of datagrams that the kernel had dropped when
    # it queued this one. `take` sets `group`.
    uint32_t size
    uint32_t address_size
    uint32_t group
    uint32_t drops
    uint8_t address[ADDRESS]

cdef struct Slab:
    uint8_t *bytes
    size_t used
    size_t datagrams

cdef struct Group:
    const uint8_t *address
    uint32_t address_size
    uint32_t datagrams
    uint32_t before
    uint32_t drops
    bint begins
    size_t bytes
    uint8_t *sizes_at
    uint8_t *data_at

cdef struct Shared:
    int fd
    int wake
    int stop
    size_t room
    unsigned int nap
    pthread_mutex_t mutex
    pthread_cond_t emptied
    Slab *filling
    bint stopping
    int error
    uint8_t *scratch


cdef void *_run(void *argument) noexcept nogil:
    cdef Shared *shared = <Shared *>argument
    cdef mmsghdr messages[AT_ONCE]
    cdef iovec parts[AT_ONCE]
    cdef uint8_t addresses[AT_ONCE][ADDRESS]
    cdef uint64_t controls[AT_ONCE][CONTROL]
    cdef pollfd waited[2]
    cdef sigset_t all_signals
    cdef uint64_t one = 1
    cdef int i, count
    cdef size_t longest = LONGEST + sizeof(Head)
    cdef size_t fit
    sigfillset(&all_signals)
    pthread_sigmask(SIG_SETMASK, &all_signals, NULL)  # Python's threads handle all signals
    memset(messages, 0, sizeof(messages))
    waited[0].fd, waited[0].events = shared.fd, POLLIN
    waited[1].fd, waited[1].events = shared.stop, POLLIN
    for i in range(AT_ONCE):
        parts[i].iov_base = shared.scratch + i * LONGEST
        parts[i].iov_len = LONGEST
        messages[i].msg_hdr.msg_iov = &parts[i]
        messages[i].msg_hdr.msg_iovlen = 1
        messages[i].msg_hdr.msg_name = &addresses[i][0]
        messages[i].msg_hdr.msg_control = &controls[i][0]
    while True:
        pthread_mutex_lock(&shared.mutex)
        while not shared.stopping and shared.filling.used + longest > shared.room:
            pthread_cond_wait(&shared.emptied, &shared.mutex)
        if shared.stopping:
            pthread_mutex_unlock(&shared.mutex)
            return NULL
        fit = min((shared.room - shared.filling.used) // longest, <size_t>AT_ONCE)
        pthread_mutex_unlock(&shared.mutex)
        for i in range(AT_ONCE):
            messages[i].msg_hdr.msg_namelen = ADDRESS
            messages[i].msg_hdr.msg_controllen = sizeof(controls[0])
        count = recvmmsg(shared.fd, messages, <unsigned int>fit, MSG_DONTWAIT, NULL)
        if count > 0:
            pthread_mutex_lock(&shared.mutex)
            if not shared.filling.datagrams:
                write(shared.wake, &one, sizeof(one))
            for i in range(count):
                _keep(shared.filling, &messages[i], &addresses[i][0], <uint8_t *>parts[i].iov_base)
            pthread_mutex_unlock(&shared.mutex)
        elif count == 0 or errno == EAGAIN:
            poll(waited, 2, -1)
            if shared.nap:
                usleep(shared.nap)
        elif errno != EINTR and errno != ECONNREFUSED:  # ECONNREFUSED: an earlier reply did not reach its peer
            pthread_mutex_lock(&shared.mutex)
            shared.error = errno
            write(shared.wake, &one, sizeof(one))
            pthread_mutex_unlock(&shared.mutex)
            return NULL


cdef void _keep(Slab *slab, mmsghdr *message, const uint8_t *address, const uint8_t *data) noexcept nogil:
    cdef Head *head = <Head *>(slab.bytes + slab.used)
    cdef cmsghdr *control = CMSG_FIRSTHDR(&message.msg_hdr)
    head.drops = 0
    if control != NULL and control.cmsg_level == SOL_SOCKET and control.cmsg_type == SO_RXQ_OVFL:
        memcpy(&head.drops, CMSG_DATA(control), sizeof(head.drops))
    head.size = message.msg_len
    head.address_size = min(message.msg_hdr.msg_namelen, <socklen_t>ADDRESS)
    memcpy(head.address, address, ADDRESS)
    memcpy(slab.bytes + slab.used + sizeof(Head), data, message.msg_len)
    slab.used += sizeof(Head) + (message.msg_len + 7) // 8 * 8
    slab.datagrams += 1


cdef class Pump:
    """Reads datagrams from a socket in a thread of its own, until `stop` is called.

    `wake` is a file descriptor that becomes readable when `take` has datagrams."""

    cdef Shared shared
    cdef Slab slabs[2]
    cdef pthread_t thread
    cdef bint running
    cdef readonly int wake

    def __cinit__(self, int fd, size_t room, unsigned int nap = 0):
        """Start the thread, which reads from the socket `fd` into two slabs of `room` bytes each.

        Raise OSError or MemoryError if the thread cannot start. After a wait for a datagram, the thread sleeps for `nap`
        microseconds, so that one call reads several."""
        cdef Shared *shared = &self.shared
        self.wake = shared.wake = shared.stop = -1
        pthread_mutex_init(&shared.mutex, NULL)
        pthread_cond_init(&shared.emptied, NULL)
        shared.fd = fd
        shared.nap = nap
        shared.room = max(room, LONGEST + sizeof(Head))
        shared.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        shared.stop = eventfd(0, EFD_CLOEXEC)
        if shared.wake < 0 or shared.stop < 0:
            raise OSError(errno, "no descriptor for the thread that receives")
        self.wake = shared.wake
        shared.scratch = <uint8_t *>malloc(AT_ONCE * LONGEST)
        self.slabs[0].bytes = <uint8_t *>malloc(shared.room)
        self.slabs[1].bytes = <uint8_t *>malloc(shared.room)
        if not shared.scratch or not self.slabs[0].bytes or not self.slabs[1].bytes:
            raise MemoryError
        shared.filling = &self.slabs[0]
        cdef int failed = pthread_create(&self.thread, NULL, _run, shared)
        if failed:
            raise OSError(failed, "no thread that receives")
        self.running = True

    def __dealloc__(self):
        self._stop()
        pthread_mutex_destroy(&self.shared.mutex)
        pthread_cond_destroy(&self.shared.emptied)
        for fd in (self.shared.wake, self.shared.stop):
            if fd >= 0:
                close(fd)
        free(self.shared.scratch)
        free(self.slabs[0].bytes)
        free(self.slabs[1].bytes)

    def stop(self):
        """End the thread. `take` still returns what the thread has read; later datagrams wait in the kernel."""
        self._stop()

    cdef void _stop(self) noexcept:
        cdef uint64_t one = 1
        if not self.running:
            return
        self.running = False
        with nogil:
            pthread_mutex_lock(&self.shared.mutex)
            self.shared.stopping = True
            pthread_cond_signal(&self.shared.emptied)
            pthread_mutex_unlock(&self.shared.mutex)
            write(self.shared.stop, &one, sizeof(one))
            pthread_join(self.thread, NULL)

    def take(self, size_t chunk, size_t parts):
        """Return the datagrams that the thread has read since the last call, in about `parts` parts or fewer.

        A part begins where the kernel has dropped datagrams. It is a tuple: the payloads by peer (host, port), and the
        numbers of datagrams that were dropped before its first and before its last datagram. A payload has at most
        `chunk` bytes of datagrams, or one longer datagram (format: `spool.entry.pack_datagrams`). Raise OSError if the
        socket has failed."""
        cdef uint64_t wakes
        cdef Slab *slab
        cdef int error
        with nogil:
            pthread_mutex_lock(&self.shared.mutex)
            read(self.shared.wake, &wakes, sizeof(wakes))
            slab = self.shared.filling
            self.shared.filling = &self.slabs[1] if slab == &self.slabs[0] else &self.slabs[0]
            error, self.shared.error = self.shared.error, 0
            pthread_cond_signal(&self.shared.emptied)
            pthread_mutex_unlock(&self.shared.mutex)
        try:
            found = self._packed(slab, chunk, parts) if slab.datagrams else []
            if error:
                raise OSError(error, "the socket failed")
            return found
        finally:
            slab.used = slab.datagrams = 0

    cdef list _packed(self, Slab *slab, size_t chunk, size_t parts):
        cdef size_t groups_max = slab.datagrams, table_size = 64, count = 0
        while table_size < 2 * groups_max:
            table_size *= 2
        cdef Group *groups = <Group *>calloc(groups_max, sizeof(Group))
        cdef uint32_t *table = <uint32_t *>calloc(table_size, sizeof(uint32_t))  # hash table of each peer's newest group, counted from 1
        cdef list found = []
        cdef list payloads = []
        cdef size_t i, n
        try:
            if not groups or not table:
                raise MemoryError
            with nogil:
                count = _group(slab, groups, table, table_size, chunk, slab.datagrams // parts)
            for i in range(count):
                n = 4 + 4 * groups[i].datagrams
                payload = PyBytes_FromStringAndSize(NULL, n + groups[i].bytes)
                payloads.append(payload)
                groups[i].sizes_at = <uint8_t *>PyBytes_AS_STRING(payload) + 4
                groups[i].data_at = <uint8_t *>PyBytes_AS_STRING(payload) + n
                memcpy(groups[i].sizes_at - 4, &groups[i].datagrams, 4)
            with nogil:
                _fill(slab, groups)
            for i in range(count):
                if groups[i].begins:
                    by_peer = {}
                    found.append((by_peer, groups[i].before, groups[i].drops))
                peer = _peer(&groups[i])
                by_peer.setdefault(peer, []).append(payloads[i])
            return found
        finally:
            free(groups)
            free(table)


cdef size_t _group(
    Slab *slab, Group *groups, uint32_t *table, size_t table_size, size_t chunk, size_t least
) noexcept nogil:
    """Assign each datagram of a slab to a group, which becomes one payload. Return the number of groups.

    A part ends where the kernel dropped datagrams, after more than `least` datagrams. Its first group has `begins` set,
    and the part's numbers of dropped datagrams."""
    cdef size_t at = 0, count = 0, slot, first = 0, datagrams = 0
    cdef Head *head
    cdef Group *group
    while at < slab.used:
        head = <Head *>(slab.bytes + at)
        if datagrams > least and head.drops != groups[first].drops:
            memset(table, 0, table_size * sizeof(uint32_t))
            first, datagrams = count, 0
        datagrams += 1
        slot = _hash(head) & (table_size - 1)
        group = NULL
        while table[slot]:
            group = &groups[table[slot] - 1]
            if group.address_size == head.address_size and not memcmp(
                group.address, head.address, head.address_size
            ):
                break
            slot = (slot + 1) & (table_size - 1)
            group = NULL
        if group == NULL or group.bytes + head.size > chunk:
            group = &groups[count]
            group.address, group.address_size = head.address, head.address_size
            group.begins = count == first
            group.before = head.drops
            count += 1
            table[slot] = count
        groups[first].drops = head.drops
        head.group = <uint32_t>(group - groups)
        group.datagrams += 1
        group.bytes += head.size
        at += sizeof(Head) + (head.size + 7) // 8 * 8
    return count


cdef inline uint64_t _hash(const Head *head) noexcept nogil:
    cdef uint64_t hash = 0xCBF29CE484222325ULL
    cdef uint32_t i
    for i in range(head.address_size):
        hash = (hash ^ head.address[i]) * 0x100000001B3ULL
    return hash ^ (hash >> 32)


cdef void _fill(Slab *slab, Group *groups) noexcept nogil:
    cdef size_t at = 0
    cdef Head *head
    cdef Group *group
    while at < slab.used:
        head = <Head *>(slab.bytes + at)
        group = &groups[head.group]
        memcpy(group.sizes_at, &head.size, 4)
        group.sizes_at += 4
        memcpy(group.data_at, slab.bytes + at + sizeof(Head), head.size)
        group.data_at += head.size
        at += sizeof(Head) + (head.size + 7) // 8 * 8


cdef object _peer(const Group *group):
    cdef char host[64]
    cdef char port[8]
    cdef int failed = getnameinfo(
        <const sockaddr *>group.address, group.address_size, host, sizeof(host), port, sizeof(port),
        NI_NUMERICHOST | NI_NUMERICSERV,
    )
    if failed:
        raise OSError(f"an address of {group.address_size} bytes has no text: error {failed}")
    return host[:strlen(host)].decode("ascii"), int(port[:strlen(port)])
