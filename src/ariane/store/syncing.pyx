"""A thread that does nothing but fdatasync, and never touches the interpreter.

A Python thread that syncs must take the interpreter's lock after each call, from a loop that is busy
with it; with a sync every half millisecond the two spend more on handing the lock over than on work
(docs/decisions/0010). This one is told by a semaphore and tells by an eventfd that the loop watches.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport uint64_t


cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    int pthread_create(pthread_t* thread, const void* attributes, void* (*run)(void*) noexcept nogil, void* given)
    int pthread_join(pthread_t thread, void** result)


cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass
    int sem_init(sem_t* semaphore, int shared, unsigned int value)
    int sem_post(sem_t* semaphore)
    int sem_wait(sem_t* semaphore)
    int sem_destroy(sem_t* semaphore)


cdef extern from "<sys/eventfd.h>" nogil:
    enum: EFD_CLOEXEC
    int eventfd(unsigned int value, int flags)


cdef extern from "<unistd.h>" nogil:
    int fdatasync(int descriptor)
    ssize_t read(int descriptor, void* buffer, size_t size)
    ssize_t write(int descriptor, const void* buffer, size_t size)
    int close(int descriptor)


cdef struct Work:
    sem_t wanted
    int descriptor   # what to sync; -1 ends the thread
    int fault        # errno of the last sync, 0 when it went well
    int ended        # the eventfd


cdef void* _run(void* given) noexcept nogil:
    cdef Work* work = <Work*> given
    cdef uint64_t one = 1
    while True:
        while sem_wait(&work.wanted) != 0:
            pass  # interrupted by a signal
        if work.descriptor < 0:
            return NULL
        while True:
            # A call that a signal ended did not fail: nothing was reported, so nothing is forgotten.
            work.fault = 0 if fdatasync(work.descriptor) == 0 else errno
            if work.fault != EINTR:
                break
        write(work.ended, &one, sizeof(one))


cdef class SyncThread:
    """One sync at a time: `begin`, wait until `ended` is readable, `take` the outcome."""

    cdef Work work
    cdef pthread_t thread
    cdef readonly bint is_busy
    cdef bint is_open

    def __cinit__(self):
        self.work.ended = eventfd(0, EFD_CLOEXEC)
        if self.work.ended < 0:
            raise OSError(errno, "cannot make an eventfd")
        sem_init(&self.work.wanted, 0, 0)
        cdef int fault = pthread_create(&self.thread, NULL, _run, &self.work)
        if fault:
            close(self.work.ended)
            raise OSError(fault, "cannot start a thread")
        self.is_open = True

    @property
    def ended(self) -> int:
        """A descriptor that can be read once the sync has ended."""
        return self.work.ended

    def begin(self, int descriptor) -> None:
        """Start to sync a file."""
        assert self.is_open and not self.is_busy and descriptor >= 0
        self.is_busy = True
        self.work.descriptor = descriptor
        sem_post(&self.work.wanted)

    def take(self) -> int:
        """The errno of the sync that was begun, 0 when all is on the platter; waits for its end."""
        assert self.is_busy
        cdef uint64_t count
        with nogil:
            while read(self.work.ended, &count, sizeof(count)) < 0 and errno == EINTR:
                pass
        self.is_busy = False
        return self.work.fault

    def close(self) -> None:
        """End the thread, after the sync under way."""
        if not self.is_open:
            return
        self.is_open = False
        self.work.descriptor = -1
        with nogil:
            sem_post(&self.work.wanted)
            pthread_join(self.thread, NULL)
        sem_destroy(&self.work.wanted)
        close(self.work.ended)

    def __dealloc__(self):
        self.close()
