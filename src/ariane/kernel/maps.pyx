"""Mapped files in a row: segments of a log, files of a queue."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t, uint8_t


cdef class Maps:
    """Equal-sized mapped files in a row, addressed by one position that runs through all of them."""

    def __cinit__(self, *arguments, **keywords):
        self.buffers = []
        self.pointers = NULL
        self.count = self.capacity = 0
        self.first_position = 0

    def __dealloc__(self):
        PyMem_Free(self.pointers)

    def add(self, int64_t position, buffer) -> None:
        """Take the next file, which begins at `position`; a first file may begin anywhere."""
        if self.count and position != self.first_position + self.count * self.file_bytes:
            raise ValueError(f"file at {position} does not follow the ones before it")
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        cdef Py_ssize_t size = view.len
        cdef uint8_t* base = <uint8_t*> view.buf
        cdef uint8_t** pointers
        PyBuffer_Release(&view)
        if size != self.file_bytes:
            raise ValueError(f"file at {position} has {size} bytes, not {self.file_bytes}")
        if self.count == self.capacity:
            pointers = <uint8_t**> PyMem_Realloc(self.pointers, (self.capacity * 2 or 2) * sizeof(uint8_t*))
            if pointers == NULL:
                raise MemoryError
            self.pointers = pointers
            self.capacity = self.capacity * 2 or 2
        if self.count == 0:
            self.first_position = position
        self.pointers[self.count] = base
        self.count += 1
        self.buffers.append(memoryview(buffer))  # an exported view: the owner cannot unmap it under us

    def drop_first(self) -> None:
        """Forget the oldest file."""
        if self.count == 0:
            raise IndexError("no file to drop")
        cdef Py_ssize_t i
        for i in range(1, self.count):
            self.pointers[i - 1] = self.pointers[i]
        self.count -= 1
        self.first_position += self.file_bytes
        self.buffers.pop(0).release()

    def drop_last(self) -> None:
        """Forget the newest file."""
        if self.count == 0:
            raise IndexError("no file to drop")
        self.count -= 1
        self.buffers.pop().release()

    @property
    def file_count(self) -> int:
        """How many files are mapped."""
        return self.count

    @property
    def end_position(self) -> int:
        """The position just past the newest file."""
        return self.first_position + self.count * self.file_bytes

    cdef uint8_t* at(self, int64_t position) noexcept nogil:
        """The byte at a position, or NULL when no mapped file holds it."""
        cdef int64_t relative = position - self.first_position
        if relative < 0 or relative >= self.count * self.file_bytes:
            return NULL
        return self.pointers[relative // self.file_bytes] + relative % self.file_bytes
