"""Commit log, consume queues and index files, read through their maps.

One call to `place` writes a record, its queue entry and its keys; nothing else does. Records gather on
a desk, and one system call puts all that a socket read brought into the file, before anybody is told of it
(docs/decisions/0015). Where there is no file to call on, as in tests, they go through the map, a record's size
last, so that a killed process leaves either a whole one or none. Queue entries go through the maps, a few
at a time (docs/decisions/0020), and index entries by calls like records (docs/decisions/0022). Nothing here opens,
grows or removes a file: when room is missing the caller is told which (`Refusal`) and nothing has been written.
Formats: docs/formats/.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.errno cimport EINTR, ENOMEM, errno
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from ariane.kernel.hashing cimport body_crc, java_hash_from


cdef extern from "<sys/mman.h>" nogil:
    """
    #ifndef MADV_HUGEPAGE
    #define MADV_HUGEPAGE 0     /* no advice */
    #endif
    """
    int MADV_HUGEPAGE
    int madvise(void* first, size_t size, int advice)

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int descriptor, const void* buffer, size_t size, int64_t position)
    int close(int descriptor)

cdef extern from "<fcntl.h>" nogil:
    int POSIX_FADV_WILLNEED
    int posix_fadvise(int descriptor, int64_t first, int64_t size, int advice)

cdef extern from "texts.h" nogil:
    ctypedef struct Marks:
        pass
    Marks marks_of(const uint8_t* text, size_t size)
    size_t mark_from(Marks* marks, size_t at, bint must_close)
    const uint8_t* find_byte(const uint8_t* at, const uint8_t* end, uint8_t mark)
    int SHAPE_BYTES_MAX
    bint has_shape(const Shape* shape, const uint8_t* text, size_t size)


# Records (docs/formats/record.md). Positions up to the born host are fixed; an IPv6 host moves the rest.
cdef enum:
    SIZE_AT = 0
    MAGIC_AT = 4
    CRC_AT = 8
    QUEUE_ID_AT = 12
    FLAG_AT = 16
    QUEUE_OFFSET_AT = 20
    LOG_OFFSET_AT = 28
    SYSTEM_FLAG_AT = 36
    BORN_MS_AT = 40
    BORN_HOST_AT = 48

cdef enum:
    BORN_HOST_IPV6 = 0x10
    STORE_HOST_IPV6 = 0x20
    TRANSACTION_BITS = 0xC
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_ROLLBACK = 0xC

cdef uint32_t MAGIC_V1 = 0xDAA320A7
cdef uint32_t MAGIC_V2 = 0xDAA320AB
cdef uint32_t MAGIC_BLANK = 0xCBD43194

# Index files (docs/formats/index.md).
cdef enum:
    INDEX_HEADER_BYTES = 40
    INDEX_SLOT_BYTES = 4
    INDEX_ENTRY_BYTES = 20
    HUGE_PAGE_BYTES = 1 << 21
    DESK_ENTRIES = 1600     # 32,000 bytes: some pages at a time
    QUEUE_DESK_ENTRIES = 800
    QUEUE_CALL_ENTRIES = 64 # fewer are worth no call
    KEYS_AT_ONCE = 8
    ENTRIES_AHEAD = 8   # records this far on are fetched from memory while one is looked at

cdef enum:
    TOPIC_BYTES_V1_MAX = 127
    TOPIC_BYTES_MAX = 255
    PROPERTIES_BYTES_MAX = 32767
    SECTOR_BYTES = 512

cdef int64_t LONG_BYTES = 16 << 10  # a write that takes time for its pages rather than for being a call
cdef int64_t PAGE_BYTES = 4096
cdef int64_t SLOW_NS_PER_PAGE = 3000  # one that is at hand takes about half of this
cdef int64_t ADVICE_BYTES = 128 << 10  # no disk reads less at once
cdef int64_t OUT_OF_REACH_BYTES = 512 << 10  # what the writer may fill while one piece is brought in
cdef int64_t DESK_BYTES = 1 << 20  # more than most socket reads bring, and at home in the processor's cache

SEGMENT_NEEDED = NEEDS_SEGMENT
QUEUE_ROOM_NEEDED = NEEDS_QUEUE_ROOM
INDEX_ROOM_NEEDED = NEEDS_INDEX_ROOM
RECORD_TOO_LARGE = TOO_LARGE
RECORD_NOT_STORED = NOT_STORED


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
        PyBuffer_Release(&view)
        if size != self.file_bytes:
            raise ValueError(f"file at {position} has {size} bytes, not {self.file_bytes}")
        if self.count == self.capacity:
            self.capacity = self.capacity * 2 if self.capacity else 2
            self.pointers = <uint8_t**> PyMem_Realloc(self.pointers, self.capacity * sizeof(uint8_t*))
            if self.pointers == NULL:
                raise MemoryError
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


@cython.final
cdef class Log(Maps):
    """The commit log: where it ends, how far consumers may see, and the hosts and delays records carry."""

    def __init__(self, int64_t segment_bytes, bytes store_host, *, delays_ms=(), int64_t record_bytes_max=0):
        if len(store_host) not in (8, 20):
            raise ValueError("a store host is 4 or 16 address bytes and a 4-byte port")
        self.file_bytes = segment_bytes
        self.store_host_size = len(store_host)
        memcpy(self.store_host, PyBytes_AS_STRING(store_host), self.store_host_size)
        self.delay_count = min(len(delays_ms), 64)
        for i in range(self.delay_count):
            self.delays_ms[i] = delays_ms[i]
        self.record_bytes_max = record_bytes_max or segment_bytes
        self.staging = NULL
        self.staging_buffer = None
        self.desk = NULL
        self.desk_bytes = 0
        self.descriptor = -1
        self.fault = 0
        self.long_bytes = self.slow_bytes = 0

    def __dealloc__(self):
        if self.descriptor >= 0:
            close(self.descriptor)
        free(self.desk)

    def write_by(self, int descriptor) -> None:
        """Write the newest segment by calls on this descriptor, which is the log's to close; -1: by its map."""
        if not store_records(self):
            raise OSError(self.fault, "cannot write the commit log")
        if self.descriptor >= 0:
            close(self.descriptor)
        self.descriptor = descriptor
        self.stored = self.end
        if descriptor >= 0 and not clear_desk(self, DESK_BYTES):
            raise MemoryError

    def store(self) -> bool:
        """Put every record into its file; False, with `fault` set, if that is impossible."""
        return store_records(self)

    def bring_in(self, int descriptor, int64_t position, int64_t first, int64_t end) -> None:
        """Have pages in memory for log offsets [first, end) of the segment that begins at `position`.

        Any thread may call it. What the writer has reached meanwhile is left to it.
        """
        cdef int64_t at = first
        with nogil:
            while True:
                if at < self.end + OUT_OF_REACH_BYTES:
                    at = self.end + OUT_OF_REACH_BYTES
                if at >= end:
                    break
                posix_fadvise(descriptor, at - position, min(ADVICE_BYTES, end - at), POSIX_FADV_WILLNEED)
                at += ADVICE_BYTES

    def take_long_writes(self) -> tuple[int, int]:
        """How many bytes long writes had since the last call, and how many of these were slow to be written."""
        cdef int64_t byte_count = self.long_bytes, slow_bytes = self.slow_bytes
        self.long_bytes = self.slow_bytes = 0
        return byte_count, slow_bytes

    def stage(self, buffer) -> None:
        """Write the newest segment through `buffer` instead of its map, until told otherwise (None)."""
        cdef Py_buffer view
        self.staging = NULL
        self.staging_buffer = None
        if buffer is None:
            return
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        if view.len != self.file_bytes:
            PyBuffer_Release(&view)
            raise ValueError("a staging buffer is as long as a segment")
        self.staging = <uint8_t*> view.buf
        PyBuffer_Release(&view)
        self.staging_buffer = memoryview(buffer)

    @property
    def free_bytes(self) -> int:
        """What is left of the newest segment."""
        return self.first_position + self.count * self.file_bytes - self.end

    def seal(self) -> None:
        """Fill the newest segment with a blank record; the next append needs a new one."""
        cdef int64_t rest = self.first_position + self.count * self.file_bytes - self.end
        if rest == 0:
            return
        if rest < BLANK_BYTES:
            raise ValueError(f"{rest} bytes are left in the segment: too few for a blank record")
        if not store_records(self):
            raise OSError(self.fault, "cannot write the commit log")
        cdef uint8_t* to = write_address(self, self.end)
        save32(to + MAGIC_AT, MAGIC_BLANK)
        publish()
        save32(to + SIZE_AT, <uint32_t> rest)
        if self.descriptor >= 0 and not write_out(self, BLANK_BYTES):
            raise OSError(self.fault, "cannot write the commit log")
        self.end += rest
        self.stored = self.end

    def append(self, Queue queue not None, Index index, bytes body not None,
               bytes properties not None, *, int32_t flag, int32_t system_flag, int64_t born_ms,
               bytes born_host not None, int32_t reconsume_times, int64_t prepared_offset, int64_t now_ms) -> int:
        """Place one message; returns its log offset, or a negative Refusal with nothing written."""
        cdef Draft draft
        cdef Properties found
        draft.topic = text_of(queue.topic)
        draft.body = text_of(body)
        draft.properties = text_of(properties)
        draft.suffix = Text(NULL, 0)
        draft.born_host = text_of(born_host)
        draft.born_ms = born_ms
        draft.prepared_offset = prepared_offset
        draft.queue_id = queue.queue_id
        draft.flag = flag
        draft.system_flag = system_flag
        draft.reconsume_times = reconsume_times
        find_properties(draft.properties, &found)
        cdef int64_t store_ms = next_store_ms(self, now_ms)
        draft.keys = found.keys
        draft.unique_key = found.unique_key
        draft.tags_code = tags_code_of(self, queue, &found, store_ms)
        return place(self, queue, index, &draft, store_ms)

    def record(self, int64_t log_offset, int64_t end) -> bytes | None:
        """The record at `log_offset` if one lies there whole below `end`, else None."""
        store_records(self)
        cdef int64_t size = readable_size(self, log_offset, end)
        if size == 0:
            return None
        return PyBytes_FromStringAndSize(<char*> self.at(log_offset), size)

    def store_ms_of(self, int64_t log_offset) -> int:
        """When the record at `log_offset` was stored; 0 when there is none."""
        store_records(self)
        cdef int64_t size = readable_size(self, log_offset, self.end)
        if size == 0:
            return 0
        return record_store_ms(self.at(log_offset))

    def check(self, int64_t log_offset, int64_t end, bint check_crc=True) -> int:
        """Size of the whole, sound record at `log_offset`; 0 if there is none; negative for a blank one."""
        return checked_size(self, log_offset, end, check_crc)


