"""Readiness of all of a server's sockets, told to its loop as one.

asyncio pays for every ready socket with a key, a handle and a call through a context. Here the
sockets share one `epoll`, and their callbacks run straight from what the system call returned: a
round. What is worth doing once for all requests of a round, such as writing their messages to the
log, is done at its end, by `call_soon`.

A loop of its own (`rounds_loop.py`) sleeps in `wait`, so that a socket costs no turn of the loop;
any other loop watches the poller as a single descriptor.

After a round the poller looks again before it sleeps: going to sleep and being woken costs more
than a few looks, and a peer that has just been answered often asks again within that time. A look
that finds something, or a sleep that was hardly one, pays for eight looks in vain, which is what a
sleep costs; so looking never takes more of the processor than sleeping would.
"""

cimport cython
from libc.errno cimport errno
from libc.math cimport ceil
from libc.stdint cimport uint32_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close

import asyncio
import os
import select

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/epoll.h>
    #else   /* `poller_of` gives none there; this is to be compiled all the same */
    #include <stdint.h>
    struct epoll_event { uint32_t events; union { int fd; } data; };
    enum { EPOLLIN = 1, EPOLLOUT = 4, EPOLL_CTL_ADD = 1, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLL_CLOEXEC = 0 };
    static int epoll_create1(int flags) { return -1; }
    static int epoll_ctl(int epoll, int operation, int descriptor, struct epoll_event* event) { return -1; }
    static int epoll_wait(int epoll, struct epoll_event* events, int count, int timeout_ms) { return -1; }
    #endif
    """
    ctypedef union epoll_data_t:
        int fd
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    enum: EPOLLIN, EPOLLOUT, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLL_CLOEXEC
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms) nogil

cdef enum:
    ROUND_EVENTS_ = 64      # then answers leave
    ROUNDS_MAX_ = 8         # in a row; then the loop's timers and its other descriptors have their turn
    LOOKS_MAX = 64          # in vain before it sleeps: some 30 microseconds
    LOOKS_STEP = 8          # more, for one that found something

cdef double SHORT_S = 4e-6  # so long take eight looks

ROUND_EVENTS = ROUND_EVENTS_
ROUNDS_MAX = ROUNDS_MAX_


@cython.final
cdef class Poller:
    """Calls back for readable and writable descriptors; stands in for the loop's own methods."""

    cdef object loop
    cdef int epoll              # -1: closed
    cdef int others             # what tells that the loop's other descriptors are ready; -1: the loop watches us
    cdef bint are_others_ready
    cdef int users
    cdef list readers           # by descriptor; None: nobody
    cdef list writers
    cdef list after
    cdef bint is_in_round
    cdef int looks              # in vain, that have been paid for
    cdef public bint is_loop_due    # it has more to do than to wait

    def __init__(self, loop, int others=-1):
        """`others` is a descriptor to watch on behalf of a loop that sleeps in `wait`."""
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, os.strerror(errno))
        self.loop = loop
        self.others = others
        self.users = 1
        self.readers = []
        self.writers = []
        self.after = []
        if others < 0:
            loop.add_reader(self.epoll, self.ready)
        else:
            self.control(EPOLL_CTL_ADD, others, EPOLLIN)

    def __dealloc__(self):
        if self.epoll >= 0:
            close(self.epoll)

    def share(self) -> Poller:
        """One more uses it, and closes it."""
        self.users += 1
        return self

    def close(self) -> None:
        """Watch nothing any more, once all who use it say so."""
        self.users -= 1
        if self.users == 0 and self.epoll >= 0:
            if self.others < 0:
                self.loop.remove_reader(self.epoll)
            close(self.epoll)
            self.epoll = -1

    def add_reader(self, int descriptor, callback) -> None:
        """Call back whenever the descriptor can be read."""
        self.watch(self.readers, descriptor, callback)

    def add_writer(self, int descriptor, callback) -> None:
        """Call back whenever the descriptor can be written."""
        self.watch(self.writers, descriptor, callback)

    def remove_reader(self, int descriptor) -> None:
        """Do not call back for reading any more."""
        self.leave(self.readers, descriptor)

    def remove_writer(self, int descriptor) -> None:
        """Do not call back for writing any more."""
        self.leave(self.writers, descriptor)

    def call_soon(self, callback) -> None:
        """Call once, when the sockets that are ready now have been served."""
        if self.is_in_round:
            self.after.append(callback)
        else:
            self.loop.call_soon(callback)

    cdef int watch(self, list side, int descriptor, callback) except -1:
        cdef uint32_t before
        if descriptor < 0:
            raise ValueError(f"{descriptor} is no descriptor")
        while len(self.readers) <= descriptor:
            self.readers.append(None)
            self.writers.append(None)
        before = self.interest(descriptor)
        side[descriptor] = callback
        return self.control(EPOLL_CTL_MOD if before else EPOLL_CTL_ADD, descriptor, self.interest(descriptor))

    cdef int leave(self, list side, int descriptor) except -1:
        cdef uint32_t rest
        if not 0 <= descriptor < len(side) or side[descriptor] is None:
            return 0
        side[descriptor] = None
        if self.epoll < 0:
            return 0
        rest = self.interest(descriptor)
        return self.control(EPOLL_CTL_MOD if rest else EPOLL_CTL_DEL, descriptor, rest)

    cdef uint32_t interest(self, int descriptor):
        return ((EPOLLIN if self.readers[descriptor] is not None else 0)
                | (EPOLLOUT if self.writers[descriptor] is not None else 0))

    cdef int control(self, int operation, int descriptor, uint32_t events) except -1:
        cdef epoll_event event
        event.events = events
        event.data.fd = descriptor
        if epoll_ctl(self.epoll, operation, descriptor, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    def ready(self) -> None:
        """Serve rounds as long as there is something, and the loop may wait."""
        cdef epoll_event[ROUND_EVENTS_] events
        cdef int count, i
        count = epoll_wait(self.epoll, events, ROUND_EVENTS_, 0)
        for i in range(ROUNDS_MAX_):
            self.serve(events, count)
            self.looks = max(self.looks, 1)
            count = self.look(events)
            if count <= 0:
                return

    def wait(self, timeout_s) -> bool:
        """Sleep and serve rounds until the loop has something to do: whether others are ready.

        That is when its time is up (None: never), something was asked of it, or others are ready.
        """
        cdef epoll_event[ROUND_EVENTS_] events
        cdef int count, rounds = 0
        cdef double end_s = -1, left_s = -1
        self.is_loop_due = self.are_others_ready = False
        if timeout_s is not None:
            left_s = timeout_s
            if left_s <= 0:
                self.is_loop_due = True
            end_s = now_s() + left_s
        while True:
            if self.is_loop_due:
                count = epoll_wait(self.epoll, events, ROUND_EVENTS_, 0)
            else:
                count = self.look(events)
                if count == 0:
                    if end_s >= 0:
                        left_s = end_s - now_s()
                        if left_s <= 0:
                            return False
                    rounds = 0
                    count = self.sleep(events, left_s)
            if count <= 0:  # time is up, or a signal came
                return False
            self.serve(events, count)
            if self.are_others_ready or self.epoll < 0:
                return self.are_others_ready
            rounds += 1
            if rounds % ROUNDS_MAX_ == 0 and (self.is_loop_due or (end_s >= 0 and now_s() >= end_s)):
                return False

    cdef int look(self, epoll_event* events) noexcept:
        """What is ready by now, or soon enough, as far as looking has been paid for."""
        cdef int count
        while self.looks > 0 and self.epoll >= 0:  # else it was closed meanwhile
            count = epoll_wait(self.epoll, events, ROUND_EVENTS_, 0)
            if count > 0:
                self.looks = min(self.looks + LOOKS_STEP, LOOKS_MAX)
            if count:
                return count
            self.looks -= 1
        return 0

    cdef int sleep(self, epoll_event* events, double left_s) noexcept:
        """The same, without looking; one that was hardly a sleep had better been a look."""
        cdef int timeout_ms = -1 if left_s < 0 else <int> min(ceil(left_s * 1000), 1e9), count
        cdef double began_s = now_s()
        with nogil:
            count = epoll_wait(self.epoll, events, ROUND_EVENTS_, timeout_ms)
        if count > 0 and now_s() - began_s < SHORT_S:
            self.looks = min(self.looks + LOOKS_STEP, LOOKS_MAX)
        return count

    cdef int serve(self, epoll_event* events, int count) except -1:
        """One round."""
        cdef int i, descriptor
        cdef uint32_t mask
        self.is_in_round = True
        try:
            for i in range(count):
                descriptor = events[i].data.fd
                mask = events[i].events
                if descriptor == self.others:
                    self.are_others_ready = True
                    continue
                # Errors and hang-ups show when the socket is read or written.
                if mask != EPOLLOUT:
                    self.call(self.readers[descriptor])
                if mask != EPOLLIN:
                    self.call(self.writers[descriptor])
            while self.after:
                after = self.after
                self.after = []
                for callback in after:
                    self.call(callback)
        finally:
            self.is_in_round = False
        return 0

    cdef int call(self, callback) except -1:
        """One socket's fault must not keep the others waiting."""
        if callback is None:
            return 0
        try:
            callback()
        except Exception as error:
            self.loop.call_exception_handler(
                {"message": f"a callback for a socket failed: {callback}", "exception": error})
        return 0


cdef inline double now_s() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


def poller_of(loop: asyncio.AbstractEventLoop) -> Poller | None:
    """A poller for the loop's sockets; None where there is no epoll. Whoever asks closes it."""
    own = getattr(loop, "poller", None)
    if own is not None:
        return own.share()
    return Poller(loop) if hasattr(select, "epoll") else None
