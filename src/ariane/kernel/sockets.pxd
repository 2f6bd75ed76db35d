from libc.stdint cimport int64_t, uint8_t


cdef class Channel:
    cdef readonly int descriptor
    cdef public bint is_direct      # nothing waits to be written first, and the socket is open
    cdef object on_rest             # (bytes): the socket did not take them
    cdef object on_end              # (errno, or 0 when the peer has ended): nothing more can be read
    cdef int64_t sent_bytes
    cdef Py_ssize_t give(self, const uint8_t* data, Py_ssize_t size) noexcept
    cdef int put(self, const uint8_t* data, Py_ssize_t size) except -1
    cdef Py_ssize_t receive(self, uint8_t* to, size_t size) except -1