@cython.final
cdef class Queue(Maps):
    """One consume queue. Entry N is 20 bytes at position N * 20; `end` is the next one to be written.

    The newest few are kept here and go into the file together: a store of many queues writes one page among
    thousands for each of them, and finding that page costs more than the entry (docs/decisions/0020). Whoever
    asks where the queue ends, or for one of its entries, has them in the file by then. A queue that grows fast
    has a desk for more of them, and writes many at a time by a system call (docs/decisions/0025).
    """

    def __init__(self, bytes topic not None, int32_t queue_id, int64_t file_bytes, *, bint is_schedule=False):
        if file_bytes % QUEUE_ENTRY_BYTES:
            raise ValueError("a queue file holds whole entries")
        self.file_bytes = file_bytes
        self.topic = topic
        self.queue_id = queue_id
        self.is_schedule = is_schedule
        self.index_prefix_hash = java_hash_from(0, <const uint8_t*> PyBytes_AS_STRING(topic), len(topic))
        self.index_prefix_hash = java_hash_from(self.index_prefix_hash, <const uint8_t*> b"#", 1)
        self.end_offset = self.min_offset = self.reserved_end = 0
        self.kept_count = 0
        self.kept = self.near
        self.kept_max = KEPT_ENTRIES_MAX
        self.desk = NULL
        self.descriptor = -1
        self.has_mapped = False
        self.is_waiting = False
        self.find_tail()

    def __dealloc__(self):
        if self.descriptor >= 0:
            close(self.descriptor)
        PyMem_Free(self.desk)

    def write_by(self, int descriptor) -> None:
        """Write into the newest file by calls on this descriptor, which is the queue's to close; -1: through the map."""
        self.write_kept()
        if self.descriptor >= 0:
            close(self.descriptor)
        self.descriptor = -1
        self.kept = self.near
        self.kept_max = KEPT_ENTRIES_MAX
        if descriptor < 0:
            PyMem_Free(self.desk)
            self.desk = NULL
            return
        if self.desk == NULL:
            self.desk = <uint8_t*> PyMem_Malloc(QUEUE_DESK_ENTRIES * QUEUE_ENTRY_BYTES)
            if self.desk == NULL:
                close(descriptor)
                raise MemoryError
        self.descriptor = descriptor
        self.kept = self.desk
        self.kept_max = QUEUE_DESK_ENTRIES

    @property
    def writes_by_calls(self) -> bool:
        """Whether many entries are written at a time, by calls."""
        return self.descriptor >= 0

    def take_mapped(self) -> bool:
        """Whether entries were written through the map since the last call."""
        cdef bint has_mapped = self.has_mapped
        self.has_mapped = False
        return has_mapped

    def add(self, int64_t position, buffer) -> None:
        """Take the next file, which begins at `position`; a first file may begin anywhere."""
        self.write_by(-1)
        Maps.add(self, position, buffer)
        self.find_tail()

    def drop_first(self) -> None:
        """Forget the oldest file."""
        self.write_kept()
        Maps.drop_first(self)
        self.find_tail()

    def drop_last(self) -> None:
        """Forget the newest file."""
        self.write_by(-1)
        Maps.drop_last(self)
        self.find_tail()

    def settle(self) -> None:
        """Put the entries kept here into the file, for whoever reads it without asking."""
        self.write_kept()

    @property
    def end(self) -> int:
        """The next entry to be written; those before it are in the file."""
        self.write_kept()
        return self.end_offset

    @end.setter
    def end(self, int64_t queue_offset) -> None:
        self.write_kept()
        self.end_offset = queue_offset

    cdef uint8_t* at(self, int64_t position) noexcept nogil:
        """The byte at a position, or NULL when no mapped file holds it."""
        self.write_kept()
        return Maps.at(self, position)

    cdef void write_kept(self) noexcept nogil:
        """Put the entries kept here into the file."""
        cdef uint8_t* kept = self.kept
        cdef uint8_t* to = self.kept_to
        cdef int64_t size = self.kept_count * QUEUE_ENTRY_BYTES
        cdef int i
        if (self.kept_count >= QUEUE_CALL_ENTRIES and self.tail <= to < self.tail + self.file_bytes
                and pwrite(self.descriptor, kept, size, to - self.tail) == size):
            self.kept_count = 0
            return
        if self.kept_count:
            self.has_mapped = True  # also by what a call cannot write; a sync will tell why
        for i in range(self.kept_count):
            memcpy(to, kept, 8)
            memcpy(to + 12, kept + 12, 8)
            publish()
            memcpy(to + 8, kept + 8, 4)  # the size last, as `save_entry` does
            kept += QUEUE_ENTRY_BYTES
            to += QUEUE_ENTRY_BYTES
        self.kept_count = 0

    cdef void find_tail(self) noexcept:
        """Keep the newest file at hand: a queue among thousands is found with few cache misses."""
        self.tail = self.pointers[self.count - 1] if self.count else NULL
        self.tail_end = (self.first_position + self.count * self.file_bytes) // QUEUE_ENTRY_BYTES
        self.tail_first = self.tail_end - (self.file_bytes // QUEUE_ENTRY_BYTES if self.count else 0)

    def entry(self, int64_t queue_offset) -> tuple[int, int, int] | None:
        """(log offset, record size, tags code) of one entry, or None when it is not there."""
        cdef uint8_t* at = self.at(queue_offset * QUEUE_ENTRY_BYTES)
        if at == NULL or load32(at + 8) == 0:
            return None
        return <int64_t> load64(at), <int32_t> load32(at + 8), <int64_t> load64(at + 12)

    def visible_end(self, Log log not None) -> int:
        """The first queue offset consumers may not see yet."""
        return visible_end(log, self)

    def pad(self, int64_t first, int64_t end) -> None:
        """Mark entries as never used, so that a queue may begin above zero or step over a hole."""
        cdef int64_t offset
        cdef uint8_t* at
        for offset in range(first, end):
            at = self.at(offset * QUEUE_ENTRY_BYTES)
            if at == NULL:
                raise IndexError(f"queue entry {offset} is not mapped")
            save64(at, 0)
            save32(at + 8, PADDING_SIZE)
            save64(at + 12, 0)

    def clear(self, int64_t first, int64_t end) -> None:
        """Zero entries [first, end): zero is how a queue ends."""
        cdef int64_t offset
        cdef uint8_t* at
        for offset in range(first, end):
            at = self.at(offset * QUEUE_ENTRY_BYTES)
            if at != NULL:
                memset(at, 0, QUEUE_ENTRY_BYTES)

    def end_below(self, Log log not None, int64_t log_offset) -> int:
        """How many entries point below `log_offset`, each checked against its record near the end.

        Entries below were synced and are in order; those after may be torn or missing, so the result
        of the binary search is confirmed by the record itself and walked back if it is not.
        """
        cdef int64_t low = self.first_position // QUEUE_ENTRY_BYTES
        cdef int64_t floor = low
        cdef int64_t high = (self.first_position + self.count * self.file_bytes) // QUEUE_ENTRY_BYTES
        cdef int64_t middle, step = 1
        # Most queues are short: look near the start first, and leave the pages behind the end alone.
        while low + step < high and points_below(self, low + step - 1, log_offset):
            low += step
            step *= 2
        high = min(high, low + step)
        while low < high:
            middle = (low + high) // 2
            if points_below(self, middle, log_offset):
                low = middle + 1
            else:
                high = middle
        while low > floor and not points_at_its_record(log, self, low - 1, log_offset):
            low -= 1
        return low

    def first_from(self, int64_t log_offset) -> int:
        """The first entry in [min_offset, end) that points at or beyond `log_offset`."""
        cdef int64_t low = max(self.min_offset, self.first_position // QUEUE_ENTRY_BYTES)
        cdef int64_t high = self.end_offset
        cdef int64_t middle
        while low < high:
            middle = (low + high) // 2
            if points_below(self, middle, log_offset):
                low = middle + 1
            else:
                high = middle
        return low


@cython.final
cdef class Index:
    """One index file: hash slots, each the newest end of a chain of entries.

    A key waits here until a few more have come: its slot lies anywhere in 20 MB, and is on its way from memory
    meanwhile. Whoever asks for anything in the file finds every key in it.

    The slots of a file that takes keys lie on a table in memory (docs/decisions/0022), and are in the file once a
    checkpoint finds it full or the store stops. They only say what the entries say: after a kill they are made anew. Entries gather on a
    desk and go into the file by a system call: a page that was written through the map must be taken from every
    processor's tables when it is synced.
    """

    def __init__(self, buffer, int64_t slot_count, int64_t entry_count):
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        cdef Py_ssize_t size = view.len
        self.base = <uint8_t*> view.buf
        PyBuffer_Release(&view)
        if not 0 < slot_count <= 0xFFFFFFFF:
            raise ValueError(f"an index file has {slot_count} slots; it needs at least one")
        if size != index_file_bytes(slot_count, entry_count):
            raise ValueError(f"an index file of {size} bytes, not {index_file_bytes(slot_count, entry_count)}")
        self.buffer = memoryview(buffer)
        self.slots = self.base + INDEX_HEADER_BYTES
        self.slot_count = slot_count
        self.slot_inverse = inverse_of(<uint32_t> slot_count)
        self.entry_count = entry_count
        self.reserved_end = entry_count
        self.first_kept = self.kept_count = 0
        self.descriptor = -1
        self.desk = <uint8_t*> PyMem_Malloc(DESK_ENTRIES * INDEX_ENTRY_BYTES)
        if self.desk == NULL:
            raise MemoryError
        self.first_on_desk = self.next_entry = 0
        self.reload()

    def reload(self) -> None:
        """Take the counters from the header (an empty file counts from entry 1)."""
        self.write_kept()
        self.first_on_desk = self.next_entry = max(1, min(<int64_t> <int32_t> load32(self.base + 36), self.entry_count))
        self.used_slots = max(0, <int32_t> load32(self.base + 32))

    def __dealloc__(self):
        if self.descriptor >= 0:
            close(self.descriptor)
        PyMem_Free(self.desk)
        free(self.table)

    def write_by(self, int descriptor) -> None:
        """Write entries by calls on this descriptor, which is the index's to close; -1: through the map."""
        self.write_kept()
        if self.descriptor >= 0:
            close(self.descriptor)
        self.descriptor = descriptor

    def take_slots(self) -> None:
        """Have the slots on a table from now on, for there are keys to come."""
        cdef int64_t size = self.slot_count * INDEX_SLOT_BYTES
        if self.table != NULL:
            return
        self.table = calloc(1, size + HUGE_PAGE_BYTES)
        if self.table == NULL:
            raise MemoryError
        self.slots = <uint8_t*> ((<uintptr_t> self.table + HUGE_PAGE_BYTES - 1) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES)
        madvise(self.slots, size, MADV_HUGEPAGE)  # a wish: where there are none, small ones do
        if self.next_entry > 1:
            memcpy(self.slots, self.base + INDEX_HEADER_BYTES, size)

    @property
    def has_table(self) -> bool:
        """Whether the slots are on a table, and the file knows nothing of them."""
        return self.table != NULL

    @property
    def slot_bytes(self) -> memoryview:
        """The slots of an index that takes no more keys, wherever they lie, until `leave_table`."""
        return PyMemoryView_FromMemory(<char*> self.slots, self.slot_count * INDEX_SLOT_BYTES, PyBUF_READ)

    def leave_table(self) -> None:
        """Go by the slots in the file, which have become those on the table."""
        free(self.table)
        self.table = NULL
        self.slots = self.base + INDEX_HEADER_BYTES

    def put_slots_back(self) -> None:
        """Have the slots in the file again; pages that hold them already are not written."""
        cdef int64_t size = self.slot_count * INDEX_SLOT_BYTES, at = 0, count
        cdef uint8_t* to = self.base + INDEX_HEADER_BYTES
        self.write_kept()
        if self.table == NULL:
            return
        while at < size:
            count = min(SECTOR_BYTES, size - at)
            if memcmp(to + at, self.slots + at, count):
                memcpy(to + at, self.slots + at, count)
            at += count
        self.leave_table()

    def release(self) -> None:
        """Let go of the map; the index must not be used any more."""
        self.put_slots_back()
        self.write_by(-1)
        self.base = self.slots = NULL
        self.buffer.release()

    begin_ms = property(lambda self: (<Index> self).number_at(0), doc="Store time of the first entry.")
    end_ms = property(lambda self: (<Index> self).number_at(8), doc="Store time of the last.")
    begin_offset = property(lambda self: (<Index> self).number_at(16), doc="Log offset of the first.")
    end_offset = property(lambda self: (<Index> self).number_at(24), doc="Log offset of the last.")

    cdef int64_t number_at(self, int position) noexcept:
        self.write_kept()
        return <int64_t> load64(self.base + position)

    @property
    def next(self) -> int:
        """The entry to be written next; entry 0 is never used."""
        self.write_kept()
        return self.next_entry

    @property
    def is_full(self) -> bool:
        """Whether a new file is needed."""
        return self.next_entry + self.kept_count >= self.entry_count

    def preset(self, int64_t store_ms, int64_t log_offset) -> None:
        """Give an empty file the end of the one before it, as RocketMQ does."""
        save64(self.base, store_ms)
        save64(self.base + 8, store_ms)
        save64(self.base + 16, log_offset)
        save64(self.base + 24, log_offset)

    def put_key(self, bytes topic, bytes key, int64_t log_offset, int64_t store_ms) -> bool:
        """Index one key; False when the file has no room for it."""
        if self.room() < 1:
            return False
        self.put(key_hash_of(topic, key), log_offset, store_ms)
        self.write_kept()
        return True

    def query(self, bytes topic, bytes key, int64_t begin_ms, int64_t end_ms, int limit) -> list[int]:
        """Log offsets whose key hashes alike and whose time (to the second) is in range, newest first."""
        self.write_kept()
        cdef int32_t hash = key_hash_of(topic, key)
        cdef int64_t first_ms = <int64_t> load64(self.base)
        cdef int64_t entry = <int32_t> load32(slot_address(self, slot_of(self, hash)))
        cdef int64_t previous, at_ms
        cdef uint8_t* at
        found = []
        while 0 < entry < self.next_entry and len(found) < limit:
            at = entry_address(self, entry)
            at_ms = first_ms + <int64_t> <int32_t> load32(at + 12) * 1000
            if at_ms + 999 < begin_ms:
                break
            if <int32_t> load32(at) == hash and at_ms <= end_ms:
                found.append(<int64_t> load64(at + 4))
            previous = <int32_t> load32(at + 16)
            if previous >= entry:  # chains only lead back; anything else is damage
                break
            entry = previous
        return found

    def entry(self, int64_t entry) -> tuple[int, int, int, int]:
        """(key hash, log offset, seconds after `begin_ms`, previous entry) as stored."""
        if not 0 < entry < self.entry_count:
            raise IndexError(f"index entry {entry} of {self.entry_count}")
        self.write_kept()
        cdef uint8_t* at = entry_address(self, entry)
        return (<int32_t> load32(at), <int64_t> load64(at + 4), <int32_t> load32(at + 12),
                <int32_t> load32(at + 16))

    def repair(self, int64_t log_end, int64_t begin_ms) -> int:
        """Rebuild slots, chains and header from the entries that can be trusted; returns how many.

        Entries are written in log order and never change. The first that is empty or torn, steps back or
        points outside the log ends what can be trusted, and the record it stops in is dropped
        whole, since some of its keys may be missing. `begin_ms` is the store time of the first
        entry's record. The caller zeroes the file from entry `next` on.
        """
        self.write_kept()
        cdef int64_t entry = 1, last = -1, offset
        cdef int64_t limit = self.entry_count
        save64(self.base, begin_ms)
        cdef uint8_t* at
        while entry < limit:
            at = entry_address(self, entry)
            offset = <int64_t> load64(at + 4)
            # A hash of zero is an entry never written, or one whose first sector never reached the disk.
            if offset < last or offset >= log_end or <int32_t> load32(at) <= 0 or <int32_t> load32(at + 12) < 0:
                break
            last = offset
            entry += 1
        if entry < limit:
            while entry > 1 and <int64_t> load64(entry_address(self, entry - 1) + 4) == last:
                entry -= 1
        self.rebuild(entry)
        return entry - 1

    def cut(self, int64_t next_entry) -> None:
        """Keep entries [1, next_entry) and rebuild slots and chains over them.

        The caller knows that these are sound, and zeroes the file from `next` on.
        """
        self.write_kept()
        self.rebuild(max(1, min(next_entry, self.entry_count)))

    def truncate(self, int64_t log_end) -> None:
        """Drop entries that point at or beyond `log_end`; the caller zeroes the file from `next` on."""
        self.write_kept()
        cdef int64_t entry = self.next_entry
        while entry > 1 and <int64_t> load64(entry_address(self, entry - 1) + 4) >= log_end:
            entry -= 1
        if entry != self.next_entry:
            self.rebuild(entry)

    cdef int rebuild(self, int64_t end_entry) except -1:
        """Make slots, chains and counters say exactly what entries [1, end_entry) say.

        Words that are right already are not written: a page left alone need not be synced.
        """
        cdef int64_t entry, i
        cdef uint8_t* at
        cdef uint32_t slot
        cdef int64_t begin_ms = <int64_t> load64(self.base)
        cdef uint32_t* newest = <uint32_t*> calloc(self.slot_count, sizeof(uint32_t))
        if newest == NULL:
            raise MemoryError
        with nogil:
            self.used_slots = 0
            for entry in range(1, end_entry):
                at = entry_address(self, entry)
                slot = slot_of(self, <int32_t> load32(at))
                if newest[slot] == 0:
                    self.used_slots += 1
                amend32(at + 16, newest[slot])
                newest[slot] = <uint32_t> entry
            for i in range(self.slot_count):
                amend32(self.slots + i * INDEX_SLOT_BYTES, newest[i])
        free(newest)
        self.first_on_desk = self.next_entry = end_entry
        if end_entry > 1:
            at = entry_address(self, end_entry - 1)
            save64(self.base + 16, load64(entry_address(self, 1) + 4))
            save64(self.base + 24, load64(at + 4))
            save64(self.base + 8, begin_ms + <int64_t> load32(at + 12) * 1000)
        else:
            memset(self.base, 0, 32)
        save32(self.base + 32, <uint32_t> self.used_slots)
        save32(self.base + 36, <uint32_t> self.next_entry)
        return 0

    cdef int64_t room(self) noexcept nogil:
        """How many more entries may be written."""
        return min(self.reserved_end, self.entry_count) - self.next_entry - self.kept_count

    cdef void put(self, int32_t hash, int64_t log_offset, int64_t store_ms) noexcept nogil:
        """Take one key. The caller has made sure of room."""
        cdef KeptKey* key
        if self.kept_count == KEPT_KEYS_MAX:
            self.write_first()
        key = &self.kept[(self.first_kept + self.kept_count) % KEPT_KEYS_MAX]
        key.hash = hash
        key.slot = slot_of(self, hash)
        key.log_offset = log_offset
        key.store_ms = store_ms
        self.kept_count += 1
        expect_write(slot_address(self, key.slot))

    cdef void write_kept(self) noexcept nogil:
        """Write the keys kept here, and have every entry in the file."""
        while self.kept_count:
            self.write_first()
        self.clear_desk()

    cdef void clear_desk(self) noexcept nogil:
        """Put the entries on the desk into the file, and say so in its header."""
        cdef int64_t size = (self.next_entry - self.first_on_desk) * INDEX_ENTRY_BYTES
        cdef uint8_t* to
        if size == 0:
            return
        to = entry_address(self, self.first_on_desk)
        if self.descriptor < 0 or pwrite(self.descriptor, self.desk, size, to - self.base) != size:
            memcpy(to, self.desk, size)  # what a call cannot write a sync will tell of
        publish()
        self.first_on_desk = self.next_entry
        save32(self.base + 32, <uint32_t> self.used_slots)
        save32(self.base + 36, <uint32_t> self.next_entry)
        save64(self.base + 8, self.last_store_ms)
        save64(self.base + 24, self.last_log_offset)

    cdef void write_first(self) noexcept nogil:
        """Put the oldest key kept on the desk, at the head of its slot's chain."""
        cdef KeptKey* key = &self.kept[self.first_kept]
        cdef int64_t log_offset = key.log_offset, store_ms = key.store_ms
        self.first_kept = (self.first_kept + 1) % KEPT_KEYS_MAX
        self.kept_count -= 1
        if self.next_entry - self.first_on_desk == DESK_ENTRIES:
            self.clear_desk()
        cdef uint8_t* at = self.desk + (self.next_entry - self.first_on_desk) * INDEX_ENTRY_BYTES
        cdef uint8_t* slot = slot_address(self, key.slot)
        cdef int64_t seconds = 0
        if self.next_entry == 1:
            save64(self.base, store_ms)
            save64(self.base + 16, log_offset)
        else:
            seconds = (store_ms - <int64_t> load64(self.base)) // 1000
            seconds = 0 if seconds < 0 else seconds if seconds < 0x7FFFFFFF else 0x7FFFFFFF
        if load32(slot) == 0:
            self.used_slots += 1
        save32(at, <uint32_t> key.hash)
        save64(at + 4, log_offset)
        save32(at + 12, <uint32_t> seconds)
        save32(at + 16, load32(slot))
        save32(slot, <uint32_t> self.next_entry)
        self.next_entry += 1
        self.last_store_ms = store_ms
        self.last_log_offset = log_offset


@cython.final
cdef class Tags:
    """The tag codes a pull asks for."""

    def __cinit__(self, codes):
        self.count = len(codes)
        self.codes = <int64_t*> PyMem_Malloc((self.count or 1) * sizeof(int64_t))
        if self.codes == NULL:
            raise MemoryError
        for i, code in enumerate(codes):
            self.codes[i] = code

    def __dealloc__(self):
        PyMem_Free(self.codes)

    cdef bint match(self, int64_t code) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.codes[i] == code:
                return True
        return False


def index_file_bytes(slot_count: int, entry_count: int) -> int:
    """The length of an index file with so many slots and entries."""
    return INDEX_HEADER_BYTES + slot_count * INDEX_SLOT_BYTES + entry_count * INDEX_ENTRY_BYTES


def key_count_of(bytes properties not None) -> int:
    """How many index entries a message with these properties makes."""
    cdef Properties found
    cdef Draft draft
    find_properties(text_of(properties), &found)
    draft.keys = found.keys
    draft.unique_key = found.unique_key
    return key_count(&draft)


def read(Log log not None, Queue queue not None, int64_t first, Tags tags, *, int32_t count_max,
         int64_t bytes_max, int32_t memory_count_max, int64_t memory_bytes_max, int32_t disk_count_max,
         int64_t disk_bytes_max, int64_t memory_window, int64_t scan_count_max) -> tuple[bytes, int, int]:
    """Messages of a queue from `first` on that match: (their records back to back, count, next offset)."""
    cdef ReadLimits limits = ReadLimits(count_max, bytes_max, memory_count_max, memory_bytes_max,
                                        disk_count_max, disk_bytes_max, memory_window, scan_count_max)
    cdef ReadResult result
    cdef Text[MESSAGES_PER_READ_MAX] slices
    read_entries(log, queue, first, tags, &limits, slices, &result)
    cdef bytes body = PyBytes_FromStringAndSize(NULL, result.bytes)
    cdef char* to = PyBytes_AS_STRING(body)
    cdef int i
    for i in range(result.count):
        memcpy(to, slices[i].at, slices[i].size)
        to += slices[i].size
    return body, result.count, result.next_offset


def scan(Log log not None, int64_t first, *, bint check_crc, queue_of, make_room, index_of, int64_t index_from):
    """Walk the log from `first` to its true end, putting every record into its queue and the index.

    `queue_of(topic, queue_id)` gives the Queue for a record seen there for the first time, or None when
    there can be none; `make_room(queue, queue_offset)` is called when the queue has no room for that entry,
    and says False when it cannot have it. Only bodies have a checksum: such records are damaged, and left out;
    `index_of(key_count)` gives an Index with room for so many, or None for no index. Records below
    `index_from` are indexed already. Returns (end, last store time, records). Sets neither `log.end`
    nor `log.visible`.
    """
    cdef int64_t at = first, limit = log.first_position + log.count * log.file_bytes, size, records = 0
    cdef int64_t last_ms = 0, queue_offset, store_ms
    cdef uint8_t* record
    cdef Fields fields
    cdef Properties found
    cdef Queue queue = None
    cdef Index index = None
    cdef Draft draft
    cdef dict queues = {}
    cdef int system_flag
    while at < limit:
        size = checked_size(log, at, limit, check_crc)
        if size == 0:
            break
        if size < 0:  # blank: on to the next segment
            at -= size
            continue
        record = log.at(at)
        read_fields(record, &fields)
        store_ms = fields.store_ms
        system_flag = load32(record + SYSTEM_FLAG_AT) & TRANSACTION_BITS
        find_properties(fields.properties, &found)
        if queue is None or not same_text(fields.topic, queue.topic) or queue.queue_id != fields.queue_id:
            key = (PyBytes_FromStringAndSize(<char*> fields.topic.at, fields.topic.size), fields.queue_id)
            if key not in queues:
                queues[key] = queue_of(*key)
            queue = queues[key]
            if queue is None:
                at += size
                continue
        if system_flag != TRANSACTION_PREPARED and system_flag != TRANSACTION_ROLLBACK:
            queue_offset = <int64_t> load64(record + QUEUE_OFFSET_AT)
            enter(log, queue, queue_offset, at, size, tags_code_of(log, queue, &found, store_ms), make_room)
        if at >= index_from and system_flag != TRANSACTION_ROLLBACK:
            draft.keys = found.keys
            draft.unique_key = found.unique_key
            if key_count(&draft):
                if index is None or index.room() < key_count(&draft):
                    index = index_of(key_count(&draft))
                if index is not None:
                    put_keys(index, queue, &draft, at, store_ms)
        last_ms = max(last_ms, store_ms)
        records += 1
        at += size
    return at, last_ms, records


cdef enter(Log log, Queue queue, int64_t queue_offset, int64_t log_offset, int64_t size, int64_t tags, make_room):
    """Give a record found in the log its queue entry.

    Numbers that start again at zero belong to a topic made anew under an old name: what the queue holds
    is of its former life. Numbers that jump leave a hole, which `make_room` pads, unless it takes them for
    damaged; those that belong into the hole may still come, if it was the jump that was wrong.
    """
    cdef uint8_t* at
    if queue_offset != queue.end_offset:
        at = queue.at(queue_offset * QUEUE_ENTRY_BYTES) if 0 <= queue_offset < queue.end_offset else NULL
        if at != NULL and (queue_offset == 0 or load32(at + 8) == PADDING_SIZE):
            queue.clear(queue_offset, queue.end_offset)
            queue.end_offset = queue_offset
        elif make_room(queue, queue_offset) is False:
            return
    if queue.end_offset >= queue.reserved_end or queue.at(queue.end_offset * QUEUE_ENTRY_BYTES) == NULL:
        make_room(queue, queue_offset)
    at = queue.at(queue.end_offset * QUEUE_ENTRY_BYTES)
    if at == NULL or queue.end_offset != queue_offset:
        raise RuntimeError(f"queue entry {queue_offset} has no room after make_room; the queue ends at {queue.end_offset}")
    save_entry(at, log_offset, size, tags)
    queue.end_offset += 1


# ---------------------------------------------------------------- writing


cdef inline int64_t next_store_ms(Log log, int64_t now_ms) noexcept nogil:
    """The time to stamp: never before the record in front of it, whatever the wall clock does."""
    return now_ms if now_ms > log.last_store_ms else log.last_store_ms


cdef inline int64_t record_size(Log log, Draft* draft) noexcept nogil:
    return (75 + draft.born_host.size + log.store_host_size + draft.body.size + draft.topic.size
            + draft.properties.size + draft.suffix.size + (1 if draft.topic.size > TOPIC_BYTES_V1_MAX else 0))


cdef void expect_queue(Queue queue) noexcept nogil:
    """Have what an append touches of the queue on its way from memory."""
    expect_write(<const void*> queue)
    expect_write(<const void*> &queue.tail)
    expect_write(<const void*> &queue.min_offset)


cdef uint8_t* end_entry_of(Queue queue) noexcept nogil:
    """Where the next entry of a queue goes, or NULL when no mapped file has room for it."""
    if queue.tail_first <= queue.end_offset < queue.tail_end:
        return queue.tail + (queue.end_offset - queue.tail_first) * QUEUE_ENTRY_BYTES
    return queue.at(queue.end_offset * QUEUE_ENTRY_BYTES)


cdef bint has_entry_room(Queue queue, int64_t count) noexcept nogil:
    """Whether the next `count` entries have blocks and a mapped file."""
    cdef int64_t last = queue.end_offset + count - 1
    return last < queue.reserved_end and (
        queue.tail_first <= last < queue.tail_end or queue.at(last * QUEUE_ENTRY_BYTES) != NULL)


cdef uint8_t* next_kept_of(Queue queue) noexcept nogil:
    """Where the next entry is written first."""
    return queue.kept + (queue.kept_count if queue.kept_count < queue.kept_max else 0) * QUEUE_ENTRY_BYTES


cdef int64_t place(Log log, Queue queue, Index index, Draft* draft, int64_t store_ms) noexcept nogil:
    """Write one record with its queue and index entries; its log offset, or a Refusal and nothing written."""
    cdef int64_t size = record_size(log, draft)
    cdef int64_t log_offset = log.end
    cdef Py_ssize_t topic_size = draft.topic.size
    cdef Py_ssize_t properties_size = draft.properties.size + draft.suffix.size
    if size > log.record_bytes_max or properties_size > PROPERTIES_BYTES_MAX or topic_size > TOPIC_BYTES_MAX:
        return TOO_LARGE
    if log.first_position + log.count * log.file_bytes - log_offset < size + BLANK_BYTES:
        return NEEDS_SEGMENT
    if queue.end_offset >= queue.reserved_end:
        return NEEDS_QUEUE_ROOM
    cdef uint8_t* entry = end_entry_of(queue)
    if entry == NULL:
        return NEEDS_QUEUE_ROOM
    if log.descriptor >= 0 and log_offset - log.stored + size > log.desk_bytes and not clear_desk(log, size):
        return NOT_STORED
    cdef int32_t[KEYS_AT_ONCE] hashes
    cdef int hash_count = 0, i
    if index is not None:
        hash_count = hash_keys(queue, draft, hashes)
        if index.room() < (key_count(draft) if hash_count < 0 else hash_count):
            return NEEDS_INDEX_ROOM

    cdef uint8_t* to = write_address(log, log_offset)
    cdef uint8_t* record = to
    cdef int32_t flags = draft.system_flag & ~(BORN_HOST_IPV6 | STORE_HOST_IPV6)
    if draft.born_host.size == 20:
        flags |= BORN_HOST_IPV6
    if log.store_host_size == 20:
        flags |= STORE_HOST_IPV6
    save32(to + MAGIC_AT, MAGIC_V2 if topic_size > TOPIC_BYTES_V1_MAX else MAGIC_V1)
    save32(to + CRC_AT, body_crc(draft.body.at, draft.body.size) if draft.body.size else 0)
    save32(to + QUEUE_ID_AT, draft.queue_id)
    save32(to + FLAG_AT, draft.flag)
    save64(to + QUEUE_OFFSET_AT, queue.end_offset)
    save64(to + LOG_OFFSET_AT, log_offset)
    save32(to + SYSTEM_FLAG_AT, flags)
    save64(to + BORN_MS_AT, draft.born_ms)
    to = save_text(to + BORN_HOST_AT, draft.born_host)
    save64(to, store_ms)
    memcpy(to + 8, log.store_host, log.store_host_size)
    to += 8 + log.store_host_size
    save32(to, draft.reconsume_times)
    save64(to + 4, draft.prepared_offset)
    save32(to + 12, <uint32_t> draft.body.size)
    to = save_text(to + 16, draft.body)
    if topic_size > TOPIC_BYTES_V1_MAX:
        save16(to, <uint16_t> topic_size)
        to += 2
    else:
        to[0] = <uint8_t> topic_size
        to += 1
    copy_name(to, draft.topic.at, topic_size)
    save16(to + topic_size, <uint16_t> properties_size)
    to = save_text(to + topic_size + 2, draft.properties)
    to = save_text(to, draft.suffix)
    publish()
    save32(record + SIZE_AT, <uint32_t> size)

    keep_entry(queue, entry, log_offset, size, draft.tags_code)
    if hash_count < 0:
        put_keys(index, queue, draft, log_offset, store_ms)
    for i in range(hash_count):
        index.put(hashes[i], log_offset, store_ms)
    queue.end_offset += 1
    log.end += size
    log.last_store_ms = store_ms
    return log_offset


cdef bint store_records(Log log) noexcept nogil:
    """Put what lies on the desk into the file; False, with `fault` set, if that is impossible.

    Then the log ends where the file does: nobody has been told of the rest.
    """
    if log.descriptor >= 0 and log.stored < log.end:
        if not write_out(log, log.end - log.stored):
            log.end = log.stored
            return False
    log.stored = log.end
    return True


cdef bint write_out(Log log, int64_t byte_count) noexcept nogil:
    """Write so many bytes of the desk where `stored` says."""
    cdef int64_t position = (log.stored - log.first_position) % log.file_bytes, done = 0, began_ns = 0
    cdef ssize_t written
    if byte_count >= LONG_BYTES:
        began_ns = now_ns()
    while done < byte_count:
        written = pwrite(log.descriptor, log.desk + done, byte_count - done, position + done)
        if written > 0:
            done += written
        elif errno != EINTR:
            log.fault = errno
            return False
    if byte_count >= LONG_BYTES:
        log.long_bytes += byte_count
        if (now_ns() - began_ns) * PAGE_BYTES > byte_count * SLOW_NS_PER_PAGE:
            log.slow_bytes += byte_count
    return True


cdef inline int64_t now_ns() noexcept nogil:
    """For measuring what pages cost; nothing that is stored depends on it."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef bint clear_desk(Log log, int64_t byte_count) noexcept nogil:
    """Have an empty desk with room for so many bytes."""
    cdef uint8_t* grown
    if not store_records(log):
        return False
    if byte_count > log.desk_bytes:
        grown = <uint8_t*> realloc(log.desk, byte_count)
        if grown == NULL:
            log.fault = ENOMEM
            return False
        log.desk = grown
        log.desk_bytes = byte_count
    return True


cdef inline uint8_t* write_address(Log log, int64_t log_offset) noexcept nogil:
    if log.descriptor >= 0:
        return log.desk + (log_offset - log.stored)
    if log.staging != NULL:
        return log.staging + (log_offset - log.first_position) % log.file_bytes
    return log.at(log_offset)


cdef inline void keep_entry(Queue queue, uint8_t* to, int64_t log_offset, int64_t size, int64_t tags) noexcept nogil:
    """Take the entry that belongs at `to`; it is in the file once `kept_max` are, or somebody asks."""
    if queue.kept_count == queue.kept_max or (
            queue.kept_count and to != queue.kept_to + queue.kept_count * QUEUE_ENTRY_BYTES):
        queue.write_kept()
    if queue.kept_count == 0:
        queue.kept_to = to
    save_entry(queue.kept + queue.kept_count * QUEUE_ENTRY_BYTES, log_offset, size, tags)
    queue.kept_count += 1


cdef inline void save_entry(uint8_t* at, int64_t log_offset, int64_t size, int64_t tags) noexcept nogil:
    save64(at, log_offset)
    save64(at + 12, tags)
    publish()
    save32(at + 8, <uint32_t> size)


cdef inline uint8_t* save_text(uint8_t* to, Text text) noexcept nogil:
    if text.size:
        memcpy(to, text.at, text.size)
    return to + text.size


cdef inline Text next_key(Text* rest) noexcept nogil:
    """Cut the next of several keys off, which spaces keep apart; one without letters at the end."""
    cdef const uint8_t* end = rest.at + rest.size
    cdef const uint8_t* stop
    cdef Text key = Text(rest.at, 0)
    while rest.size and not key.size:
        stop = find_byte(rest.at, end, c' ')
        key = Text(rest.at, stop - rest.at)
        rest.at = stop + (stop < end)
        rest.size = end - rest.at
    return key


cdef int key_count(Draft* draft) noexcept nogil:
    """How many index entries a message makes: its unique key and each space-separated key."""
    cdef int count = 1 if draft.unique_key.size else 0
    cdef Text rest = draft.keys
    while next_key(&rest).size:
        count += 1
    return count


cdef int hash_keys(Queue queue, Draft* draft, int32_t* hashes) noexcept nogil:
    """The index hash of every key a message has, or -1 when there are more than KEYS_AT_ONCE."""
    cdef int count = 0
    cdef Text rest = draft.keys, key = draft.unique_key
    if not key.size:
        key = next_key(&rest)
    while key.size:
        if count == KEYS_AT_ONCE:
            return -1
        hashes[count] = key_hash(queue, key)
        count += 1
        key = next_key(&rest)
    return count


cdef inline int32_t key_hash(Queue queue, Text key) noexcept nogil:
    return positive_hash(java_hash_from(queue.index_prefix_hash, key.at, key.size))


cdef void put_keys(Index index, Queue queue, Draft* draft, int64_t log_offset, int64_t store_ms) noexcept nogil:
    """Index every key of a message, however many; the caller has made sure of room."""
    cdef Text rest = draft.keys, key = draft.unique_key
    if not key.size:
        key = next_key(&rest)
    while key.size:
        index.put(key_hash(queue, key), log_offset, store_ms)
        key = next_key(&rest)


cdef inline int32_t positive_hash(int32_t hash) noexcept nogil:
    """Java's Math.abs, where the one number without a positive twin becomes 0."""
    if hash == <int32_t> 0x80000000:
        return 0
    return -hash if hash < 0 else hash


cdef int32_t key_hash_of(bytes topic, bytes key):
    cdef int32_t hash = java_hash_from(0, <const uint8_t*> PyBytes_AS_STRING(topic), len(topic))
    hash = java_hash_from(hash, <const uint8_t*> b"#", 1)
    return positive_hash(java_hash_from(hash, <const uint8_t*> PyBytes_AS_STRING(key), len(key)))


cdef inline uint32_t slot_of(Index index, int32_t hash) noexcept nogil:
    """Hashes are never negative, but a damaged file's bytes may be."""
    return remainder_of(hash & 0x7FFFFFFF, <uint32_t> index.slot_count, index.slot_inverse)


cdef inline uint8_t* slot_address(Index index, uint32_t slot) noexcept nogil:
    return index.slots + <int64_t> slot * INDEX_SLOT_BYTES


cdef inline void amend32(uint8_t* at, uint32_t value) noexcept nogil:
    if load32(at) != value:
        save32(at, value)


cdef inline uint8_t* entry_address(Index index, int64_t entry) noexcept nogil:
    return index.base + INDEX_HEADER_BYTES + index.slot_count * INDEX_SLOT_BYTES + entry * INDEX_ENTRY_BYTES


# ---------------------------------------------------------------- batches


cdef bint next_entry(Text* rest, Draft* draft) noexcept nogil:
    """Cut the next entry off a batch body; False when its sizes do not add up."""
    cdef const uint8_t* at = rest.at
    cdef int64_t size, body_size, properties_size
    if rest.size < BATCH_ENTRY_BYTES_MIN:
        return False
    size = <int32_t> load32(at)
    if size < BATCH_ENTRY_BYTES_MIN or size > rest.size:
        return False
    draft.flag = <int32_t> load32(at + 12)
    body_size = <int32_t> load32(at + 16)
    if body_size < 0 or body_size > size - BATCH_ENTRY_BYTES_MIN:
        return False
    properties_size = <int16_t> load16(at + 20 + body_size)
    if properties_size < 0 or BATCH_ENTRY_BYTES_MIN + body_size + properties_size != size:
        return False
    draft.body.at = at + 20
    draft.body.size = body_size
    draft.properties.at = at + 22 + body_size
    draft.properties.size = properties_size
    rest.at += size
    rest.size -= size
    return True


# ---------------------------------------------------------------- properties


cdef Properties NO_PROPERTIES
memset(&NO_PROPERTIES, 0, sizeof(Properties))
NO_PROPERTIES.waits = True


cdef inline bint is_key(const uint8_t* at, Py_ssize_t size, const char* name, Py_ssize_t name_size) noexcept nogil:
    return size == name_size and memcmp(at, name, name_size) == 0


cdef void find_properties(Text text, Properties* found) noexcept nogil:
    """Read `name 0x01 value 0x02 ...` once. Pairs without a name or a value do not count, as in Java."""
    cdef Py_ssize_t at = 0, name_end, end
    cdef Marks marks = marks_of(text.at, text.size)
    cdef Text value
    found[0] = NO_PROPERTIES
    while at < text.size:
        name_end = mark_from(&marks, at, False)
        end = mark_from(&marks, name_end, True)
        found.ends_open = end == text.size
        if name_end > at and end > name_end + 1:
            value.at = text.at + name_end + 1
            value.size = end - name_end - 1
            note_property(text.at + at, name_end - at, value, found)
        at = end + 1


cdef void take_shape(Text text, Alike* alike) noexcept nogil:
    """Let texts that differ from this one only in their values be read without looking for their names."""
    cdef Shape* shape = &alike.shape
    cdef Py_ssize_t at = 0, name_end, end
    cdef Marks marks
    shape.size = 0
    if text.size > SHAPE_BYTES_MAX:
        return
    memcpy(shape.text, text.at, text.size)
    memset(shape.fixed, 255, text.size)
    text.at = shape.text
    find_properties(text, &alike.found)
    if alike.found.is_late:
        return
    marks = marks_of(text.at, text.size)
    while at < text.size:
        name_end = mark_from(&marks, at, False)
        end = mark_from(&marks, name_end, True)
        # Of WAIT its meaning is kept, of others only where they are.
        if end > name_end and not is_key(text.at + at, name_end - at, "WAIT", 4):
            memset(shape.fixed + name_end + 1, 0, end - name_end - 1)
        at = end + 1
    shape.size = text.size


cdef bint find_alike(Text text, Alike* alike, Properties* found) noexcept nogil:
    """Do as `find_properties`, for a text of a known shape; False when it has another."""
    cdef int64_t step = text.at - alike.shape.text
    if not has_shape(&alike.shape, text.at, text.size):
        return False
    found[0] = alike.found
    found.tags.at += step
    found.keys.at += step
    found.unique_key.at += step
    return True


cdef inline void note_property(const uint8_t* name, Py_ssize_t size, Text value, Properties* found) noexcept nogil:
    cdef uint8_t initial = name[0]
    if initial == c'T':
        if is_key(name, size, "TAGS", 4):
            found.tags = value
        elif is_key(name, size, "TRAN_MSG", 8) or is_key(name, size, "TRACE_ON", 8):
            found.is_special = True
        elif size > 6 and memcmp(name, <const char*> "TIMER_", 6) == 0:
            note_time(name, size, value, found)
    elif initial == c'K':
        if is_key(name, size, "KEYS", 4):
            found.keys = value
    elif initial == c'U':
        if is_key(name, size, "UNIQ_KEY", 8):
            found.unique_key = value
    elif initial == c'W':
        if is_key(name, size, "WAIT", 4):
            found.waits = not is_false(value)
    elif initial == c'D':
        if is_key(name, size, "DELAY", 5):
            found.delay = value
            found.is_late = True
    elif initial == c'R':
        if is_key(name, size, "REAL_TOPIC", 10) or is_key(name, size, "REAL_QID", 8):
            found.has_real = True
    elif initial == c'M':
        if is_key(name, size, "MSG_REGION", 10) or is_key(name, size, "MSG_TYPE", 8):
            found.is_special = True
    elif initial == c'C':
        if is_key(name, size, "CLUSTER", 7):
            found.is_special = True
    elif initial == c'P':
        if is_key(name, size, "POP_CK", 6):
            found.is_special = True
    elif initial == c'I':
        if size > 6 and memcmp(name, <const char*> "INNER_", 6) == 0:
            found.is_special = True
    elif initial == c'_':
        if is_key(name, size, "__CRC32#", 8) or (
                size > 16 and memcmp(name, <const char*> "__RMQ.TRANSIENT.", 16) == 0):
            found.is_special = True


cdef void note_time(const uint8_t* name, Py_ssize_t size, Text value, Properties* found) noexcept nogil:
    """One property may ask for a time; what else the timer knows is for the handlers, and so are two."""
    if found.timer.size:
        found.is_special = True
    elif is_key(name, size, "TIMER_DELAY_SEC", 15):
        found.timer_unit_ms = 1000
    elif is_key(name, size, "TIMER_DELAY_MS", 14):
        found.timer_unit_ms = 1
    elif not is_key(name, size, "TIMER_DELIVER_MS", 16):
        found.is_special = True
    found.timer = value
    found.is_late = True


cdef inline bint is_false(Text value) noexcept nogil:
    """Java's Boolean.parseBoolean: only "true", in any case, is true."""
    cdef const char* true_text = "true"
    cdef int i
    if value.size != 4:
        return True
    for i in range(4):
        if (value.at[i] | 0x20) != true_text[i]:
            return True
    return False


cdef int64_t tags_code_of(Log log, Queue queue, Properties* found, int64_t store_ms) noexcept nogil:
    """What the queue entry's last word holds: the tag's hash, or for a delayed message its deliver time."""
    cdef int64_t level = 0
    cdef Py_ssize_t i
    if queue.is_schedule and found.delay.size:
        for i in range(min(found.delay.size, 9)):
            if not c'0' <= found.delay.at[i] <= c'9':
                return 0
            level = level * 10 + (found.delay.at[i] - c'0')
        if level > log.delay_count:
            level = log.delay_count
        if level > 0:
            return store_ms + log.delays_ms[level - 1]
    if found.tags.size == 0:
        return 0
    return java_hash_from(0, found.tags.at, found.tags.size)


# ---------------------------------------------------------------- reading


cdef inline Py_ssize_t born_host_bytes(const uint8_t* record) noexcept nogil:
    return 20 if load32(record + SYSTEM_FLAG_AT) & BORN_HOST_IPV6 else 8


cdef inline Py_ssize_t store_host_bytes(const uint8_t* record) noexcept nogil:
    return 20 if load32(record + SYSTEM_FLAG_AT) & STORE_HOST_IPV6 else 8


cdef inline int64_t record_store_ms(const uint8_t* record) noexcept nogil:
    return <int64_t> load64(record + BORN_HOST_AT + born_host_bytes(record))


cdef int64_t read_fields(const uint8_t* record, Fields* fields) noexcept nogil:
    """Find the parts of a record; the size they add up to, or 0 when one of them reaches past its end."""
    cdef int64_t size = <int32_t> load32(record + SIZE_AT)
    cdef int64_t at = BORN_HOST_AT + born_host_bytes(record)
    fields.queue_id = <int32_t> load32(record + QUEUE_ID_AT)
    if at + 8 > size:
        return 0
    fields.store_ms = <int64_t> load64(record + at)
    at += 8 + store_host_bytes(record) + 12
    if at + 4 > size:
        return 0
    fields.body.size = <int32_t> load32(record + at)
    fields.body.at = record + at + 4
    if fields.body.size < 0 or fields.body.size > size - at - 4:
        return 0
    at += 4 + fields.body.size
    if load32(record + MAGIC_AT) == MAGIC_V2:
        if at + 2 > size:
            return 0
        fields.topic.size = load16(record + at)
        at += 2
    else:
        if at + 1 > size:
            return 0
        fields.topic.size = record[at]
        at += 1
    fields.topic.at = record + at
    at += fields.topic.size
    if at + 2 > size:
        return 0
    fields.properties.size = <int16_t> load16(record + at)
    fields.properties.at = record + at + 2
    if fields.properties.size < 0 or fields.properties.size > size - at - 2:
        return 0
    return at + 2 + fields.properties.size


cdef int64_t readable_size(Log log, int64_t log_offset, int64_t end) noexcept nogil:
    """Size of the record that begins at `log_offset` and ends at or before `end`; 0 when there is none."""
    cdef uint8_t* record = log.at(log_offset)
    if record == NULL or log_offset + RECORD_BYTES_MIN > end:
        return 0
    cdef int64_t left = log.file_bytes - (log_offset - log.first_position) % log.file_bytes
    if left < RECORD_BYTES_MIN:
        return 0
    cdef uint32_t magic = load32(record + MAGIC_AT)
    cdef int64_t size = <int32_t> load32(record + SIZE_AT)
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN or size > left or log_offset + size > end:
        return 0
    if <int64_t> load64(record + LOG_OFFSET_AT) != log_offset:
        return 0
    return size


cdef int64_t checked_size(Log log, int64_t log_offset, int64_t end, bint check_crc) noexcept nogil:
    """Size of the sound record at `log_offset`; negative size of a blank one; 0 where the log ends."""
    cdef uint8_t* record = log.at(log_offset)
    cdef Fields fields
    cdef int64_t left
    if record == NULL:
        return 0
    left = log.file_bytes - (log_offset - log.first_position) % log.file_bytes
    if left >= BLANK_BYTES and load32(record + MAGIC_AT) == MAGIC_BLANK:
        return -left if <int64_t> <int32_t> load32(record + SIZE_AT) == left else 0
    cdef int64_t size = readable_size(log, log_offset, end)
    if size == 0 or left - size < BLANK_BYTES:
        return 0
    if read_fields(record, &fields) != size or fields.store_ms <= 0:
        return 0
    if not is_topic_text(fields.topic) or has_lost_sector(
            fields.properties, (log_offset - log.first_position) % log.file_bytes + (fields.properties.at - record)):
        return 0
    if check_crc and fields.body.size:
        if body_crc(fields.body.at, fields.body.size) != load32(record + CRC_AT):
            return 0
    return size


cdef bint is_topic_text(Text topic) noexcept nogil:
    """Whether the bytes could be a topic's name; a torn page leaves zeros there."""
    cdef Py_ssize_t i
    if topic.size == 0 or topic.size > TOPIC_BYTES_MAX:
        return False
    for i in range(topic.size):
        if topic.at[i] <= 0x20 or topic.at[i] == c'/' or topic.at[i] == 0x7F:
            return False
    return True


cdef bint has_lost_sector(Text properties, int64_t position) noexcept nogil:
    """Whether a stretch that a disk writes as one sector is all zero: it never reached the disk.

    `position` is where the properties begin in their file, which tells where sectors begin.
    """
    cdef int64_t sector = (position + SECTOR_BYTES - 1) // SECTOR_BYTES * SECTOR_BYTES
    cdef int64_t end = position + properties.size, at, stop
    while sector < end:
        stop = min(sector + SECTOR_BYTES, end)
        at = sector
        while at < stop and properties.at[at - position] == 0:
            at += 1
        if at == stop:
            return True
        sector += SECTOR_BYTES
    return False


cdef inline bint points_below(Queue queue, int64_t queue_offset, int64_t log_offset) noexcept nogil:
    cdef uint8_t* at = queue.at(queue_offset * QUEUE_ENTRY_BYTES)
    return at != NULL and <int32_t> load32(at + 8) > 0 and <int64_t> load64(at) < log_offset


cdef bint points_at_its_record(Log log, Queue queue, int64_t queue_offset, int64_t log_offset) noexcept nogil:
    """Whether an entry below `log_offset` is true: padding, a record already removed, or its own record."""
    cdef uint8_t* at = queue.at(queue_offset * QUEUE_ENTRY_BYTES)
    if not points_below(queue, queue_offset, log_offset):
        return False
    cdef int64_t where = <int64_t> load64(at)
    cdef int32_t size = <int32_t> load32(at + 8)
    if where < log.first_position:
        return True
    cdef uint8_t* record = log.at(where)
    if readable_size(log, where, log_offset) != size:
        return False
    return (<int64_t> load64(record + QUEUE_OFFSET_AT) == queue_offset
            and <int32_t> load32(record + QUEUE_ID_AT) == queue.queue_id)


cdef int64_t visible_end(Log log, Queue queue) noexcept nogil:
    """The first queue offset whose record consumers may not see; in asynchronous mode simply the end."""
    cdef int64_t end = queue.end_offset
    cdef uint8_t* at
    while end > queue.min_offset:
        at = queue.at((end - 1) * QUEUE_ENTRY_BYTES)
        if at == NULL or <int64_t> load64(at) < log.visible:
            break
        end -= 1
    return end


cdef void read_entries(Log log, Queue queue, int64_t first, Tags tags, const ReadLimits* limits,
                       Text* slices, ReadResult* result) noexcept nogil:
    """Collect matching records from `first` on as slices of the log, within the limits.

    `slices` has room for MESSAGES_PER_READ_MAX; `next_offset` is past the last entry looked at.
    """
    cdef int64_t end = visible_end(log, queue)
    cdef int64_t offset = first, where, size
    cdef uint8_t* at
    cdef uint8_t* ahead
    cdef bint in_memory
    cdef int32_t count_max = min(limits.count_max, MESSAGES_PER_READ_MAX)
    result.count = result.scanned = 0
    result.bytes = 0
    while offset < end and result.scanned < limits.scan_count_max:
        at = queue.at(offset * QUEUE_ENTRY_BYTES)
        if at == NULL:
            break
        if tags is None and offset + ENTRIES_AHEAD < end:
            ahead = queue.at((offset + ENTRIES_AHEAD) * QUEUE_ENTRY_BYTES)
            if ahead != NULL:
                expect_read(log.at(<int64_t> load64(ahead)))
        if tags is not None and not tags.match(<int64_t> load64(at + 12)):
            offset += 1
            result.scanned += 1
            continue
        where = <int64_t> load64(at)
        size = readable_size(log, where, log.visible)   # the entry's may be damaged
        if size == 0 or load32(at + 8) == PADDING_SIZE:     # or in a segment that retention has taken
            offset += 1
            result.scanned += 1
            continue
        in_memory = log.end - where <= limits.memory_window
        if result.count and (
                result.count >= count_max
                or result.bytes + size > limits.bytes_max
                or result.bytes + size > (limits.memory_bytes_max if in_memory else limits.disk_bytes_max)
                or result.count >= (limits.memory_count_max if in_memory else limits.disk_count_max)):
            break
        offset += 1
        result.scanned += 1
        slices[result.count].at = log.at(where)
        slices[result.count].size = size
        result.count += 1
        result.bytes += size
    result.next_offset = offset


# ---------------------------------------------------------------- bytes objects without their overhead


cdef extern from "Python.h":
    cdef struct PyBytesObject:
        pass
    char* as_string "PyBytes_AS_STRING"(void*) nogil
    Py_ssize_t get_size "PyBytes_GET_SIZE"(void*) nogil


cdef inline const uint8_t* data_of(bytes value) noexcept nogil:
    return <const uint8_t*> as_string(<void*> value)


cdef inline Py_ssize_t len_of(bytes value) noexcept nogil:
    return get_size(<void*> value)


cdef inline Text text_of(bytes value):
    return Text(<const uint8_t*> PyBytes_AS_STRING(value), len(value))


cdef inline bint same_text(Text text, bytes value) noexcept nogil:
    return text.size == len_of(value) and memcmp(text.at, data_of(value), text.size) == 0
