from libc.stdint cimport uint8_t


cdef class Channel:
    cdef readonly int descriptor
    cdef public bint is_direct      # nothing waits to be written first, and the socket is open
    cdef public object on_rest      # (bytes): the socket did not take them
    cdef object on_end              # (errno, or 0 when the peer has ended): nothing more can be read
    cdef Py_ssize_t receive(self, uint8_t* to, size_t size) except -1
