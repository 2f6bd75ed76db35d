"""A connected socket, read and written with nothing around the system call (docs/decisions/0024).

Python's own socket checks for a timeout, lets go of the interpreter and takes it again with every call; for a socket
that never blocks that is most of what the call costs.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno


cdef extern from "<sys/socket.h>" nogil:
    """
    #include <sys/ioctl.h>
    #ifdef __linux__
    #include <linux/sockios.h>      /* SIOCOUTQ */
    #endif
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0          /* Python ignores the signal anyway */
    #endif
    static int untaken_bytes(int descriptor)
    {
        int count = 0;
    #ifdef SIOCOUTQ
        if (ioctl(descriptor, SIOCOUTQ, &count) != 0)
            return 0;
    #endif
        return count;
    }
    """
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    int untaken_bytes(int descriptor)
    ssize_t recv(int descriptor, void* buffer, size_t size, int flags)
    ssize_t send(int descriptor, const void* buffer, size_t size, int flags)


cdef class Channel:
    """The short way to a socket; its owner says by `is_direct` when writing may take it."""

    def __init__(self, int descriptor, on_rest, on_end):
        self.descriptor = descriptor
        self.on_rest = on_rest
        self.on_end = on_end
        self.is_direct = True

    def write(self, bytes data not None) -> None:
        """Send now what the socket takes; the owner gets the rest, or all when it is not its turn."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t count = self.give(<const uint8_t*> PyBytes_AS_STRING(data), size)
        if count < size:
            self.on_rest(data[count:] if count else data)

    def send(self, const uint8_t[::1] data not None) -> int:
        """How many bytes the socket takes, for the owner, whose turn it always is; OSError if it is of no more use."""
        cdef Py_ssize_t count = send(self.descriptor, &data[0], data.shape[0], MSG_DONTWAIT | MSG_NOSIGNAL)
        if count >= 0:
            self.sent_bytes += count
            return count
        if errno == EAGAIN or errno == EINTR:
            return 0
        raise OSError(errno, os.strerror(errno))

    @property
    def taken_bytes(self) -> int:
        """Of all bytes sent, those that have reached the peer's side, as far as the system tells."""
        return self.sent_bytes - untaken_bytes(self.descriptor)

    cdef Py_ssize_t give(self, const uint8_t* data, Py_ssize_t size) noexcept:
        """How many bytes the socket takes at once; none when others wait, or at a fault, which shows again later."""
        cdef Py_ssize_t count
        if not self.is_direct:
            return 0
        count = send(self.descriptor, data, size, MSG_DONTWAIT | MSG_NOSIGNAL)
        if count < 0:
            return 0
        self.sent_bytes += count
        return count

    cdef int put(self, const uint8_t* data, Py_ssize_t size) except -1:
        """What `write` does, with bytes that are nobody's object yet."""
        cdef Py_ssize_t count = self.give(data, size)
        if count < size:
            self.on_rest(PyBytes_FromStringAndSize(<const char*> data + count, size - count))
        return 0

    cdef Py_ssize_t receive(self, uint8_t* to, size_t size) except -1:
        """How many bytes the socket had; 0 when there is nothing to work on, and the owner knows if it ended."""
        cdef Py_ssize_t count = recv(self.descriptor, to, size, MSG_DONTWAIT)
        if count > 0:
            return count
        if count == 0:
            self.on_end(0)
        elif errno != EAGAIN and errno != EINTR:
            self.on_end(errno)
        return 0
