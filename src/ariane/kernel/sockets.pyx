"""A connected socket, read and written with nothing around the system call (docs/decisions/0024).

Python's own socket checks for a timeout, lets go of the interpreter and takes it again with every call; for a socket
that never blocks that is most of what the call costs.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno


cdef extern from "<sys/socket.h>" nogil:
    """
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0      /* Python ignores the signal anyway */
    #endif
    """
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
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
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data), sent = 0
        if self.is_direct:
            sent = send(self.descriptor, PyBytes_AS_STRING(data), size, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent == size:
                return
        self.on_rest(data[sent:] if sent > 0 else data)  # a fault shows again when the owner tries

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
